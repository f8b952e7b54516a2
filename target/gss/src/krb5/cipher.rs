//! AES in CBC mode with ciphertext stealing (RFC 3962 5, CBC-CS3), a part at a time.

use aes::{Aes128Dec, Aes128Enc, Aes256Dec, Aes256Enc};
use cbc::{Decryptor, Encryptor};
use cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit,
    IvState, KeyInit,
};
pub const BLOCK: usize = 16;

/// A block, or the state between two parts.
pub type Block = [u8; BLOCK];

/// How many bytes of a message stand before those that steal: the last full block and what follows
/// it. The message is longer than a block.
pub const fn before_tail(length: usize) -> usize {
    (length - 1) / BLOCK * BLOCK - BLOCK
}

/// More bytes of stack than encryption or decryption takes, also without optimization.
pub const CIPHER_FRAMES: usize = 16 << 10;

/// A key that encrypts.
pub enum EncryptionKey {
    Aes128(Aes128Enc),
    Aes256(Aes256Enc),
}

/// A key that decrypts.
pub enum DecryptionKey {
    Aes128(Aes128Dec),
    Aes256(Aes256Dec),
}

impl EncryptionKey {
    pub fn new(key: &[u8]) -> Option<Self> {
        if key.len() == BLOCK {
            return Aes128Enc::new_from_slice(key).ok().map(Self::Aes128);
        }
        Aes256Enc::new_from_slice(key).ok().map(Self::Aes256)
    }

    /// Encrypts whole blocks.
    pub fn blocks(&self, state: &mut Block, data: &mut [u8]) {
        match self {
            Self::Aes128(key) => encrypt(key, state, data),
            Self::Aes256(key) => encrypt(key, state, data),
        }
    }

    /// Encrypts the last full block and the rest behind it, of 1 to 16 bytes.
    pub fn tail(&self, state: &mut Block, tail: &mut [u8]) {
        let (whole, rest) = tail.split_at_mut(BLOCK);
        self.blocks(state, whole);
        let mut padded = [0; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        rest.copy_from_slice(&whole[..rest.len()]);
        self.blocks(state, &mut padded);
        whole.copy_from_slice(&padded);
    }
}

impl DecryptionKey {
    pub fn new(key: &[u8]) -> Option<Self> {
        if key.len() == BLOCK {
            return Aes128Dec::new_from_slice(key).ok().map(Self::Aes128);
        }
        Aes256Dec::new_from_slice(key).ok().map(Self::Aes256)
    }

    /// Decrypts whole blocks.
    pub fn blocks(&self, state: &mut Block, data: &mut [u8]) {
        match self {
            Self::Aes128(key) => decrypt(key, state, data),
            Self::Aes256(key) => decrypt(key, state, data),
        }
    }

    /// Decrypts the last full block and the rest behind it, of 1 to 16 bytes.
    pub fn tail(&self, state: &mut Block, tail: &mut [u8]) {
        let (whole, rest) = tail.split_at_mut(BLOCK);
        // The last block of plaintext, mixed with the block before it, whose end was stolen.
        let mut stolen = [0; BLOCK];
        let mut mixed: Block = [0; BLOCK];
        mixed.copy_from_slice(whole);
        self.blocks(&mut stolen, &mut mixed);
        whole.copy_from_slice(&mixed);
        whole[..rest.len()].copy_from_slice(rest);
        for (byte, mixed) in rest.iter_mut().zip(mixed) {
            *byte ^= mixed;
        }
        self.blocks(state, whole);
    }
}

/// Where there are wide instructions for AES, copies of the round keys stay in its frames.
#[inline(never)]
fn encrypt<C: BlockCipherEncrypt<BlockSize = cipher::consts::U16>>(
    key: &C,
    state: &mut Block,
    data: &mut [u8],
) {
    let mut mode = Encryptor::inner_iv_init(key, (&*state).into());
    mode.encrypt_blocks(Array::slice_as_chunks_mut(data).0);
    *state = mode.iv_state().into();
}

/// The same way back.
#[inline(never)]
fn decrypt<C: BlockCipherDecrypt<BlockSize = cipher::consts::U16>>(
    key: &C,
    state: &mut Block,
    data: &mut [u8],
) {
    let mut mode = Decryptor::inner_iv_init(key, (&*state).into());
    mode.decrypt_blocks(Array::slice_as_chunks_mut(data).0);
    *state = mode.iv_state().into();
}
