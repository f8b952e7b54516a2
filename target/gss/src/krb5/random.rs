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

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's state is copied by a fork.
    #[test]
    fn gss_priv_05_a_fork_has_other_confounders() {
        let mut first = [0; 16];
        fill(&mut first);
        let (child, parent) = sys::bytes_of_a_fork(|bytes| fill(bytes));
        assert_ne!(child, [0; 16]);
        assert_ne!(child, parent);
    }
}
