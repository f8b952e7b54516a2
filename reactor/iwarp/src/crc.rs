//! The check value of an FPDU (RFC 5044 section 4.4): CRC32c as iSCSI computes it.

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC32c over bytes that arrive in pieces.
#[derive(Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// A check value over nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four octets as they stand on the wire.
    #[must_use]
    pub fn octets(&self) -> [u8; 4] {
        wire_order(self.0.finalize())
    }

    /// The check value of bytes that lie together.
    #[must_use]
    pub fn of(bytes: &[u8]) -> [u8; 4] {
        wire_order(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// The reflected value goes out with its least significant octet first.
fn wire_order(value: u64) -> [u8; 4] {
    u32::try_from(value & u64::from(u32::MAX))
        .unwrap_or(0)
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::Crc32c;

    /// RFC 5044 figure 5: a first FPDU behind its marker.
    #[test]
    fn matches_the_example_of_rfc_5044() {
        let mut frame = [0_u8; 48];
        frame[5] = 0x2a;
        frame[6] = 0x41;
        frame[7] = 0x43;
        frame[0x13] = 1;
        assert_eq!(Crc32c::of(&frame), [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn pieces_and_whole_agree_with_an_independent_implementation() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for cut in [0, 1, 13, 2048, 4999, 5000] {
            let mut crc = Crc32c::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.octets(), Crc32c::of(&bytes));
            assert_eq!(crc.octets(), crc32c::crc32c(&bytes).to_le_bytes());
        }
    }
}
