//! Connection setup frames as a scripted peer writes and reads them: RFC 5044 section 7.1.1, RFC
//! 6581 sections 6 and 9.

/// The peer requires markers.
pub const MARKERS: u8 = 0x80;
/// The peer wishes CRCs.
pub const CRC: u8 = 0x40;
/// The private data begins with connection data.
pub const ENHANCED: u8 = 0x10;

/// Connection data flags.
pub mod model {
    /// The peer-to-peer model.
    pub const A: u32 = 1 << 31;
    /// Ready-to-receive by Send.
    pub const B: u32 = 1 << 30;
    /// Ready-to-receive by Write.
    pub const C: u32 = 1 << 15;
    /// Ready-to-receive by Read.
    pub const D: u32 = 1 << 14;
}

/// Four bytes of connection data.
pub fn data(flags: u32, ird: u32, ord: u32) -> [u8; 4] {
    assert!(ird < 1 << 14 && ord < 1 << 14, "14 bits each");
    (flags | ird << 16 | ord).to_be_bytes()
}

/// A request of any kind.
pub fn request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", flags, revision, private)
}

/// A reply of any kind.
pub fn reply(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", flags, revision, private)
}

fn frame(key: &[u8; 16], flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private.len()).expect("16 bits");
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&[flags, revision]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(private);
    bytes
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub is_reply: bool,
    pub flags: u8,
    pub revision: u8,
    pub private: Vec<u8>,
}

impl Frame {
    /// Bytes of the whole frame, once so many have come that it can be told.
    pub fn length(bytes: &[u8]) -> Option<usize> {
        Some(20 + usize::from(u16::from_be_bytes([*bytes.get(18)?, *bytes.get(19)?])))
    }

    /// Reads a whole frame.
    pub fn parse(bytes: &[u8]) -> Self {
        assert_eq!(Self::length(bytes), Some(bytes.len()));
        assert!(bytes.starts_with(b"MPA ID Re") && &bytes[10..16] == b" Frame");
        Self {
            is_reply: bytes[9] == b'p',
            flags: bytes[16],
            revision: bytes[17],
            private: bytes[20..].to_vec(),
        }
    }

    /// The connection data.
    pub fn data(&self) -> u32 {
        assert_ne!(self.flags & ENHANCED, 0);
        u32::from_be_bytes(self.private[..4].try_into().expect("4 bytes"))
    }
}
