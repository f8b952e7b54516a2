"""Boots a guest from the prepared images and speaks with the program in it."""

import io
import json
import os
import selectors
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The emulator can be twenty times slower than the machine it runs on, more on
# a busy one. The limits only end what would never end.
BOOT_LIMIT = 900.0


class GuestError(Exception):
    """The guest did not do what it had to."""


def prepare_images(kernel=None):
    """Builds the images unless they are there, and says where they are."""
    command = [str(HERE / "prepare")]
    if kernel:
        command += ["--kernel", kernel]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip().splitlines()[-1])


# Bound as long as this program runs: no other program is given their ports, and those that name them
# may listen there.
_reserved = []


def free_port():
    """A TCP port of the loopback interface that nobody listens on, for servers that set SO_REUSEADDR."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    _reserved.append(probe)
    return probe.getsockname()[1]


def free_segment():
    """A network that guests can share: a multicast group that stays on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"230.0.0.1:{probe.getsockname()[1]}"


def segment_address(number):
    """The address of the guest of this number there."""
    return f"10.9.0.{number}"


def accepts_connections(port, host="127.0.0.1"):
    """Whether something listens on the port."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def without_debug_information(file, copy):
    """The path of a copy without it if the file is a program, else the file's own.

    It can be nine tenths of a program, and the guest's disk is small."""
    with open(file, "rb") as opened:
        if opened.read(4) != b"\x7fELF":
            return file
    subprocess.run(["objcopy", "--strip-debug", str(file), copy], check=True)
    os.chmod(copy, os.stat(file).st_mode)
    return copy


