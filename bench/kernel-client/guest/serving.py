"""The NFS servers that a guest can run: Linux's own, and millraced."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

import realm

FILES = "/payload/files"

# Linux's listens on its own three ports, ours beside them where both run.
KNFSD_PORTS = {"rdma_port": 20049, "nfs_port": 2049, "mount_port": 20048}
MILLRACED_PORTS = {"rdma_port": 20050, "nfs_port": 2050, "mount_port": 2050}
NFS_PORT = 2049
ADMIN_PORT = 9620
TOKEN_FILE, TOKEN = "/run/token", "token-of-the-guests-cases"
THREADS = 8
# An address on the segment beside the server's own.
SECOND_ADDRESS = "10.9.0.101"

# Only ends what would never end.
START_LIMIT = 200.0
STOP_LIMIT = 120.0

STORE = "/run/store"
DISK = "/dev/vdc"
EXPORTS = {"/scratch": "no_root_squash", "/readonly": "no_root_squash",
           "/squashed": "root_squash,anonuid=65534,anongid=65534"}


class ServerError(Exception):
    """The server did not do what it had to."""


def private(path, flags):
    """Opens a file that only its owner reads."""
    return os.open(path, flags, 0o600)


def call(*command):
    """Runs a command that must succeed."""
    print("server:", *command, flush=True)
    subprocess.run(command, check=True)


class Knfsd:
    """Linux's own server. Its exports are folders of the guest's memory, or of
    an ext4 file system on the scratch disk."""

    ports = KNFSD_PORTS

    def __init__(self, parameters):
        self._disk = parameters.get("disk", False)
        self._kerberos = parameters.get("kerberos")

    def start(self):
        is_new = not os.path.ismount("/proc/fs/nfsd")
        if is_new:
            self._prepare()
        # Port 2049 of another address is our service's, where both run.
        only = ["-H", self._kerberos["address"]] if self._kerberos else []
        call("rpc.nfsd", *only, f"--rdma={self.ports['rdma_port']}", str(THREADS))
        if is_new:
            # Nobody has anything to reclaim.
            with open("/proc/fs/nfsd/v4_end_grace", "w", encoding="ascii") as grace:
                grace.write("Y")

    def _prepare(self):
        call("modprobe", "nfsd")
        # The lock manager of version 3 has a grace period of its own, without delegations.
        for name, seconds in (("nlm_timeout", 3), ("nlm_grace_period", 3)):
            with open(f"/proc/sys/fs/nfs/{name}", "w", encoding="ascii") as setting:
                setting.write(str(seconds))
        os.makedirs(STORE, exist_ok=True)
        security = ""
        if self._kerberos:
            security = f",sec={self._kerberos['security']}"
            realm.serve_contexts(self._kerberos)
        if self._disk:
            call("mount", "-t", "ext4", "-o", "noatime", DISK, STORE)
        else:
            call("mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", STORE)
        call("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        with open("/etc/exports", "w", encoding="utf-8") as table:
            for number, (path, squash) in enumerate(EXPORTS.items(), start=1):
                folder = STORE + path
                os.makedirs(folder)
                os.chmod(folder, 0o1777)
                os.makedirs(path, exist_ok=True)
                call("mount", "--bind", folder, path)
                access = "ro" if path == "/readonly" else "rw"
                table.write(f"{path} *({access},{squash},insecure,no_subtree_check,"
                            f"fsid={number}{security})\n")
        os.makedirs("/run/rpcbind", exist_ok=True)
        call("rpcbind", "-w")
        call("exportfs", "-ra")
        call("rpc.mountd", "--port", str(self.ports["mount_port"]))

    def stop(self):
        """What a client sees as a server that went away."""
        call("rpc.nfsd", "0")

    def problem(self):
        """How it ended by itself: it does not."""
        return None

    def tail(self, lines=40):
        """It writes no log."""
        return ""


class Millraced:
    """Ours, over the verbs provider or over software iWARP. Its stores are in memory, or folders
    of the file system on the scratch disk, with its state beside them."""

    ports = MILLRACED_PORTS

    def __init__(self, parameters):
        self._provider = parameters["provider"]
        self._address = parameters["address"]
        self._rdma_port = parameters["rdma_port"]
        self._disk = parameters.get("disk")
        self._keys = parameters.get("store_keys", [])
        self._kerberos = parameters.get("kerberos")
        self._rpc_address = "0.0.0.0"
        if self._kerberos and "knfsd" in parameters["servers"]:
            self._rpc_address = SECOND_ADDRESS
        if self._kerberos:
            # rpc.gssd makes contexts at no other port, and Linux's server has it at the first address.
            self.ports = self.ports | {"nfs_port": NFS_PORT, "mount_port": NFS_PORT}
        self._process = None
        self._log = "/run/millraced.log"
        self._configuration = "/run/millraced.yaml"

    def _configure(self):
        ports, kerberos = self.ports, self._kerberos
        security = f", security: [{kerberos['security']}]" if kerberos else ""
        lines = [
            "reactors: { cores: auto, poll: adaptive }",
            "mempool: { hugepages: off, size: 256MiB }",
            f"fabric: [{{ provider: {self._provider}, "
            f"listen: '{self._address}:{self._rdma_port}' }}]",
            f"rpc: {{ listen: '{self._rpc_address}:{ports['mount_port']}', rpcbind: off }}",
            f"admin: {{ listen: '127.0.0.1:{ADMIN_PORT}', token_file: {TOKEN_FILE} }}",
            # Short, as a case waits for the end of one.
            "nfs4: { lease: 20s" + (f", domain: '{kerberos['domain']}'" if kerberos else "") + " }",
            # Keeps the secret of the file handles: a mount outlives the service.
            f"state_directory: '{STORE if self._disk else '/run'}/millraced'",
            "log: info",
            *([kerberos["settings"]] if kerberos else []),
            "exports:",
        ]
        for path, squash in EXPORTS.items():
            size = "768MiB" if path == "/scratch" else "64MiB"
            access = "ro" if path == "/readonly" else "rw"
            squash = "none" if squash.startswith("no_") else "root"
            store = f"{{ kind: memory, size: {size} }}"
            if self._disk:
                os.makedirs(STORE + path, exist_ok=True)
                os.chmod(STORE + path, 0o1777)
                more = "".join(f", {key}" for key in self._keys)
                store = f"{{ kind: posix, root: '{STORE}{path}'{more} }}"
            lines.append(f"  - {{ path: {path}, store: {store}, clients: ['0.0.0.0/0'], "
                         f"access: {access}, squash: {squash}{security} }}")
        with open(self._configuration, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        with open(TOKEN_FILE, "w", encoding="utf-8", opener=private) as file:
            file.write(TOKEN)

    def start(self):
        if self._disk and not os.path.ismount(STORE):
            os.makedirs(STORE, exist_ok=True)
            call("mount", "-t", self._disk, DISK, STORE)
        self._configure()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [f"{FILES}/millraced", "--config", self._configuration],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        limit = time.monotonic() + START_LIMIT
        while not self._is_ready():
            if self.problem() or time.monotonic() > limit:
                raise ServerError(f"millraced did not start: {self.problem()}\n{self.tail()}")
            time.sleep(0.2)

    @staticmethod
    def _is_ready():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN_PORT}/readyz", timeout=20):
                return True
        except (urllib.error.URLError, OSError):
            return False

    @staticmethod
    def ask(path, method="GET"):
        """Asks the service's admin plane, or orders a change."""
        request = urllib.request.Request(f"http://127.0.0.1:{ADMIN_PORT}{path}", method=method,
                                         headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as page:
            return page.read().decode()

    @classmethod
    def states(cls, kind):
        """The stateids of a kind that clients of version 4 have."""
        listed = json.loads(cls.ask(f"/api/v1/nfs4/states?kind={kind}"))
        return [state["stateid"] for state in listed["states"]]

    def stop(self):
        """Ends the service as an operator would; it must end in order."""
        if problem := self.problem():
            raise ServerError(problem)
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ServerError(f"millraced did not end at SIGTERM\n{self.tail()}") from None
        finally:
            self._process.wait()
        self._process = None
        if status:
            raise ServerError(f"millraced ended with status {status} at SIGTERM\n{self.tail()}")

    def problem(self):
        status = self._process.poll() if self._process else None
        return None if status is None else f"millraced ended with status {status}\n{self.tail()}"

    def tail(self, lines=40):
        """The last lines of the service's log."""
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-lines:])
        except OSError:
            return "(no log)"


