"""Cases about the mount itself: these come last."""

import errno
import mmap
import os
import stat
import threading

from harness import case, check, content, digest, drop_caches, equal, equal_content, fails
from harness import Failure, Mount


def mount(context):
    """Mounts the export and makes sure that the transport is the one asked for."""
    context.mounted.mount()
    shown = context.mounted.shown()
    for option in (f"vers={context.mounted.version()}", f"proto={context.mounted.transport}"):
        check(option in shown, f"the kernel shows {','.join(shown)}")
    context.mounted.counters()
    os.listdir(context.root)


@case(shared=True, needs="chunks")
def transport_counters(context):
    """One connection carried everything while the server ran, with chunks, and no bad message."""
    counters = context.mounted.counters()
    # One more for each time that the server was killed before.
    connections, kills = counters["connect_count"], "locks kill" in context.parameters["capabilities"]
    check(connections > 1 if kills else connections == 1, f"connections ({counters})")
    for name in ("bad_xids", "bad_replies"):
        equal(counters[name], 0, name)
    path = os.path.join(context.root, "counted")
    data = content("counted", 300000)
    context.write(path, data, os.O_DIRECT)
    equal_content(context.read(path, os.O_DIRECT), data, "content")
    os.unlink(path)
    os.listdir(context.root)
    after = context.mounted.counters()
    for name in ("read_chunks", "write_chunks"):
        check(after[name] > counters[name], f"{name} stayed at {after[name]}")
    check(after["reply_chunks"] > 0, "no reply chunk was ever used")


@case(shared=True)
def remount(context):
    """Files are the same after the mount went and came back."""
    folder = os.path.join(context.root, "remount")
    os.mkdir(folder)
    expected = {}
    for size in (0, 3, 4097, 65537, 2000003):
        data = content(f"remount{size}", size)
        context.write(os.path.join(folder, str(size)), data)
        expected[str(size)] = digest(data)
    context.mounted.unmount()
    context.mounted.mount()
    context.stored(os.path.join(folder, "4097"))
    equal(sorted(os.listdir(folder)), sorted(expected), "names")
    for name, wanted in expected.items():
        path = os.path.join(folder, name)
        equal(digest(context.read(path)), wanted, f"hash of {name}")
        os.unlink(path)
    os.rmdir(folder)


@case(shared=True)
def tcp_sees_the_same(context):
    """What RDMA wrote, TCP reads, and the other way round."""
    # By version 3: a second mount by version 4 would go by the connection of the first.
    server = {**context.mounted.server, "nfs": "3"}
    other = Mount(server, context.mounted.path, "/mnt/tcp", "tcp")
    other.mount()
    try:
        check("proto=tcp" in other.shown(), f"the kernel shows {','.join(other.shown())}")
        for name, source, sink in (("rdma", context.root, other.point),
                                   ("tcp", other.point, context.root)):
            data = content(f"via{name}", 200003)
            context.write(os.path.join(source, "crossing"), data)
            context.stored(os.path.join(source, "crossing"))
            equal_content(context.read(os.path.join(sink, "crossing")), data, f"written by {name}")
            os.unlink(os.path.join(sink, "crossing"))
            drop_caches()
    finally:
        other.unmount()


@case(shared=True, needs="exports")
def read_only_export(context):
    """Nothing can be changed on an export that is read-only."""
    other = Mount(context.mounted.server, "/readonly", "/mnt/readonly")
    other.mount()
    try:
        os.listdir(other.point)
        os.statvfs(other.point)
        fails(errno.EROFS, "mkdir", os.mkdir, os.path.join(other.point, "x"))
        fails(errno.EROFS, "create", os.open, os.path.join(other.point, "y"),
              os.O_CREAT | os.O_WRONLY)
        fails(errno.EROFS, "chmod", os.chmod, other.point, 0o777)
    finally:
        other.unmount()


