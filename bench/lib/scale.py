"""How rates depend on calls in flight, on the number and the size of files, on limits, and on bulk data of others."""

import signal
import statistics
import subprocess
import tempfile

from figures import table

# Calls in flight on one connection beyond the default credits.
DEEP = (128, 256, 512)
# Files, and the directories that they are spread over.
FILES = ((1, 1), (1_000, 1), (100_000, 1), (1_000_000, 1), (1_000_000, 1_000))
# So many that making and removing them takes minutes, and one round has to do.
MANY_FILES = ((10_000_000, 1), (10_000_000, 10_000))
# The most files at once; each takes 600 bytes of the export, and less than that beside it.
FILES_SIZE, INODES = "6GiB", 10_100_000
# Files without data, and an export with memory for what is written into them meanwhile.
SPARSE = {"64 MiB": 64 << 20, "1 GiB": 1 << 30, "32 GiB": 32 << 30, "1 TiB": 1 << 40}
SPARSE_SIZE = "16GiB"
# Settings beside the export: without limits, with limits of others, and with limits of this client that it does not
# reach, or reaches.
REACHED = 50_000
LIMITS = (("none", ""), ("of other clients", 'limits: [{ clients: ["192.0.2.0/24"], iops: 1000 }]\n'),
          ("of this client, not reached", 'limits: [{ clients: ["127.0.0.0/8"], iops: 100000000 }]\n'),
          (f"{REACHED:,} calls/s", f'limits: [{{ clients: ["127.0.0.0/8"], iops: {REACHED} }}]\n'))
# What a client with one call in flight calls, and what another one transfers meanwhile.
ALONE = ("read", "getattr")
BULK = ("read", "write")
BULK_SIZE, BULK_DEPTH = 1 << 20, 8
MOVED = "millrace_export_data_bytes_total"
OTHER_ADDRESS = "127.0.0.2"
# The one with few calls has the core that both share whenever it can go on, if the system lets it (CAP_SYS_NICE).
FIRST = ("chrt", "--fifo", "10")


def is_allowed(command):
    """Whether commands may be run by way of this one."""
    try:
        return subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except FileNotFoundError:
        return False


def medians(rounds, *keys):
    """The median of each figure over the rounds of a point."""
    return [statistics.median(one[key] for one in rounds) for key in keys]


def row(label, rounds):
    """Rate, latencies and the server's busy time."""
    rate, median, high, highest, busy = medians(
        rounds, "operations_per_second", "p50_us", "p99_us", "p999_us", "server_busy_us")
    return [label, f"{rate:,.0f}", f"{median:,.1f}", f"{high:,.1f}", f"{highest:,.1f}", f"{busy:.2f}"]


def rates(name, rows):
    """A table of such rows."""
    return table((name, "operations/s", "p50 µs", "p99 µs", "p99.9 µs", "server busy µs/op"), rows)