KINDS = {"knfsd": Knfsd, "millraced": Millraced}


class Servers:
    """The servers of this guest, and the devices they stand on; obeys orders."""

    def __init__(self, parameters):
        self._devices = parameters.get("devices", [])
        if "kerberos" in parameters:
            realm.join(parameters["kerberos"])
            if len(parameters["servers"]) > 1:
                self._second_address()
        self._servers = {name: KINDS[name](parameters) for name in parameters["servers"]}

    def obey(self, order):
        """Carries out what was asked; what it found out."""
        return getattr(self, "_" + order)() or {}

    def _start(self):
        for server in self._servers.values():
            server.start()

    def _stop(self):
        for server in self._servers.values():
            server.stop()

    def _restart(self):
        self._stop()
        self._start()

    def _check(self):
        """Fails if a server ended by itself; tells what they said."""
        for server in self._servers.values():
            if problem := server.problem():
                raise ServerError(problem)
        return {"logs": {name: one.tail(4000) for name, one in self._servers.items()}}

    def _clients(self):
        """How many clients of version 4 our service knows."""
        name = "millrace_nfs4_clients "
        lines = Millraced.ask("/metrics").splitlines()
        return {"clients": int(next(line for line in lines if line.startswith(name)).split()[1])}

    def _gss(self):
        """What our service counted of Kerberos, and its log."""
        lines = (line.rpartition(" ") for line in Millraced.ask("/metrics").splitlines()
                 if line.startswith("millrace_gss_"))
        return {"counters": {name: float(value) for name, _, value in lines},
                "log": self._servers["millraced"].tail(400)}

    def _second_address(self):
        """Gives the machine one more address where clients reach it."""
        call("ip", "address", "add", f"{SECOND_ADDRESS}/24", "dev", self._devices[0][2])

    def _revoke(self):
        """Revokes all locks, as an administrator would."""
        locks = Millraced.states("lock")
        for stateid in locks:
            Millraced.ask(f"/api/v1/nfs4/states/{stateid}", "DELETE")
        return {"revoked": len(locks)}

    def _end_clients(self):
        """Ends all clients of version 4 by force, as an administrator would."""
        clients = json.loads(Millraced.ask("/api/v1/nfs4/clients"))["clients"]
        for client in clients:
            Millraced.ask(f"/api/v1/nfs4/clients/{client['id']}?force=true", "DELETE")
        return {"ended": len(clients)}

    def _revoked(self):
        """How much revoked state clients have not acknowledged."""
        return {"left": len(Millraced.states("revoked"))}

    def _unplug(self):
        """Takes the devices away, as pulling an adapter would."""
        for name, _, _ in self._devices:
            call("rdma", "link", "delete", name)
        return self._check()

    def _plug(self):
        """Brings the devices back."""
        for name, kind, netdev in self._devices:
            call("rdma", "link", "add", name, "type", kind, "netdev", netdev)
        return self._check()
