"""Direct writes at places and of lengths that no page knows, read back over TCP.

The server fetches their data by RDMA Reads. Linux's software iWARP answers small
ones that cross a page of the client's with wrong bytes and without an error, so
only the bytes tell. What is read over TCP has come by no RDMA at all."""

import contextlib
import mmap
import os
import random

from harness import CASES, Case, Mount, content, equal, equal_content

MIB = 1 << 20
PAGE = 4096

# Around the first bytes, the first page and the first block of a file.
OFFSETS = [*range(0, 17), *range(4089, 4104), *range(65529, 65544)]
LENGTHS = [*range(1, 65), 4097, 65537, MIB + 7]
# What an ordinary run takes of them.
SOME_OFFSETS = [0, 7, 16, 4089, 4095, 4096, 4097, 4103, 65529, 65535, 65537, 65543]
SOME_LENGTHS = [1, 7, 33, 64, 4097, 65537, MIB + 7]

# Where in a page of the client's the data begin.
PLACES = [0, 4090]


class Source:
    """Memory of whole pages to write from, and bytes that differ everywhere."""

    def __init__(self, longest):
        self._bytes = content("unaligned", longest + MIB)
        self._memory = mmap.mmap(-1, longest + 2 * PAGE)
        self._turn = 0

    def write(self, file, length, offset, place):
        """Writes from this place in a page; returns the bytes."""
        self._turn += 1
        start = self._turn * 10007 % MIB
        data = self._bytes[start : start + length]
        self._memory[place : place + length] = data
        with memoryview(self._memory) as view:
            equal(os.pwrite(file, view[place : place + length], offset), length, "bytes written")
        return data


@contextlib.contextmanager
def both_ways(context, name):
    """A file of a case, opened without a cache over RDMA and over TCP: path, and both files."""
    path = context.path(name)
    server, export = context.mounted.server, context.mounted.path
    other = Mount(server, export, f"/mnt/unaligned.{context.number}", "tcp", ("noac",))
    with contextlib.ExitStack() as stack:
        over_rdma = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        stack.callback(os.close, over_rdma)
        other.mount()
        stack.callback(other.unmount)
        there = os.path.join(other.point, os.path.relpath(path, context.root))
        over_tcp = os.open(there, os.O_RDONLY | os.O_DIRECT)
        stack.callback(os.close, over_tcp)
        yield path, over_rdma, over_tcp


def compare(file, model, start, end, what):
    """The file must hold what the model has from start to end, and end where it does."""
    found = os.pread(file, end - start, start)
    equal_content(found, bytes(model[start:end]), f"{what}, from {start}")


def compare_all(context, path, files, model):
    """The whole file, both ways."""
    context.stored(path)
    for file, way in zip(files, ("over RDMA", "over TCP")):
        equal(context.fresh(path).st_size, len(model), "size")
        for start in range(0, len(model), MIB):
            compare(file, model, start, min(start + MIB, len(model)), f"the whole file {way}")


def write_matrix(context, offsets, lengths):
    """Every length at every offset, and what stands before and behind it stays."""
    source = Source(max(lengths))
    with both_ways(context, "file") as (path, over_rdma, over_tcp):
        model = bytearray()
        for turn, place in enumerate(PLACES):
            for offset in offsets:
                for length in lengths:
                    data = source.write(over_rdma, length, offset, place)
                    end = offset + length
                    model.extend(bytes(max(0, end - len(model))))
                    model[offset:end] = data
                    first, last = max(0, offset - 32), min(len(model), end + 32)
                    compare(over_tcp, model, first, last,
                            f"{length} bytes written at {offset} from place {place}")
                if turn == 0:
                    # So that the next writes meet the end of the file again.
                    os.ftruncate(over_rdma, offset + 1)
                    del model[offset + 1 :]
        compare_all(context, path, (over_rdma, over_tcp), model)


def follow_model(context, operations):
    """Random reads, writes and truncations, each compared with a copy in memory."""
    pick = random.Random(41)
    largest = 3 * MIB
    source = Source(400000)
    lengths = (lambda: pick.randrange(1, 200), lambda: pick.randrange(3900, 4300),
               lambda: pick.randrange(8000, 70000), lambda: pick.randrange(70000, 400000),
               lambda: pick.randrange(1, 40) * PAGE + pick.randrange(-9, 30))

    def boundary():
        """Near the end of a page or block, or anywhere; half of them in the first pages."""
        step = pick.choice((PAGE, 65536, 1))
        reach = pick.choice((65536, largest))
        return max(0, pick.randrange(0, reach) // step * step + pick.randrange(-9, 10))

    with both_ways(context, "file") as (path, over_rdma, over_tcp):
        model = bytearray()
        for number in range(operations):
            offset, length = boundary(), pick.choice(lengths)()
            kind = pick.random()
            if kind < 0.55 and offset + length <= largest:
                place = pick.choice((0, 0, pick.randrange(PAGE)))
                data = source.write(over_rdma, length, offset, place)
                model.extend(bytes(max(0, offset + length - len(model))))
                model[offset : offset + length] = data
            elif kind < 0.65:
                size = min(offset, largest)
                os.ftruncate(over_rdma, size)
                model.extend(bytes(max(0, size - len(model))))
                del model[size:]
            file = over_tcp if number % 4 else over_rdma
            start = max(0, min(offset - 40, len(model)))
            end = min(len(model), offset + length + 40)
            compare(file, model, start, max(start, end), f"after operation {number}")
        compare_all(context, path, (over_rdma, over_tcp), model)


def register(name, body, *arguments, needs=None):
    CASES.append(Case(name, lambda context: body(context, *arguments), needs=needs))


register("unaligned_writes", write_matrix, SOME_OFFSETS, SOME_LENGTHS)
register("unaligned_model", follow_model, 200)
register("unaligned_writes_all", write_matrix, OFFSETS, LENGTHS, needs="thorough")
register("unaligned_model_2000", follow_model, 2000, needs="thorough")
