//! Session control messages (RFC 5043 section 5.2.3, RFC 6581 section 7).

use crate::mpa::config::{ConfigError, check_private_data};
use crate::mpa::connection_data::{CONNECTION_DATA_LENGTH, ConnectionData};
use crate::mpa::frame::PRIVATE_DATA_MAX;

/// Payload protocol identifier of chunks that carry a DDP segment (RFC 5043 section 5.2).
pub const SEGMENT_IDENTIFIER: u32 = 16;
/// Payload protocol identifier of chunks that carry a session control message (RFC 5043
/// section 5.2).
pub const CONTROL_IDENTIFIER: u32 = 17;
/// Bytes of a control message before its private data: sequence number and function code.
pub const CONTROL_HEADER_LENGTH: usize = 4;

/// The function of a control message. Its number is the function code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Function {
    /// Asks for a session.
    Initiate = 1,
    /// Accepts an [`Function::Initiate`].
    Accept = 2,
    /// Rejects an Initiate, enhanced or not.
    Reject = 3,
    /// Ends a session, enhanced or not, or refuses it without having asked the application.
    Terminate = 4,
    /// Asks for a session with connection data.
    EnhancedInitiate = 5,
    /// Accepts an [`Function::EnhancedInitiate`] with connection data.
    EnhancedAccept = 6,
    /// Rejects what would have been accepted without enhancements. It has no connection data.
    EnhancedReject = 7,
}

impl Function {
    /// All functions, by their codes.
    pub const ALL: [Self; 7] = [
        Self::Initiate,
        Self::Accept,
        Self::Reject,
        Self::Terminate,
        Self::EnhancedInitiate,
        Self::EnhancedAccept,
        Self::EnhancedReject,
    ];

    /// The function code on the wire.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The function of a code, if there is one.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|function| function.code() == code)
    }

    /// Whether the private data begins with connection data.
    #[must_use]
    pub fn has_connection_data(self) -> bool {
        matches!(self, Self::EnhancedInitiate | Self::EnhancedAccept)
    }
}

/// Why bytes are no control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MessageError {
    /// Too short for sequence number and function code.
    #[error("{0} bytes cannot hold a session control message")]
    Short(usize),
    /// An undefined function code.
    #[error("session control function {0} is not understood")]
    Function(u16),
    /// More than 512 bytes of private data.
    #[error("{0} bytes of private data, at most 512 are allowed")]
    PrivateDataLength(usize),
    /// An enhanced message is too short for its connection data.
    #[error("{0} bytes of private data cannot hold the connection data")]
    ConnectionDataMissing(usize),
    /// A Terminate must not carry private data.
    #[error("{0} bytes of private data in a Terminate")]
    TerminateWithData(usize),
}

/// One control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// Place among all chunks that its sender sends in this session; the first has 0.
    pub sequence: u16,
    /// Its function.
    pub function: Function,
    /// Connection data: present where [`Function::has_connection_data`] says so, and only there.
    pub connection_data: Option<ConnectionData>,
    /// The application's private data, without the connection data.
    pub private_data: Vec<u8>,
}

impl ControlMessage {
    /// Encodes the body of the chunk: [`CONTROL_HEADER_LENGTH`] bytes and the private data.
    ///
    /// # Errors
    ///
    /// [`ConfigError::PrivateDataLength`]; its limit is 0 for a Terminate. Connection data where
    /// none belongs is left out; where it is missing, both depths are left to the application.
    pub fn encode(&self) -> Result<Vec<u8>, ConfigError> {
        let length = self.private_data.len();
        if self.function == Function::Terminate && length > 0 {
            return Err(ConfigError::PrivateDataLength { length, limit: 0 });
        }
        let enhanced = self.function.has_connection_data();
        check_private_data(length, enhanced)?;
        let mut bytes = Vec::with_capacity(CONTROL_HEADER_LENGTH + CONNECTION_DATA_LENGTH + length);
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.function.code().to_be_bytes());
        if enhanced {
            let data = self.connection_data.unwrap_or(ConnectionData::OPEN);
            bytes.extend_from_slice(&data.encode());
        }
        bytes.extend_from_slice(&self.private_data);
        Ok(bytes)
    }

    /// Decodes the body of a chunk.
    ///
    /// # Errors
    ///
    /// Any [`MessageError`]: the session is to be ended.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let Some((&[high, low, code_high, code_low], private)) = bytes.split_first_chunk() else {
            return Err(MessageError::Short(bytes.len()));
        };
        let code = u16::from_be_bytes([code_high, code_low]);
        let function = Function::from_code(code).ok_or(MessageError::Function(code))?;
        if private.len() > PRIVATE_DATA_MAX {
            return Err(MessageError::PrivateDataLength(private.len()));
        }
        if function == Function::Terminate && !private.is_empty() {
            return Err(MessageError::TerminateWithData(private.len()));
        }
        let (connection_data, private_data) = if function.has_connection_data() {
            let (data, rest) = private
                .split_first_chunk()
                .ok_or(MessageError::ConnectionDataMissing(private.len()))?;
            (Some(ConnectionData::decode(*data)), rest)
        } else {
            (None, private)
        };
        Ok(Self {
            sequence: u16::from_be_bytes([high, low]),
            function,
            connection_data,
            private_data: private_data.to_vec(),
        })
    }
}
