//! Layout of an FPDU and of the DDP and RDMAP headers in it.
//!
//! RFC 5044 section 4.1 (FPDU), RFC 5041 section 4 (DDP), RFC 5040 section 4 (RDMAP).

use crate::terminate::Fault;

/// Bytes of the ULPDU length that opens an FPDU.
pub const LENGTH_BYTES: usize = 2;
/// Bytes of the check value that ends an FPDU.
pub const CRC_BYTES: usize = 4;
/// Longest ULPDU that the length field can tell.
pub const ULPDU_BYTES_MAX: usize = 0xffff;
/// Bytes of a tagged DDP header.
pub const TAGGED_BYTES: usize = 14;
/// Bytes of an untagged DDP header.
pub const UNTAGGED_BYTES: usize = 18;
/// Bytes of a Read Request header behind its DDP header.
pub const READ_REQUEST_BYTES: usize = 28;
/// The DDP version of RFC 5041.
pub const DDP_VERSION: u8 = 1;
/// The RDMAP version of RFC 5040.
pub const RDMAP_VERSION: u8 = 1;

/// The untagged queue of Sends.
pub const QUEUE_SEND: u32 = 0;
/// The untagged queue of Read Requests.
pub(crate) const QUEUE_READ: u32 = 1;
/// The untagged queue of Terminate.
pub(crate) const QUEUE_TERMINATE: u32 = 2;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;

/// Pad octets that make an FPDU with this ULPDU a multiple of four.
#[must_use]
pub const fn pad_bytes(ulpdu: usize) -> usize {
    (4 - (LENGTH_BYTES + ulpdu) % 4) % 4
}

/// RDMAP messages (RFC 5040 figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
}

impl Opcode {
    /// Reads the low four bits of the RDMAP control octet. The values of RFC 7306 and the
    /// reserved ones are unknown here.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits & 0x0f {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            _ => return None,
        })
    }

    /// Whether its segments are tagged.
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// Whether the DDP header carries a steering tag to invalidate.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// The untagged queue that it belongs to.
    const fn queue(self) -> u32 {
        match self {
            Self::ReadRequest => QUEUE_READ,
            Self::Terminate => QUEUE_TERMINATE,
            _ => QUEUE_SEND,
        }
    }
}

/// Where a tagged segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Steering tag.
    pub key: u32,
    /// Tagged offset of the first payload byte.
    pub offset: u64,
}

impl Tagged {
    /// The DDP header of a segment.
    #[inline]
    pub(crate) fn encode(self, opcode: Opcode, last: bool) -> [u8; TAGGED_BYTES] {
        let mut header = [0; TAGGED_BYTES];
        header[0] = TAGGED | last_bit(last) | DDP_VERSION;
        header[1] = RDMAP_VERSION << 6 | opcode as u8;
        header[2..6].copy_from_slice(&self.key.to_be_bytes());
        header[6..14].copy_from_slice(&self.offset.to_be_bytes());
        header
    }
}

/// Where an untagged segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// Steering tag to invalidate, in the messages that do.
    pub invalidate: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number within the queue.
    pub sequence: u32,
    /// Offset of the first payload byte within its message.
    pub offset: u32,
}

impl Untagged {
    /// The DDP header of a segment.
    #[inline]
    pub(crate) fn encode(self, opcode: Opcode, last: bool) -> [u8; UNTAGGED_BYTES] {
        let mut header = [0; UNTAGGED_BYTES];
        header[0] = last_bit(last) | DDP_VERSION;
        header[1] = RDMAP_VERSION << 6 | opcode as u8;
        header[2..6].copy_from_slice(&self.invalidate.to_be_bytes());
        header[6..10].copy_from_slice(&self.queue.to_be_bytes());
        header[10..14].copy_from_slice(&self.sequence.to_be_bytes());
        header[14..18].copy_from_slice(&self.offset.to_be_bytes());
        header
    }
}

const fn last_bit(last: bool) -> u8 {
    if last { LAST } else { 0 }
}

/// The two buffer models of DDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Memory named by a steering tag.
    Tagged(Tagged),
    /// The next buffer of a queue.
    Untagged(Untagged),
}

/// DDP and RDMAP header of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whether it ends its message.
    pub last: bool,
    /// The message's kind.
    pub opcode: Opcode,
    /// The message's destination.
    pub model: Model,
}