class Scale:
    """Measures on servers that `start` makes: a function of a folder and of settings."""

    def __init__(self, start, rounds, say):
        self.start, self.rounds, self.say = start, rounds, say
        self.first = FIRST if is_allowed(FIRST) else ()

    def over(self, points, measure, rounds=None, **settings):
        """The measurements of each point, in rounds on one server."""
        rounds = rounds or self.rounds
        found = {point: [] for point in points}
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, **settings)
            try:
                for number in range(rounds):
                    for point in points:
                        self.say(f"round {number + 1} of {rounds}: {point}")
                        found[point].append(measure(server, point))
            finally:
                server.stop()
        return found

    def deep(self):
        """More calls in flight than a client has by default."""
        def measure(server, depth):
            return server.measure("read", 4096, depth, 1, "3")
        found = self.over(DEEP, measure, credits=max(DEEP), mempool="512MiB")
        rows = [row(f"{depth}", found[depth]) for depth in DEEP]
        return f"READ of 4 KiB on one connection, with `flow.credits: {max(DEEP)}`:\n\n" + rates("in flight", rows)

    def files(self):
        """LOOKUPs of random files."""
        def measure(server, point):
            files, directories = point
            extra = ("--files", str(files), "--directories", str(directories))
            return server.measure("lookup", 4096, 32, 1, "3", extra=extra)
        found = self.over(FILES, measure, export=FILES_SIZE, inodes=INODES)
        found |= self.over(MANY_FILES, measure, rounds=1, export=FILES_SIZE, inodes=INODES)
        rows = [row(f"{files:,} in {directories:,} director{'y' if directories == 1 else 'ies'}",
                    found[files, directories]) for files, directories in FILES + MANY_FILES]
        return (f"LOOKUP of random files, 32 in flight. {MANY_FILES[0][0]:,} were measured once:\n\n"
                + rates("files", rows))

    def sparse(self):
        """READ and WRITE anywhere in files without data."""
        def measure(server, point):
            kind, size = point
            return server.measure(kind, 4096, 32, 1, "3", file_size=SPARSE[size], extra=("--sparse", "--random"))
        points = [(kind, size) for kind in ("read", "write") for size in SPARSE]
        found = self.over(points, measure, export=SPARSE_SIZE)
        rows = [row(f"{kind.upper()}, {size}", found[kind, size]) for kind, size in points]
        return ("4 KiB at random offsets of a file without data, 32 in flight. A WRITE fills a hole, as long as there are"
                " any:\n\n" + rates("file", rows))

    def limits(self):
        """Cost and effect of limits."""
        found = {}
        for name, settings in LIMITS:
            found |= self.over([name], lambda server, _: server.measure("read", 4096, 32, 1, "3"), more=settings)
        rows = [row(name, found[name]) for name, _ in LIMITS]
        return "READ of 4 KiB, 32 in flight:\n\n" + rates("limits", rows)

    def beside(self, server, kind, bulk):
        """A client with one call in flight beside one that transfers bulk data, if any."""
        def measure():
            return server.measure(kind, 4096, 1, 1, "3", extra=("--sleep",), prefix=self.first)
        if not bulk:
            return measure()
        before = server.metric(MOVED)
        load = server.load(bulk, BULK_SIZE, BULK_DEPTH, 1, "3", "60s")
        options = ("--sleep", "--source", OTHER_ADDRESS)
        with subprocess.Popen([*load, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
            try:
                # More than its file.
                while other.poll() is None and server.metric(MOVED) < before + (128 << 20):
                    pass
                if other.poll() is not None:
                    raise OSError(f"the load of {bulk} has ended with status {other.returncode}")
                return measure()
            finally:
                other.send_signal(signal.SIGINT)

    def tails(self):
        """Latency beside bulk data."""
        points = [(kind, bulk) for kind in ALONE for bulk in (None, *BULK)]
        found = self.over(points, lambda server, point: self.beside(server, *point))
        rows = []
        for kind, bulk in points:
            label = {"read": "READ of 4 KiB", "getattr": "GETATTR"}[kind]
            alone, = medians(found[kind, None], "p99_us")
            high, = medians(found[kind, bulk], "p99_us")
            beside = f"beside {bulk.upper()}s of 1 MiB, {BULK_DEPTH} in flight" if bulk else "alone"
            rows.append([*row(f"{label} {beside}", found[kind, bulk])[:5], f"{high / alone:.2f}"])
        share = ("which the first one has whenever it can go on" if self.first
                 else "which they share alike, as the system gives neither priority")
        return ("A client with one call in flight, and another one that transfers as fast as it can. Both are on one core,"
                f" {share}, and sleep while they wait:\n\n"
                + table(("load", "operations/s", "p50 µs", "p99 µs", "p99.9 µs", "p99 by p99 alone"), rows))

    def section(self):
        """All of it."""
        return ("## Scale\n\n" + "\n".join([self.deep(), self.files(), self.sparse(), self.limits()])
                + "\n## Tails beside bulk data\n\n" + self.tails())
