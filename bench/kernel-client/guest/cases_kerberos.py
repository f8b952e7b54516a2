"""Cases of mounts with Kerberos: users with tickets, without, and with tickets that end; a server
that restarts, a KDC that is away, and a clock that is wrong."""

import errno
import grp
import os
import pwd
import shutil
import time

from cases_names import become
from harness import Failure, Mount, case, check, command, content, equal, equal_content, fails
from realm import FILES, UNKNOWN

# What a user without a valid ticket is told, by kernel and operation.
REFUSED = (errno.EACCES, errno.EKEYEXPIRED, errno.ESTALE, errno.EPERM)
# The user whose tickets live for a minute, and how long to wait at most until they have ended.
SHORT, SHORT_LIMIT = "games", 240
# Users that have no context before their case, and the service of which they get tickets.
LATE, UNTIMELY, SERVICE = "lp", "mail", "nfs/server.test"
# Seconds, more than the 300 that clocks may differ, and less than tickets live.
SKEW = 900
# How long a client may go on to refuse a user after what was in the way is gone.
AGAIN_LIMIT = 120


def number(name):
    """The number of a user."""
    return pwd.getpwnam(name).pw_uid


def renew(name):
    """Gets new tickets for a user, where the daemon looks for them."""
    user = number(name)
    cache = f"/tmp/krb5cc_{user}"
    command("kinit", "-k", "-t", f"{FILES}/users.keytab", "-c", f"FILE:{cache}", name)
    os.chown(cache, user, user)


def write_as(context, name, file, size):
    """Writes a file as a user; its owner has to be that user."""
    user, path = number(name), context.path(file)

    def body():
        become(user, user)
        context.write(path, content(file, size))
        with open(path, "rb") as written:
            equal_content(written.read(), content(file, size), file)

    context.in_child(body)
    equal(context.fresh(path).st_uid, user, f"owner of {file}")


def write_soon_as(context, name, file, size):
    """The same, where the client may refuse the user for a while yet."""
    limit = time.monotonic() + AGAIN_LIMIT
    while True:
        try:
            write_as(context, name, file, size)
            return
        except Failure:
            if time.monotonic() > limit:
                raise
            time.sleep(1)


def refused(context, name, why):
    """A user cannot make a file."""

    def body():
        become(number(name), number(name))
        fails(REFUSED, why, os.open, context.path("refused"), os.O_CREAT | os.O_WRONLY)

    context.in_child(body)


@case(needs="kerberos")
def kerberos_users(context):
    """Users with tickets are themselves; one without is refused; nobody reads another's file."""
    check(f"sec={context.mounted.server['security']}" in context.mounted.shown(), "the flavor")
    os.chmod(context.folder, 0o1777)
    for name in ("daemon", "bin"):
        renew(name)
        write_as(context, name, f"of_{name}", 300_007)
    os.chmod(context.path("of_daemon"), 0o600)

    def other():
        become(number("bin"), number("bin"))
        fails(errno.EACCES, "read another's file", os.open, context.path("of_daemon"), os.O_RDONLY)
        fails((errno.EACCES, errno.EPERM), "remove it", os.unlink, context.path("of_daemon"))

    def nobody():
        become(2003, 2003)
        fails(REFUSED, "create without tickets", os.open, context.path("x"),
              os.O_CREAT | os.O_WRONLY)

    context.in_child(other)
    context.in_child(nobody)


@case(needs="names")
def kerberos_names(context):
    """Owners and groups are set and listed by name: they have other numbers on the server."""
    os.chmod(context.folder, 0o1777)
    owned, shared = context.path("owned"), context.path("shared")
    for path, user, group, mode in ((owned, "daemon", "root", 0o600),
                                    (shared, "root", "bin", 0o640)):
        context.write(path, content(path, 1000))
        shutil.chown(path, user, group)
        os.chmod(path, mode)
        entry = context.fresh(path)
        found = pwd.getpwuid(entry.st_uid).pw_name, grp.getgrgid(entry.st_gid).gr_name
        equal(found, (user, group), f"owner and group of {path}")
    listed = command("ls", "-l", context.folder)
    for words in ("daemon root", "root bin"):
        check(words in " ".join(listed.split()), f"{words} in {listed}")

    # The server judges by its own numbers.
    def reads(path):
        with open(path, "rb") as file:
            equal_content(file.read(), content(path, 1000), path)

    def owner():
        become(number("daemon"), grp.getgrnam("daemon").gr_gid)
        reads(owned)
        fails((errno.EACCES, errno.EPERM), "read another group's", os.open, shared, os.O_RDONLY)

    def member():
        become(number("bin"), grp.getgrnam("bin").gr_gid)
        reads(shared)
        fails((errno.EACCES, errno.EPERM), "read another's", os.open, owned, os.O_RDONLY)

    for name, body in (("daemon", owner), ("bin", member)):
        renew(name)
        context.in_child(body)
    for user, group in ((UNKNOWN, None), (None, UNKNOWN)):
        fails(errno.EINVAL, "an owner that the server does not know", shutil.chown, owned, user,
              group)
    equal(pwd.getpwuid(context.fresh(owned).st_uid).pw_name, "daemon", "owner")


