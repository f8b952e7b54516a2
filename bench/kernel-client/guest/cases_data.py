"""Cases about the bytes of files."""

import mmap
import os
import random
import subprocess

from harness import Case, CASES, case, check, command, content, drop_caches, equal
from harness import equal_content

KIB = 1 << 10
MIB = 1 << 20

# Around the ends of XDR words, pages, inline messages, segments and the
# largest transfer.
SIZES = {
    "0": 0, "1": 1, "3": 3, "4": 4, "5": 5, "4095": 4095, "4096": 4096, "4097": 4097,
    "64KiB-1": 64 * KIB - 1, "64KiB": 64 * KIB, "64KiB+1": 64 * KIB + 1,
    "1MiB-1": MIB - 1, "1MiB": MIB, "1MiB+1": MIB + 1, "16MiB": 16 * MIB, "64MiB": 64 * MIB,
}


def size_case(name, size, flags):
    def body(context):
        data = content(name, size)
        path = context.path("file")
        context.write(path, data, flags)
        context.verify(path, data, flags=flags)

    CASES.append(Case(name, body, needs="thorough" if size > 16 * MIB else None))


for label, bytes_in_file in SIZES.items():
    size_case(f"buffered_{label}", bytes_in_file, 0)
for label, bytes_in_file in SIZES.items():
    size_case(f"direct_{label}", bytes_in_file, os.O_DIRECT)


@case
def direct_dd(context):
    """Direct transfers of a size that no boundary knows, by dd."""
    data = content("dd", 3 * MIB + 12345)
    with open("/tmp/dd.in", "wb") as file:
        file.write(data)
    path = context.path("file")
    command("dd", "if=/tmp/dd.in", f"of={path}", "bs=100001", "oflag=direct", "conv=fsync")
    context.stored(path)
    drop_caches()
    command("dd", f"if={path}", "of=/tmp/dd.out", "bs=77777", "iflag=direct")
    with open("/tmp/dd.out", "rb") as file:
        equal_content(file.read(), data, "read back by dd")


@case
def mixed_buffered_and_direct(context):
    """What is written one way is read the other way."""
    data = content("mixed", 300001)
    context.write(context.path("a"), data)
    context.verify(context.path("a"), data, "written buffered", os.O_DIRECT)
    context.write(context.path("b"), data, os.O_DIRECT)
    context.verify(context.path("b"), data, "written directly")


@case
def append(context):
    """Every append lands at the end, also across opens."""
    path = context.path("file")
    expected = b""
    for number, size in enumerate((1, 4095, 1, 70001, 3, 5000)):
        part = content(f"append{number}", size)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, part)
        os.close(file)
        drop_caches()
        expected += part
    context.verify(path, expected)


@case
def truncate_shrink(context):
    """What is cut off does not come back when the file grows again."""
    path = context.path("file")
    data = content("shrink", 100003)
    context.write(path, data)
    for size in (70001, 4097, 4096, 3):
        os.truncate(path, size)
        equal(context.fresh(path).st_size, size, "size after truncate")
        equal_content(context.read(path), data[:size], f"shrunk to {size}")
    os.truncate(path, 9000)
    context.verify(path, data[:3] + bytes(8997), "grown again")
    os.truncate(path, 0)
    context.verify(path, b"", "emptied")


@case
def truncate_grow(context):
    """New bytes are zero, in the last page too."""
    path = context.path("file")
    data = content("grow", 5001)
    context.write(path, data)
    for size in (5003, 8192, 1 << 20):
        os.truncate(path, size)
    context.verify(path, data + bytes((1 << 20) - len(data)))


@case
def holes(context):
    """A file with islands reads as zeros between them."""
    path = context.path("file")
    expected = bytearray(3 * MIB + 7)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for place in (10, 70000, MIB - 3, 2 * MIB + 4096, 3 * MIB):
        part = content(f"hole{place}", 7)
        os.pwrite(file, part, place)
        expected[place : place + 7] = part
    os.fsync(file)
    os.close(file)
    context.verify(path, bytes(expected))
    context.verify(path, bytes(expected), "read directly", os.O_DIRECT)


@case
def far_offset(context):
    """Offsets above 4 GiB keep all their bits."""
    path = context.path("file")
    place = (5 << 30) + 123
    part = content("far", 9001)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(file, part, place)
    os.fsync(file)
    os.close(file)
    equal(context.fresh(path).st_size, place + len(part), "size")
    drop_caches()
    file = os.open(path, os.O_RDONLY)
    equal_content(os.pread(file, 20000, place), part, "above 4 GiB")
    low = os.pread(file, 20000, place - (4 << 30))
    equal_content(low, bytes(20000), "the same offset less 4 GiB")
    os.close(file)


def overwrite_at_random(context, flags):
    """Unaligned writes over each other, checked against a copy in memory."""
    path = context.path("file")
    pick = random.Random(7)
    model = bytearray(content("base", 600007))
    context.write(path, bytes(model), flags)
    file = os.open(path, os.O_RDWR | flags)
    for number in range(60):
        length = pick.choice((1, 2, 3, 5, 100, 4095, 4096, 4097, 40000, 65537))
        place = pick.randrange(len(model) - length)
        part = content(f"part{number}", length)
        equal(os.pwrite(file, part, place), length, "bytes written")
        model[place : place + length] = part
        place = pick.randrange(len(model) - length)
        equal_content(os.pread(file, length, place), bytes(model[place : place + length]),
                      f"{length} bytes read at {place}")
    os.fsync(file)
    os.close(file)
    context.verify(path, bytes(model), "the whole file", flags)


@case
def overwrite_buffered(context):
    overwrite_at_random(context, 0)


@case
def overwrite_direct(context):
    overwrite_at_random(context, os.O_DIRECT)


