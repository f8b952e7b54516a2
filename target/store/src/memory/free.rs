//! The bitmap of free pages, changed without a lock.
//!
//! The bits of sixteen consecutive pages belong to a block, so a block whose pages are all free is
//! whole again without further work. A second bitmap has hints for words with free pages. It is
//! updated after each change of a word, and may be wrong only until that is done.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::space::PAGES_PER_BLOCK;

const WORD_BITS: usize = u64::BITS as usize;
const BLOCKS_PER_WORD: usize = WORD_BITS / PAGES_PER_BLOCK;
const BLOCK_MASK: u64 = (1 << PAGES_PER_BLOCK) - 1;
/// Where threads begin to look, spread over the memory.
const HOMES: usize = 16;

/// The free pages of a space.
pub(super) struct FreePages {
    /// Ones for free pages.
    words: Box<[AtomicU64]>,
    /// Words in which a block is free as a whole.
    whole: WordHints,
    /// Words in which a block is free in part.
    partial: WordHints,
}

impl FreePages {
    /// All of `pages` pages.
    pub fn new(pages: usize) -> Self {
        let count = pages.div_ceil(WORD_BITS);
        let word = |index: usize| match pages - index * WORD_BITS {
            WORD_BITS.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        let free = Self {
            words: (0..count)
                .map(|index| AtomicU64::new(word(index)))
                .collect(),
            whole: WordHints::new(count),
            partial: WordHints::new(count),
        };
        (0..count).for_each(|index| free.hint(index));
        free
    }

    /// The first page of a whole block.
    pub fn take_block(&self) -> Option<u32> {
        loop {
            let index = self.whole.find(self.start())?;
            let block = |word| blocks(word).position(|pages| pages == BLOCK_MASK);
            let taken = self.take(index, |word| {
                let first = block(word)? * PAGES_PER_BLOCK;
                Some((first, BLOCK_MASK << first))
            });
            if taken.is_some() {
                return taken;
            }
        }
    }

    /// A page: of a block that is cut already, if there is one, so that others stay whole.
    pub fn take_page(&self) -> Option<u32> {
        loop {
            let start = self.start();
            let hint = self.partial.find(start);
            let index = hint.or_else(|| self.whole.find(start))?;
            let taken = self.take(index, |word| {
                let cut = blocks(word).position(|pages| pages != 0 && pages != BLOCK_MASK);
                let block = cut.or_else(|| blocks(word).position(|pages| pages != 0))?;
                let first = block * PAGES_PER_BLOCK;
                let page = first + (word >> first).trailing_zeros() as usize;
                Some((page, 1 << page))
            });
            if taken.is_some() {
                return taken;
            }
        }
    }

    pub fn put_block(&self, first: u32) {
        self.put(first as usize, BLOCK_MASK);
    }

    pub fn put_page(&self, page: u32) {
        self.put(page as usize, 1);
    }

    /// Takes the pages that `choose` selects in a word: it returns the first bit, and the mask of
    /// all bits.
    fn take(&self, index: usize, choose: impl Fn(u64) -> Option<(usize, u64)>) -> Option<u32> {
        let chosen = self.words[index].fetch_update(SeqCst, SeqCst, |word| {
            choose(word).map(|(_, mask)| word & !mask)
        });
        self.hint(index);
        let (place, _) = choose(chosen.ok()?)?;
        CURSOR.set(Some(index));
        Some((index * WORD_BITS + place) as u32)
    }

    fn put(&self, page: usize, mask: u64) {
        let (index, mask) = (page / WORD_BITS, mask << (page % WORD_BITS));
        let before = self.words[index].fetch_or(mask, SeqCst);
        debug_assert_eq!(before & mask, 0, "memory is put back once");
        self.hint(index);
        // Recently used memory is the most likely to be in a cache.
        CURSOR.set(Some(index));
    }

    fn hint(&self, index: usize) {
        let word = || self.words[index].load(SeqCst);
        self.whole.follow(index, || empty_blocks(!word()) != 0);
        self.partial.follow(index, || {
            let word = word();
            empty_blocks(word) | empty_blocks(!word) != BLOCK_TOPS
        });
    }

    fn start(&self) -> usize {
        match CURSOR.get() {
            Some(index) => index % self.words.len(),
            None => thread_number() % HOMES * self.words.len() / HOMES,
        }
    }
}

thread_local! {
    /// The word in which this thread took or put memory last, in whichever space.
    static CURSOR: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The last bit of each block of a word.
const BLOCK_TOPS: u64 = (u64::MAX / BLOCK_MASK) << (PAGES_PER_BLOCK - 1);

/// The last bit of each block that has no bits.
const fn empty_blocks(word: u64) -> u64 {
    let others = !BLOCK_TOPS;
    !(((word & others) + others) | word | others)
}

/// The free pages of each block of a word.
fn blocks(word: u64) -> impl Iterator<Item = u64> {
    (0..BLOCKS_PER_WORD).map(move |block| word >> (block * PAGES_PER_BLOCK) & BLOCK_MASK)
}

/// Which words have something: one bit for each, and one for each word of these.
struct WordHints {
    bits: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl WordHints {
    fn new(words: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let bits = words.div_ceil(WORD_BITS);
        Self {
            bits: zeros(bits),
            summary: zeros(bits.div_ceil(WORD_BITS)),
        }
    }

    /// Brings the hint of a word up to what `truth` says of it.
    fn follow(&self, word: usize, truth: impl Fn() -> bool) {
        let bits = &self.bits[word / WORD_BITS];
        if settle(bits, word % WORD_BITS, truth) {
            let place = word / WORD_BITS;
            let any = || bits.load(SeqCst) != 0;
            settle(&self.summary[place / WORD_BITS], place % WORD_BITS, any);
        }
    }

    /// The first word with a hint from `start` on, then from the beginning.
    fn find(&self, start: usize) -> Option<usize> {
        let first = first_from(&self.bits[start / WORD_BITS], start % WORD_BITS);
        if let Some(place) = first {
            return Some(start / WORD_BITS * WORD_BITS + place);
        }
        let next = start / WORD_BITS + 1;
        self.find_in(next..self.bits.len())
            .or_else(|| self.find_in(0..next))
    }

    fn find_in(&self, range: std::ops::Range<usize>) -> Option<usize> {
        let mut next = range.start;
        while next < range.end {
            let Some(place) = first_from(&self.summary[next / WORD_BITS], next % WORD_BITS) else {
                next = (next / WORD_BITS + 1) * WORD_BITS;
                continue;
            };
            let index = next / WORD_BITS * WORD_BITS + place;
            match first_from(&self.bits[index], 0) {
                Some(place) => return Some(index * WORD_BITS + place),
                None => next = index + 1,
            }
        }
        None
    }
}

/// The first bit that is set from `place` on.
fn first_from(word: &AtomicU64, place: usize) -> Option<usize> {
    let rest = word.load(SeqCst) & u64::MAX << place;
    (rest != 0).then(|| rest.trailing_zeros() as usize)
}

/// Sets or clears a bit until it equals `truth`. Every change of the truth is followed by this
/// function, which reads the truth again after each change of the bit. So the last call leaves both
/// equal. Returns whether the bit was changed.
fn settle(bits: &AtomicU64, place: usize, truth: impl Fn() -> bool) -> bool {
    let mask = 1 << place;
    let mut changed = false;
    loop {
        let on = truth();
        if on != (bits.load(SeqCst) & mask != 0) {
            changed = true;
            if on {
                bits.fetch_or(mask, SeqCst);
            } else {
                bits.fetch_and(!mask, SeqCst);
            }
        }
        if truth() == on {
            return changed;
        }
    }
}

/// A small number for each thread, in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let fresh = NEXT.fetch_add(1, Relaxed);
            number.set(Some(fresh));
            fresh
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_is_given_out_once_and_comes_back() {
        let pages = 5 * WORD_BITS + 2 * PAGES_PER_BLOCK + 3;
        let free = FreePages::new(pages);
        for _ in 0..2 {
            let taken: BTreeSet<_> = std::iter::from_fn(|| free.take_page()).collect();
            assert!(taken.iter().copied().eq(0..pages as u32));
            assert!(free.take_block().is_none());
            taken.iter().for_each(|page| free.put_page(*page));
        }
        let taken: BTreeSet<_> = std::iter::from_fn(|| free.take_block()).collect();
        assert_eq!(taken.len(), pages / PAGES_PER_BLOCK);
        assert_eq!(std::iter::from_fn(|| free.take_page()).count(), 3);
        taken.iter().for_each(|first| free.put_block(*first));
        assert!(free.take_block().is_some());
    }

    #[test]
    fn hints_lead_to_the_next_word_that_has_one() {
        // One word of the summary is full in the first case, and two are not in the second.
        for words in [WORD_BITS * WORD_BITS, 2 * WORD_BITS * WORD_BITS + 100] {
            let hints = WordHints::new(words);
            let starts = [0, 1, 63, 64, 65, 130, 4000, 4095, words - 1];
            for start in starts {
                assert_eq!(hints.find(start), None);
            }
            let mut known = BTreeSet::new();
            for word in [4032, 70, words - 1, 3, 4095, 200, 64, 129] {
                hints.follow(word, || true);
                known.insert(word);
                for start in starts {
                    let next = known.range(start..).next().or(known.first());
                    assert_eq!(
                        hints.find(start),
                        next.copied(),
                        "of {known:?} from {start}"
                    );
                }
            }
            for word in known.clone() {
                hints.follow(word, || false);
                known.remove(&word);
                assert_eq!(hints.find(word), known.first().copied(), "{known:?}");
            }
        }
    }

    #[test]
    fn pages_come_from_a_block_that_is_cut_already() {
        let free = FreePages::new(4 * WORD_BITS);
        let first = free.take_page().unwrap();
        // Elsewhere, so that the next search does not begin at the cut block.
        let block = free.take_block().unwrap();
        CURSOR.set(Some(3));
        let second = free.take_page().unwrap();
        assert_eq!(
            first as usize / PAGES_PER_BLOCK,
            second as usize / PAGES_PER_BLOCK
        );
        free.put_block(block);
    }

    #[test]
    fn pages_come_from_a_cut_block_before_a_whole_one_of_the_same_word() {
        let free = FreePages::new(WORD_BITS);
        let taken: Vec<_> = (0..=PAGES_PER_BLOCK)
            .map(|_| free.take_page().unwrap())
            .collect();
        let (cut, whole) = taken.split_last().unwrap();
        whole.iter().for_each(|page| free.put_page(*page));
        let next = free.take_page().unwrap();
        assert_eq!(
            next as usize / PAGES_PER_BLOCK,
            *cut as usize / PAGES_PER_BLOCK
        );
    }

    #[test]
    fn far_words_are_found_through_the_summary() {
        let words = 3 * WORD_BITS * WORD_BITS + 5;
        let free = FreePages::new(words * WORD_BITS);
        while free.take_block().is_some() {}
        let far = ((words - 1) * WORD_BITS) as u32;
        for page in [far, 0, (WORD_BITS * WORD_BITS * WORD_BITS) as u32] {
            free.put_block(page);
            CURSOR.set(Some(WORD_BITS));
            assert_eq!(free.take_block(), Some(page));
        }
    }

    #[test]
    fn threads_begin_at_places_that_are_spread_over_the_memory() {
        let words = WORD_BITS;
        let free = FreePages::new(words * WORD_BITS);
        let first_of_a_thread = || {
            let block = free.take_block().unwrap();
            free.put_block(block);
            block as usize / WORD_BITS
        };
        // More than enough that threads of other tests in between leave out none.
        let begun: BTreeSet<_> = (0..20 * HOMES)
            .map(|_| std::thread::scope(|scope| scope.spawn(first_of_a_thread).join()).unwrap())
            .collect();
        assert!(begun.into_iter().eq((0..words).step_by(words / HOMES)));
    }
}
