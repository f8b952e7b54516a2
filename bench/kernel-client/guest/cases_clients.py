"""Cases about several clients at once, each in a guest of its own. All run the same cases, in step."""

import errno
import fcntl
import functools
import os
import subprocess

from cases_locks import opened
from harness import Mount, case, check, content, equal, equal_content, fails
from serving import SECOND_ADDRESS

# The interface by which clients reach the server.
SEGMENT_INTERFACE = "eth1"
# How often a mount is tried.
TRIES = 5


@case(shared=True, needs="clients")
def all_connections_are_there(context):
    """The kernel made as many connections as the mount asked for."""
    wanted = 1
    for option in context.parameters["options"]:
        if option.startswith("nconnect="):
            wanted = int(option.partition("=")[2])
    # Each is made when a request is first given to it.
    for _ in range(4 * wanted):
        os.statvfs(context.root)
    connected = [one for one in context.mounted.transports() if one["connect_count"]]
    equal(len(connected), wanted, "connections")
    for one in connected:
        for name in ("bad_xids", "bad_replies"):
            equal(one.get(name, 0), 0, name)


@case(shared=True, needs="trunking")
def a_mount_by_another_address_adds_a_connection(context):
    """The client finds that both addresses are of one server, and uses one session by both."""
    meet = functools.partial(context.control.ask, "meet")
    if context.number == 1:
        context.control.ask("second_address")
    meet()
    before = len(context.mounted.transports())
    own = context.mounted
    second = Mount({**own.server, "host": SECOND_ADDRESS}, own.path, "/mnt/second",
                   extra=context.parameters["options"])
    # The client tries the new connection with one call, which a server on siw may miss.
    for _ in range(TRIES):
        second.mount()
        if len(own.transports()) > before:
            break
        second.unmount()
    equal(len(own.transports()), before + 1, "connections of the client")
    path, data = os.path.join(second.point, f"trunk{context.number}"), content("trunk", 300_001)
    for turn in range(8):
        context.write(path, data, os.O_DIRECT)
        equal_content(context.read(path, os.O_DIRECT), data, f"turn {turn}")
    os.unlink(path)
    added = own.transports()[-1]
    check(added["sends"] > 8, f"no calls by the other address: {added}")
    meet()
    if context.number == 1:
        known = context.control.ask("clients")["clients"]
        equal(known, context.parameters["clients"], "clients that the server knows")
    meet()
    second.unmount()


@case(shared=True, needs="clients")
def clients_share_a_file(context):
    """Each client writes stripes of one file; then each reads all of it."""
    clients, stripes, length = context.parameters["clients"], 24, 50001
    path = os.path.join(context.root, "stripes")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    parts = [content(f"stripe{number}", length) for number in range(stripes * clients)]
    for number in range(context.number - 1, len(parts), clients):
        equal(os.pwrite(file, parts[number], number * length), length, "bytes written")
    os.fsync(file)
    os.close(file)
    context.control.ask("meet")
    equal_content(context.read(path, os.O_DIRECT), b"".join(parts), "the file of all clients")
    context.control.ask("meet")
    if context.number == 1:
        os.unlink(path)


@case(shared=True, needs="clients")
def clients_work_side_by_side(context):
    """Writers and readers in each client, many requests in flight from all."""
    context.control.ask("meet")
    folder = os.path.join(context.root, f"beside{context.number}")
    os.mkdir(folder)
    workers, rounds = 6, 5

    def work(number):
        data = content(f"client{context.number} worker{number}", 1300003)
        for turn in range(rounds):
            path = os.path.join(folder, f"{number}.{turn}")
            context.write(path, data, os.O_DIRECT if turn % 2 else 0)
            equal_content(context.read(path, os.O_DIRECT), data, f"worker {number}, turn {turn}")
            os.unlink(path)

    context.in_children([functools.partial(work, number) for number in range(workers)])
    os.rmdir(folder)
    context.control.ask("meet")