impl Segment {
    /// Bytes of the DDP header that a segment with this first control octet has.
    pub(crate) const fn ddp_bytes(control: u8) -> usize {
        if control & TAGGED != 0 {
            TAGGED_BYTES
        } else {
            UNTAGGED_BYTES
        }
    }

    /// Reads a DDP header. `header` begins at the control octet and holds the whole of it.
    ///
    /// # Errors
    /// The [`Fault`] for wrong versions, unknown opcodes, an opcode in the wrong buffer model,
    /// a wrong queue, and headers that are cut off.
    pub fn decode(header: &[u8]) -> Result<Self, Fault> {
        let [control, rdmap, ..] = *header else {
            return Err(Fault::Stream);
        };
        let tagged = control & TAGGED != 0;
        if control & 0x03 != DDP_VERSION {
            return Err(if tagged {
                Fault::TaggedVersion
            } else {
                Fault::UntaggedVersion
            });
        }
        if rdmap >> 6 != RDMAP_VERSION {
            return Err(Fault::Version);
        }
        let opcode = Opcode::from_bits(rdmap).ok_or(Fault::Opcode)?;
        if opcode.is_tagged() != tagged {
            return Err(Fault::Opcode);
        }
        let model = if tagged {
            let header: &[u8; TAGGED_BYTES] = header.first_chunk().ok_or(Fault::Stream)?;
            Model::Tagged(Tagged {
                key: u32_at(header, 2),
                offset: u64_at(header, 6),
            })
        } else {
            let header: &[u8; UNTAGGED_BYTES] = header.first_chunk().ok_or(Fault::Stream)?;
            let untagged = Untagged {
                invalidate: u32_at(header, 2),
                queue: u32_at(header, 6),
                sequence: u32_at(header, 10),
                offset: u32_at(header, 14),
            };
            if untagged.queue != opcode.queue() {
                return Err(Fault::Queue);
            }
            Model::Untagged(untagged)
        };
        Ok(Self {
            last: control & LAST != 0,
            opcode,
            model,
        })
    }

    /// The message sequence number of an FPDU that is a complete Send, and the steering tag that it
    /// invalidates, determined from its head; `None` for any other FPDU, and if only
    /// [`Self::decode`] can determine its type.
    #[inline]
    pub(crate) fn only_send(
        head: &[u8; LENGTH_BYTES + UNTAGGED_BYTES],
    ) -> Option<(u32, Option<u32>)> {
        const CONTROL: u8 = LAST | DDP_VERSION;
        const PLAIN: u8 = RDMAP_VERSION << 6 | Opcode::Send as u8;
        const INVALIDATING: u8 = RDMAP_VERSION << 6 | Opcode::SendInvalidate as u8;
        let invalidate = match (head[2], head[3]) {
            (CONTROL, PLAIN) => None,
            (CONTROL, INVALIDATING) => Some(u32_at(head, 4)),
            _ => return None,
        };
        let is_whole = u32_at(head, 8) == QUEUE_SEND && u32_at(head, 16) == 0;
        is_whole.then(|| (u32_at(head, 12), invalidate))
    }

    /// The opcode and destination of an FPDU with tagged data, and whether it ends its message,
    /// determined from its head; `None` for any other FPDU.
    #[inline]
    pub(crate) fn only_tagged(
        head: &[u8; LENGTH_BYTES + TAGGED_BYTES],
    ) -> Option<(Opcode, Tagged, bool)> {
        const WRITE: u8 = RDMAP_VERSION << 6 | Opcode::Write as u8;
        const RESPONSE: u8 = RDMAP_VERSION << 6 | Opcode::ReadResponse as u8;
        if head[2] & !LAST != TAGGED | DDP_VERSION {
            return None;
        }
        let opcode = match head[3] {
            WRITE => Opcode::Write,
            RESPONSE => Opcode::ReadResponse,
            _ => return None,
        };
        let tagged = Tagged {
            key: u32_at(head, 4),
            offset: u64_at(head, 8),
        };
        Some((opcode, tagged, head[2] & LAST != 0))
    }

    /// Writes the DDP header to the front of `header`, which has room, and says its length.
    pub fn encode(&self, header: &mut [u8]) -> usize {
        match self.model {
            Model::Tagged(tagged) => {
                header[..TAGGED_BYTES].copy_from_slice(&tagged.encode(self.opcode, self.last));
                TAGGED_BYTES
            }
            Model::Untagged(untagged) => {
                header[..UNTAGGED_BYTES].copy_from_slice(&untagged.encode(self.opcode, self.last));
                UNTAGGED_BYTES
            }
        }
    }
}

