"""Programs from elsewhere that exercise a file system, where the run brings them."""

import os
import subprocess

from harness import Failure, case

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
