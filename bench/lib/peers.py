"""Measures the NFS servers that are installed on this machine, millraced among them, over TCP.

All serve a folder in memory (tmpfs) with one core each, in turns, in namespaces of their own (network
and mounts), so that neither the ports nor the port mapper of this machine are touched. The client
is millrace-bench: it sends the same calls to each, many at once.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Name, operation and bytes as millrace-bench takes them, calls at once.
LOADS = (("GETATTR", "getattr", "4KiB", 32), ("READ of 4 KiB", "read", "4KiB", 32),
         ("READ of 64 KiB", "read", "64KiB", 8), ("WRITE of 4 KiB", "write", "4KiB", 32))
FILE_SIZE = "4MiB"
SERVER_CORE, CLIENT_CORE = 0, 1
PEERS = {"nfs-ganesha": "ganesha.nfsd", "unfs3": "unfsd"}


def rate(programs, server, load, seconds):
    """Calls a second of a load."""
    (nfs, mount), path = server
    _name, operation, size, depth = load
    command = [programs / "millrace-bench", "run", f"--tcp=127.0.0.1:{nfs}", "--mount", f"127.0.0.1:{mount}",
               "--export", path, "--op", operation, "--size", size, "--depth", str(depth), "--file-size", FILE_SIZE,
               "--time", f"{seconds * 1000:.0f}ms", "--core", str(CLIENT_CORE), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["no message"])[-1])
    measured, = json.loads(done.stdout)["measurements"]
    return measured["operations_per_second"]


def start(stack, name, work, programs):
    """Starts a server of a folder, and waits until it serves: its ports for NFS and MOUNT, and its path."""
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
            rate(programs, (ports, path), LOADS[0], 0.001)
            return ports, path
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
            for load in LOADS:
                for name, server in servers.items():
                    found.setdefault(load[0], {}).setdefault(name, []).append(rate(programs, server, load, seconds))
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
