"""Measures the NFS servers that are installed on this machine, millraced among them, over TCP.

All serve a folder in memory (tmpfs) with one core each, in turns, in namespaces of their own (network
and mounts), so that neither the ports nor the port mapper of this machine are touched. The client
is this file: it sends the same calls to each, many at once, and counts the replies.
"""

import contextlib
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

NFS, MOUNT = 100003, 100005
GETATTR, READ, WRITE, CREATE, MNT = 1, 6, 7, 8, 1
# Name, procedure, bytes, calls at once.
LOADS = (("GETATTR", GETATTR, 0, 32), ("READ of 4 KiB", READ, 4096, 32), ("READ of 64 KiB", READ, 65536, 8),
         ("WRITE of 4 KiB", WRITE, 4096, 32))
FILE_BYTES = 4 << 20
SERVER_CORE, CLIENT_CORE = 0, 1
PEERS = {"nfs-ganesha": "ganesha.nfsd", "unfs3": "unfsd"}


def opaque(data):
    """Variable-length opaque data (RFC 4506 section 4.10)."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Connection:
    """RPC over one TCP connection, by AUTH_SYS as root."""

    def __init__(self, port, program):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        credential = struct.pack(">I", 0) + opaque(b"report") + struct.pack(">III", 0, 0, 0)
        self._head = struct.pack(">IIII", 0, 2, program, 3)
        self._credential = struct.pack(">I", 1) + opaque(credential) + bytes(8)
        self._xid, self._input = int(time.time()) << 8 & 0xFFFFFFFF, bytearray()

    def _message(self, procedure):
        """What stands before the arguments, behind the XID."""
        return self._head + struct.pack(">I", procedure) + self._credential

    def _send(self, rest):
        self._xid = (self._xid + 1) & 0xFFFFFFFF
        mark = 0x80000000 | (4 + len(rest))
        self._socket.sendall(struct.pack(">II", mark, self._xid) + rest)

    def _replies(self):
        """The replies that have come, at least one."""
        found, whole = [], b""
        while not found:
            data = self._socket.recv(1 << 20)
            if not data:
                raise OSError("the server closed the connection")
            self._input += data
            at = 0
            while len(self._input) >= at + 4:
                mark, = struct.unpack_from(">I", self._input, at)
                length = mark & 0x7FFFFFFF
                if len(self._input) < at + 4 + length:
                    break
                whole += self._input[at + 4:at + 4 + length]
                at += 4 + length
                if mark >> 31:
                    found.append(whole)
                    whole = b""
            del self._input[:at]
            if whole:
                raise OSError("a record in fragments that come apart")
        return found

    @staticmethod
    def _results(reply):
        """The results of an accepted call whose status is success, behind this status."""
        words = struct.unpack_from(">IIII", reply, 4)
        verifier = words[3] + -words[3] % 4
        accepted, status = struct.unpack_from(">II", reply, 20 + verifier)
        if words[:2] != (1, 0) or accepted or status:
            raise OSError(f"a call failed: {words}, {accepted}, {status}")
        return reply[28 + verifier:]

    def call(self, procedure, arguments):
        """One call."""
        self._send(self._message(procedure) + arguments)
        return self._results(self._replies()[0])

    def load(self, procedure, arguments, depth, seconds):
        """Keeps calls in flight: replies a second."""
        rest, done = self._message(procedure) + arguments, 0
        for _ in range(depth):
            self._send(rest)
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            replies = self._replies()
            self._results(replies[0])
            done += len(replies)
            for _ in replies:
                self._send(rest)
        return done / passed

    def close(self):
        """Ends it; replies in flight are lost."""
        self._socket.close()


def prepare(ports, path):
    """A file on a server, full of bytes: its handle."""
    mount = Connection(ports[1], MOUNT)
    reply = mount.call(MNT, opaque(path.encode()))
    mount.close()
    root = reply[4:4 + struct.unpack_from(">I", reply)[0]]
    connection = Connection(ports[0], NFS)
    attributes = struct.pack(">IIIIIII", 1, 0o644, 0, 0, 0, 0, 0)
    made = connection.call(CREATE, opaque(root) + opaque(b"file") + struct.pack(">I", 0) + attributes)
    length, = struct.unpack_from(">I", made, 4)
    handle = made[8:8 + length]
    for offset in range(0, FILE_BYTES, 65536):
        connection.call(WRITE, arguments_of(WRITE, handle, 65536, offset))
    connection.close()
    return handle


def arguments_of(procedure, handle, size, offset=0):
    """Of GETATTR, READ or WRITE (unstable)."""
    if procedure == READ:
        return opaque(handle) + struct.pack(">QI", offset, size)
    if procedure == WRITE:
        return opaque(handle) + struct.pack(">QII", offset, size, 0) + opaque(bytes(size))
    return opaque(handle)


def start(stack, name, work, programs):
    """Starts a server of a folder: its ports for NFS and MOUNT, and the path that it exports."""
    share, config = work / f"share-{name}", work / f"{name}.conf"
    share.mkdir()
    ports, path = (2049, 20048), str(share)
    if name == "millraced":
        ports = (2050, 2050)
        config.write_text(f"""\
