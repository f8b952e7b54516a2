"""What adaptive polling costs and saves."""

import os
import signal
import socket
import statistics
import struct
import subprocess
import time

IDLE_CLIENTS = 100
# In seconds: only ends what would never end.
CONNECT_LIMIT = 60
# Of a call that comes after so long without one, in seconds.
PAUSE, CALLS = 0.02, 100


def processor_seconds(pid):
    """The processor time of a process, user and system."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_share(server, seconds):
    """The share of a core that the server takes with idle clients."""
    load = server.load("getattr", 4096, 1, IDLE_CLIENTS, "3", "60s")
    with subprocess.Popen(load, stdout=subprocess.DEVNULL) as clients:
        try:
            end = time.monotonic() + CONNECT_LIMIT
            while server.metric("millrace_connections") < IDLE_CLIENTS:
                if clients.poll() is not None or time.monotonic() > end:
                    raise OSError(f"{IDLE_CLIENTS} clients do not connect")
                time.sleep(0.1)
            # From here on they send nothing, but their connections stay.
            clients.send_signal(signal.SIGSTOP)
            time.sleep(1)
            before, start = processor_seconds(server.process.pid), time.monotonic()
            time.sleep(seconds)
            spent = processor_seconds(server.process.pid) - before
            return spent / (time.monotonic() - start)
        finally:
            clients.kill()


def after_pause(port):
    """The median time in microseconds of a NULL call over TCP that comes after a pause."""
    # Record mark, XID, call, RPC version 2, NFS version 3, NULL, no credential and no verifier.
    call = struct.pack(">11I", 1 << 31 | 40, 1, 0, 2, 100003, 3, 0, 0, 0, 0, 0)
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(CALLS):
            time.sleep(PAUSE)
            start = time.perf_counter()
            connection.sendall(call)
            connection.recv(4096)
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)
