//! Making of Wrap tokens with confidentiality (RFC 4121 4.2.6.2), in place.

use std::sync::Arc;

use zeroize::zeroize_stack;

use super::cipher::{BLOCK, Block, CIPHER_FRAMES, before_tail};
use super::header::{HEADER, Header};
use super::mac::Mac;
use super::{Damaged, Progress, Protection, random};

/// A Wrap token that is made in place, a slice at a time.
pub struct Wrapping {
    protection: Arc<Protection>,
    mac: Mac,
    /// State of the cipher between slices.
    state: Block,
    pub(super) header: Header,
    /// Bytes of the token without its header and checksum: what is encrypted.
    sealed: usize,
    /// Bytes of them that are encrypted.
    done: usize,
    is_begun: bool,
}

impl Wrapping {
    pub(super) fn new(protection: Arc<Protection>, length: usize) -> Self {
        let header = protection
            .keys
            .sending
            .rules
            .wrap(protection.next_sequence());
        let mut mac = protection.keys.sending.integrity.clone();
        if protection.checks_ciphertext() {
            // The initial state of the cipher comes first (RFC 8009 5).
            mac.update(&[0; BLOCK]);
        }
        // A token of no length fits no buffer.
        let sealed = match protection.makes_tokens() {
            true => BLOCK + length + HEADER,
            false => 0,
        };
        Self {
            protection,
            mac,
            state: [0; BLOCK],
            header,
            sealed,
            done: 0,
            is_begun: false,
        }
    }

    /// Works on about `most` bytes more. The plaintext stands behind [`Protection::WRAP_PREFIX`]
    /// bytes of the buffer, which has the length of the token; what the next `most` bytes need
    /// not hold yet may be written between steps.
    ///
    /// # Errors
    ///
    /// The buffer has not the length of the token, or the token cannot be made.
    pub fn step(&mut self, buffer: &mut [u8], most: usize) -> Result<Progress, Damaged> {
        let checksum = self.protection.enctype().mac_length();
        let end = HEADER + self.sealed;
        if buffer.len() != end + checksum {
            return Err(Damaged);
        }
        let sealed = &mut buffer[HEADER..end];
        let tail = before_tail(sealed.len());
        if !self.is_begun {
            random::fill(&mut sealed[..BLOCK]);
            self.is_begun = true;
        }
        if self.done < tail {
            let slice = most.next_multiple_of(BLOCK).clamp(BLOCK, tail - self.done);
            self.encrypt(&mut sealed[self.done..][..slice], false);
            self.done += slice;
            if self.done < tail {
                return Ok(Progress::More);
            }
        }
        let inner = sealed.len() - HEADER;
        sealed[inner..].copy_from_slice(&self.header);
        self.encrypt(&mut sealed[tail..], true);
        buffer[..HEADER].copy_from_slice(&self.header);
        let digest = self.mac.clone().finish();
        buffer[end..].copy_from_slice(&digest[..checksum]);
        Ok(Progress::Done(0..end + checksum))
    }

    fn encrypt(&mut self, slice: &mut [u8], is_tail: bool) {
        let of_ciphertext = self.protection.checks_ciphertext();
        if !of_ciphertext {
            self.mac.update(slice);
        }
        let key = &self.protection.keys.sending.encryption;
        if is_tail {
            key.tail(&mut self.state, slice);
        } else {
            key.blocks(&mut self.state, slice);
        }
        zeroize_stack::<CIPHER_FRAMES>();
        if of_ciphertext {
            self.mac.update(slice);
        }
    }
}
