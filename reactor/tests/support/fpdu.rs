//! FPDUs as a scripted peer writes and reads them: RFC 5044 section 4, RFC 5041 section 4,
//! RFC 5040 section 4. Written apart from the stack under test, so that a mistake in its layouts
//! cannot hide.

/// RDMAP opcodes (RFC 5040 section 4.1).
pub mod opcode {
    pub const WRITE: u8 = 0;
    pub const READ_REQUEST: u8 = 1;
    pub const READ_RESPONSE: u8 = 2;
    pub const SEND: u8 = 3;
    pub const TERMINATE: u8 = 7;
}

/// Untagged queues (RFC 5040 section 4.2).
pub mod queue {
    pub const SEND: u32 = 0;
    pub const READ_REQUEST: u32 = 1;
    pub const TERMINATE: u32 = 2;
}

/// One DDP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub opcode: u8,
    pub last: bool,
    pub header: Header,
    pub payload: Vec<u8>,
}

/// What follows the two control bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Tagged {
        key: u32,
        offset: u64,
    },
    Untagged {
        invalidate: u32,
        queue: u32,
        sequence: u32,
        offset: u32,
    },
}

/// A key and the offset under it.
pub type KeyOffset = (u32, u64);

impl Segment {
    /// A Send in one segment.
    pub fn send(sequence: u32, payload: &[u8]) -> Self {
        Self::untagged(opcode::SEND, queue::SEND, sequence, payload)
    }

    /// An RDMA Write in one segment.
    pub fn write(key: u32, offset: u64, payload: &[u8]) -> Self {
        Self {
            opcode: opcode::WRITE,
            last: true,
            header: Header::Tagged { key, offset },
            payload: payload.to_vec(),
        }
    }

    /// A Read Request: `sink` and `source` are key and offset.
    pub fn read_request(sequence: u32, sink: (u32, u64), length: u32, source: (u32, u64)) -> Self {
        let mut payload = Vec::new();
        payload.extend_from_slice(&sink.0.to_be_bytes());
        payload.extend_from_slice(&sink.1.to_be_bytes());
        payload.extend_from_slice(&length.to_be_bytes());
        payload.extend_from_slice(&source.0.to_be_bytes());
        payload.extend_from_slice(&source.1.to_be_bytes());
        Self::untagged(
            opcode::READ_REQUEST,
            queue::READ_REQUEST,
            sequence,
            &payload,
        )
    }

    /// The answer to a Read in one segment.
    pub fn read_response(key: u32, offset: u64, payload: &[u8]) -> Self {
        Self {
            opcode: opcode::READ_RESPONSE,
            ..Self::write(key, offset, payload)
        }
    }

    /// Moves an untagged segment within its message.
    pub fn set_message_offset(&mut self, to: usize) {
        if let Header::Untagged { offset, .. } = &mut self.header {
            *offset = u32::try_from(to).expect("32 bits");
        }
    }

    /// Sink (key, offset), length and source (key, offset), if this is a Read Request.
    pub fn read_of(&self) -> Option<(KeyOffset, u32, KeyOffset)> {
        if self.opcode != opcode::READ_REQUEST {
            return None;
        }
        let word = |at: usize| {
            let bytes = self.payload[at..at + 4].try_into().expect("4 bytes");
            u32::from_be_bytes(bytes)
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Some(((word(0), long(4)), word(12), (word(16), long(20))))
    }

    /// A Terminate message that copies no headers.
    pub fn terminate(layer: u8, kind: u8, code: u8) -> Self {
        let control = [layer << 4 | kind, code, 0, 0];
        Self::untagged(opcode::TERMINATE, queue::TERMINATE, 1, &control)
    }

    /// Layer, type and code, if this is a Terminate message.
    pub fn termination(&self) -> Option<(u8, u8, u8)> {
        match self.payload[..] {
            [first, code, ..] if self.opcode == opcode::TERMINATE => {
                Some((first >> 4, first & 15, code))
            }
            _ => None,
        }
    }

    fn untagged(opcode: u8, queue: u32, sequence: u32, payload: &[u8]) -> Self {
        let header = Header::Untagged {
            invalidate: 0,
            queue,
            sequence,
            offset: 0,
        };
        Self {
            opcode,
            last: true,
            header,
            payload: payload.to_vec(),
        }
    }

    /// The ULPDU: DDP and RDMAP headers and payload.
    pub fn ulpdu(&self) -> Vec<u8> {
        let tagged = matches!(self.header, Header::Tagged { .. });
        let ddp = u8::from(tagged) << 7 | u8::from(self.last) << 6 | 1;
        let mut bytes = vec![ddp, 1 << 6 | self.opcode];
        match self.header {
            Header::Tagged { key, offset } => {
                bytes.extend_from_slice(&key.to_be_bytes());
                bytes.extend_from_slice(&offset.to_be_bytes());
            }
            Header::Untagged {
                invalidate,
                queue,
                sequence,
                offset,
            } => {
                for word in [invalidate, queue, sequence, offset] {
                    bytes.extend_from_slice(&word.to_be_bytes());
                }
            }
        }
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// The FPDU: length, ULPDU, pad and CRC. Without `crc` the field is zero.
    pub fn fpdu(&self, crc: bool) -> Vec<u8> {
        let ulpdu = self.ulpdu();
        let length = u16::try_from(ulpdu.len()).expect("a ULPDU is shorter than 64 KiB");
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&ulpdu);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let value = if crc { crc32c(&bytes) } else { 0 };
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Takes the first FPDU of a stream, if it is there whole: its bytes and what it says.
    ///
    /// Panics on anything that a correct sender does not send.
    pub fn parse(stream: &[u8], crc: bool) -> Option<(usize, Self)> {
        let length = usize::from(u16::from_be_bytes([*stream.first()?, *stream.get(1)?]));
        let covered = (length + 2).next_multiple_of(4);
        let fpdu = stream.get(..covered + 4)?;
        if crc {
            assert_eq!(
                fpdu[covered..],
                crc32c(&fpdu[..covered]).to_le_bytes(),
                "CRC"
            );
        }
        assert!(fpdu[length + 2..covered].iter().all(|pad| *pad == 0), "pad");
        let (control, rest) = fpdu[2..length + 2].split_at(2);
        assert_eq!((control[0] & 3, control[1] >> 6), (1, 1), "versions");
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let (header, payload) = if control[0] & 0x80 != 0 {
            let offset = u64::from(word(4)) << 32 | u64::from(word(8));
            (
                Header::Tagged {
                    key: word(0),
                    offset,
                },
                &rest[12..],
            )
        } else {
            let [invalidate, queue, sequence, offset] = [word(0), word(4), word(8), word(12)];
            (
                Header::Untagged {
                    invalidate,
                    queue,
                    sequence,
                    offset,
                },
                &rest[16..],
            )
        };
        let segment = Self {
            opcode: control[1] & 15,
            last: control[0] & 0x40 != 0,
            header,
            payload: payload.to_vec(),
        };
        Some((covered + 4, segment))
    }
}

/// CRC-32C bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}
