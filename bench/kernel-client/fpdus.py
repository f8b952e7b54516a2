"""Finds the FPDUs in a capture, however TCP cut them, and writes a capture in
which each FPDU has a TCP segment of its own.

tshark (seen with 4.0) follows FPDUs over the boundaries of TCP segments, but
not if a segment ends within the first bytes of an FPDU (8 are enough, 4 are
not): from there on it takes data for lengths. A sender that treats TCP as a
stream of bytes, and everything that cuts segments anew on the way, makes that
happen sooner or later.

tshark also looks for RPC over RDMA only in Sends without Solicited Event, so
those with it are shown to it as those without."""

import collections
import dataclasses
import struct

ETHERNET, RAW, LINUX_COOKED, LINUX_COOKED_2, NULL = 1, 101, 113, 276, 0
LINK_HEADERS = {ETHERNET: 14, RAW: 0, LINUX_COOKED: 16, LINUX_COOKED_2: 20, NULL: 4}

# What fits behind an IPv4 and a TCP header.
LARGEST_SEGMENT = 65535 - 40
REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
CRC_FLAG = 0x40
SYN, PSH_ACK = 0x02, 0x18
TAGGED = 0x80
# Send with Solicited Event, and the same with Invalidate, to their plain kin.
PLAIN = {5: 3, 6: 4}


class BadCapture(Exception):
    """The capture cannot be understood."""


@dataclasses.dataclass
class Direction:
    """One direction of a TCP connection."""

    addresses: bytes
    ports: tuple
    next: int = None
    early: dict = dataclasses.field(default_factory=dict)
    pending: bytes = b""
    rdma: bool = None
    handshake: bool = True
    crc: bool = False
    fpdus: int = 0
    bytes: int = 0
    longest: int = 0
    operations: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    problem: str = None
    place: int = 1

    def name(self):
        return f"port {self.ports[0]} to {self.ports[1]}"


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC32C_TABLE = crc32c_table()


