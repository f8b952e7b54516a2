//! HMACs of the encryption types.

use hmac::{Hmac, KeyInit, Mac as _};
use sha1::Sha1;
use sha2::{Sha256, Sha384};

use super::Enctype;

/// The most bytes of a digest.
const DIGEST_MAX: usize = 48;

/// An HMAC under way. Clones of one that has its key only begin new messages.
#[derive(Clone)]
pub enum Mac {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
}

impl Mac {
    pub fn new(enctype: Enctype, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of any length";
        match enctype {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => {
                Self::Sha1(Hmac::new_from_slice(key).expect(ANY))
            }
            Enctype::Aes128Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect(ANY)),
            Enctype::Aes256Sha384 => Self::Sha384(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    pub fn update(&mut self, part: &[u8]) {
        match self {
            Self::Sha1(mac) => mac.update(part),
            Self::Sha256(mac) => mac.update(part),
            Self::Sha384(mac) => mac.update(part),
        }
    }

    /// The digest, from the front, not cut to the length of the type's checksums.
    pub fn finish(self) -> [u8; DIGEST_MAX] {
        let mut digest = [0; DIGEST_MAX];
        match self {
            Self::Sha1(mac) => digest[..20].copy_from_slice(&mac.finalize().into_bytes()),
            Self::Sha256(mac) => digest[..32].copy_from_slice(&mac.finalize().into_bytes()),
            Self::Sha384(mac) => digest.copy_from_slice(&mac.finalize().into_bytes()),
        }
        digest
    }
}
