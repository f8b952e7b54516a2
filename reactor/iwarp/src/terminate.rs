//! Errors of a stream and the Terminate message that reports them.
//!
//! RFC 5040 section 4.8 (message and RDMAP codes), RFC 5041 section 7.2 (DDP codes), RFC 5044
//! section 8 and RFC 6581 section 8 (MPA codes).

use crate::header::{LENGTH_BYTES, READ_REQUEST_BYTES, TAGGED_BYTES, UNTAGGED_BYTES};

/// Bytes of the Terminate Control word.
pub(crate) const CONTROL_BYTES: usize = 4;

/// Bytes of the longest Terminate header: control, segment length, DDP and Read Request header.
pub(crate) const TERMINATE_BYTES_MAX: usize =
    CONTROL_BYTES + LENGTH_BYTES + UNTAGGED_BYTES + READ_REQUEST_BYTES;

/// The content of a Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub kind: u8,
    /// Error code within the type.
    pub code: u8,
}

impl Terminate {
    /// Reads the control word that opens a Terminate header.
    #[must_use]
    pub fn decode(control: [u8; CONTROL_BYTES]) -> Self {
        Self {
            layer: control[0] >> 4,
            kind: control[0] & 0x0f,
            code: control[1],
        }
    }
}

/// A violation by the peer, or a local error that ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An FPDU's check value does not fit its bytes.
    #[error("an FPDU failed its CRC")]
    Crc,
    /// A local error during connection setup.
    #[error("local catastrophic error in MPA")]
    SetupCatastrophic,
    /// The peer wants to open more Reads than this side serves.
    #[error("insufficient inbound read depth")]
    ReadDepth,
    /// No kind of ready-to-receive message is common to both sides.
    #[error("no matching ready-to-receive")]
    NoReadyToReceive,
    /// A local error after the connection was set up.
    #[error("local catastrophic error")]
    Catastrophic,
    /// A tagged segment names no memory that this stream may write.
    #[error("invalid steering tag in a tagged segment")]
    TaggedKey,
    /// A tagged segment reaches outside its memory.
    #[error("a tagged segment is out of bounds")]
    TaggedBounds,
    /// The end of a tagged segment wraps around.
    #[error("a tagged offset wraps")]
    TaggedWrap,
    /// DDP version of a tagged segment.
    #[error("invalid DDP version in a tagged segment")]
    TaggedVersion,
    /// Unknown untagged queue, or one that does not fit the opcode.
    #[error("invalid queue number")]
    Queue,
    /// No receive is posted for a Send, or more Reads than the inbound depth.
    #[error("no buffer for an untagged message")]
    NoBuffer,
    /// The message sequence number is not the next one.
    #[error("message sequence number out of range")]
    Sequence,
    /// An untagged segment does not continue where the one before ended.
    #[error("invalid message offset")]
    MessageOffset,
    /// An untagged message is longer than its buffer.
    #[error("a message is too long for its buffer")]
    TooLong,
    /// DDP version of an untagged segment.
    #[error("invalid DDP version in an untagged segment")]
    UntaggedVersion,
    /// A Read Request names no memory of this stream.
    #[error("a Read Request names an invalid steering tag")]
    ReadKey,
    /// A Read Request reaches outside its source.
    #[error("a Read Request is out of bounds")]
    ReadBounds,
    /// A Read Request names memory that may not be read.
    #[error("a Read Request lacks access rights")]
    ReadRights,
    /// The end of a Read Request's source wraps around.
    #[error("the source of a Read Request wraps")]
    ReadWrap,
    /// Send with Invalidate names a steering tag that the peer cannot invalidate.
    #[error("the steering tag cannot be invalidated")]
    Invalidate,
    /// RDMAP version.
    #[error("invalid RDMAP version")]
    Version,
    /// Unknown opcode, or one in a segment of the wrong kind.
    #[error("unexpected opcode")]
    Opcode,
    /// A segment too short for its headers.
    #[error("the stream is broken")]
    Stream,
    /// Read Request or Read Response of impossible length.
    #[error("unspecified remote operation error")]
    Unspecified,
}

