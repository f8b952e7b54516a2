"""Instructions of hot calls: a server under callgrind, what a call costs there, and the record."""

import re
import shutil
import signal
import socket
import subprocess
import time
import tomllib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
# A figure may grow by so many percent. Two makes of processor, of which valgrind shows programs the
# same one, have differed by 2.
TOLERANCE = 5
# Seconds until a server is ready, and until a load and a server have ended.
READY, LOAD, END = 120, 600, 120
THREAD_FILE = re.compile(r"^callgrind\.out\.\d+-\d+$")
COSTS = (*"0123456789+-*",)
TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


class Fault(Exception):
    """Something that the caller has to put right."""


# Name in the record, options of the load, and operations of the shorter of two runs.
OPERATIONS = {
    "getattr": (("--op", "getattr", "--depth", "64"), 3200),
    "lookup": (("--op", "lookup", "--depth", "64"), 3200),
    "read-4KiB": (("--op", "read", "--size", "4KiB", "--depth", "64"), 3200),
    "write-4KiB": (("--op", "write", "--size", "4KiB", "--depth", "64"), 3200),
    "write-4KiB-inline": (
        ("--op", "write", "--size", "4KiB", "--depth", "64", "--inline", "8KiB"), 3200),
    "getattr-nfs4": (("--op", "getattr", "--depth", "64", "--nfs", "4.2"), 3200),
    "read-4KiB-nfs4": (("--op", "read", "--size", "4KiB", "--depth", "64", "--nfs", "4.2"), 3200),
    "write-4KiB-nfs4": (
        ("--op", "write", "--size", "4KiB", "--depth", "64", "--nfs", "4.2"), 3200),
    "read-1MiB": (("--op", "read", "--size", "1MiB", "--depth", "4"), 320),
    "write-1MiB": (("--op", "write", "--size", "1MiB", "--depth", "4"), 320),
}

# An operation by version 4 may take so many times what it takes by version 3, and on another make of
# processor so much more.
RATIOS, ALLOWANCE = {"read-4KiB-nfs4": ("read-4KiB", 1.35)}, 1.02

CONFIGURATION = """\
reactors: {{ cores: [{core}], poll: adaptive, idle_after: 1us }}
mempool: {{ hugepages: off, size: 64MiB }}
fabric: [{{ provider: iwarp, listen: "127.0.0.1:{rdma}" }}]
rpcrdma: {{ inline: 8KiB }}
rpc: {{ listen: "127.0.0.1:{rpc}" }}
exports: [{{ path: /scratch, store: {{ kind: memory, size: 128MiB }} }}]
nfs4: {{ minor_versions: [2] }}
admin: {{ listen: "127.0.0.1:{admin}" }}
log: warn
"""


def scheduled(core):
    """What begins a command that shares a core by turns: see `deploy/instructions`."""
    return ["taskset", "-c", str(core), "chrt", "--fifo", "10"]


