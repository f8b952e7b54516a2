"""Cases about locks of NFS version 4, each between processes of the client."""

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
import sys
import time

from harness import Mount, case, content, drop_caches, equal, equal_content, fails

# struct flock of 64-bit Linux: type, whence, start, length, process.
FLOCK = "hhqqi4x"

# What the other process runs: it takes orders on its standard input and answers each by a line.
OTHER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for line in sys.stdin:
    kind, *place = line.split()
    try:
        if kind == "flock":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif kind == "wait":
            fcntl.lockf(file, fcntl.LOCK_EX, *map(int, place))
        elif kind == "share":
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, *map(int, place))
        elif kind == "lock":
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, *map(int, place))
        elif kind == "write":
            os.pwrite(file, b"other", int(place[0]))
        else:
            fcntl.lockf(file, fcntl.LOCK_UN, *map(int, place))
            fcntl.flock(file, fcntl.LOCK_UN)
        print("ok", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Other:
    """Another process that has the file open."""

    def __init__(self, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)
        self.number = self._process.pid

    def tell(self, *words):
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self):
        return self._process.stdout.readline().strip()

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def end(self):
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def other(path):
    process = Other(path)
    try:
        yield process
    finally:
        process.end()


def opened(path):
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


@case(needs="locks")
def ranges_exclude_others(context):
    """Locked bytes are refused to another process, others are not; shared locks share."""
    path = context.path("file")
    file = opened(path)
    with other(path) as second:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
        equal(second.ask("lock", 5, 105), str(errno.EAGAIN), "bytes that are locked")
        equal(second.ask("lock", 5, 110), "ok", "bytes behind them")
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
        equal(second.ask("share", 10, 100), "ok", "a shared lock beside one")
        equal(second.ask("lock", 10, 100), str(errno.EAGAIN),
              "an exclusive lock beside a shared one")
        fails((errno.EAGAIN,), "an exclusive lock beside a shared one", fcntl.lockf, file,
              fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
        # A split: the middle is free.
        equal(second.ask("unlock", 10, 100), "ok", "unlock")
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 30, 200)
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 210)
        equal(second.ask("lock", 10, 210), "ok", "the middle")
        equal(second.ask("lock", 1, 209), str(errno.EAGAIN), "before the middle")
        equal(second.ask("lock", 1, 220), str(errno.EAGAIN), "behind the middle")
    os.close(file)


