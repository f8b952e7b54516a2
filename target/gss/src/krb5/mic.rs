//! MIC tokens (RFC 4121 4.2.6.1): HMACs over message and header.

use subtle::ConstantTimeEq;

use super::header::{HEADER, Header, HeaderRules};
use super::mac::Mac;

/// A MIC by parts of its message.
pub struct MicParts {
    pub(super) mac: Mac,
    pub(super) rules: HeaderRules,
    /// Our own header, if this is a token that we make.
    pub(super) header: Option<Header>,
    /// Bytes of the checksum.
    pub(super) length: usize,
}

impl MicParts {
    /// Takes the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.mac.update(part);
    }

    /// Writes the token; returns its length, 0 if `out` is too short or the token is not ours to
    /// make.
    #[must_use]
    pub fn finish(mut self, out: &mut [u8]) -> usize {
        let token = HEADER + self.length;
        let (Some(header), true) = (self.header, out.len() >= token) else {
            return 0;
        };
        self.mac.update(&header);
        let digest = self.mac.finish();
        out[..HEADER].copy_from_slice(&header);
        out[HEADER..token].copy_from_slice(&digest[..self.length]);
        token
    }

    /// Whether a token of the other end is good for the message. Takes a time that does not depend
    /// on where the token is wrong.
    #[must_use]
    pub fn verify(mut self, token: &[u8]) -> bool {
        let Some((header, checksum)) = token.split_first_chunk::<HEADER>() else {
            return false;
        };
        if self.header.is_some() || checksum.len() != self.length {
            return false;
        }
        self.mac.update(header);
        let digest = self.mac.finish();
        (self.rules.is_mic(header) & digest[..self.length].ct_eq(checksum)).into()
    }
}