def wait_ready(process, port):
    """Waits until something listens."""
    deadline = time.monotonic() + READY
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Fault(f"millraced ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Fault("millraced did not become ready")


@contextmanager
def served(programs, folder, core, ports):
    """A server under callgrind, which has ended afterwards. Its counts are then in the folder."""
    rdma, rpc, admin = ports
    configuration = folder / "millraced.yaml"
    configuration.write_text(
        CONFIGURATION.format(core=core, rdma=rdma, rpc=rpc, admin=admin), "utf-8")
    command = [*scheduled(core), "valgrind", "--tool=callgrind", "--separate-threads=yes",
               f"--callgrind-out-file={folder}/callgrind.out.%p",
               str(programs / "millraced"), "--config", str(configuration)]
    with open(folder / "millraced.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_ready(process, rpc)
            yield process
            process.send_signal(signal.SIGTERM)
            if process.wait(END) != 0:
                raise Fault(f"millraced ended with status {process.returncode}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def counted(programs, folder, core, ports, options, count):
    """Runs a load of so many operations. Returns the instructions of the reactor by function."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with served(programs, folder, core, ports):
            load = [*scheduled(core), str(programs / "millrace-bench"), "run",
                    "--target", f"127.0.0.1:{ports[0]}", "--mount", f"127.0.0.1:{ports[1]}",
                    "--export", "/scratch", "--file-size", "16MiB", "--count", str(count), "--json",
                    *options]
            done = subprocess.run(load, timeout=LOAD, capture_output=True, text=True)
            if done.returncode != 0:
                raise Fault(f"the load failed: {done.stderr.strip()}")
    except (Fault, subprocess.TimeoutExpired) as error:
        raise Fault(f"{error}; see {folder}/millraced.log") from error
    threads = [path for path in folder.iterdir() if THREAD_FILE.match(path.name)]
    counts = [functions(path.read_text("utf-8", "replace")) for path in threads]
    return reactor(counts)


def reactor(threads):
    """The thread of the reactor. One that fills memory at the start may have taken more in all."""
    def turns(costs):
        return sum(cost for name, cost in costs.items() if "millrace_reactor" in name)
    return max(threads, key=turns, default=Counter())


def functions(profile):
    """The instructions of each function of a profile of callgrind, without those that it calls."""
    names, costs, current, is_call = {}, Counter(), None, False
    for line in profile.splitlines():
        if line.startswith(("fn=", "cfn=")):
            kind, _, rest = line.partition("=")
            number, _, name = rest.partition(" ")
            # Only the first mention of a number has the name.
            name = names.setdefault(number, name)
            current = name if kind == "fn" else current
        elif line.startswith("calls="):
            is_call = True
        elif line.startswith(COSTS):
            if not is_call:
                costs[current] += int(line.split()[1])
            is_call = False
    total = TOTAL.search(profile)
    if total is None or int(total[1]) != costs.total():
        raise Fault("a profile of callgrind does not add up")
    return costs


def per_operation(short, long, operations):
    """What one operation more has cost, by function: of two runs, one of so many operations more."""
    difference = Counter(long)
    difference.subtract(short)
    return {name: cost / operations for name, cost in difference.items() if cost}


def measure(programs, base, core, ports, name):
    """The instructions of one operation, by function."""
    options, count = OPERATIONS[name]
    short, long = (counted(programs, base / f"{name}-{times}", core, ports, options, times * count)
                   for times in (1, 3))
    return per_operation(short, long, 2 * count)


def most_expensive(costs, most=10):
    """Lines about the functions that cost most."""
    ranked = sorted(costs.items(), key=lambda item: -item[1])[:most]
    return [f"{cost:10,.0f}  {shortened(name)}" for name, cost in ranked]


def shortened(name):
    """A function's name without what the compiler has put behind it."""
    name = re.sub(r"::h[0-9a-f]{16}", "", name)
    return name if len(name) <= 100 else f"{name[:97]}..."


def compare(record, measured):
    """What is wrong with these figures, and what is worth to be said of them."""
    wrong, said = [], []
    for name, figure in measured.items():
        known = record.get(name)
        if known is None:
            wrong.append(f"{name}: {figure:,} instructions, and none are recorded")
            continue
        change = 100 * (figure - known)
        text = f"{name}: {figure:,} instructions, {change / known:+.1f} % of the recorded {known:,}"
        if change > TOLERANCE * known:
            wrong.append(text)
        elif change < -TOLERANCE * known:
            said.append(f"{text}: record what it has become")
    for name, (other, most) in RATIOS.items():
        if name not in measured or other not in measured:
            continue
        ratio = measured[name] / measured[other]
        if ratio > most * ALLOWANCE:
            wrong.append(f"{name} takes {ratio:.2f} times what {other} takes, and may take {most}")
    return wrong, said


def is_usual(description):
    """Whether valgrind shows programs the processor of the record, by /proc/cpuinfo: the C library
    and the copies of memory choose their code by it. It is the same one wherever there is AVX2."""
    found = re.search(r"(?m)^flags\s*: (.*)$", description)
    return found is not None and "avx2" in found[1].split()


def write_record(text, build, measured):
    """The text of the record with these figures of a build in it."""
    comment = re.match(r"(#.*\n)*", text)[0]
    builds = tomllib.loads(text)
    builds.setdefault(build, {}).update(measured)
    sections = ("\n".join([f"\n[{name}]", *(f"{one} = {cost}" for one, cost in figures.items())])
                for name, figures in sorted(builds.items()))
    return comment + "\n".join(sections) + "\n"
