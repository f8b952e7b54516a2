//! A pcap file of the Sends of one connection, for network analysers.
//!
//! Messages of any transport are shown as iWARP carries them (RFC 5044, RFC 5041, RFC 5040): a TCP
//! connection is set up, MPA request and reply are exchanged, and each Send is one FPDU, or several
//! where it is too long for one. So Wireshark and other readers of the format of libpcap decode
//! them. The TCP segments are made up; the addresses, the times and the bytes of the messages are
//! real.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_iwarp::mpa::frame::{Frame, FrameKind, REVISION_PLAIN};
use millrace_iwarp::{
    CRC_BYTES, Crc32c, LENGTH_BYTES, Model, Opcode, QUEUE_SEND, Segment, UNTAGGED_BYTES, Untagged,
    pad_bytes,
};

use super::CapturedMessage;
use super::packet::{self, ACK, PUSH, Packet, SYN};

/// Bytes of a message in one FPDU: what fits into one packet, a multiple of eight.
const PART_MAX: usize = (packet::PAYLOAD_MAX - LENGTH_BYTES - UNTAGGED_BYTES - CRC_BYTES - 3) & !7;

/// Writes a capture file, piece by piece.
#[derive(Debug)]
pub struct CaptureFile {
    /// The client's address and the server's.
    ends: [SocketAddr; 2],
    /// The number of each end's next byte.
    next: [u32; 2],
}

impl CaptureFile {
    /// A file about a connection between these two.
    #[must_use]
    pub fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self {
            ends: alike(client, server),
            next: [1, 1],
        }
    }

    /// Appends the first part of a file: its header, and the beginning of the connection.
    pub fn begin(&mut self, at: SystemTime, out: &mut Vec<u8>) {
        let at = since_epoch(at);
        packet::file_header(out);
        for (sender, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let mut packet = self.packet(at, sender, flags);
            if flags & SYN != 0 {
                packet.sequence = 0;
            }
            if flags & ACK == 0 {
                packet.acknowledged = 0;
            }
            packet.write(&[], out);
        }
        for (sender, kind) in [(0, FrameKind::Request), (1, FrameKind::Reply)] {
            let frame = Frame {
                kind,
                markers: false,
                crc: true,
                reject: false,
                revision: REVISION_PLAIN,
                connection_data: None,
                private_data: Vec::new(),
            };
            // Private data that is not there is not too long.
            let bytes = frame.encode().unwrap_or_default();
            self.send(at, sender, &bytes, out);
        }
    }

    /// Bytes that a message of this length takes in the file.
    #[must_use]
    pub fn bytes_of(&self, length: usize) -> usize {
        parts(length)
            .map(|(_, length)| {
                let ulpdu = UNTAGGED_BYTES + length;
                let fpdu = LENGTH_BYTES + ulpdu + pad_bytes(ulpdu) + CRC_BYTES;
                packet::record_bytes(&self.ends[0], fpdu)
            })
            .sum()
    }

    /// Appends a message.
    pub fn message(&mut self, message: &CapturedMessage, out: &mut Vec<u8>) {
        let opcode = match (message.invalidate, message.solicited) {
            (None, false) => Opcode::Send,
            (None, true) => Opcode::SendSolicited,
            (Some(_), false) => Opcode::SendInvalidate,
            (Some(_), true) => Opcode::SendSolicitedInvalidate,
        };
        let (at, sender) = (since_epoch(message.at), usize::from(!message.received));
        let mut fpdu = Vec::new();
        for (offset, length) in parts(message.bytes.len()) {
            let segment = Segment {
                last: offset + length == message.bytes.len(),
                opcode,
                model: Model::Untagged(Untagged {
                    invalidate: message.invalidate.unwrap_or(0),
                    queue: QUEUE_SEND,
                    sequence: message.number,
                    // As wide as lengths of messages are.
                    offset: offset as u32,
                }),
            };
            let ulpdu = UNTAGGED_BYTES + length;
            fpdu.clear();
            // `PART_MAX` is less than the field can tell.
            fpdu.extend_from_slice(&(ulpdu as u16).to_be_bytes());
            let mut header = [0; UNTAGGED_BYTES];
            segment.encode(&mut header);
            fpdu.extend_from_slice(&header);
            fpdu.extend_from_slice(&message.bytes[offset..offset + length]);
            fpdu.resize(fpdu.len() + pad_bytes(ulpdu), 0);
            let check = Crc32c::of(&fpdu);
            fpdu.extend_from_slice(&check);
            self.send(at, sender, &fpdu, out);
        }
    }

    fn packet(&self, at: Duration, sender: usize, flags: u8) -> Packet {
        Packet {
            at,
            from: self.ends[sender],
            to: self.ends[1 - sender],
            flags,
            sequence: self.next[sender],
            acknowledged: self.next[1 - sender],
        }
    }

    fn send(&mut self, at: Duration, sender: usize, bytes: &[u8], out: &mut Vec<u8>) {
        self.packet(at, sender, ACK | PUSH).write(bytes, out);
        // Numbers of bytes wrap around; no packet is that long.
        self.next[sender] = self.next[sender].wrapping_add(bytes.len() as u32);
    }
}