impl Fault {
    /// Layer, type and code on the wire.
    ///
    /// DDP has no code for a lack of write rights; an invalid steering tag is the nearest, since
    /// the tag is not valid for the requested access.
    #[must_use]
    pub const fn terminate(self) -> Terminate {
        let (layer, kind, code) = match self {
            Self::Catastrophic => (0, 0, 0x00),
            Self::ReadKey => (0, 1, 0x00),
            Self::ReadBounds => (0, 1, 0x01),
            Self::ReadRights => (0, 1, 0x02),
            Self::ReadWrap => (0, 1, 0x04),
            Self::Invalidate => (0, 1, 0x09),
            Self::Version => (0, 2, 0x05),
            Self::Opcode => (0, 2, 0x06),
            Self::Stream => (0, 2, 0x07),
            Self::Unspecified => (0, 2, 0xff),
            Self::TaggedKey => (1, 1, 0x00),
            Self::TaggedBounds => (1, 1, 0x01),
            Self::TaggedWrap => (1, 1, 0x03),
            Self::TaggedVersion => (1, 1, 0x04),
            Self::Queue => (1, 2, 0x01),
            Self::NoBuffer => (1, 2, 0x02),
            Self::Sequence => (1, 2, 0x03),
            Self::MessageOffset => (1, 2, 0x04),
            Self::TooLong => (1, 2, 0x05),
            Self::UntaggedVersion => (1, 2, 0x06),
            Self::Crc => (2, 0, 0x02),
            Self::SetupCatastrophic => (2, 0, 0x05),
            Self::ReadDepth => (2, 0, 0x06),
            Self::NoReadyToReceive => (2, 0, 0x07),
        };
        Terminate { layer, kind, code }
    }

    /// Which headers of the offending segment go back (RFC 5040 figure 10): the DDP header, and
    /// the Read Request header.
    const fn returns_headers(self) -> (bool, bool) {
        let Terminate { layer, kind, .. } = self.terminate();
        match (layer, kind) {
            (0, 0) | (2, _) => (false, false),
            (0, 1) => (true, true),
            _ => (true, false),
        }
    }
}

/// A Terminate header ready for the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminateHeader {
    bytes: [u8; TERMINATE_BYTES_MAX],
    length: usize,
}

impl TerminateHeader {
    /// Reports `fault`, found in the segment that begins with the ULPDU length and header bytes
    /// in `head` (as many of them as had arrived; none if no segment is to blame).
    pub(crate) fn new(fault: Fault, head: &[u8]) -> Self {
        let Terminate { layer, kind, code } = fault.terminate();
        let mut header = Self {
            bytes: [0; TERMINATE_BYTES_MAX],
            length: CONTROL_BYTES,
        };
        header.bytes[0] = layer << 4 | kind;
        header.bytes[1] = code;
        let (with_ddp, with_read) = fault.returns_headers();
        if !with_ddp || head.len() <= LENGTH_BYTES {
            return header;
        }
        let tagged = head[LENGTH_BYTES] & 0x80 != 0;
        let ddp_bytes = if tagged { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let Some(ddp) = head.get(..LENGTH_BYTES + ddp_bytes) else {
            return header;
        };
        header.bytes[2] |= 0x80 | 0x40;
        header.push(ddp);
        let is_read_request = !tagged && head[LENGTH_BYTES + 1] & 0x0f == 1;
        if let Some(read) = head.get(ddp.len()..ddp.len() + READ_REQUEST_BYTES)
            && with_read
            && is_read_request
        {
            header.bytes[2] |= 0x20;
            header.push(read);
        }
        header
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_back_for_faults_of_the_segment_only() {
        let read_request = [[0, 46, 0x41, 0x41].as_slice(), &[7; 44]].concat();
        for (fault, returned) in [
            (Fault::Catastrophic, 0),
            (Fault::ReadDepth, 0),
            (
                Fault::ReadKey,
                LENGTH_BYTES + UNTAGGED_BYTES + READ_REQUEST_BYTES,
            ),
            (Fault::NoBuffer, LENGTH_BYTES + UNTAGGED_BYTES),
        ] {
            let header = TerminateHeader::new(fault, &read_request);
            let returned = &read_request[..returned];
            assert_eq!(&header.as_bytes()[CONTROL_BYTES..], returned, "{fault:?}");
        }
    }
}