/// A Read Request header (RFC 5040 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's steering tag for the answer.
    pub sink_key: u32,
    /// The requester's tagged offset for the answer.
    pub sink_offset: u64,
    /// Bytes to read.
    pub length: u32,
    /// Steering tag of the source.
    pub source_key: u32,
    /// Tagged offset of the source.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Reads a header.
    #[must_use]
    pub fn decode(header: &[u8; READ_REQUEST_BYTES]) -> Self {
        Self {
            sink_key: u32_at(header, 0),
            sink_offset: u64_at(header, 4),
            length: u32_at(header, 12),
            source_key: u32_at(header, 16),
            source_offset: u64_at(header, 20),
        }
    }

    /// The header on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut header = [0; READ_REQUEST_BYTES];
        header[0..4].copy_from_slice(&self.sink_key.to_be_bytes());
        header[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        header[12..16].copy_from_slice(&self.length.to_be_bytes());
        header[16..20].copy_from_slice(&self.source_key.to_be_bytes());
        header[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        header
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let tagged = Segment {
            last: true,
            opcode: Opcode::Write,
            model: Model::Tagged(Tagged {
                key: 0x0102_0304,
                offset: 0x1122_3344_5566_7788,
            }),
        };
        let untagged = Segment {
            last: false,
            opcode: Opcode::SendSolicitedInvalidate,
            model: Model::Untagged(Untagged {
                invalidate: 0xa0b0_c0d0,
                queue: 0,
                sequence: 77,
                offset: 0x10_0000,
            }),
        };
        for segment in [tagged, untagged] {
            let mut bytes = [0; UNTAGGED_BYTES];
            let length = segment.encode(&mut bytes);
            assert_eq!(length, Segment::ddp_bytes(bytes[0]));
            assert_eq!(Segment::decode(&bytes[..length]), Ok(segment));
        }
        let request = ReadRequest {
            sink_key: 1,
            sink_offset: u64::MAX,
            length: 0x8000_0001,
            source_key: 2,
            source_offset: 1 << 40,
        };
        assert_eq!(ReadRequest::decode(&request.encode()), request);
    }

    /// The fast path takes what is in its usual form, and takes it as [`Segment::decode`] does.
    #[test]
    fn short_forms_are_read_as_all_others() {
        let mut head = [0; LENGTH_BYTES + UNTAGGED_BYTES];
        let sequence = 0x0a0b_0c0d;
        for octets in 0..=u16::MAX {
            for (queue, offset) in [(QUEUE_SEND, 0), (QUEUE_READ, 0), (QUEUE_SEND, 8)] {
                head[2..4].copy_from_slice(&octets.to_be_bytes());
                for (at, word) in [(4, 0x0102_0304), (8, queue), (12, sequence), (16, offset)] {
                    head[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
                }
                let decoded = Segment::decode(&head[LENGTH_BYTES..]).ok();
                let usual = decoded.filter(|segment| {
                    let mut bytes = [0; UNTAGGED_BYTES];
                    segment.encode(&mut bytes);
                    bytes[..2] == head[2..4]
                });
                let send = usual.and_then(|segment| match (segment.opcode, segment.model) {
                    (Opcode::Send, Model::Untagged(untagged)) => {
                        Some((segment.last, untagged, None))
                    }
                    (Opcode::SendInvalidate, Model::Untagged(untagged)) => {
                        Some((segment.last, untagged, Some(untagged.invalidate)))
                    }
                    _ => None,
                });
                let send = send.and_then(|(last, untagged, invalidate)| {
                    (last && untagged.offset == 0).then_some((untagged.sequence, invalidate))
                });
                assert_eq!(
                    Segment::only_send(&head),
                    send,
                    "{octets:04x} {queue} {offset}"
                );
                let data = usual.and_then(|segment| match (segment.opcode, segment.model) {
                    (Opcode::Write | Opcode::ReadResponse, Model::Tagged(tagged)) => {
                        Some((segment.opcode, tagged, segment.last))
                    }
                    _ => None,
                });
                let short = head.first_chunk().expect("a longer head");
                assert_eq!(Segment::only_tagged(short), data, "{octets:04x}");
            }
        }
    }

    #[test]
    fn every_ulpdu_pads_to_four() {
        for ulpdu in 0..64 {
            assert_eq!((LENGTH_BYTES + ulpdu + pad_bytes(ulpdu)) % 4, 0);
            assert!(pad_bytes(ulpdu) < 4);
        }
    }
}
