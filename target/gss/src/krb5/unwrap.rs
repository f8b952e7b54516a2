//! Unwrapping of Wrap tokens with confidentiality (RFC 4121 4.2.6.2), in place.

use std::sync::Arc;

use subtle::ConstantTimeEq;
use zeroize::zeroize_stack;

use super::cipher::{BLOCK, Block, CIPHER_FRAMES, before_tail};
use super::header::{HEADER, Header, is_inner_header};
use super::mac::Mac;
use super::{Damaged, Progress, Protection};

/// A Wrap token that is unwrapped in place, a slice at a time.
pub struct Unwrapping {
    protection: Arc<Protection>,
    mac: Mac,
    /// State of the cipher between slices.
    state: Block,
    header: Header,
    /// Bytes of the token.
    length: usize,
    /// Bytes of filler.
    extra: usize,
    /// What is left of the rotation.
    rotation: Rotation,
    /// Bytes of the ciphertext that are decrypted.
    done: usize,
}

impl Unwrapping {
    pub(super) fn new(protection: Arc<Protection>, token: &[u8]) -> Result<Self, Damaged> {
        let header = *token.first_chunk::<HEADER>().ok_or(Damaged)?;
        let counts = protection.keys.receiving.rules.wrap_counts(&header);
        let counts = counts.ok_or(Damaged)?;
        if token.len() < protection.wrap_overhead() + counts.extra {
            return Err(Damaged);
        }
        let mut mac = protection.keys.receiving.integrity.clone();
        if protection.checks_ciphertext() {
            mac.update(&[0; BLOCK]);
        }
        Ok(Self {
            protection,
            mac,
            state: [0; BLOCK],
            header,
            length: token.len(),
            extra: counts.extra,
            rotation: Rotation::new(token.len() - HEADER, counts.rotation),
            done: 0,
        })
    }

    /// Works on about `most` bytes more of the token. Plaintext may be used only once it is done:
    /// before that it is not verified.
    ///
    /// # Errors
    ///
    /// The token is damaged.
    pub fn step(&mut self, token: &mut [u8], most: usize) -> Result<Progress, Damaged> {
        if token.len() != self.length {
            return Err(Damaged);
        }
        if !self.rotation.step(&mut token[HEADER..], most) {
            return Ok(Progress::More);
        }
        let checksum = self.protection.enctype().mac_length();
        let end = self.length - checksum;
        let (front, checksum) = token.split_at_mut(end);
        let sealed = &mut front[HEADER..];
        let tail = before_tail(sealed.len());
        if self.done < tail {
            let slice = most.next_multiple_of(BLOCK).clamp(BLOCK, tail - self.done);
            self.decrypt(&mut sealed[self.done..][..slice], false);
            self.done += slice;
            if self.done < tail {
                return Ok(Progress::More);
            }
        }
        self.decrypt(&mut sealed[tail..], true);
        let digest = self.mac.clone().finish();
        let inner = &sealed[sealed.len() - HEADER..];
        let is_good =
            digest[..checksum.len()].ct_eq(checksum) & is_inner_header(inner, &self.header);
        if !bool::from(is_good) {
            return Err(Damaged);
        }
        Ok(Progress::Done(
            Protection::WRAP_PREFIX..end - HEADER - self.extra,
        ))
    }

    fn decrypt(&mut self, slice: &mut [u8], is_tail: bool) {
        let of_ciphertext = self.protection.checks_ciphertext();
        if of_ciphertext {
            self.mac.update(slice);
        }
        let key = &self.protection.keys.receiving.encryption;
        if is_tail {
            key.tail(&mut self.state, slice);
        } else {
            key.blocks(&mut self.state, slice);
        }
        zeroize_stack::<CIPHER_FRAMES>();
        if !of_ciphertext {
            self.mac.update(slice);
        }
    }
}

/// A rotation to the left, undoing the sender's (RFC 4121 4.2.5), as three reversals: of the front,
/// of the rest, of all. No step takes longer than the bytes that it is given.
struct Rotation {
    /// Ranges that are left to reverse, the next one last.
    left: [(usize, usize); 3],
    count: usize,
}

impl Rotation {
    const fn new(length: usize, by: usize) -> Self {
        let by = by % length;
        Self {
            left: [(0, length), (by, length), (0, by)],
            count: if by == 0 { 0 } else { 3 },
        }
    }

    /// Whether nothing is left to do.
    fn step(&mut self, bytes: &mut [u8], most: usize) -> bool {
        let mut pairs = most.max(2) / 2;
        while self.count > 0 && pairs > 0 {
            let (start, end) = &mut self.left[self.count - 1];
            let swapped = pairs.min((*end - *start) / 2);
            let (front, back) = bytes[*start..*end].split_at_mut((*end - *start) / 2);
            let mirrored = back.iter_mut().rev();
            for (one, other) in front.iter_mut().zip(mirrored).take(swapped) {
                std::mem::swap(one, other);
            }
            *start += swapped;
            *end -= swapped;
            pairs -= swapped;
            if *end - *start < 2 {
                self.count -= 1;
            }
        }
        self.count == 0
    }
}
