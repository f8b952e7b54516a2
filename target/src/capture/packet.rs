//! Packets of a capture file: TCP segments on IP, each with its time.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes of the header of one packet in the file.
const RECORD_HEADER_BYTES: usize = 16;

/// Nanosecond time stamps, in the order of bytes that this file is written in.
const MAGIC: u32 = 0xa1b2_3c4d;

/// The format's version.
const VERSION: (u16, u16) = (2, 4);

/// Packets begin with their IP header.
const LINK_RAW: u32 = 101;

/// No packet is longer.
const SNAPSHOT: u32 = 262_144;

const TCP_BYTES: usize = 20;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const HOPS: u8 = 64;
const PROTOCOL_TCP: u8 = 6;
const WINDOW: u16 = u16::MAX;

/// The first segment of one side, and the first of the other.
pub const SYN: u8 = 0x02;
/// Confirms what has come.
pub const ACK: u8 = 0x10;
/// Carries a whole message.
pub const PUSH: u8 = 0x08;

/// Bytes of payload that always fit.
pub const PAYLOAD_MAX: usize = u16::MAX as usize - IPV4_BYTES - TCP_BYTES;

/// Appends the header of a file.
pub fn file_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&VERSION.0.to_le_bytes());
    out.extend_from_slice(&VERSION.1.to_le_bytes());
    // Time zone and accuracy, which are unused in practice.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&SNAPSHOT.to_le_bytes());
    out.extend_from_slice(&LINK_RAW.to_le_bytes());
}

/// Bytes that a packet takes in the file.
pub fn record_bytes(from: &SocketAddr, payload: usize) -> usize {
    let ip = match from.ip() {
        IpAddr::V4(_) => IPV4_BYTES,
        IpAddr::V6(_) => IPV6_BYTES,
    };
    RECORD_HEADER_BYTES + ip + TCP_BYTES + payload
}

/// One TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Since the epoch.
    pub at: Duration,
    /// The sender.
    pub from: SocketAddr,
    /// The receiver, of the same family.
    pub to: SocketAddr,
    /// [`SYN`], [`ACK`] and [`PUSH`].
    pub flags: u8,
    /// Number of the first byte.
    pub sequence: u32,
    /// Number of the next byte of the other side.
    pub acknowledged: u32,
}

impl Packet {
    /// Appends the segment with a payload of at most [`PAYLOAD_MAX`] bytes.
    pub fn write(&self, payload: &[u8], out: &mut Vec<u8>) {
        let length = record_bytes(&self.from, payload.len()) - RECORD_HEADER_BYTES;
        let words = [
            // Until 2106.
            u32::try_from(self.at.as_secs()).unwrap_or(u32::MAX),
            self.at.subsec_nanos(),
            u32::try_from(length).unwrap_or(u32::MAX),
            u32::try_from(length).unwrap_or(u32::MAX),
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let segment = u16::try_from(TCP_BYTES + payload.len()).unwrap_or(u16::MAX);
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut header = [0; IPV4_BYTES];
                header[0] = 0x45;
                let total = u16::try_from(length).unwrap_or(u16::MAX);
                header[2..4].copy_from_slice(&total.to_be_bytes());
                // Not to be fragmented.
                header[6] = 0x40;
                header[8..10].copy_from_slice(&[HOPS, PROTOCOL_TCP]);
                header[12..16].copy_from_slice(&from.octets());
                header[16..20].copy_from_slice(&to.octets());
                let sum = checksum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                out.extend_from_slice(&header);
            }
            (from, to) => {
                out.extend_from_slice(&[0x60, 0, 0, 0]);
                out.extend_from_slice(&segment.to_be_bytes());
                out.extend_from_slice(&[PROTOCOL_TCP, HOPS]);
                out.extend_from_slice(&octets(from));
                out.extend_from_slice(&octets(to));
            }
        }
        let mut tcp = [0; TCP_BYTES];
        tcp[0..2].copy_from_slice(&self.from.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        tcp[12] = 0x50;
        tcp[13] = self.flags;
        tcp[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        let addresses = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            (from, to) => [octets(from), octets(to)].concat(),
        };
        let length = segment.to_be_bytes();
        let pseudo = [0, PROTOCOL_TCP, length[0], length[1]];
        let sum = checksum(&[&addresses, &pseudo, &tcp, payload]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(&tcp);
        out.extend_from_slice(payload);
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The checksum of the Internet (RFC 1071), over parts of which only the last may be odd.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words
        .map(|word| u64::from(word[0]) << 8 | word.get(1).copied().map_or(0, u64::from))
        .sum();
    let mut folded = sum;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    // It is folded to sixteen bits.
    !(folded as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // The example of section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&[&bytes]), !0xddf2);
        assert_eq!(checksum(&[&bytes[..4], &bytes[4..]]), !0xddf2);
        assert_eq!(checksum(&[&[0x12]]), !0x1200);
    }

    #[test]
    fn packets_have_the_length_that_was_told() {
        let at = Duration::new(1_700_000_000, 123_456_789);
        for (from, to) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")] {
            let packet = Packet {
                at,
                from: from.parse().unwrap(),
                to: to.parse().unwrap(),
                flags: ACK | PUSH,
                sequence: 1,
                acknowledged: 2,
            };
            for payload in [&[][..], &[1, 2, 3]] {
                let mut out = Vec::new();
                packet.write(payload, &mut out);
                assert_eq!(out.len(), record_bytes(&packet.from, payload.len()));
                assert!(out.ends_with(payload));
                assert_eq!(out[0..4], 1_700_000_000_u32.to_le_bytes());
                assert_eq!(out[4..8], 123_456_789_u32.to_le_bytes());
            }
        }
    }
}
