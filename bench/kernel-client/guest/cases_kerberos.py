"""Cases of mounts with Kerberos: users with tickets, without, and with tickets that end."""

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
