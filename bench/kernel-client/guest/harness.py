"""What the cases stand on: mounts, checks, content that can be told apart."""

import hashlib
import os
import signal
import subprocess
import time
import traceback

CASES = []

# A case that has not ended by then is stuck. The emulator is slow, and the
# client waits up to half a minute before it connects again.
CASE_LIMIT = 400.0


class Failure(Exception):
    """A check did not hold."""


def case(function=None, *, shared=False, needs=None):
    """Registers a function as a case of the function's name.

    A case gets a fresh folder on the mount, which it must leave removable; a
    `shared` case is about the mount itself and has none. A case that
    `needs` something runs only where there is it."""

    def register(body):
        CASES.append(Case(body.__name__, body, shared, needs))
        return body

    return register(function) if function else register


class Case:
    def __init__(self, name, body, shared=False, needs=None):
        self.name = name
        self.body = body
        self.shared = shared
        self.needs = needs


def check(holds, what):
    """Fails with `what` unless it holds."""
    if not holds:
        raise Failure(what)


def equal(actual, expected, what):
    """Fails unless both are the same."""
    if actual != expected:
        raise Failure(f"{what}: expected {expected!r}, got {actual!r}")


def fails(number, what, function, *arguments, **keywords):
    """The call must fail with this error number, or one of these."""
    numbers = number if isinstance(number, tuple) else (number,)
    names = "/".join(os.strerror(one) for one in numbers)
    try:
        result = function(*arguments, **keywords)
    except OSError as error:
        if error.errno in numbers:
            return
        raise Failure(f"{what}: expected `{names}`, got `{error.strerror}`") from error
    raise Failure(f"{what}: expected `{names}`, but it succeeded with {result!r}")


def content(name, size):
    """Bytes that differ at every place and for every name."""
    return hashlib.shake_128(name.encode()).digest(size)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def equal_content(actual, expected, what):
    """Compares by hash, and tells where the first difference is."""
    if len(actual) == len(expected) and digest(actual) == digest(expected):
        return
    common = min(len(actual), len(expected))
    place = next((at for at in range(common) if actual[at] != expected[at]), common)
    wrong = sum(1 for at in range(place, min(common, place + 65536)) if actual[at] != expected[at])
    raise Failure(
        f"{what}: expected {len(expected)} bytes with hash {digest(expected)[:16]}, got "
        f"{len(actual)} bytes with hash {digest(actual)[:16]}; first difference at {place} "
        f"(expected {expected[place:place + 8].hex()}, got {actual[place:place + 8].hex()}), "
        f"{wrong} bytes differ in the 64 KiB from there"
    )


