"""Cases about what minor version 2 of NFS version 4 adds: holes, copies, extended attributes."""

import ctypes
import errno
import fcntl
import os
import struct

from harness import Failure, case, check, content, drop_caches, equal, equal_content, fails

KIB = 1 << 10
MIB = 1 << 20

KEEP_SIZE = 1
PUNCH_HOLE = 2
FICLONE = 0x40049409
FICLONERANGE = 0x4020940D

LIBC = ctypes.CDLL(None, use_errno=True)


def fallocate(file, mode, offset, length):
    """The system call itself: the C library would write zeros where it fails."""
    arguments = ctypes.c_long(offset), ctypes.c_long(length)
    if LIBC.fallocate(file, mode, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def whole_value(path, name):
    """The value, by a call with room for the longest one. Python's own asks with little room first;
    over RDMA the client then offers no more for the reply, and a longer one does not fit."""
    room = ctypes.create_string_buffer(64 * KIB)
    length = LIBC.getxattr(path.encode(), name.encode(), room, ctypes.c_size_t(len(room)))
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return room.raw[:length]


def opened(path):
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


@case(needs="version 2 space")
def space_is_allocated(context):
    """fallocate grows a file and takes its space."""
    path = context.path("file")
    file = opened(path)
    fallocate(file, 0, 5, MIB)
    os.close(file)
    found = context.fresh(path)
    equal(found.st_size, MIB + 5, "size")
    check(found.st_blocks * 512 >= MIB, f"{found.st_blocks} blocks")
    context.verify(path, bytes(MIB + 5))
    file = opened(path)
    fails((errno.ENOSPC, errno.EFBIG), "more than there is", fallocate, file, 0, 0, 1 << 50)
    os.close(file)
    equal(context.fresh(path).st_size, MIB + 5, "size after a failure")


@case(needs="version 2 space")
def holes_are_punched_and_found(context):
    """Punched holes read as zeros, and lseek finds them and the data between them."""
    path = context.path("file")
    data = bytearray(content("punched", MIB))
    context.write(path, bytes(data))
    file = opened(path)
    mode = PUNCH_HOLE | KEEP_SIZE
    for offset, length in ((128 * KIB, 256 * KIB), (640 * KIB + 7, 1000)):
        fallocate(file, mode, offset, length)
        data[offset : offset + length] = bytes(length)
    equal(os.lseek(file, 0, os.SEEK_HOLE), 128 * KIB, "first hole")
    equal(os.lseek(file, 128 * KIB, os.SEEK_DATA), 384 * KIB, "data behind it")
    equal(os.lseek(file, 384 * KIB, os.SEEK_HOLE), MIB, "the hole at the end")
    fails(errno.ENXIO, "beyond the end", os.lseek, file, MIB, os.SEEK_DATA)
    os.ftruncate(file, 2 * MIB)
    fails(errno.ENXIO, "no more data", os.lseek, file, MIB + 64 * KIB, os.SEEK_DATA)
    os.close(file)
    context.verify(path, bytes(data) + bytes(MIB))


@case(needs="version 2")
def copies_stay_on_the_server(context):
    """copy_file_range copies, and hardly any byte of it goes by the wire."""
    size = 8 * MIB + 12345
    one, other = context.path("one"), context.path("other")
    data = content("copied", size)
    context.write(one, data)
    context.stored(one)
    drop_caches()
    before = context.mounted.moved()
    source, sink = os.open(one, os.O_RDONLY), opened(other)
    done = 0
    while done < size:
        copied = os.copy_file_range(source, sink, size - done)
        check(copied > 0, f"stopped at {done}")
        done += copied
    os.fsync(sink)
    os.close(source)
    os.close(sink)
    moved = context.mounted.moved() - before
    check(moved < size // 8, f"{moved} bytes went by the wire")
    context.verify(other, data)


@case(needs="clones")
def files_are_cloned(context):
    """A clone has the same bytes, and a change of it leaves the original alone."""
    one, other = context.path("one"), context.path("other")
    data = content("cloned", MIB + 777)
    context.write(one, data)
    source, sink = os.open(one, os.O_RDONLY), opened(other)
    fcntl.ioctl(sink, FICLONE, source)
    part = struct.pack("qQQQ", source, 64 * KIB, 128 * KIB, 2 * MIB)
    fcntl.ioctl(sink, FICLONERANGE, part)
    odd = struct.pack("qQQQ", source, 1, 4 * KIB, 0)
    fails(errno.EINVAL, "not aligned", fcntl.ioctl, sink, FICLONERANGE, odd)
    os.pwrite(sink, b"changed", 3)
    os.fsync(sink)
    os.close(source)
    os.close(sink)
    context.verify(one, data)
    expected = bytearray(2 * MIB + 128 * KIB)
    expected[: len(data)] = data
    expected[2 * MIB :] = data[64 * KIB : 192 * KIB]
    expected[3:10] = b"changed"
    context.verify(other, bytes(expected))


def user_attributes(path):
    """The names of a file's attributes, without the access control list, which Linux lists too."""
    return sorted(name for name in os.listxattr(path) if name != "system.nfs4_acl")


@case(needs="version 2")
def extended_attributes(context):
    """They are kept, listed and removed, also long ones and those of directories."""
    path = context.path("file")
    context.write(path, b"data")
    folder = context.path("folder")
    os.mkdir(folder)
    long = content("value", 3000)
    for where in (path, folder):
        fails(errno.ENODATA, "none yet", os.getxattr, where, "user.one")
        os.setxattr(where, "user.one", b"1", os.XATTR_CREATE)
        fails(errno.EEXIST, "again", os.setxattr, where, "user.one", b"2", os.XATTR_CREATE)
        fails(errno.ENODATA, "not there", os.setxattr, where, "user.two", b"2", os.XATTR_REPLACE)
        os.setxattr(where, "user.two", long)
        drop_caches()
        equal(user_attributes(where), ["user.one", "user.two"], "names")
        equal(os.getxattr(where, "user.one"), b"1", "the short value")
        equal_content(os.getxattr(where, "user.two"), long, "the long value")
        os.removexattr(where, "user.one")
        drop_caches()
        equal(user_attributes(where), ["user.two"], "names after a removal")
    os.rmdir(folder)


@case(needs="memory")
def the_longest_extended_attributes(context):
    """Values of 64 KiB and many names go by chunks."""
    path = context.path("file")
    context.write(path, b"data")
    for size in (4096, 20001, 65536):
        value = content(f"value{size}", size)
        try:
            os.setxattr(path, "user.long", value)
        except OSError as error:
            raise Failure(f"setting {size} bytes: {error.strerror}") from error
        drop_caches()
        equal_content(whole_value(path, "user.long"), value, f"value of {size}")
    names = sorted(f"user.name{number}" for number in range(200))
    for name in names:
        os.setxattr(path, name, b"")
    drop_caches()
    equal(user_attributes(path), ["user.long", *names], "names")