@case(shared=True, needs="exports")
def squashed_export(context):
    """Root is nobody on an export that squashes it; others are themselves."""
    other = Mount(context.mounted.server, "/squashed", "/mnt/squashed")
    other.mount()
    try:
        mode = stat.S_IMODE(os.lstat(other.point).st_mode)
        path = os.path.join(other.point, "made_by_root")
        if mode & 0o002:
            context.write(path, b"x")
            entry = context.fresh(path)
            equal((entry.st_uid, entry.st_gid), (65534, 65534), "owner of a file made by root")
            fails(errno.EPERM, "chown by root", os.chown, path, 0, 0)
            os.unlink(path)
        else:
            fails(errno.EACCES, "create by root", os.open, path, os.O_CREAT | os.O_WRONLY)
        fails((errno.EPERM, errno.EACCES), "chmod of the root by root", os.chmod, other.point,
              0o700)
    finally:
        other.unmount()


@case(shared=True)
def wrong_export_is_refused(context):
    """A path that is not exported cannot be mounted."""
    other = Mount(context.mounted.server, "/not/exported", "/mnt/other")
    try:
        other.mount()
    except Failure as failure:
        check("No such file" in str(failure) or "denied" in str(failure), str(failure))
        return
    other.unmount()
    raise Failure("it was mounted")


@case(shared=True, needs="restart")
def restart_of_the_server(context):
    """The mount survives: its root is usable, and a write in flight ends."""
    before = os.path.join(context.root, "before")
    context.write(before, b"from before")
    ended = []
    started = threading.Event()
    stop = threading.Event()
    file = os.open(before, os.O_WRONLY | os.O_DIRECT)

    def write_on():
        part = content("on", 65536)
        place = 0
        try:
            while not stop.is_set():
                os.pwrite(file, part, place % (1 << 22))
                place += len(part)
                started.set()
            ended.append("succeeded")
        except OSError as error:
            ended.append(error.errno)
        finally:
            # A file that is gone says so once more.
            try:
                os.close(file)
            except OSError:
                pass

    writer = threading.Thread(target=write_on, daemon=True)
    writer.start()
    started.wait()
    context.control.ask("restart")
    path = os.path.join(context.root, "after")
    data = content("after", 300007)
    context.write(path, data)
    context.verify(path, data, "written after the restart")
    check("after" in os.listdir(context.root), "the new file is not listed")
    stop.set()
    writer.join()
    # A store that lives in memory has lost the file that was being written.
    check(ended[0] in ("succeeded", errno.ESTALE, errno.EIO), f"the writer ended with {ended[0]}")
    for name in os.listdir(context.root):
        os.unlink(os.path.join(context.root, name))
    equal(os.listdir(context.root), [], "names at the end")


@case(needs="secrets")
def restart_with_another_secret_of_handles(context):
    """The secret of file handles is replaced on both gateways, one after the other: a mount with
    handles of the old one goes on, and a file is the same by both of its handles. A new mount
    does not need the old one."""
    path = context.path("kept")
    data = content("kept", 100_003)
    context.write(path, data)
    with open(path, "r+b", buffering=0) as kept:
        kept.write(data[:1000])
        for step in ("announce", "use"):
            context.control.ask(step)
            # At the other gateway, and back.
            for _ in range(2):
                context.control.ask("restart")
                equal_content(context.read(path), data, f"by name, {step}")
                data = content(step, 1000) + data[1000:]
                equal(os.pwrite(kept.fileno(), data[:1000], 0), 1000, "written bytes")
                os.fsync(kept.fileno())
                context.verify(path, data, f"by the open file, {step}")
    new = context.path("new")
    context.write(new, data)
    context.verify(new, data, "a file made since")
    equal(sorted(os.listdir(context.folder)), ["kept", "new"], "names")
    check(context.control.ask("secrets")["old"] > 0, "no handle of the old secret was used")
    context.mounted.unmount()
    context.mounted.mount()
    context.verify(path, data, "by a new mount")
    context.control.ask("drop")
    for _ in range(2):
        context.control.ask("restart")
        context.verify(path, data, "without the old secret")
        context.verify(new, data, "a file made since, without the old secret")