def drop_caches():
    """Forgets clean pages, directory entries and attributes."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")


def command(*words, limit=CASE_LIMIT):
    """Runs a command that must succeed and returns what it printed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=limit, check=False)
    if done.returncode:
        raise Failure(f"`{' '.join(words)}` ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


class Mount:
    """One export of the server, mounted."""

    def __init__(self, server, path, point, transport=None, extra=()):
        self.server = server
        self.path = path
        self.point = point
        self.transport = transport or server.get("transport", "rdma")
        self._extra = extra

    def options(self):
        port = self.server["rdma_port"] if self.transport == "rdma" else self.server["nfs_port"]
        version = self.server.get("nfs", "3")
        security = [f"sec={self.server['security']}"] if "security" in self.server else []
        if version == "default" and self.transport == "rdma":
            # Nothing else, as most people mount it.
            return ",".join(["rdma", *security, *self._extra])
        version = self.version()
        options = [f"vers={version},proto={self.transport},port={port},retry=0", *security]
        if version == "3":
            mount_port = self.server["mount_port"]
            options.append(f"nolock,mountproto=tcp,mountvers=3,mountport={mount_port}")
        return ",".join([*options, *self._extra])

    def version(self):
        """The version of NFS that the mount has to have."""
        version = self.server.get("nfs", "3")
        return "4.2" if version == "default" else version

    def mount(self):
        os.makedirs(self.point, exist_ok=True)
        source = f"{self.server['host']}:{self.path}"
        for tries in reversed(range(self.server.get("mount_tries", 1))):
            try:
                command("mount.nfs", source, self.point, "-o", self.options())
                return
            except Failure as failure:
                if tries == 0 or "mount system call failed" not in str(failure):
                    raise

    def unmount(self):
        # What a case left to the kernel (files being removed) may take a moment.
        for _ in range(50):
            done = subprocess.run(["umount", self.point], stderr=subprocess.PIPE, text=True,
                                  check=False)
            if done.returncode == 0 or "busy" not in done.stderr:
                break
            time.sleep(0.2)
        equal(done.returncode, 0, f"umount {self.point}: {done.stderr.strip()}")

    def shown(self):
        """The kernel's own idea of the mount options."""
        with open("/proc/mounts", encoding="utf-8") as table:
            for line in table:
                fields = line.split()
                if fields[1] == self.point:
                    return fields[3].split(",")
        raise Failure(f"{self.point} is not mounted")

    def transports(self):
        """The counters of each connection, by the kernel's names for them. TCP has those up to bad_xids."""
        names = (
            "port bind_count connect_count connect_time idle_time sends receives bad_xids "
            "requests_used backlog read_chunks write_chunks reply_chunks request_bytes "
            "reply_bytes pulled_up fixed_up hardway_registrations failed_marshals bad_replies "
            "nomsg_calls"
        ).split()
        kept = names if self.transport == "rdma" else names[:8]
        found = [dict(zip(kept, map(int, fields[2:]))) for fields in self.statistics()
                 if fields[:2] == ["xprt:", self.transport]]
        if not found:
            raise Failure(f"{self.point} has no transport {self.transport}")
        return found

    def statistics(self):
        """The lines of this mount in the kernel's statistics, as lists of words."""
        inside = False
        found = []
        with open("/proc/self/mountstats", encoding="utf-8") as table:
            for line in table:
                if line.startswith("device "):
                    inside = f" mounted on {self.point} " in line
                elif inside:
                    found.append(line.split())
        return found

    def moved(self):
        """Bytes that the client has read from the server and written there."""
        told = next(fields for fields in self.statistics() if fields[:1] == ["bytes:"])
        return int(told[5]) + int(told[6])

    def counters(self):
        """The counters of the first connection."""
        return self.transports()[0]


class Context:
    """What a case is given."""

    def __init__(self, mounted, control, parameters):
        self.mounted = mounted
        self.control = control
        self.parameters = parameters
        # Tells apart clients that work on one export at the same time.
        self.number = parameters["number"]
        self.root = mounted.point
        self.folder = None

    def path(self, *names):
        return os.path.join(self.folder or self.root, *names)

    def fresh(self, path):
        """The attributes as the server has them, not as the client remembers them."""
        drop_caches()
        return os.lstat(path)

    def write(self, path, data, flags=0):
        """Writes a new file through to the server."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o644)
        try:
            view = memoryview(data)
            at = 0
            while at < len(view):
                at += os.write(file, view[at : at + (1 << 20)])
            os.fsync(file)
        finally:
            os.close(file)

    def read(self, path, flags=0, step=1 << 20):
        """Reads a whole file from the server."""
        drop_caches()
        file = os.open(path, os.O_RDONLY | flags)
        try:
            parts = []
            while part := os.read(file, step):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(file)

    def stored(self, path):
        """Called by a case between writing and verifying. The self-test breaks
        what was written here, behind the case's back."""
        if not self.parameters.get("sabotage"):
            return
        if os.path.isdir(path):
            victim = next(iter(os.listdir(path)))
            os.rename(os.path.join(path, victim), os.path.join(path, victim + "~"))
            return
        size = os.lstat(path).st_size
        file = os.open(path, os.O_RDWR)
        try:
            if size:
                byte = os.pread(file, 1, size // 2)
                os.pwrite(file, bytes([byte[0] ^ 1]), size // 2)
            else:
                os.pwrite(file, b"?", 0)
            os.fsync(file)
        finally:
            os.close(file)

    def verify(self, path, expected, what="content", flags=0, step=1 << 20):
        """The server must hold these bytes."""
        self.stored(path)
        equal(self.fresh(path).st_size, len(expected), f"{what}: size")
        equal_content(self.read(path, flags, step), expected, what)

    def in_child(self, body):
        """Runs the body in a process of its own, so that it may become
        another user; its failure is this case's failure."""
        self.in_children([body])

    def in_children(self, bodies):
        """The same with several bodies at once."""
        children = []
        for body in bodies:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                os.write(writer, outcome(body).encode()[:4000])
                os._exit(0)
            os.close(writer)
            children.append((child, reader))
        wrong = []
        for child, reader in children:
            with os.fdopen(reader, "rb") as report:
                text = report.read().decode(errors="replace")
            os.waitpid(child, 0)
            if text != "ok":
                wrong.append(text or "the process died")
        check(not wrong, "\n".join(wrong))


def outcome(body):
    """Runs the body; `ok`, or what was wrong."""
    try:
        body()
    except Failure as failure:
        return str(failure)
    except BaseException:  # a case may fail in any way
        return traceback.format_exc(limit=-3).strip()
    return "ok"


def run_isolated(body, limit=CASE_LIMIT):
    """The outcome of the body in a process of its own, ended at the limit."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        os.write(writer, outcome(body).encode()[:8000])
        os._exit(0)
    os.close(writer)
    os.set_blocking(reader, False)
    text = b""
    end = time.monotonic() + limit
    while True:
        done, _ = os.waitpid(child, os.WNOHANG)
        try:
            text += os.read(reader, 65536)
        except BlockingIOError:
            pass
        if done:
            break
        if time.monotonic() > end:
            stack = where(child)
            os.killpg(child, signal.SIGKILL)
            text = f"still not done after {limit:.0f} s{stack}".encode()
            break
        time.sleep(0.01)
    os.close(reader)
    return text.decode(errors="replace") or "the process died"


def where(session):
    """Where in the kernel the processes of a session are stuck."""
    found = ""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(entry)) != session:
                continue
            with open(f"/proc/{entry}/comm", encoding="ascii", errors="replace") as file:
                name = file.read().strip()
            with open(f"/proc/{entry}/stack", encoding="ascii") as file:
                found += f"\n{name} in the kernel at: {', '.join(one.split()[-1] for one in file)}"
        except OSError:  # it has ended
            pass
    return found
