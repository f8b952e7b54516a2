"""The servers that the cases run against: each starts, restarts and stops."""

import fcntl
import json
import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import kerberos
import machine
import stores

REPOSITORY = machine.HERE.parent.parent
START_LIMIT = 120.0


class ServerError(Exception):
    """The server did not start, or went away."""


def only(order, *orders):
    """Servers on this machine can do little: they have no device to lose."""
    if order not in orders:
        raise ServerError(f"cannot {order} here")


def environment(prefix, host, ports, export):
    """Variables that tell a program where a server is."""
    told = {f"{prefix}_{name}": f"{host}:{ports[name.lower() + '_port']}"
            for name in ("RDMA", "NFS", "MOUNT")}
    return {**told, f"{prefix}_EXPORT": export}


class Given:
    """A server that somebody else runs."""

    can_be_killed = False

    def __init__(self, host, rdma_port, mount_port, nfs_port, restart_command=None):
        self.host = host
        self.rdma_port = rdma_port
        self.mount_port = mount_port
        self.nfs_port = nfs_port
        self._restart_command = restart_command
        self.can_restart = restart_command is not None

    def start(self):
        """Nothing to start."""

    def obey(self, order):
        """Runs the command that was given for its restart."""
        only(order, "restart")
        subprocess.run(self._restart_command, shell=True, check=True)
        return {}

    def problem(self):
        """What went wrong with the server by itself: unknown here."""
        return None

    def said(self):
        """Its log is elsewhere."""
        return ""

    def stop(self):
        """Nothing to stop."""


class ServiceManager:
    """Keeps the listening sockets of a service for its next process, as systemd does."""

    # Above the numbers that the next process gets them by.
    _LOWEST = 64

    def __init__(self):
        self._kept = []
        self._socket = None
        self.is_ready = False

    def open(self, path):
        """Receives what the service tells, at this path."""
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._socket.setblocking(False)

    def spawn(self, command, log):
        """Starts a process of the service, with the sockets of the one before it."""
        places = "".join(f" {3 + number}<&{file}" for number, file in enumerate(self._kept))
        place = f'exec{places}; LISTEN_PID=$$ LISTEN_FDS={len(self._kept)} exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", place, "bash", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            pass_fds=self._kept, env=dict(os.environ, NOTIFY_SOCKET=self._path),
        )
        for file in self._kept:
            os.close(file)
        self._kept, self.is_ready = [], False
        return process

    def listen(self):
        """Takes what the service has told."""
        while True:
            try:
                words, files, _, _ = socket.recv_fds(self._socket, 4096, 16)
            except BlockingIOError:
                return
            words = words.splitlines()
            self.is_ready |= b"READY=1" in words
            for file in files:
                if b"FDSTORE=1" in words:
                    self._kept.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, self._LOWEST))
                # That of a barrier (sd_notify_barrier(3)) is only closed.
                os.close(file)

    def close(self):
        """Closes what is kept."""
        for file in self._kept:
            os.close(file)
        if self._socket:
            self._socket.close()


