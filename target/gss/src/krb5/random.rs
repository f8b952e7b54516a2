//! Confounders: one generator for each thread, seeded by the kernel.

use std::cell::RefCell;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::sys;

/// A generator, and the count of forks when it was seeded.
struct ThreadGenerator {
    generator: ChaCha20Rng,
    forks: u32,
}

thread_local! {
    static GENERATOR: RefCell<Option<ThreadGenerator>> = const { RefCell::new(None) };
}

/// Fills the buffer with unpredictable bytes. A process and its fork get different ones.
pub fn fill(buffer: &mut [u8]) {
    let forks = sys::forks();
    GENERATOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|known| known.forks != forks) {
            let generator = ChaCha20Rng::from_os_rng();
            *slot = Some(ThreadGenerator { generator, forks });
        }
        if let Some(known) = slot {
            known.generator.fill_bytes(buffer);
        }
    });
}