@case
def short_reads_at_the_end(context):
    """Reads across and beyond the end return what there is."""
    data = content("short", 10001)
    path = context.path("file")
    context.write(path, data)
    for flags in (0, os.O_DIRECT):
        drop_caches()
        file = os.open(path, os.O_RDONLY | flags)
        for place, count in ((10000, 1), (10000, 100), (9997, 65536), (10001, 10), (50000, 10)):
            equal(os.pread(file, count, place), data[place : place + count],
                  f"{count} bytes at {place}, flags {flags:#o}")
        os.close(file)


@case
def mmap_write(context):
    """Bytes written through memory reach the file."""
    path = context.path("file")
    expected = bytearray(content("mmap", 40 * KIB + 5))
    context.write(path, bytes(expected))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for place, length in ((0, 1), (4090, 12), (20000, 9000), (len(expected) - 3, 3)):
            part = content(f"map{place}", length)
            memory[place : place + length] = part
            expected[place : place + length] = part
        memory.flush()
    context.verify(path, bytes(expected))
    drop_caches()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        equal_content(bytes(memory), bytes(expected), "read through memory")


@case
def fsync_and_fdatasync(context):
    """Both succeed, and what was synchronised is on the server."""
    path = context.path("file")
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    first = content("first", 200001)
    os.write(file, first)
    os.fsync(file)
    second = content("second", 33)
    os.write(file, second)
    os.fdatasync(file)
    os.close(file)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_SYNC)
    third = content("third", 4099)
    os.write(file, third)
    os.close(file)
    context.verify(path, first + second + third)


@case
def unlink_while_open(context):
    """An open file lives on without its name, and is gone after."""
    path = context.path("file")
    data = content("unlinked", 70001)
    context.write(path, data)
    file = os.open(path, os.O_RDWR)
    os.unlink(path)
    check(not os.path.lexists(path), "the name is still there")
    drop_caches()
    equal_content(os.pread(file, 80000, 0), data, "after unlink")
    os.pwrite(file, b"more", 100000)
    os.fsync(file)
    drop_caches()
    equal(os.pread(file, 10, 99998), b"\0\0more", "written after unlink")
    names = os.listdir(context.folder)
    check(all(name.startswith(".nfs") for name in names), f"left over: {names}")
    os.close(file)
    # The client removes its own name for it in the background.
    while os.listdir(context.folder):
        drop_caches()


@case
def concurrent_writers(context):
    """Eight processes write a file each, and all of them one file together."""
    writers, length, rounds = 8, 50001, 6
    shared = context.path("shared")
    context.write(shared, b"")

    def work(number):
        whole = content(f"writer{number}", length * rounds)
        own = os.open(context.path(f"own{number}"), os.O_WRONLY | os.O_CREAT, 0o644)
        common = os.open(shared, os.O_WRONLY | (os.O_DIRECT if number % 2 else 0))
        for turn in range(rounds):
            part = whole[turn * length : (turn + 1) * length]
            os.write(own, part)
            os.pwrite(common, part, (turn * writers + number) * length)
        for file in (own, common):
            os.fsync(file)
            os.close(file)

    children = []
    for number in range(writers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(number)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        equal(os.waitpid(child, 0)[1], 0, "a writer's status")
    parts = [content(f"writer{number}", length * rounds) for number in range(writers)]
    for number, part in enumerate(parts):
        context.verify(context.path(f"own{number}"), part, f"file of writer {number}")
    together = b"".join(
        part[turn * length : (turn + 1) * length] for turn in range(rounds) for part in parts
    )
    context.verify(shared, together, "the file of all writers")


@case
def readers_beside_a_writer(context):
    """Readers of one file are not disturbed by writes to another."""
    data = content("readers", 2 * MIB + 1)
    context.write(context.path("read"), data)
    writer = subprocess.Popen(
        ["dd", "if=/dev/zero", f"of={context.path('written')}", "bs=65537", "count=128",
         "oflag=direct"], stderr=subprocess.DEVNULL)
    reads = 0
    while True:
        ended = writer.poll()
        equal_content(context.read(context.path("read"), os.O_DIRECT, 99999), data,
                      f"read {reads} beside the writer")
        reads += 1
        if ended is not None:
            break
    equal(ended, 0, "the writer's status")
    context.verify(context.path("written"), bytes(65537 * 128), "what the writer wrote")


def fio(context, name, size, *options):
    output = command(
        "fio", f"--name={name}", f"--directory={context.folder}", f"--size={size}", "--verify=crc32c",
        "--verify_fatal=1", "--do_verify=1", "--randseed=11", "--fallocate=none", "--thread",
        "--minimal", *options)
    check(output.strip(), "fio reported nothing")
    # Verified again from the server, by a process that remembers nothing.
    drop_caches()
    for file in os.listdir(context.folder):
        context.stored(os.path.join(context.folder, file))
    command(
        "fio", f"--name={name}", f"--directory={context.folder}", f"--size={size}", "--verify=crc32c",
        "--verify_fatal=1", "--verify_only=1", "--randseed=11", "--thread", "--minimal", *options)


@case
def fio_verify_direct(context):
    fio(context, "direct", "2M", "--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=psync")


@case
def fio_verify_buffered(context):
    fio(context, "buffered", "6M", "--rw=randwrite", "--bs=64k", "--end_fsync=1", "--ioengine=psync")


@case
def fio_verify_mixed(context):
    """Reads and writes at random, several in flight."""
    command(
        "fio", "--name=mixed", f"--directory={context.folder}", "--size=3M", "--rw=randrw",
        "--bsrange=512-128k", "--bs_unaligned=1", "--direct=1", "--ioengine=libaio",
        "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--randseed=12",
        "--fallocate=none", "--serialize_overlap=1", "--minimal")