class Millraced:
    """Our own service on loopback ports, with memory stores or others."""

    host = "127.0.0.1"
    can_restart = True
    # The token of its management plane, if changes may be made there.
    token_file = None

    def __init__(self, program, folder, *, store=None, rdma_port=None, mount_port=None,
                 realm=None, security="sys", more=()):
        self._store = store or stores.Memory()
        # Further lines of the configuration.
        self._more = list(more)
        self.realm = realm
        self._security = security
        self.can_be_killed = self._store.survives
        self.rdma_port = rdma_port or machine.free_port()
        self.mount_port = self.nfs_port = mount_port or machine.free_port()
        self._admin_port = machine.free_port()
        self._program = program
        self._folder = Path(folder)
        self._configuration = self._folder / "millraced.yaml"
        self.log = self._folder / "millraced.log"
        self._manager = ServiceManager()
        self._process = None

    @staticmethod
    def build(*features):
        """Builds the service and returns the path of the program."""
        done = subprocess.run(
            ["cargo", "build", "--release", "--package", "millrace", "--bin", "millraced",
             "--features", ",".join(features), "--message-format", "json-render-diagnostics"],
            cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True,
        )
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable") and message["target"]["name"] == "millraced":
                return Path(message["executable"])
        raise ServerError("cargo built no millraced")

    def _write_configuration(self):
        exports = [("/scratch", "512MiB", "rw", "none"), ("/readonly", "64MiB", "ro", "none"),
                   ("/squashed", "64MiB", "rw", "root")]
        domain = kerberos.DOMAIN if self.realm else ""
        token = f", token_file: '{self.token_file}'" if self.token_file else ""
        lines = [
            "reactors: { cores: auto, poll: adaptive }",
            "mempool: { hugepages: off, size: 256MiB }",
            f"fabric: [{{ provider: iwarp, listen: '127.0.0.1:{self.rdma_port}' }}]",
            f"rpc: {{ listen: '127.0.0.1:{self.mount_port}', rpcbind: off }}",
            f"admin: {{ listen: '127.0.0.1:{self._admin_port}'{token} }}",
            # Keeps the secret of the file handles: a mount outlives the service.
            f"state_directory: '{self._folder / 'state'}'",
            f"nfs4: {{ minor_versions: [1, 2], domain: '{domain}' }}",
            # Not in force for folders of the root file system; see the server's log.
            "hardening: { landlock: on }",
            "log: info",
            "exports:",
        ]
        security = f", security: [{self._security}]" if self.realm else ""
        for path, size, access, squash in exports:
            lines.append(f"  - {{ path: {path}, store: {self._store.text(path, size)}, "
                         f"clients: ['127.0.0.0/8'], access: {access}, squash: {squash}"
                         f"{security} }}")
        if self.realm:
            lines.append(self.realm.settings())
        lines += self._more
        self._configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self):
        """Starts the service and waits until it is ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._configuration.exists():
            self._manager.open(self._folder / "notify")
            self._store.open()
            if self.realm:
                self.realm.start()
            self._write_configuration()
        with open(self.log, "ab") as log:
            command = [str(self._program), "--config", str(self._configuration)]
            self._process = self._manager.spawn(command, log)
        limit = time.monotonic() + START_LIMIT
        while not self._manager.is_ready:
            if self.problem() or time.monotonic() > limit:
                raise ServerError(f"millraced did not start: {self.problem()}\n{self.tail()}")
            time.sleep(0.1)
            self._manager.listen()

    def tail(self, lines=40):
        """The last lines of the service's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def said(self):
        """What a failure of a client may be explained by."""
        return self.tail()

    def problem(self):
        """How the service ended, if it ended by itself."""
        status = self._process.poll() if self._process else None
        return None if status is None else f"millraced ended with status {status}\n{self.tail()}"

    def obey(self, order):
        """Ends the service, in order or not, and starts it again."""
        if self.realm and order in kerberos.ORDERS:
            return self.realm.obey(order)
        if order == "gss":
            return self._gss()
        only(order, "restart", "kill")
        if order == "kill":
            self._process.kill()
            self._process.wait()
        self._end()
        self.start()
        return {}

    def leave(self, in_order):
        """Ends the service, which will be started again at other ports."""
        if not in_order:
            self._process.kill()
            self._process.wait()
        self._end()
        self._manager.close()
        self._manager = ServiceManager()
        (self._folder / "notify").unlink()
        self._configuration.unlink()
        self.rdma_port, self.mount_port = machine.free_port(), machine.free_port()

    def ask(self, method, path, body=None, **headers):
        """The answer of the management plane to a request, as JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._admin_port}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ServerError(f"{method} {path}: {error}: {error.read().decode()}") from None

    def counters(self):
        """The metrics of the service by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin_port}/metrics",
                                    timeout=60) as page:
            lines = (line.rpartition(" ") for line in page.read().decode().splitlines()
                     if not line.startswith("#"))
            return {name: float(value) for name, _, value in lines}

    def _gss(self):
        """What the service counted of Kerberos, and its log."""
        counters = self.counters().items()
        return {"counters": {name: value for name, value in counters
                             if name.startswith("millrace_gss_")},
                "log": self.tail(400)}

    def stop(self):
        """Ends the service and removes what it kept."""
        try:
            self._end()
        finally:
            self._manager.close()
            if self.realm:
                self.realm.stop()
            self._store.close()

    def _end(self):
        """Ends the service as an operator would, by force if it does not."""
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise ServerError("millraced did not end within 30 s of SIGTERM") from None
            self._manager.listen()
        self._process = None


