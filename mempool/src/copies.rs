//! Copies to and from memory that other threads may write meanwhile.
//!
//! A slice's bytes may be shared with other cores, so plain copies would be data races, which are
//! undefined behaviour. All accesses here are relaxed, atomic, and of whole aligned words, because
//! racing accesses of different sizes would be undefined too. A copy that races with a write finds
//! some mixture of old and new words.
//!
//! The compiler does not merge atomic accesses of words into wider ones. Long copies therefore use
//! inline assembly (`blocks`) on processors that have it. Miri checks the copies by words.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod blocks;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Bytes that go through the stack at a time between two places in shared memory.
const BOUNCE: usize = 1024;

/// The word that holds a byte, and the byte's place in it.
///
/// # Safety
/// The whole aligned word around `at` is mapped for as long as the result is used, and is accessed
/// by atomic operations on words only wherever threads may race.
unsafe fn word<'a>(at: *mut u8) -> (&'a AtomicU64, usize) {
    let within = at.addr() % WORD;
    // SAFETY: the start of the word is mapped, aligned and valid for atomic access, as the caller
    // promises.
    let word = unsafe { AtomicU64::from_ptr(at.wrapping_sub(within).cast()) };
    (word, within)
}

/// The part of `len` bytes from `at` on that lies in one word, if it is not a whole word.
fn partial(at: *mut u8, len: usize) -> usize {
    let within = at.addr() % WORD;
    if within == 0 && len >= WORD {
        0
    } else {
        len.min(WORD - within)
    }
}

/// Copies a part of a word; both have its length. XDR leaves four bytes most often, and those are
/// one move.
fn copy_part(to: &mut [u8], from: &[u8]) {
    if let (Ok(to), Ok(from)) = (
        <&mut [u8; 4]>::try_from(&mut *to),
        <[u8; 4]>::try_from(from),
    ) {
        *to = from;
    } else {
        to.copy_from_slice(from);
    }
}

/// Copies from shared memory.
///
/// # Safety
/// As for [`word`], for all words that the bytes from `from` on touch.
pub(crate) unsafe fn load(mut from: *mut u8, mut to: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: as the caller promises; what is borrowed here exclusively overlaps nothing.
        let done = unsafe { blocks::copy(from, to.as_mut_ptr(), to.len()) };
        from = from.wrapping_add(done);
        to = &mut to[done..];
    }
    while !to.is_empty() {
        let part = match partial(from, to.len()) {
            0 => {
                let whole = to.len() / WORD * WORD;
                let (words, _) = to[..whole].as_chunks_mut::<WORD>();
                let first = from.cast::<u64>();
                for (index, bytes) in words.iter_mut().enumerate() {
                    // SAFETY: aligned, and within the bytes that the caller promises.
                    let word = unsafe { AtomicU64::from_ptr(first.add(index)) };
                    *bytes = word.load(Relaxed).to_ne_bytes();
                }
                whole
            }
            part => {
                // SAFETY: as the caller promises.
                let (word, within) = unsafe { word(from) };
                let bytes = word.load(Relaxed).to_ne_bytes();
                copy_part(&mut to[..part], &bytes[within..within + part]);
                part
            }
        };
        from = from.wrapping_add(part);
        to = &mut to[part..];
    }
}

/// Copies to shared memory. Other bytes of words that the range begins or ends within stay as they
/// are, also if another thread writes them at this moment.
///
/// # Safety
/// As for [`word`], for all words that the bytes from `to` on touch.
pub(crate) unsafe fn store(mut to: *mut u8, mut from: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: as the caller promises; what is borrowed here is not in shared memory.
        let done = unsafe { blocks::copy(from.as_ptr(), to, from.len()) };
        to = to.wrapping_add(done);
        from = &from[done..];
    }
    while !from.is_empty() {
        let part = match partial(to, from.len()) {
            0 => {
                let whole = from.len() / WORD * WORD;
                let (words, _) = from[..whole].as_chunks::<WORD>();
                let first = to.cast::<u64>();
                for (index, bytes) in words.iter().enumerate() {
                    // SAFETY: aligned, and within the bytes that the caller promises.
                    let word = unsafe { AtomicU64::from_ptr(first.add(index)) };
                    word.store(u64::from_ne_bytes(*bytes), Relaxed);
                }
                whole
            }
            part => {
                // SAFETY: as the caller promises.
                let (word, within) = unsafe { word(to) };
                let merged = |before: u64| {
                    let mut bytes = before.to_ne_bytes();
                    copy_part(&mut bytes[within..within + part], &from[..part]);
                    Some(u64::from_ne_bytes(bytes))
                };
                // The closure always returns a value.
                let _ = word.fetch_update(Relaxed, Relaxed, merged);
                part
            }
        };
        to = to.wrapping_add(part);
        from = &from[part..];
    }
}

