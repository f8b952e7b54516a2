"""Programs from elsewhere that exercise a file system: of the guest, or brought by the run."""

import glob
import os
import sqlite3
import subprocess
import sys

from cases_names import become
from harness import Failure, case, check, command, content, equal, equal_content, fails

FILES = "/payload/files"

# Seconds; the programs are long at work in an emulated machine.
LIMIT = 390


def program(name, *arguments, folder):
    """Runs one to its end; its status and what it printed."""
    os.chmod(os.path.join(FILES, name), 0o755)
    done = subprocess.run([os.path.join(FILES, name), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", cwd=folder,
                          timeout=LIMIT, check=False)
    return done.returncode, done.stdout


@case(needs="fsx")
def fsx(context):
    """Random reads, writes, truncations and mappings of one file, each compared with memory."""
    for seed in ("1", "2"):
        status, said = program("fsx", "-N", "1500", "-S", seed, context.path("exercised"),
                               folder=context.folder)
        if status:
            raise Failure(f"seed {seed}: status {status}: {said[-3000:]}")


# Adds rows in transactions of their own; waits for the other process's.
INSERTER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)
for number in range(40):
    base.execute("BEGIN IMMEDIATE")
    base.execute("INSERT INTO rows VALUES (?, ?)", (sys.argv[2], number))
    base.execute("UPDATE sums SET rows = rows + 1")
    base.execute("COMMIT")