class Gateways:
    """Two of our services with the same files, on the same folders: one serves, and at each restart
    the other one takes its place and its addresses."""

    host = "127.0.0.1"
    can_restart = True
    realm = None

    def __init__(self, program, folder, store, *, rdma_port=None):
        self.rdma_port = rdma_port or machine.free_port()
        self.mount_port = self.nfs_port = machine.free_port()
        # Locks in folders of the host end with the process.
        self.can_be_killed = store.keeps_locks
        self._is_fenced = not store.keeps_locks
        self._folder = Path(folder)
        self._store = stores.Shared(store)
        self._token = secrets.token_hex(16)
        self._secrets = ()
        ports = [{"rdma_port": self.rdma_port, "mount_port": self.mount_port}, {}]
        self._members = [
            (name, Millraced(program, self._folder / name, store=self._store,
                             more=self._settings(name), **own))
            for name, own in zip("ab", ports)]

    def _settings(self, name):
        return [f"handle_secret: '{self._folder / 'handle-secret'}'",
                f"gateways: {{ name: {name}, directory: '{self._folder / 'gateways'}', "
                "shared_replies: on }"]

    def start(self):
        """Starts both."""
        (self._folder / "gateways").mkdir(parents=True)
        for file in ("handle-secret", "token"):
            (self._folder / file).touch(mode=0o600)
        self._set_secrets(secrets.token_hex(16))
        (self._folder / "token").write_text(self._token, "utf-8")
        for _, member in self._members:
            member.token_file = self._folder / "token"
            member.start()

    def _set_secrets(self, *secrets_of_handles):
        self._secrets = secrets_of_handles
        (self._folder / "handle-secret").write_text("\n".join(secrets_of_handles), "utf-8")

    def obey(self, order):
        """Has the other one take the place of the one that serves, which ends, in order or not; or
        replaces the secret of file handles step by step, which each takes note of when it starts."""
        only(order, "restart", "kill", "announce", "use", "drop", "secrets")
        if order == "announce":
            self._set_secrets(*self._secrets, secrets.token_hex(16))
            return {}
        if order == "use":
            self._set_secrets(*reversed(self._secrets))
            return {}
        if order == "drop":
            self._set_secrets(self._secrets[0])
            return {}
        if order == "secrets":
            _, serving = self._members[0]
            return {"old": serving.counters()["millrace_handles_of_other_secrets_total"]}
        (name, gone), (_, other) = self._members
        gone.leave(order == "restart")
        allowed = {"Authorization": f"Bearer {self._token}"}
        fenced = str(self._is_fenced).lower()
        taken = other.ask("POST", f"/api/v1/gateways/{name}/take-over?fenced={fenced}", **allowed)
        if not taken["may_reclaim"]:
            raise ServerError("clients may not reclaim at the other gateway")
        # As if the address moved.
        other.ask("PATCH", "/api/v1/config", {
            "rpc": {"listen": f"127.0.0.1:{self.mount_port}"},
            "fabric": [{"provider": "iwarp", "listen": f"127.0.0.1:{self.rdma_port}"}],
        }, **allowed, **{"Content-Type": "application/merge-patch+json", "If-Match": "*"})
        gone.start()
        self._members.reverse()
        return {}

    def problem(self):
        """How one of them ended, if it ended by itself."""
        return next(filter(None, (member.problem() for _, member in self._members)), None)

    def said(self):
        """The ends of both logs."""
        return "\n".join(f"gateway {name}:\n{member.tail()}" for name, member in self._members)

    def stop(self):
        """Ends both and removes what they kept."""
        for _, member in self._members:
            member.stop()
        self._store.finish()


class Knfsd:
    """Linux's own server in a guest of its own, behind ports of the loopback interface."""

    host = "127.0.0.1"
    export = "/scratch"
    can_restart = True
    can_be_killed = False

    def __init__(self, images, folder, *, rdma_port=None, nfs_port=None, mount_port=None,
                 processors=1, capture=None):
        self.rdma_port = rdma_port or machine.free_port()
        self.nfs_port = nfs_port or machine.free_port()
        self.mount_port = mount_port or machine.free_port()
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._disk = self._folder / "scratch.ext4"
        self.guest = machine.Guest(
            images, folder, "server", {"servers": ["knfsd"], "disk": True}, memory=1024,
            processors=processors,
            forwards=[(self.rdma_port, 20049), (self.nfs_port, 2049), (self.mount_port, 20048)],
            scratch=self._disk, capture=capture,
        )

    def start(self):
        """Boots the guest and waits until it serves."""
        with open(self._disk, "wb") as file:
            file.truncate(2 << 30)
        environment = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(self._disk)], check=True,
                       env=environment)
        self.guest.boot()

    def obey(self, order):
        """Stops and starts the server's threads and listeners in the guest."""
        only(order, "restart")
        return self.guest.do(order)

    def said(self):
        """What the machine's console shows; the server itself writes no log."""
        return self.guest.tail()

    def problem(self):
        """Whether the machine ended by itself."""
        return None if self.guest.alive() else f"the server's guest ended\n{self.guest.tail()}"

    def stop(self):
        """Ends the machine: its disk is thrown away."""
        self.guest.stop()