@case(needs="locks")
def a_waiting_lock_is_granted_when_it_is_free(context):
    """F_SETLKW waits as long as another process has the lock."""
    path = context.path("file")
    file = opened(path)
    with other(path) as second:
        fcntl.lockf(file, fcntl.LOCK_EX)
        second.tell("wait", 10, 0)
        # It must still wait when it has had time to ask.
        time.sleep(1)
        lock = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
        equal(struct.unpack(FLOCK, lock)[0], fcntl.F_UNLCK, "nobody else has a lock")
        fcntl.lockf(file, fcntl.LOCK_UN)
        equal(second.answer(), "ok", "the lock that waited")
        fails((errno.EAGAIN,), "the lock is the other's", fcntl.lockf, file,
              fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
        equal(struct.unpack(FLOCK, lock)[4], second.number, "whose lock it is")
    os.close(file)


@case(needs="locks")
def whole_files_are_locked(context):
    """flock excludes another process; the end of that process frees its lock."""
    path = context.path("file")
    file = opened(path)
    with other(path) as second:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        equal(second.ask("flock"), str(errno.EAGAIN), "a file that is locked")
        fcntl.flock(file, fcntl.LOCK_UN)
        equal(second.ask("flock"), "ok", "a file that is free")
        fails((errno.EAGAIN,), "a file that the other has locked", fcntl.flock, file,
              fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)


# With a delegation the client keeps locks to itself, and both mounts are one client to the server.
@case(needs="locks folders")
def a_second_mount_meets_the_locks_of_the_first(context):
    """Locks hold between mounts over RDMA and over TCP, where the client cannot tell by itself."""
    point = "/locks"
    second = Mount(context.mounted.server, context.mounted.path, point, "tcp", ("nosharecache",))
    second.mount()
    try:
        path = context.path("file")
        file = opened(path)
        there = os.path.join(point, os.path.relpath(path, context.root))
        with other(there) as process:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
            equal(process.ask("lock", 10, 5), str(errno.EAGAIN), "a lock of the other mount")
            equal(process.ask("lock", 10, 10), "ok", "bytes that are free")
            os.pwrite(file, b"first", 0)
            fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
            equal(process.ask("lock", 10, 0), "ok", "a lock that was freed")
            equal(process.ask("write", 0), "ok", "a write under it")
            fails((errno.EAGAIN,), "a lock of the other mount", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
            equal(process.ask("unlock", 10, 0), "ok", "unlock")
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        # The lock makes what others wrote visible.
        equal(os.pread(file, 5, 0), b"other", "what the other mount wrote")
        os.close(file)
    finally:
        second.unmount()


@case(needs="locks")
def files_that_others_remove_stay_open(context):
    """Files that another mount removes and replaces are read and written until they are closed."""
    point = "/removed"
    second = Mount(context.mounted.server, context.mounted.path, point, "tcp", ("nosharecache",))
    second.mount()
    try:
        paths = [context.path(name) for name in ("removed", "replaced")]
        for number, path in enumerate(paths):
            context.write(path, content("open", 9000 + number))
        files = [opened(path) for path in paths]
        there = [os.path.join(point, os.path.relpath(path, context.root)) for path in paths]
        os.unlink(there[0])
        with open(there[1] + ".new", "wb") as new:
            new.write(b"new")
        os.rename(there[1] + ".new", there[1])
        # What the client has in its cache it does not ask the server for.
        drop_caches()
        for number, file in enumerate(files):
            found = os.pread(file, 10000, 0)
            equal_content(found, content("open", 9000 + number), "a file without a name")
            os.pwrite(file, b"written", 5)
            os.fsync(file)
            os.close(file)
        context.verify(paths[1], b"new")
        equal(os.path.exists(paths[0]), False, "whether there is the removed name")
    finally:
        second.unmount()


@case(needs="locks")
def a_database_is_updated_by_two_processes(context):
    """Two processes count in one file under locks, and no step is lost."""
    path = context.path("counter")
    context.write(path, b"0" * 8)
    steps = 40
    program = (
        "import fcntl, os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR)\n"
        f"for _ in range({steps}):\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "    number = int(os.pread(file, 8, 0)) + 1\n"
        "    os.pwrite(file, b'%08d' % number, 0)\n"
        "    fcntl.lockf(file, fcntl.LOCK_UN)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, path]) for _ in range(2)]
    for process in processes:
        equal(process.wait(), 0, "a process that counts")
    equal(context.read(path), b"%08d" % (2 * steps), "the sum")


@case(shared=True, needs="locks kill")
def locks_survive_kills_of_the_server(context):
    """The server is killed while files are open and locked: the client gets its locks back, and
    others do not get them meanwhile."""
    path = os.path.join(context.root, "survivor")
    file = opened(path)
    expected = b""
    with other(path) as second:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
        equal(second.ask("lock", 10, 20), "ok", "a lock of the other process")
        for turn in range(3):
            context.control.ask("kill")
            part = content(f"survivor{turn}", 8192)
            os.pwrite(file, part, 64 + len(expected))
            expected += part
            equal(second.ask("lock", 10, 5), str(errno.EAGAIN), f"after kill {turn}")
            fails((errno.EAGAIN,), f"the other's lock after kill {turn}", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 20)
        os.fsync(file)
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
        equal(second.ask("lock", 10, 5), "ok", "a lock that was freed")
    os.close(file)
    equal_content(context.read(path)[64:], expected, "what was written between the kills")
    os.unlink(path)
