//! The window of sequence numbers of a context (RFC 2203 5.3.3.1), without locks.
//!
//! A ring of words, each with the number of a block of 32 sequence numbers and a bit for each of
//! them. A number is marked by one compare-and-swap on its word; a word only ever goes on to later
//! blocks, so a number is marked once at most. The ring has one block more than the window covers:
//! a word is needed again only when its block has left the window.
//!
//! It is generic over its atomic word, so that the model test explores all interleavings of this
//! code.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::SEQUENCE_MAX;

/// Sequence numbers of a word.
const BLOCK: u32 = 32;

/// An atomic word of the window.
pub trait WindowWord: Default {
    /// The value now.
    fn read(&self) -> u64;

    /// Puts `new` in the place of `old`, if that is still there.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl WindowWord for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// What a look at a sequence number shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Not seen, in or above the window.
    Fresh,
    /// Seen before.
    Seen,
    /// Below the window.
    Old,
    /// MAXSEQ or more.
    TooLarge,
}

/// The numbers seen. With highest N and size W, N-W+1 to N may still be seen for the first time.
pub struct SequenceWindow<W = AtomicU64> {
    size: u32,
    highest: W,
    words: Box<[W]>,
}

impl<W: WindowWord> SequenceWindow<W> {
    /// An empty window of at least one number.
    pub fn new(size: u32) -> Self {
        let size = size.clamp(1, SEQUENCE_MAX);
        let blocks = size.div_ceil(BLOCK) + 1;
        Self {
            size,
            highest: W::default(),
            words: (0..blocks).map(|_| W::default()).collect(),
        }
    }

    /// A look; changes nothing.
    pub fn look(&self, number: u32) -> Sequence {
        if number >= SEQUENCE_MAX {
            return Sequence::TooLarge;
        }
        if self.is_below(number) {
            return Sequence::Old;
        }
        match self.judge(number) {
            Ok(_) => Sequence::Fresh,
            Err(sequence) => sequence,
        }
    }

    /// Marks a number as seen, and makes it the highest if it is. False: it was seen before, or is
    /// below the window by now.
    pub fn mark(&self, number: u32) -> bool {
        if number >= SEQUENCE_MAX || self.is_below(number) {
            return false;
        }
        let word = self.word(number);
        loop {
            let Ok((old, new)) = self.judge(number) else {
                return false;
            };
            if word.replace(old, new) {
                break;
            }
        }
        self.raise(number);
        true
    }

    fn is_below(&self, number: u32) -> bool {
        u64::from(number) + u64::from(self.size) <= self.highest.read()
    }

    fn raise(&self, number: u32) {
        loop {
            let highest = self.highest.read();
            if highest >= number.into() || self.highest.replace(highest, number.into()) {
                return;
            }
        }
    }

    fn word(&self, number: u32) -> &W {
        &self.words[(number / BLOCK) as usize % self.words.len()]
    }

    /// The word of a number now, and with the number marked; or why it cannot be marked.
    fn judge(&self, number: u32) -> Result<(u64, u64), Sequence> {
        let word = self.word(number).read();
        let block = u64::from(number / BLOCK);
        let bit = 1_u64 << (number % BLOCK);
        let known = word >> BLOCK;
        if known > block {
            return Err(Sequence::Old);
        }
        let seen = if known == block {
            word & u64::from(u32::MAX)
        } else {
            0
        };
        if seen & bit != 0 {
            return Err(Sequence::Seen);
        }
        Ok((word, block << BLOCK | seen | bit))
    }
}

#[cfg(test)]
mod tests;