@case(needs="kerberos")
def kerberos_tickets_end(context):
    """A user whose tickets end while it writes is refused, and goes on with new ones."""
    os.chmod(context.folder, 0o1777)
    renew(SHORT)
    write_as(context, SHORT, "before", 65_537)
    limit = time.monotonic() + SHORT_LIMIT
    ended = context.path("ended")

    def until_refused():
        become(number(SHORT), number(SHORT))
        data = content("on", 100_003)
        while time.monotonic() < limit:
            try:
                context.write(ended, data)
            except OSError as error:
                check(error.errno in REFUSED, f"refused with {error}")
                return
            time.sleep(1)
        raise Failure("the user was never refused")

    context.in_child(until_refused)
    renew(SHORT)
    write_as(context, SHORT, "after", 65_537)


@case(needs="kerberos restart")
def kerberos_restart_of_the_server(context):
    """The server restarts while a user has a file open: the user goes on, with a new context."""
    os.chmod(context.folder, 0o1777)
    user, path, data = number("daemon"), context.path("open"), content("open", 400_009)
    renew("daemon")

    def body():
        become(user, user)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(file, data[:200_003])
        os.fsync(file)
        context.control.ask("restart")
        os.write(file, data[200_003:])
        os.fsync(file)
        os.close(file)
        with open(path, "rb") as written:
            equal_content(written.read(), data, "written across the restart")

    context.in_child(body)
    equal(context.fresh(path).st_uid, user, "owner")
    counters = context.control.ask("gss")["counters"]
    check(counters["millrace_gss_created_total"] >= 1, f"contexts made anew: {counters}")


@case(needs="kerberos")
def kerberos_without_the_kdc(context):
    """While the KDC is away, users with a context go on and others are refused; when it is back,
    these get theirs."""
    os.chmod(context.folder, 0o1777)
    for name in ("daemon", LATE):
        renew(name)
    write_as(context, "daemon", "before", 65_537)
    context.control.ask("stop_kdc")
    try:
        write_as(context, "daemon", "meanwhile", 300_007)
        refused(context, LATE, "create without a KDC")
        write_as(context, "daemon", "still", 65_537)
    finally:
        context.control.ask("start_kdc")
    write_soon_as(context, LATE, "after", 65_537)


@case(needs="kerberos")
def kerberos_wrong_clock(context):
    """A user is refused while the client's clock is wrong; the server tells why."""
    os.chmod(context.folder, 0o1777)
    renew(UNTIMELY)
    # With this ticket, no KDC is asked: the server itself finds the clock wrong.
    cache = f"/tmp/krb5cc_{number(UNTIMELY)}"
    command("kvno", "-c", f"FILE:{cache}", SERVICE)
    os.chown(cache, number(UNTIMELY), number(UNTIMELY))
    counter = 'millrace_gss_creations_failed_total{reason="clock"}'
    before = context.control.ask("gss")["counters"].get(counter, 0)
    time.clock_settime(time.CLOCK_REALTIME, time.time() + SKEW)
    try:
        refused(context, UNTIMELY, "create with a wrong clock")
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - SKEW)
    told = context.control.ask("gss")
    check(told["counters"].get(counter, 0) > before, f"{counter} in {told['counters']}")
    words = "the clocks of client and server differ"
    check(words in told["log"], f"`{words}` is not in the log:\n{told['log'][-2000:]}")
    write_soon_as(context, UNTIMELY, "after", 65_537)


@case(shared=True, needs="kerberos")
def kerberos_flavor_is_required(context):
    """An export takes the flavors of its list and no others."""
    server = {**context.mounted.server, "security": "sys"}
    other = Mount(server, context.mounted.path, "/mnt/sys", "tcp")
    try:
        other.mount()
        # By version 4, the client finds out when it uses the mount.
        fails((errno.EACCES, errno.EPERM), "listed with sec=sys", os.listdir, other.point)
    except Failure as failure:
        check("denied" in str(failure) or "not permitted" in str(failure), str(failure))
        return
    other.unmount()