def write_payload(path, parameters, files=()):
    """The guest's programs and their parameters, as the guest unpacks them.

    `files` are paths here, or pairs of one and another name; they are found in
    /payload/files there."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted((HERE / "guest").iterdir()):
            if file.is_file():
                archive.add(file, arcname=file.name)
        for file in files:
            file, name = file if isinstance(file, tuple) else (file, Path(file).name)
            with tempfile.NamedTemporaryFile() as small:
                archive.add(without_debug_information(file, small.name),
                            arcname=f"files/{name}")
        text = json.dumps(parameters).encode()
        entry = tarfile.TarInfo("parameters.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))


class Guest:
    """One virtual machine. The folder holds its disks, sockets and console.

    `devices` are the software RDMA devices it makes, each KIND:NETDEV with siw
    or rxe for a kind; `files` are brought along, and found in /payload/files.
    A `scratch` disk is a file here; `cache` says how qemu treats it. With a `segment` and a `number` it is 10.9.0.NUMBER there, on eth1."""

    def __init__(self, images, folder, program, parameters, *, forwards=(), memory=1024,
                 processors=2, scratch=None, capture=None, devices=("siw:eth0",), hugepages=0,
                 files=(), segment=None, number=0, cache="unsafe"):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.console = self.folder / "console.log"
        self._images = images
        self._program = program
        self._parameters = parameters
        self._forwards = forwards
        self._memory = memory
        self._processors = processors
        self._scratch = scratch
        self._cache = cache
        self._capture = capture
        self._devices = devices
        self._hugepages = hugepages
        self._files = files
        self._segment = segment
        self.number = number
        self._process = None
        self._control = None
        self._received = b""

    def _command(self):
        payload = self.folder / "payload.tar"
        write_payload(payload, self._parameters, self._files)
        network = "user,id=net0" + "".join(
            f",hostfwd=tcp:127.0.0.1:{outside}-10.0.2.15:{inside}"
            for outside, inside in self._forwards
        )
        disks = [f"file={self._images / 'root.ext4'},format=raw,if=virtio,snapshot=on"]
        disks.append(f"file={payload},format=raw,if=virtio,readonly=on")
        if self._scratch:
            disks.append(f"file={self._scratch},format=raw,if=virtio,cache={self._cache}")
        command = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"]
        # Only when asked for: nested virtualisation is often there and does not work.
        if os.environ.get("MILLRACE_GUEST_KVM") == "1":
            command += ["-accel", "kvm", "-cpu", "host"]
        else:
            # Without CMPXCHG16B: an interrupt at that instruction can leave the guest with wrong
            # flags, and its kernel panics.
            command += ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off,cx16=off"]
        command += ["-smp", str(self._processors), "-m", str(self._memory)]
        boot = {"program": self._program, "devices": ",".join(self._devices),
                "hugepages": self._hugepages}
        if self._segment:
            boot["addresses"] = f"{segment_address(self.number)}/24"
        command += ["-kernel", str(self._images / "vmlinuz")]
        command += ["-initrd", str(self._images / "initramfs")]
        # The kernel's test of its timer gives an emulator on a busy machine too little time.
        command += ["-append", "console=ttyS0 panic=-1 quiet net.ifnames=0 mitigations=off "
                    "no_timer_check apparmor=0 audit=0 "
                    + " ".join(f"millrace.{key}={value}" for key, value in boot.items())]
        command += ["-netdev", network, "-device", "virtio-net-pci,netdev=net0,romfile="]
        if self._segment:
            command += ["-netdev", f"socket,id=net1,mcast={self._segment},localaddr=127.0.0.1"]
            command += ["-device", "virtio-net-pci,netdev=net1,romfile=,"
                        f"mac=52:54:00:09:00:{self.number:02x}"]
        command += ["-device", "virtio-rng-pci"]
        for disk in disks:
            command += ["-drive", disk]
        control = self.folder / "control"
        command += ["-chardev", f"file,id=console,path={self.console}"]
        command += ["-chardev", f"socket,id=control,path={control},server=on,wait=on"]
        command += ["-serial", "chardev:console", "-serial", "chardev:control"]
        if self._capture:
            netdev = "net1" if self._segment else "net0"
            command += ["-object", f"filter-dump,id=dump0,netdev={netdev},file={self._capture}"]
        return command

    def start(self):
        """Starts the emulator and connects to the guest's control line."""
        with open(self.folder / "qemu.log", "wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._control = socket.socket(socket.AF_UNIX)
        limit = time.monotonic() + 60
        while True:
            try:
                self._control.connect(str(self.folder / "control"))
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > limit:
                    said = self.tail("qemu.log")
                    raise GuestError(f"the emulator did not start:\n{said}") from error
                time.sleep(0.05)

    def tail(self, name="console.log", lines=40):
        """The last lines of one of the guest's logs."""
        try:
            text = (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return f"(no {name})"
        return "\n".join(text.splitlines()[-lines:])

    def send(self, **message):
        """Sends a message to the program in the guest."""
        self._control.sendall((json.dumps(message) + "\n").encode())

    def receive(self, limit):
        """The guest's next message, or None when the guest is gone.

        Raises GuestError after `limit` seconds without one."""
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while b"\n" not in self._received:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise GuestError(f"no word from the guest for {limit:.0f} seconds")
                data = self._control.recv(65536)
                if not data:
                    return None
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise GuestError(f"not a message: {line!r}") from error

    def expect(self, event, limit):
        """Waits for this event and fails on any other."""
        return self._expected(event, self.receive(limit))

    def _expected(self, event, message):
        if not message or message["event"] != event:
            detail = message.get("detail", message) if message else "the guest ended"
            raise GuestError(f"expected `{event}`: {detail}\n{self.tail()}")
        return message

    def begin(self):
        """Starts the machine; returns the first message of its program, or None if it ended before.

        The emulator patches the guest's code while another processor runs it, so that a kernel
        panics now and then while it boots: it is started once more then."""
        self.start()
        message = self.receive(BOOT_LIMIT)
        if message is None and "Kernel panic" in self.tail():
            print("note: the guest's kernel panicked while it booted: it is started once more",
                  file=sys.stderr, flush=True)
            self.stop()
            self._received = b""
            self.start()
            message = self.receive(BOOT_LIMIT)
        return message

    def boot(self):
        """Starts the machine and waits until its program is ready."""
        return self._expected("done", self.begin())

    def do(self, order):
        """Has the program in the guest do something and waits for the end of it."""
        self.send(do=order)
        return self.expect("done", BOOT_LIMIT)

    def alive(self):
        """Whether the machine is still running."""
        return self._process is not None and self._process.poll() is None

    def wait(self, limit):
        """Waits for the machine to power off by itself."""
        self._process.wait(limit)

    def cut(self):
        """Ends the machine as a power cut does: nothing that it has not written is left."""
        self._process.kill()
        self._process.wait()
        self._control.close()

    def stop(self):
        """Ends the machine at once."""
        if self._control:
            self._control.close()
        if self.alive():
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