/// Copies between two places in shared memory, which may overlap.
///
/// # Safety
/// As for [`word`], for all words that either range touches.
pub(crate) unsafe fn copy(mut from: *mut u8, mut to: *mut u8, mut len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if from.addr().abs_diff(to.addr()) >= len {
        // SAFETY: as the caller promises; the ranges do not overlap.
        let done = unsafe { blocks::copy(from, to, len) };
        (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
        len -= done;
    }
    if len == 0 {
        return;
    }
    let mut bounce = [0; BOUNCE];
    let mut piece = |at: usize| {
        let bytes = &mut bounce[..BOUNCE.min(len - at)];
        // SAFETY: within both ranges, as the caller promises.
        unsafe {
            load(from.wrapping_add(at), bytes);
            store(to.wrapping_add(at), bytes);
        }
    };
    let pieces = (0..len).step_by(BOUNCE);
    // Copied backwards, so that no byte is overwritten before it is read.
    if from.addr() < to.addr() {
        pieces.rev().for_each(&mut piece);
    } else {
        pieces.for_each(&mut piece);
    }
}

/// Fills shared memory with one byte.
///
/// # Safety
/// As for [`word`], for all words that the bytes from `to` on touch.
pub(crate) unsafe fn fill(to: *mut u8, len: usize, byte: u8) {
    let pattern = [byte; BOUNCE];
    for at in (0..len).step_by(BOUNCE) {
        // SAFETY: within the range, as the caller promises.
        unsafe { store(to.wrapping_add(at), &pattern[..BOUNCE.min(len - at)]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ptr;

    /// More than [`BOUNCE`], but where each byte takes long.
    const BYTES: usize = if cfg!(miri) { 256 } else { 4096 };

    /// Memory of a word's alignment.
    struct Shared(Vec<AtomicU64>);

    impl Shared {
        fn new() -> Self {
            let word = |index: usize| AtomicU64::new((index as u64).wrapping_mul(0x9e37_79b9));
            Self((0..BYTES / WORD).map(word).collect())
        }

        fn at(&self, at: usize) -> *mut u8 {
            ptr::from_ref(&self.0[..])
                .cast_mut()
                .cast::<u8>()
                .wrapping_add(at)
        }

        fn bytes(&self) -> Vec<u8> {
            let words = self.0.iter().map(|word| word.load(Relaxed));
            words.flat_map(u64::to_ne_bytes).collect()
        }
    }

    fn cases() -> ProptestConfig {
        ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn copies_are_those_of_plain_memory(
            from in 0..BYTES,
            to in 0..BYTES,
            len in 0..BYTES,
            byte: u8,
        ) {
            let len = len.min(BYTES - from).min(BYTES - to);
            let shared = Shared::new();
            let mut model = shared.bytes();

            let mut loaded = vec![0; len];
            // SAFETY: the ranges are inside the words of `shared`, by how the test chooses them.
            unsafe { load(shared.at(from), &mut loaded) };
            prop_assert_eq!(&loaded, &model[from..from + len]);

            // SAFETY: as above.
            unsafe { copy(shared.at(from), shared.at(to), len) };
            model.copy_within(from..from + len, to);
            prop_assert_eq!(&shared.bytes(), &model);

            loaded.reverse();
            // SAFETY: as above.
            unsafe { store(shared.at(from), &loaded) };
            model[from..from + len].copy_from_slice(&loaded);
            prop_assert_eq!(&shared.bytes(), &model);

            // SAFETY: as above.
            unsafe { fill(shared.at(to), len, byte) };
            model[to..to + len].fill(byte);
            prop_assert_eq!(&shared.bytes(), &model);
        }
    }

    #[test]
    fn neighbours_in_one_word_do_not_lose_writes() {
        let shared = Shared::new();
        let rounds = if cfg!(miri) { 20 } else { 100_000 };
        std::thread::scope(|scope| {
            for at in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let bytes = [round as u8; 2];
                        let mut found = [0; 2];
                        // SAFETY: inside the memory; all threads use these functions only.
                        unsafe {
                            store(shared.at(3 + 2 * at), &bytes);
                            load(shared.at(3 + 2 * at), &mut found);
                        }
                        assert_eq!(found, bytes);
                    }
                });
            }
        });
    }
}
