"""How a client does beside one that streams, and what adaptive polling costs and saves.

All clients share one core. Where the machine permits it, they have the same real-time priority and
take turns there, so that a client waits for the other one's turn at most.
"""

import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import time

# Of the client that streams: operation, size, in flight.
STREAM = ("write", 1 << 20, 8)
# Of the other one, which has one call in flight.
SMALL = (("read", 4096), ("getattr", 4096))
IDLE_CLIENTS = 100
# Of a call that comes after so long without one, in seconds.
PAUSE, CALLS = 0.02, 200


def in_turns():
    """What starts a client that takes turns with others on its core; nothing where that is not permitted."""
    words = ["chrt", "--fifo", "10"]
    tried = subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False)
    return words if tried.returncode == 0 else []


def one_measurement(command, **more):
    """Runs a load and returns what it measured."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, **more)
    return json.loads(done.stdout)["measurements"][0]


def beside_stream(server, rounds, seconds, say):
    """By small operation: measurements alone, beside the stream, and those of the stream."""
    found = {kind: ([], [], []) for kind, _ in SMALL}
    turns = in_turns()
    for number in range(rounds):
        for kind, size in SMALL:
            say(f"round {number + 1} of {rounds}: {kind} beside a client that streams")
            small = [*turns, *server.load(kind, size, 1, 1, "3", f"{seconds}s")]
            alone, beside, streams = found[kind]
            alone.append(one_measurement(small))
            # It lasts longer than the other one, also where that begins late.
            stream = [*turns, *server.load(*STREAM, 1, "3", f"{2 * seconds + 2}s"), "--source", "127.0.0.2"]
            with subprocess.Popen(stream, stdout=subprocess.PIPE) as streaming:
                time.sleep(1)
                beside.append(one_measurement(small))
                said, _ = streaming.communicate()
            streams.append(json.loads(said)["measurements"][0])
    return found


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
            time.sleep(3)
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