def crc32c(data):
    """The checksum of RFC 3385, as it stands in an FPDU's trailer."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ CRC32C_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def packets(file):
    """The time stamp and bytes of each packet, and the kind of link."""
    header = file.read(24)
    orders = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">",
              b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
    order = orders.get(header[:4])
    if not order:
        raise BadCapture("not a pcap file")
    link = struct.unpack(order + "I", header[20:24])[0] & 0xFFFF
    if link not in LINK_HEADERS:
        raise BadCapture(f"captures of link type {link} are not known")
    nanoseconds = header[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
    yield link
    while len(record := file.read(16)) == 16:
        seconds, fraction, kept, length = struct.unpack(order + "IIII", record)
        data = file.read(kept)
        if len(data) < kept:
            return
        yield seconds, fraction // 1000 if nanoseconds else fraction, data, kept < length


class Reframer:
    """Reads one capture and writes the other."""

    def __init__(self, source, sink):
        self._source = source
        self._sink = sink
        self._directions = {}
        self.problems = []

    def run(self):
        """Returns the directions that carried FPDUs."""
        self._sink.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, RAW))
        stream = packets(self._source)
        header = LINK_HEADERS[next(stream)]
        finished = []
        for seconds, fraction, data, cut in stream:
            packet = data[header:]
            if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
                continue
            # A zero length is that of a packet which the network card was to cut.
            length = struct.unpack(">H", packet[2:4])[0] or len(packet)
            words = (packet[0] & 15) * 4
            tcp = packet[words:length]
            key = packet[12:20] + tcp[:4]
            flags = tcp[13]
            if flags & SYN:
                if old := self._directions.pop(key, None):
                    finished.append(old)
                self._directions[key] = Direction(packet[12:20], struct.unpack(">HH", tcp[:4]))
                self._directions[key].next = (struct.unpack(">I", tcp[4:8])[0] + 1) & 0xFFFFFFFF
                continue
            direction = self._directions.get(key)
            payload = tcp[(tcp[12] >> 4) * 4 :]
            if direction is None or not payload:
                continue
            if cut:
                direction.problem = direction.problem or "a packet was captured in part"
                continue
            for part in self._in_order(direction, struct.unpack(">I", tcp[4:8])[0], payload):
                self._take(direction, part, seconds, fraction)
        finished += self._directions.values()
        for direction in finished:
            if direction.rdma and direction.early:
                direction.problem = direction.problem or "packets are missing from the capture"
            if direction.problem:
                self.problems.append(f"{direction.name()}: {direction.problem}")
        return [direction for direction in finished if direction.rdma]

    @staticmethod
    def _in_order(direction, sequence, payload):
        """The new bytes of the stream that this segment completes."""
        direction.early[sequence] = max(payload, direction.early.get(sequence, b""), key=len)
        progress = True
        while progress:
            progress = False
            for start in sorted(direction.early, key=lambda at: (at - direction.next) % (1 << 32)):
                behind = (direction.next - start) % (1 << 32)
                if behind >= 1 << 31:
                    continue
                data = direction.early.pop(start)
                progress = True
                if behind < len(data):
                    yield data[behind:]
                    direction.next = (start + len(data)) % (1 << 32)
                break

    def _take(self, direction, part, seconds, fraction):
        if direction.rdma is False:
            self._emit(direction, part, seconds, fraction)
            return
        direction.pending += part
        data = direction.pending
        place = 0
        while not direction.problem:
            length = self._frame_length(direction, data, place)
            if not length or place + length > len(data):
                break
            frame = data[place : place + length]
            place += length
            frame = self._frame(direction, frame)
            self._emit(direction, frame, seconds, fraction)
        direction.pending = data[place:]
        if direction.rdma is False:
            self._emit(direction, direction.pending, seconds, fraction)
            direction.pending = b""

    @staticmethod
    def _frame_length(direction, data, place):
        """The length of the next frame, or nothing while it is not known."""
        if direction.handshake:
            key = data[place : place + 16]
            if not REQUEST_KEY.startswith(key) and not REPLY_KEY.startswith(key):
                direction.rdma = False
                return 0
            if len(data) < place + 20:
                return 0
            direction.rdma = True
            return 20 + struct.unpack_from(">H", data, place + 18)[0]
        if len(data) < place + 2:
            return 0
        return (struct.unpack_from(">H", data, place)[0] + 5) // 4 * 4 + 4

    def _frame(self, direction, frame):
        """Checks a frame and returns it as tshark shall see it."""
        if direction.handshake:
            direction.handshake = False
            direction.crc = bool(frame[16] & CRC_FLAG)
            return frame
        direction.fpdus += 1
        ulpdu = struct.unpack_from(">H", frame)[0]
        direction.bytes += ulpdu
        direction.longest = max(direction.longest, ulpdu)
        if ulpdu < 14:
            direction.problem = f"FPDU {direction.fpdus} has only {ulpdu} bytes"
        elif frame[2] & 3 != 1 or frame[3] >> 6 != 1:
            direction.problem = f"FPDU {direction.fpdus} is not of version 1: {frame[2:4].hex()}"
        elif (direction.crc or self._other(direction).crc) and \
                crc32c(frame[:-4]) != struct.unpack("<I", frame[-4:])[0]:
            direction.problem = f"FPDU {direction.fpdus} has a wrong CRC"
        opcode = frame[3] & 15
        direction.operations[opcode] += 1
        if opcode in PLAIN and not frame[2] & TAGGED:
            plain = frame[3] & 0xF0 | PLAIN[opcode]
            return frame[:3] + bytes([plain]) + frame[4:]
        return frame

    def _other(self, direction):
        key = direction.addresses[4:] + direction.addresses[:4]
        key += struct.pack(">HH", *reversed(direction.ports))
        return self._directions.get(key, direction)

    def _emit(self, direction, data, seconds, fraction):
        """Writes the bytes as one segment, or as few as hold them."""
        other = self._other(direction)
        for start in range(0, len(data), LARGEST_SEGMENT):
            part = data[start : start + LARGEST_SEGMENT]
            tcp = struct.pack(">HHIIBBHHH", *direction.ports, direction.place, other.place,
                              5 << 4, PSH_ACK, 65535, 0, 0)
            direction.place = (direction.place + len(part)) & 0xFFFFFFFF
            ip = struct.pack(">BBHIBBH", 0x45, 0, 40 + len(part), 0, 64, 6, 0)
            packet = ip + direction.addresses + tcp + part
            self._sink.write(struct.pack("<IIII", seconds, fraction, len(packet), len(packet)))
            self._sink.write(packet)


def reframe(source, sink):
    """Copies the TCP data of `source` to `sink`, one FPDU to a segment.

    Returns the directions that carried FPDUs, and what was wrong with any."""
    with open(source, "rb") as file, open(sink, "wb") as out:
        reframer = Reframer(file, out)
        return reframer.run(), reframer.problems