reactors: {{ cores: [{SERVER_CORE}], poll: adaptive }}
mempool: {{ size: 128MiB }}
fabric: [{{ provider: iwarp, listen: "127.0.0.1:2051" }}]
rpc: {{ listen: "127.0.0.1:2050" }}
exports:
  - {{ path: {share}, store: {{ kind: posix, root: {share}, identity: server }}, access: rw, squash: none }}
admin: {{ listen: "127.0.0.1:2052" }}
log: warn
""")
        command = [programs / "millraced", "--config", config]
    elif name == "nfs-ganesha":
        config.write_text(f"""\
NFS_CORE_PARAM {{ NFS_Port = 2049; MNT_Port = 20048; Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }}
EXPORT {{ Export_Id = 1; Path = {share}; Pseudo = /share; Access_Type = RW; Squash = None; SecType = sys;
    Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}
""")
        command = ["ganesha.nfsd", "-F", "-L", work / "ganesha.log", "-f", config, "-p", work / "ganesha.pid"]
    else:
        config.write_text(f"{share} 127.0.0.1(rw,no_root_squash)\n")
        command = ["unfsd", "-d", "-t", "-e", config, "-n", "2049", "-m", "20048"]
    with open(work / f"{name}.out", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, [SERVER_CORE]))
    stack.callback(process.wait)
    stack.callback(process.kill)
    end = time.monotonic() + 60
    while True:
        try:
            return ports, path, prepare(ports, path)
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise OSError(f"{name} does not serve: {error}") from error
            time.sleep(0.2)


def inside(programs, seconds, rounds):
    """In the namespaces: prints what was found, as JSON."""
    work = Path("/run/peers")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for folder in (work, Path("/run/ganesha")):
        folder.mkdir(parents=True)
    os.sched_setaffinity(0, [CLIENT_CORE])
    found, absent = {}, {}
    with contextlib.ExitStack() as stack:
        mapper = subprocess.Popen(["rpcbind", "-f"]) if shutil.which("rpcbind") else None
        if mapper:
            stack.callback(mapper.wait)
            stack.callback(mapper.kill)
        servers = {"millraced": start(stack, "millraced", work, programs)}
        for name, command in PEERS.items():
            if not shutil.which(command):
                absent[name] = "not installed"
            elif not mapper:
                absent[name] = "needs rpcbind, which is not installed"
            else:
                try:
                    servers[name] = start(stack, name, work, programs)
                except OSError as error:
                    absent[name] = str(error)
        for _ in range(rounds):
            for load, procedure, size, depth in LOADS:
                for name, (ports, _path, handle) in servers.items():
                    connection = Connection(ports[0], NFS)
                    rate = connection.load(procedure, arguments_of(procedure, handle, size), depth, seconds)
                    connection.close()
                    found.setdefault(load, {}).setdefault(name, []).append(rate)
    print(json.dumps({"found": found, "absent": absent}))


def measure(programs, seconds, rounds):
    """Rows for the report: load, peer, its rate, ours, the ratio; and sentences on what is not there."""
    command = ["unshare", "--net", "--mount", sys.executable, "-B", __file__, programs, str(seconds), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [], [f"No peer was measured; this needs root and two cores: {last}."]
    told = json.loads(done.stdout.splitlines()[-1])
    rows = []
    for load, rates in told["found"].items():
        for peer in (name for name in rates if name != "millraced"):
            ratios = [ours / theirs for ours, theirs in zip(rates["millraced"], rates[peer])]
            rows.append([load, peer, f"{statistics.median(rates[peer]):,.0f}",
                         f"{statistics.median(rates['millraced']):,.0f}",
                         f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"])
    return rows, [f"{name}: {reason}." for name, reason in told["absent"].items()]


if __name__ == "__main__":
    inside(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