fn since_epoch(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Offset and length of each part of a message; one part at least.
fn parts(length: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = length.div_ceil(PART_MAX).max(1);
    (0..count).map(move |index| {
        let offset = index * PART_MAX;
        (offset, PART_MAX.min(length - offset))
    })
}

/// Both addresses in one family, as IPv4 where both can be.
fn alike(one: SocketAddr, other: SocketAddr) -> [SocketAddr; 2] {
    let ends = [one, other].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    if ends[0].is_ipv4() == ends[1].is_ipv4() {
        return ends;
    }
    ends.map(|end| match end.ip() {
        IpAddr::V4(address) if address.is_unspecified() => {
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), end.port())
        }
        IpAddr::V4(address) => SocketAddr::new(address.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload of each packet with its sender's port, as the lengths in the file tell.
    fn payloads(mut file: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut header = Vec::new();
        packet::file_header(&mut header);
        file = file.strip_prefix(&*header).unwrap();
        let mut found = Vec::new();
        while !file.is_empty() {
            let length = u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize;
            let packet = &file[16..16 + length];
            let ip = if packet[0] >> 4 == 4 { 20 } else { 40 };
            let port = u16::from_be_bytes([packet[ip], packet[ip + 1]]);
            found.push((port, packet[ip + 20..].to_vec()));
            file = &file[16 + length..];
        }
        found
    }

    fn file(one: &str, other: &str) -> CaptureFile {
        CaptureFile::new(one.parse().unwrap(), other.parse().unwrap())
    }

    #[test]
    fn messages_are_whole_fpdus_behind_the_setup() {
        let mut file = file("10.0.0.1:700", "10.0.0.2:20049");
        let mut out = Vec::new();
        file.begin(UNIX_EPOCH + Duration::from_secs(5), &mut out);
        let bytes: Vec<u8> = (0..PART_MAX + 5).map(|at| at as u8).collect();
        for (received, length) in [(true, 33), (false, bytes.len())] {
            let message = CapturedMessage {
                at: UNIX_EPOCH + Duration::from_secs(6),
                received,
                number: 7,
                invalidate: (!received).then_some(0xabcd),
                solicited: false,
                bytes: bytes[..length].to_vec(),
            };
            let before = out.len();
            file.message(&message, &mut out);
            assert_eq!(out.len() - before, file.bytes_of(length));
        }
        let found = payloads(&out);
        let lengths: Vec<_> = found
            .iter()
            .map(|(port, bytes)| (*port, bytes.len()))
            .collect();
        let setup = [(700, 0), (20049, 0), (700, 0), (700, 20), (20049, 20)];
        assert_eq!(lengths[..5], setup);
        assert!(found[3].1.starts_with(b"MPA ID Req Frame"));
        assert!(found[4].1.starts_with(b"MPA ID Rep Frame"));

        let mut arrived = Vec::new();
        for (port, fpdu) in &found[5..] {
            let (framed, check) = fpdu.split_at(fpdu.len() - CRC_BYTES);
            assert_eq!(check, Crc32c::of(framed));
            assert_eq!(fpdu.len() % 4, 0);
            let ulpdu = u16::from_be_bytes([framed[0], framed[1]]) as usize;
            let segment = Segment::decode(&framed[2..]).unwrap();
            let Model::Untagged(model) = segment.model else {
                panic!("{segment:?}");
            };
            let payload = &framed[2 + UNTAGGED_BYTES..2 + ulpdu];
            assert_eq!(model.sequence, 7);
            arrived.push((
                *port,
                segment.opcode,
                segment.last,
                model.offset,
                payload.to_vec(),
            ));
        }
        let first = (700, Opcode::Send, true, 0, bytes[..33].to_vec());
        let offset = PART_MAX as u32;
        let invalidate = Opcode::SendInvalidate;
        let second = (20049, invalidate, false, 0, bytes[..PART_MAX].to_vec());
        let third = (20049, invalidate, true, offset, bytes[PART_MAX..].to_vec());
        assert_eq!(arrived, [first, second, third]);
    }

    #[test]
    fn empty_messages_are_messages() {
        let mut file = file("[::1]:1", "[::1]:2");
        let mut out = Vec::new();
        let message = CapturedMessage {
            at: UNIX_EPOCH,
            received: true,
            number: 1,
            invalidate: None,
            solicited: true,
            bytes: Vec::new(),
        };
        file.message(&message, &mut out);
        assert_eq!(out.len(), file.bytes_of(0));
    }

    #[test]
    fn both_ends_are_of_one_family() {
        for (one, other, found) in [
            ("[::ffff:10.0.0.1]:1", "10.0.0.2:2", "10.0.0.1:1 10.0.0.2:2"),
            ("[fd00::1]:1", "0.0.0.0:2", "[fd00::1]:1 [::]:2"),
            (
                "[fd00::1]:1",
                "10.0.0.2:2",
                "[fd00::1]:1 [::ffff:10.0.0.2]:2",
            ),
        ] {
            let [one, other] = file(one, other).ends;
            assert_eq!(format!("{one} {other}"), found);
        }
    }
}