"""


@case(needs="locks")
def sqlite(context):
    """Two processes write a database, with a rollback journal and with a log ahead of it."""
    for mode in ("delete", "wal"):
        path = context.path(mode)
        base = sqlite3.connect(path, timeout=120, isolation_level=None)
        equal(base.execute(f"PRAGMA journal_mode={mode}").fetchone(), (mode,), "journal mode")
        base.execute("CREATE TABLE rows (who, number, UNIQUE (who, number))")
        base.execute("CREATE TABLE sums (rows)")
        base.execute("INSERT INTO sums VALUES (0)")
        writers = [subprocess.Popen([sys.executable, "-c", INSERTER, path, who],
                                    stderr=subprocess.PIPE, text=True) for who in ("one", "other")]
        for writer in writers:
            _, said = writer.communicate(timeout=LIMIT)
            equal(writer.returncode, 0, f"{mode}: {said[-2000:]}")
        equal(base.execute("PRAGMA integrity_check").fetchone(), ("ok",), f"{mode}: integrity")
        equal(base.execute("SELECT rows FROM sums").fetchone(), (80,), f"{mode}: transactions")
        equal(base.execute("SELECT count(*) FROM rows").fetchone(), (80,), f"{mode}: rows")
        base.close()


@case(needs="access lists")
def access_lists(context):
    """Entries of access control lists are shown, and decide."""
    path = context.path("listed")
    context.write(path, b"for some")
    os.chmod(context.folder, 0o755)
    os.chmod(path, 0o600)
    before = command("nfs4_getfacl", path)
    command("nfs4_setfacl", "-a", "A::2001:R", path)
    entries = command("nfs4_getfacl", path).split()[3:]
    place = next((at for at, entry in enumerate(entries, 1) if entry.startswith("A::2001:")), None)
    check(place, f"the new entry is not shown: {entries}")

    def other():
        become(2002, 2002)
        fails(13, "read by another", os.open, path, os.O_RDONLY)

    def named():
        become(2001, 2001)
        with open(path, "rb") as file:
            equal(file.read(), b"for some", "read by the user of the entry")
        fails(13, "write by the user of the entry", os.open, path, os.O_WRONLY)

    context.in_child(other)
    context.in_child(named)
    command("nfs4_setfacl", "-x", str(place), path)
    equal(command("nfs4_getfacl", path), before, f"the list without entry {place} of {entries}")

    def no_longer():
        become(2001, 2001)
        fails(13, "read without the entry", os.open, path, os.O_RDONLY)

    context.in_child(no_longer)


# Asked for by name there: what a file system need not have.
FEATURES = ("posix_fallocate", "rename_ctime", "utime_now", "utimensat")

# Tests that fail on a mount of version 3 whatever the server's file system, and why.
# On knfsd with ext4 the same ones fail; on ext4 and XFS themselves none does.
PROTOCOL = {
    "unlink::open_file_not_freed": "the client keeps an open file by another name, a link",
    "utimensat::y2038": "seconds have 32 bits on the wire",
}


def prepare():
    """The users that the tests take on beside root, and a program that they ask."""
    which = "/usr/bin/which"
    if not os.path.exists(which):
        with open(which, "w", encoding="ascii") as file:
            file.write('#!/bin/sh\ncommand -v "$1"\n')
        os.chmod(which, 0o755)
    for path, line in (("/etc/passwd", "tests:x:1001:1001::/:/usr/sbin/nologin\n"),
                       ("/etc/group", "tests:x:1001:\n")):
        with open(path, "r+", encoding="utf-8") as file:
            if "tests:" not in file.read():
                file.write(line)


@case(needs="pjdfstest")
def pjdfstest(context):
    """Nearly four hundred questions about what POSIX says of names, modes, times and errors."""
    prepare()
    configuration = "/run/pjdfstest.toml"
    with open(configuration, "w", encoding="utf-8") as file:
        file.write("[features]\n" + "".join(f"{name} = {{}}\n" for name in FEATURES))
        # Longer than the kernel's clock for time stamps takes to go on.
        file.write("[settings]\nnaptime = 0.05\nallow_remount = false\n")
        file.write('[dummy_auth]\nentries = [["nobody", "nogroup"], ["tests", "tests"]]\n')
    os.chmod(context.folder, 0o1777)
    _, said = program("pjdfstest", "-c", configuration, "-p", context.folder,
                      folder=context.folder)
    lines = said.splitlines()
    summary = next((line for line in lines if line.startswith("Summary:")), None)
    if not summary:
        raise Failure(f"no summary: {said[-3000:]}")
    failed = {line.split()[0] for line in lines if line.rstrip().endswith("FAILED")}
    unknown = sorted(failed - set(PROTOCOL))
    if unknown:
        raise Failure(f"{summary}\n" + "\n".join(
            line for number, line in enumerate(lines)
            if any(name in line for name in unknown)
            or number and any(name in lines[number - 1] for name in unknown)))


@case
def dbench(context):
    """Programs of an office at work on one server: two clients by the trace that dbench comes with."""
    said = command("dbench", "-c", "/usr/share/dbench/client.txt", "-D", context.folder, "-t", "8",
                   "2", limit=LIMIT)
    check("Throughput" in said and "ERROR" not in said, f"dbench: {said[-2000:]}")


@case
def git(context):
    """A repository is filled, packed, checked and cloned."""
    work, clone = context.path("work"), context.path("clone")

    def run(folder, *words):
        return command("git", "-C", folder, "-c", "user.name=guest", "-c", "user.email=guest@guest",
                       *words, limit=LIMIT)

    os.mkdir(work)
    run(work, "init", "--quiet")
    for turn in range(3):
        for number in range(40):
            folder = os.path.join(work, f"folder{number % 7}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"file{number}"), "wb") as file:
                file.write(content(f"turn {turn} file {number}", 100 * number + 1))
        run(work, "add", "--all")
        run(work, "commit", "--quiet", "-m", f"turn {turn}")
    run(work, "gc", "--quiet", "--prune=now")
    for pack in glob.glob(os.path.join(work, ".git/objects/pack/*.pack")):
        os.chmod(pack, 0o600)
        context.stored(pack)
    run(work, "fsck", "--full", "--strict")
    run(work, "clone", "--quiet", "--no-hardlinks", work, clone)
    equal(run(clone, "status", "--porcelain"), "", "what differs in the clone")
    path = os.path.join("folder3", "file38")
    equal_content(context.read(os.path.join(clone, path)), content("turn 2 file 38", 3801), path)
    run(clone, "checkout", "--quiet", "HEAD~2")
    equal_content(context.read(os.path.join(clone, path)), content("turn 0 file 38", 3801), path)
