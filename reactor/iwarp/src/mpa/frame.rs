//! Request and reply frames (RFC 5044 section 7.1.1, RFC 6581 section 6) and their incremental
//! parser.

use super::config::{ConfigError, check_private_data};
use super::connection_data::{CONNECTION_DATA_LENGTH, ConnectionData};
use super::error::SetupError;

/// Bytes of the key that begins a frame.
pub const KEY_LENGTH: usize = 16;
/// Bytes of a frame before its private data.
pub const HEADER_LENGTH: usize = 20;
/// Most bytes of private data, with the connection data.
pub const PRIVATE_DATA_MAX: usize = 512;
/// Most bytes of private data that the application may give along with connection data.
pub const ENHANCED_PRIVATE_DATA_MAX: usize = PRIVATE_DATA_MAX - CONNECTION_DATA_LENGTH;
/// Revision of RFC 5044.
pub const REVISION_PLAIN: u8 = 1;
/// Revision of RFC 6581.
pub const REVISION_ENHANCED: u8 = 2;

const REQUEST_KEY: [u8; KEY_LENGTH] = *b"MPA ID Req Frame";
const REPLY_KEY: [u8; KEY_LENGTH] = *b"MPA ID Rep Frame";

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Sent by the initiator.
    Request,
    /// Sent by the responder.
    Reply,
}

impl FrameKind {
    fn key(self) -> &'static [u8; KEY_LENGTH] {
        match self {
            Self::Request => &REQUEST_KEY,
            Self::Reply => &REPLY_KEY,
        }
    }
}

/// A request or reply, with all that is reserved or has no meaning left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: FrameKind,
    /// M: the sender requires markers in the FPDUs sent to it.
    pub markers: bool,
    /// C: the sender wishes CRCs, in both directions.
    pub crc: bool,
    /// R: the connection is rejected. Always false in a request.
    pub reject: bool,
    /// The MPA revision, never 0.
    pub revision: u8,
    /// The S bit and the connection data that it announces. Only revisions of 2 and above have it:
    /// in revision 1 the bit is reserved, hence ignored.
    pub connection_data: Option<ConnectionData>,
    /// The application's private data, without the connection data.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// Encodes the frame: [`HEADER_LENGTH`] bytes and the private data.
    ///
    /// # Errors
    ///
    /// [`ConfigError::PrivateDataLength`].
    pub fn encode(&self) -> Result<Vec<u8>, ConfigError> {
        check_private_data(self.private_data.len(), self.connection_data.is_some())?;
        let connection_data = self.connection_data.map(ConnectionData::encode);
        let connection_data = connection_data.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let length = self.private_data.len() + connection_data.len();
        // At most 512 by the check above.
        let stated = u16::try_from(length).unwrap_or(u16::MAX);
        let mut flags = 0;
        for (set, flag) in [
            (self.markers, FLAG_MARKERS),
            (self.crc, FLAG_CRC),
            (self.reject, FLAG_REJECT),
            (self.connection_data.is_some(), FLAG_ENHANCED),
        ] {
            if set {
                flags |= flag;
            }
        }
        let mut bytes = Vec::with_capacity(HEADER_LENGTH + length);
        bytes.extend_from_slice(self.kind.key());
        bytes.extend_from_slice(&[flags, self.revision]);
        bytes.extend_from_slice(&stated.to_be_bytes());
        bytes.extend_from_slice(connection_data);
        bytes.extend_from_slice(&self.private_data);
        Ok(bytes)
    }
}

/// Collects one frame from a TCP stream, however it is cut. Holds at most one frame of the
/// greatest size; errors show as soon as the bytes that prove them have come.
#[derive(Debug)]
pub struct FrameParser {
    kind: FrameKind,
    length: usize,
    bytes: [u8; HEADER_LENGTH + PRIVATE_DATA_MAX],
}

impl FrameParser {
    /// A parser that waits for a frame of this kind.
    #[must_use]
    pub fn new(kind: FrameKind) -> Self {
        Self {
            kind,
            length: 0,
            bytes: [0; HEADER_LENGTH + PRIVATE_DATA_MAX],
        }
    }

    /// Whether nothing has arrived yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes bytes up to the end of the frame. Returns how many were taken, and the frame when it
    /// is complete; bytes behind it are not touched.
    ///
    /// # Errors
    ///
    /// Any of the frame errors of [`SetupError`]; the connection is to be closed, and the parser
    /// is of no more use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), SetupError> {
        let header = self.take(bytes, HEADER_LENGTH);
        let key_length = self.length.min(KEY_LENGTH);
        if self.bytes[..key_length] != self.kind.key()[..key_length] {
            return Err(SetupError::Key);
        }
        if self.length < HEADER_LENGTH {
            return Ok((header, None));
        }
        let flags = self.bytes[KEY_LENGTH];
        let revision = self.bytes[KEY_LENGTH + 1];
        let stated = u16::from_be_bytes([self.bytes[KEY_LENGTH + 2], self.bytes[KEY_LENGTH + 3]]);
        let enhanced = revision >= REVISION_ENHANCED && flags & FLAG_ENHANCED != 0;
        let private_length = usize::from(stated);
        if revision == 0 {
            return Err(SetupError::Revision(revision));
        }
        if private_length > PRIVATE_DATA_MAX {
            return Err(SetupError::PrivateDataLength(stated));
        }
        if enhanced && private_length < CONNECTION_DATA_LENGTH {
            return Err(SetupError::ConnectionDataMissing(stated));
        }
        let total = HEADER_LENGTH + private_length;
        let taken = header + self.take(&bytes[header..], total);
        if self.length < total {
            return Ok((taken, None));
        }
        let mut private_data = &self.bytes[HEADER_LENGTH..total];
        let mut connection_data = None;
        if enhanced && let Some((first, rest)) = private_data.split_first_chunk() {
            connection_data = Some(ConnectionData::decode(*first));
            private_data = rest;
        }
        let frame = Frame {
            kind: self.kind,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            // Not checked in a request (RFC 5044 section 7.1.1).
            reject: self.kind == FrameKind::Reply && flags & FLAG_REJECT != 0,
            revision,
            connection_data,
            private_data: private_data.to_vec(),
        };
        Ok((taken, Some(frame)))
    }

    /// Fills the buffer up to `limit` and returns how many bytes were taken.
    fn take(&mut self, bytes: &[u8], limit: usize) -> usize {
        let count = bytes.len().min(limit.saturating_sub(self.length));
        self.bytes[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        count
    }
}
