//! The keys of one end of a context, expanded once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::{Zeroizing, zeroize_stack};

use super::cipher::{DecryptionKey, EncryptionKey};
use super::derive::{Purpose, derive};
use super::header::{HEADER, HeaderRules};
use super::mac::Mac;
use super::{Damaged, Enctype, MicParts, Unwrapping, Wrapping, cipher};
use crate::sys::SecretBox;

/// The two ends of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Initiator,
    /// The server.
    Acceptor,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }

    /// Key usage numbers of its Wrap and MIC tokens (RFC 4121 2).
    const fn usages(self) -> (u32, u32) {
        match self {
            Self::Acceptor => (22, 23),
            Self::Initiator => (24, 25),
        }
    }
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

impl fmt::Debug for ContextKeys {
    /// Without the key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ContextKeys")
            .field("enctype", &self.enctype)
            .finish_non_exhaustive()
    }
}

/// The tokens of one end of a context. All keys are zeroed when it is dropped, and are in no core
/// dump.
pub struct Protection {
    enctype: Enctype,
    pub(super) keys: SecretBox<ExpandedKeys>,
    own: Side,
    send_sequence: AtomicU64,
    /// How many more tokens can be made.
    #[cfg(feature = "testing")]
    tokens_left: AtomicU64,
}

/// All keys of one end.
pub(super) struct ExpandedKeys {
    pub sending: SendingKeys,
    pub receiving: ReceivingKeys,
}

/// Keys of the tokens that we make.
pub(super) struct SendingKeys {
    pub rules: HeaderRules,
    mic: Mac,
    pub encryption: EncryptionKey,
    pub integrity: Mac,
}

/// Keys of the tokens that the other end makes.
pub(super) struct ReceivingKeys {
    pub rules: HeaderRules,
    mic: Mac,
    pub encryption: DecryptionKey,
    pub integrity: Mac,
}

/// More bytes of stack than the deepest expansion takes, also without optimization.
const EXPANSION_FRAMES: usize = 64 << 10;

impl Protection {
    /// Bytes of a Wrap token before the plaintext: header and confounder.
    pub const WRAP_PREFIX: usize = HEADER + cipher::BLOCK;

    /// Expands the keys for one end; `None` if the key has not the length of its type. No copy of
    /// a key is left on the stack.
    #[must_use]
    pub fn new(keys: &ContextKeys, own: Side) -> Option<Arc<Self>> {
        let expanded = Self::expand(keys, own);
        zeroize_stack::<EXPANSION_FRAMES>();
        expanded
    }

    /// Moves of the expanded keys leave copies in this function's frame.
    #[inline(never)]
    fn expand(keys: &ContextKeys, own: Side) -> Option<Arc<Self>> {
        let enctype = keys.enctype;
        if keys.key.len() != enctype.key_length() {
            return None;
        }
        let rules = |sender| HeaderRules {
            sender,
            acceptor_subkey: keys.acceptor_subkey,
        };
        let key = |usage, purpose| derive(enctype, &keys.key, usage, purpose);
        let mac = |usage, purpose| Mac::new(enctype, &key(usage, purpose));
        let (send_seal, send_sign) = own.usages();
        let (seal, sign) = own.other().usages();
        Some(Arc::new(Self {
            enctype,
            keys: SecretBox::new(ExpandedKeys {
                sending: SendingKeys {
                    rules: rules(own),
                    mic: mac(send_sign, Purpose::Checksum),
                    encryption: EncryptionKey::new(&key(send_seal, Purpose::Encryption))?,
                    integrity: mac(send_seal, Purpose::Integrity),
                },
                receiving: ReceivingKeys {
                    rules: rules(own.other()),
                    mic: mac(sign, Purpose::Checksum),
                    encryption: DecryptionKey::new(&key(seal, Purpose::Encryption))?,
                    integrity: mac(seal, Purpose::Integrity),
                },
            }),
            own,
            send_sequence: AtomicU64::new(keys.send_sequence),
            #[cfg(feature = "testing")]
            tokens_left: AtomicU64::new(u64::MAX),
        }))
    }

    /// The encryption type.
    #[must_use]
    pub const fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// Bytes of a MIC token.
    #[must_use]
    pub const fn mic_length(&self) -> usize {
        HEADER + self.enctype.mac_length()
    }

    /// Bytes that a Wrap token has more than its plaintext: header, confounder, the header once
    /// more and checksum.
    #[must_use]
    pub const fn wrap_overhead(&self) -> usize {
        Self::WRAP_PREFIX + HEADER + self.enctype.mac_length()
    }

    /// Whether the checksum of Wrap tokens is over the ciphertext (RFC 8009 5) rather than the
    /// plaintext (RFC 3961 5.3).
    pub(super) const fn checks_ciphertext(&self) -> bool {
        matches!(self.enctype, Enctype::Aes128Sha256 | Enctype::Aes256Sha384)
    }

    /// SND_SEQ of the next token.
    pub(super) fn next_sequence(&self) -> u64 {
        self.send_sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether one more token can be made: in any case but in tests of what cannot be protected.
    #[cfg(not(feature = "testing"))]
    pub(super) const fn makes_tokens(&self) -> bool {
        true
    }

    #[cfg(feature = "testing")]
    pub(super) fn makes_tokens(&self) -> bool {
        let fewer = |left: u64| left.checked_sub(1);
        let left = &self.tokens_left;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
    }

    /// Has so many more tokens be made, and none after them.
    #[cfg(feature = "testing")]
    pub(crate) fn limit_tokens(&self, most: u64) {
        self.tokens_left.store(most, Ordering::Relaxed);
    }

    /// A MIC by parts of its message: ours, to make, or the other end's, to verify.
    #[must_use]
    pub fn mic_in_parts(&self, side: Side) -> MicParts {
        let length = self.enctype.mac_length();
        if side == self.own {
            let rules = self.keys.sending.rules;
            return MicParts {
                mac: self.keys.sending.mic.clone(),
                rules,
                header: self.makes_tokens().then(|| rules.mic(self.next_sequence())),
                length,
            };
        }
        MicParts {
            mac: self.keys.receiving.mic.clone(),
            rules: self.keys.receiving.rules,
            header: None,
            length,
        }
    }

    /// Writes our MIC token for a message; returns its length, 0 if `out` is too short.
    #[must_use]
    pub fn sign(&self, message: &[u8], out: &mut [u8]) -> usize {
        let mut parts = self.mic_in_parts(self.own);
        parts.update(message);
        parts.finish(out)
    }

    /// Whether a MIC token of the other end is good for a message.
    #[must_use]
    pub fn verify_mic(&self, message: &[u8], token: &[u8]) -> bool {
        if token.len() != self.mic_length() {
            return false;
        }
        let mut parts = self.mic_in_parts(self.own.other());
        parts.update(message);
        parts.verify(token)
    }

    /// Begins to wrap a plaintext of `length` bytes, in place.
    #[must_use]
    pub fn wrapping(self: &Arc<Self>, length: usize) -> Wrapping {
        Wrapping::new(Arc::clone(self), length)
    }

    /// Begins to unwrap a Wrap token of the other end, in place.
    ///
    /// # Errors
    ///
    /// The token's header is not that of a sealed token of the other end, or it is too short.
    pub fn unwrapping(self: &Arc<Self>, token: &[u8]) -> Result<Unwrapping, Damaged> {
        Unwrapping::new(Arc::clone(self), token)
    }
}