@case(shared=True, needs="kill")
def kill_of_the_server(context):
    """The server dies without warning, several times, under load: whoever works on the mount
    waits, and goes on without an error. What was synced is there."""
    folder = os.path.join(context.root, "kill")
    os.mkdir(folder)
    wrong = []
    stop = threading.Event()
    begun = threading.Semaphore(0)
    rounds = [0, 0, 0, 0]

    def guarded(number, body):
        try:
            while not stop.is_set():
                body(rounds[number])
                rounds[number] += 1
                begun.release()
        except OSError as error:
            wrong.append(f"worker {number}, round {rounds[number]}: {error}")
            begun.release()

    def synced(turn):
        path = os.path.join(folder, f"synced.{turn % 8}")
        context.write(path, content(path + str(turn), 150_001))

    direct = os.open(os.path.join(folder, "direct"), os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)

    def straight(turn):
        part = mmap.mmap(-1, 65536)
        part.write(content(f"direct{turn % 32}", 65536))
        os.pwritev(direct, [part], (turn % 32) * 65536)

    appended = os.open(os.path.join(folder, "appended"), os.O_WRONLY | os.O_CREAT, 0o644)

    def appending(turn):
        os.write(appended, content(f"appended{turn}", 4099))
        if turn % 16 == 15:
            os.fsync(appended)

    def naming(turn):
        # None of these may be done twice, or be refused for having been done.
        one, other = (os.path.join(folder, f"{name}.{turn}") for name in ("one", "other"))
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        os.link(one, other)
        os.rename(one, one + "~")
        os.unlink(other)
        os.unlink(one + "~")
        os.mkdir(one)
        os.rmdir(one)

    bodies = (synced, straight, appending, naming)
    workers = [threading.Thread(target=guarded, args=(number, body), daemon=True)
               for number, body in enumerate(bodies)]
    for worker in workers:
        worker.start()
    for _ in range(4):
        for _ in range(12):
            begun.acquire()
        check(not wrong, "; ".join(wrong))
        context.control.ask("kill")
    for _ in range(12):
        begun.acquire()
    stop.set()
    for worker in workers:
        worker.join()
    check(not wrong, "; ".join(wrong))
    os.fsync(appended)
    os.close(appended)
    os.close(direct)
    for turn in range(max(0, rounds[0] - 8), rounds[0]):
        path = os.path.join(folder, f"synced.{turn % 8}")
        equal_content(context.read(path), content(path + str(turn), 150_001), path)
    parts = min(rounds[1], 32)
    expected = b"".join(content(f"direct{number}", 65536) for number in range(parts))
    equal_content(context.read(os.path.join(folder, "direct")), expected, "direct")
    expected = b"".join(content(f"appended{turn}", 4099) for turn in range(rounds[2]))
    equal_content(context.read(os.path.join(folder, "appended")), expected, "appended")
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


@case(shared=True, needs="kill")
def kill_after_kill(context):
    """The server dies again as soon as it answers anything, so that operations without an answer
    are repeated to one server after the other. None is done twice, or refused for having been
    done."""
    folder = os.path.join(context.root, "kills")
    os.mkdir(folder)
    watched = os.open(os.path.join(folder, "watched"), os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    os.pwritev(watched, [mmap.mmap(-1, 4096)], 0)
    wrong = []
    stop = threading.Event()
    answers = threading.Semaphore(0)

    def watching(_):
        os.preadv(watched, [mmap.mmap(-1, 4096)], 0)
        answers.release()

    def naming(name):
        one, other = (os.path.join(folder, f"{part}.{name}") for part in ("one", "other"))
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        os.link(one, other)
        os.rename(one, one + "~")
        os.unlink(other)
        os.unlink(one + "~")
        os.mkdir(one)
        os.rmdir(one)

    def guarded(body, name):
        try:
            while not stop.is_set():
                body(name)
        except OSError as error:
            wrong.append(f"{name}: {error}")
            answers.release()

    workers = [threading.Thread(target=guarded, args=(body, name), daemon=True)
               for body, name in ((watching, "watching"), (naming, "a"), (naming, "b"))]
    for worker in workers:
        worker.start()
    for _ in range(12):
        while answers.acquire(blocking=False):
            pass
        answers.acquire()
        check(not wrong, "; ".join(wrong))
        context.control.ask("kill")
    answers.acquire()
    stop.set()
    for worker in workers:
        worker.join()
    check(not wrong, "; ".join(wrong))
    os.close(watched)
    equal(os.listdir(folder), ["watched"], "names at the end")
    os.unlink(os.path.join(folder, "watched"))
    os.rmdir(folder)
