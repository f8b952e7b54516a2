//! Tokens of Kerberos (RFC 4121) with the encryption types of RFC 3962 and RFC 8009.

use std::ops::Range;

use thiserror::Error;
use zeroize::Zeroizing;

/// An encryption type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enctype {
    /// 20, RFC 8009.
    Aes256Sha384,
    /// 19, RFC 8009.
    Aes128Sha256,
    /// 18, RFC 3962.
    Aes256Sha1,
    /// 17, RFC 3962.
    Aes128Sha1,
}

impl Enctype {
    /// All, best first.
    pub const ALL: [Self; 4] = [
        Self::Aes256Sha384,
        Self::Aes128Sha256,
        Self::Aes256Sha1,
        Self::Aes128Sha1,
    ];

    /// The assigned number.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    /// By its assigned number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.number() == number)
    }

    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-sha1",
            Self::Aes256Sha1 => "aes256-sha1",
            Self::Aes128Sha256 => "aes128-sha2",
            Self::Aes256Sha384 => "aes256-sha2",
        }
    }

    /// By its name in the configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Bytes of a key.
    #[must_use]
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Bytes of a checksum.
    #[must_use]
    pub const fn mac_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }
}

/// The two ends of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Initiator,
    /// The server.
    Acceptor,
}

/// The key of a context, as the mechanism exports it.
#[derive(Clone)]
pub struct ContextKeys {
    /// Encryption type.
    pub enctype: Enctype,
    /// The key in use: the acceptor's subkey, or else the initiator's.
    pub key: Zeroizing<Vec<u8>>,
    /// Whether it is the acceptor's subkey (flag AcceptorSubkey of RFC 4121 4.2.2).
    pub acceptor_subkey: bool,
    /// SND_SEQ of our first token.
    pub send_sequence: u64,
}

/// A token is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token is damaged")]
pub struct Damaged;

/// The tokens of one end of a context: all keys expanded.
pub struct Protection;

impl Protection {
    /// Expands the keys for one end; `None` if the key has not the length of its type.
    #[must_use]
    pub fn new(keys: &ContextKeys, own: Side) -> Option<Self> {
        todo!()
    }
}

/// How far a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// The result stands in this range of the buffer: plaintext, or token.
    Done(Range<usize>),
}

/// A MIC by parts of its message.
pub struct MicParts;

impl MicParts {
    /// Takes the next part.
    pub fn update(&mut self, part: &[u8]) {
        todo!()
    }

    /// Writes the token; returns its length, 0 if `out` is too short.
    #[must_use]
    pub fn finish(self, out: &mut [u8]) -> usize {
        todo!()
    }

    /// Whether a token is good for the message.
    #[must_use]
    pub fn verify(self, token: &[u8]) -> bool {
        todo!()
    }
}

/// A Wrap token that is unwrapped in place, a slice at a time.
pub struct Unwrapping;

impl Unwrapping {
    /// Works on about `most` bytes more of the token. Plaintext may be used only once it is done:
    /// before that it is not verified.
    ///
    /// # Errors
    ///
    /// The token is damaged.
    pub fn step(&mut self, token: &mut [u8], most: usize) -> Result<Progress, Damaged> {
        todo!()
    }
}

/// A Wrap token that is made in place, a slice at a time.
pub struct Wrapping;

impl Wrapping {
    /// Works on about `most` bytes more. The plaintext stands behind [`Protection::wrap_prefix`]
    /// bytes of the buffer, which has the length of the token.
    ///
    /// # Errors
    ///
    /// The buffer has not the length of the token.
    pub fn step(&mut self, buffer: &mut [u8], most: usize) -> Result<Progress, Damaged> {
        todo!()
    }
}
