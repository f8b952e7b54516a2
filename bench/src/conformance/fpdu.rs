//! FPDUs word for word (RFC 5044 section 4, RFC 5041 section 4, RFC 5040 section 4), independent of
//! the provider's implementation: an error there is not repeated here.

/// RDMAP opcodes (RFC 5040 section 4.1).
pub(crate) mod opcode {
    pub const WRITE: u8 = 0;
    pub const READ_REQUEST: u8 = 1;
    pub const READ_RESPONSE: u8 = 2;
    pub const SEND: u8 = 3;
    pub const TERMINATE: u8 = 7;
}

/// One DDP segment that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub opcode: u8,
    pub last: bool,
    /// Without headers.
    pub payload: Vec<u8>,
    /// Whether the CRC field is right.
    pub sound: bool,
}

/// A Send in one segment.
pub(crate) fn send(sequence: u32, payload: &[u8]) -> Vec<u8> {
    untagged(opcode::SEND, 0, sequence, payload)
}

/// A Write of no bytes to nowhere.
pub(crate) fn empty_write() -> Vec<u8> {
    let mut bytes = vec![0xc1, 0x40 | opcode::WRITE];
    bytes.resize(14, 0);
    bytes
}

/// A Read Request of no bytes from nowhere.
pub(crate) fn empty_read(sequence: u32) -> Vec<u8> {
    untagged(opcode::READ_REQUEST, 1, sequence, &[0; 28])
}

fn untagged(opcode: u8, queue: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x41, 0x40 | opcode];
    for word in [0, queue, sequence, 0] {
        bytes.extend_from_slice(&u32::to_be_bytes(word));
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// The FPDU of a ULPDU. Without `crc` the field is zero.
pub(crate) fn frame(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let value = if crc { crc32c(&bytes) } else { 0 };
    bytes.extend_from_slice(&value.to_le_bytes());
    bytes
}

/// The first FPDU of a stream, if all of it has come, and its length.
pub(crate) fn parse(stream: &[u8]) -> Option<(usize, Arrived)> {
    let length = usize::from(u16::from_be_bytes(*stream.first_chunk()?));
    let covered = (length + 2).next_multiple_of(4);
    let whole = stream.get(..covered + 4)?;
    let sound = whole[covered..] == crc32c(&whole[..covered]).to_le_bytes();
    let ulpdu = &whole[2..length + 2];
    let &[ddp, rdmap, ..] = ulpdu else {
        return Some((covered + 4, Arrived::empty(sound)));
    };
    let header = if ddp & 0x80 != 0 { 14 } else { 18 };
    let arrived = Arrived {
        opcode: rdmap & 15,
        last: ddp & 0x40 != 0,
        payload: ulpdu.get(header..).unwrap_or_default().to_vec(),
        sound,
    };
    Some((covered + 4, arrived))
}

impl Arrived {
    fn empty(sound: bool) -> Self {
        Self {
            opcode: u8::MAX,
            last: false,
            payload: Vec::new(),
            sound,
        }
    }

    /// Layer, type and code, if it is a Terminate message.
    pub fn termination(&self) -> Option<(u8, u8, u8)> {
        match self.payload[..] {
            [first, code, ..] if self.opcode == opcode::TERMINATE => {
                Some((first >> 4, first & 15, code))
            }
            _ => None,
        }
    }
}

/// CRC-32C bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_those_of_the_standard() {
        // RFC 3720 appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn frames_are_taken_apart_again() {
        let ulpdu = send(1, b"hello");
        let bytes = frame(&ulpdu, true);
        assert_eq!(bytes.len() % 4, 0);
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), None);
        }
        let (taken, arrived) = parse(&bytes).unwrap();
        assert_eq!(taken, bytes.len());
        assert_eq!(
            (arrived.opcode, arrived.last, arrived.sound),
            (opcode::SEND, true, true)
        );
        assert_eq!(arrived.payload, b"hello");
        assert!(!parse(&frame(&ulpdu, false)).unwrap().1.sound);
        let terminate = untagged(opcode::TERMINATE, 2, 1, &[0x20, 7, 0, 0]);
        let (_, arrived) = parse(&frame(&terminate, false)).unwrap();
        assert_eq!(arrived.termination(), Some((2, 0, 7)));
        assert!(parse(&[0, 0, 0, 0, 0, 0, 0, 0]).is_some());
    }
}
