//! Headers of tokens (RFC 4121 4.2.6).

use subtle::{Choice, ConstantTimeEq};

use super::Side;

/// Bytes of a header.
pub const HEADER: usize = 16;

const MIC_TOKEN: [u8; 2] = [4, 4];
const WRAP_TOKEN: [u8; 2] = [5, 4];
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;
/// Other flags must be ignored (4.2.2).
const KNOWN_FLAGS: u8 = 7;

/// What is fixed in the headers of one end's tokens.
#[derive(Clone, Copy)]
pub struct HeaderRules {
    pub sender: Side,
    pub acceptor_subkey: bool,
}

/// The header of a token.
pub type Header = [u8; HEADER];

/// The lengths in the header of a Wrap token.
#[derive(Clone, Copy)]
pub struct WrapCounts {
    /// EC: bytes of filler behind the plaintext.
    pub extra: usize,
    /// RRC: bytes that the rest of the token is rotated to the right by.
    pub rotation: usize,
}

impl HeaderRules {
    fn flags(self, sealed: bool) -> u8 {
        let sender = match self.sender {
            Side::Initiator => 0,
            Side::Acceptor => SENT_BY_ACCEPTOR,
        };
        let sealed = if sealed { SEALED } else { 0 };
        let subkey = if self.acceptor_subkey {
            ACCEPTOR_SUBKEY
        } else {
            0
        };
        sender | sealed | subkey
    }

    pub fn mic(self, sequence: u64) -> Header {
        let mut header = [0xff; HEADER];
        header[..2].copy_from_slice(&MIC_TOKEN);
        header[2] = self.flags(false);
        header[8..].copy_from_slice(&sequence.to_be_bytes());
        header
    }

    /// Without filler, not rotated.
    pub fn wrap(self, sequence: u64) -> Header {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&WRAP_TOKEN);
        header[2] = self.flags(true);
        header[3] = 0xff;
        header[8..].copy_from_slice(&sequence.to_be_bytes());
        header
    }

    /// Whether a MIC token's header is good, whatever its SND_SEQ, which RPCSEC_GSS ignores (RFC
    /// 2203 5.2.2).
    pub fn is_mic(self, header: &Header) -> Choice {
        let mut found = *header;
        found[2] &= KNOWN_FLAGS;
        found[..8].ct_eq(&self.mic(0)[..8])
    }

    /// The counts of a sealed Wrap token; `None` if the header is not that of one.
    pub fn wrap_counts(self, header: &Header) -> Option<WrapCounts> {
        let mut found = *header;
        found[2] &= KNOWN_FLAGS;
        let expected = self.wrap(0);
        bool::from(found[..4].ct_eq(&expected[..4])).then(|| WrapCounts {
            extra: u16::from_be_bytes([header[4], header[5]]).into(),
            rotation: u16::from_be_bytes([header[6], header[7]]).into(),
        })
    }
}

/// Whether the header within the ciphertext is the token's own but for RRC, which is zero there
/// (RFC 4121 4.2.4).
pub fn is_inner_header(inner: &[u8], outer: &Header) -> Choice {
    let mut expected = *outer;
    expected[6..8].fill(0);
    inner.ct_eq(&expected)
}