@case(shared=True, needs="clients locks")
def clients_lock_each_other_out(context):
    """Bytes that one client has locked are refused to the others, who get them in turn and see what
    was written under the lock before."""
    path = os.path.join(context.root, "turns")
    file = opened(path)
    context.control.ask("meet")
    for owner in range(1, context.parameters["clients"] + 1):
        mine = owner == context.number
        if mine:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
        context.control.ask("meet")
        if not mine:
            fails((errno.EAGAIN,), f"bytes that client {owner} has locked", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 200 + context.number)
        context.control.ask("meet")
        fcntl.lockf(file, fcntl.LOCK_UN)
        context.control.ask("meet")
    # Each step is lost where two have the lock.
    steps = 20
    for _ in range(steps):
        fcntl.lockf(file, fcntl.LOCK_EX, 100, 0)
        number = int(os.pread(file, 8, 0) or b"0") + 1
        os.pwrite(file, b"%08d" % number, 0)
        fcntl.lockf(file, fcntl.LOCK_UN, 100, 0)
    os.close(file)
    context.control.ask("meet")
    equal(context.read(path), b"%08d" % (steps * context.parameters["clients"]), "the sum of all")
    context.control.ask("meet")
    if context.number == 1:
        os.unlink(path)


@case(shared=True, needs="network cut")
def a_client_without_network_loses_its_lock(context):
    """A lock of a client that was cut off goes to another client that waits for it when the lease
    is over. Back again, the first one learns that its locks are lost, and goes on."""
    path, other = (os.path.join(context.root, name) for name in ("lost", "lost too"))
    first = context.number == 1
    meet = functools.partial(context.control.ask, "meet")
    file, another = opened(path), opened(other)
    # Both have it open, so that none has a delegation, under which it would lock by itself.
    meet()
    if first:
        os.pwrite(file, b"first", 0)
        os.fsync(file)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        link("down")
    try:
        meet()
        if not first:
            fails((errno.EAGAIN,), "a lock within its lease", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX)
            equal(os.pread(file, 8, 0), b"first", "what the first one wrote")
            os.pwrite(file, b"other", 0)
            os.close(file)
        meet()
    finally:
        if first:
            link("up")
    if first:
        learn_of_revocation(path)
        fails((errno.EIO,), "a read under a lock that is lost", read_again, file)
        os.close(file)
        file = opened(path)
        fcntl.lockf(file, fcntl.LOCK_EX)
        equal(os.pread(file, 8, 0), b"other", "what the other one wrote")
        os.close(file)
        os.unlink(path)
    meet()
    if not first:
        # Linux has given up this one, too, and does not unlock it.
        fcntl.lockf(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    meet()
    os.close(another)
    if first:
        os.unlink(other)
    meet()


@case(shared=True, needs="locks revoked")
def a_client_loses_a_lock_that_is_revoked(context):
    """Under a lock that an administrator has revoked nothing is read or written any more, and another
    client gets it. The client acknowledges the loss, and keeps what it locks afterwards."""
    path = os.path.join(context.root, "revoked")
    first = context.number == 1
    meet = functools.partial(context.control.ask, "meet")
    file = opened(path)
    # Both have it open, so that none has a delegation, under which it would lock by itself.
    meet()
    if first:
        os.pwrite(file, b"first", 0)
        os.fsync(file)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        equal(context.control.ask("revoke")["revoked"], 1, "locks that were revoked")
    meet()
    if not first:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    meet()
    if first:
        learn_of_revocation(path)
        fails((errno.EIO,), "a write under a lock that is lost", write_through, file, b"wrong")
        fails((errno.EIO,), "a read under a lock that is lost", read_again, file)
        os.close(file)
        file = opened(path)
    meet()
    if not first:
        equal(read_again(file), b"first", "what was written before the loss")
        fcntl.lockf(file, fcntl.LOCK_UN)
    meet()
    if first:
        for turn in range(3):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            learn_of_revocation(path)
            equal(read_again(file), b"first", f"what is read under later lock {turn}")
            fcntl.lockf(file, fcntl.LOCK_UN)
        equal(context.control.ask("revoked")["left"], 0, "revoked state that is left")
    os.close(file)
    meet()
    if first:
        os.unlink(path)
    meet()


@case(shared=True, needs="locks revoked")
def clients_that_are_ended_begin_anew(context):
    """An administrator ends all clients while each has a file open and one has locked it: the lock is
    lost, files without locks are read and written on, and later locks hold."""
    locked, written = (os.path.join(context.root, name) for name in
                       ("ended", f"open{context.number}"))
    first = context.number == 1
    meet = functools.partial(context.control.ask, "meet")
    file, own = opened(locked), opened(written)
    meet()
    if first:
        os.pwrite(file, b"first", 0)
        os.fsync(file)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.pwrite(own, b"first", 0)
    meet()
    if first:
        ended = context.control.ask("end_clients")["ended"]
        equal(ended, context.parameters["clients"], "clients that were ended")
        fails((errno.EIO,), "a read under a lock that is lost", read_again, file)
    meet()
    os.pwrite(own, b"again", 5)
    os.fsync(own)
    equal(os.pread(own, 16, 0), b"firstagain", "what was written before and after")
    os.close(own)
    os.unlink(written)
    os.close(file)
    file = opened(locked)
    for owner in range(1, context.parameters["clients"] + 1):
        mine = owner == context.number
        if mine:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        meet()
        if not mine:
            fails((errno.EAGAIN,), "a lock of another client", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB)
        meet()
        fcntl.lockf(file, fcntl.LOCK_UN)
        meet()
    os.close(file)
    meet()
    if first:
        os.unlink(locked)
    meet()


@case(shared=True, needs="client restart")
def a_client_that_starts_again_gives_up_its_lock(context):
    """The machine of a client ends without a word and starts again: what it had locked is free for
    the client that waits for it, and what it had written is there."""
    path = os.path.join(context.root, "restarted")
    first, restarts = context.number == 1, context.number == 2
    meet = functools.partial(context.control.ask, "meet")
    if not context.parameters["restarted"]:
        if restarts:
            file = opened(path)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file, b"first", 0)
            os.fsync(file)
        meet()
        if first:
            file = opened(path)
            fails((errno.EAGAIN,), "a lock of a client that is there", fcntl.lockf, file,
                  fcntl.LOCK_EX | fcntl.LOCK_NB)
        meet()
        if restarts:
            context.control.ask("start again", case="a_client_that_starts_again_gives_up_its_lock")
    if restarts:
        # It has mounted again, and is known once.
        known = context.control.ask("clients")["clients"]
        equal(known, context.parameters["clients"], "clients that the server knows")
    meet()
    if first:
        fcntl.lockf(file, fcntl.LOCK_EX)
        equal(os.pread(file, 8, 0), b"first", "what the other one wrote before")
        os.pwrite(file, b"other", 0)
    meet()
    if restarts:
        with open(path, "rb+") as again:
            fails((errno.EAGAIN,), "a lock of the other client", fcntl.lockf, again,
                  fcntl.LOCK_EX | fcntl.LOCK_NB)
    meet()
    if first:
        os.close(file)
    meet()
    if restarts:
        equal_content(context.read(path), b"other", "what was written under the lock")
        os.unlink(path)


def link(state):
    subprocess.run(["ip", "link", "set", SEGMENT_INTERFACE, state], check=True)


def learn_of_revocation(path):
    """Calls the server, whose reply says that state was revoked if it was. Linux forgets its lock
    stateids then, and begins to recover."""
    os.statvfs(path)


def write_through(file, data):
    os.pwrite(file, data, 0)
    os.fsync(file)


def read_again(file):
    """Reads from the server."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return os.pread(file, 8, 0)
