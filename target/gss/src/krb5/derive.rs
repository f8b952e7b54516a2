//! Keys for one purpose, derived from a base key.

use aes::{Aes128Enc, Aes256Enc};
use cipher::{Array, BlockCipherEncrypt, KeyInit};
use zeroize::Zeroizing;

use super::Enctype;
use super::mac::Mac;

/// What a derived key is for (RFC 3961 5.3, RFC 8009 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Checksums of messages that are not encrypted.
    Checksum = 0x99,
    /// Encryption.
    Encryption = 0xaa,
    /// Checksums of encrypted messages.
    Integrity = 0x55,
}

/// A derived key.
pub type DerivedKey = Zeroizing<Vec<u8>>;

/// The key of a usage number and purpose; the base key has the length of its type.
pub fn derive(enctype: Enctype, base: &[u8], usage: u32, purpose: Purpose) -> DerivedKey {
    let mut constant = [0; 5];
    constant[..4].copy_from_slice(&usage.to_be_bytes());
    constant[4] = purpose as u8;
    match enctype {
        Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => chain(base, &constant),
        Enctype::Aes128Sha256 => by_hmac(enctype, base, &constant, 16),
        Enctype::Aes256Sha384 if purpose == Purpose::Encryption => {
            by_hmac(enctype, base, &constant, 32)
        }
        Enctype::Aes256Sha384 => by_hmac(enctype, base, &constant, 24),
    }
}

/// DK of RFC 3961 5.1: the constant, folded to a block, is encrypted again and again.
fn chain(base: &[u8], constant: &[u8]) -> DerivedKey {
    let mut block = Zeroizing::new([0; 16]);
    n_fold(constant, &mut *block);
    let mut key = Zeroizing::new(Vec::with_capacity(base.len()));
    while key.len() < base.len() {
        encrypt_block(base, &mut block);
        key.extend_from_slice(&*block);
    }
    key
}

fn encrypt_block(key: &[u8], block: &mut [u8; 16]) {
    let block: &mut Array<u8, _> = block.into();
    if let Ok(key) = <&[u8; 16]>::try_from(key) {
        Aes128Enc::new(key.into()).encrypt_block(block);
    } else if let Ok(key) = <&[u8; 32]>::try_from(key) {
        Aes256Enc::new(key.into()).encrypt_block(block);
    }
}

/// KDF-HMAC-SHA2 of RFC 8009 3, without context.
fn by_hmac(enctype: Enctype, base: &[u8], label: &[u8], length: usize) -> DerivedKey {
    let bits = u32::try_from(length * 8).unwrap_or(u32::MAX);
    let mut mac = Mac::new(enctype, base);
    mac.update(&1_u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&bits.to_be_bytes());
    let digest = Zeroizing::new(mac.finish());
    Zeroizing::new(digest[..length].to_vec())
}

/// n-fold of RFC 3961 5.1: copies of the input, each rotated by 13 bits more than the one before,
/// are added up in ones' complement.
pub fn n_fold(input: &[u8], output: &mut [u8]) {
    output.fill(0);
    let (from, to) = (input.len(), output.len());
    let common = from * to / greatest_common_divisor(from, to);
    let mut carry = 0;
    for at in (0..common).rev() {
        // The byte that begins at this bit of the input, rotated to the right by 13 for each copy.
        let copy = at / from;
        let bits = from * 8;
        let start = ((at % from) * 8 + bits * 13 - (copy * 13) % bits) % bits;
        let (byte, shift) = (start / 8, start % 8);
        let pair = u16::from_be_bytes([input[byte], input[(byte + 1) % from]]);
        let rotated = (pair << shift).to_be_bytes()[0];
        carry += u32::from(rotated) + u32::from(output[at % to]);
        output[at % to] = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    // The carry of the first byte goes on at the last one.
    for byte in output.iter_mut().rev() {
        carry += u32::from(*byte);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
}

const fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}
