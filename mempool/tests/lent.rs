//! What slices of a lender promise: each is a holder, until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use millrace_mempool::{HugepagePolicy, Lender, Registry, SharedArena, Slice};

/// Lends one part, number 7.
struct OnePart {
    arena: SharedArena,
    holders: AtomicUsize,
}

// SAFETY: the only arena is a field that no method replaces, so every number names it for ever.
unsafe impl Lender for OnePart {
    fn arena(&self, number: u64) -> &SharedArena {
        assert_eq!(number, 7);
        &self.arena
    }

    fn retain(&self, number: u64) {
        assert_eq!(number, 7);
        self.holders.fetch_add(1, Relaxed);
    }

    fn release(&self, number: u64) {
        assert_eq!(number, 7);
        self.holders.fetch_sub(1, Relaxed);
    }
}

#[test]
fn lent_slices_count_as_holders() {
    let registry = Registry::new(HugepagePolicy::Off);
    let lender = Arc::new(OnePart {
        arena: registry.arena(1).unwrap().share(),
        holders: AtomicUsize::new(1),
    });
    let holders = || lender.holders.load(Relaxed);
    let slice = Slice::lent(lender.clone(), 7, 4096..8192);
    assert_eq!(holders(), 1, "it takes over a count");
    assert_eq!(slice.region(), lender.arena.id());
    slice.copy_from(10, b"lent");
    let (head, tail) = slice.clone().split_at(12);
    assert_eq!((head.len(), tail.len(), holders()), (12, 4084, 3));
    let mut found = [0; 2];
    tail.copy_to(0, &mut found);
    assert_eq!(found, *b"nt");
    drop((slice, head));
    assert_eq!(holders(), 1);
    let tail = tail.try_into_buffer().unwrap_err();
    drop(tail);
    assert_eq!(holders(), 0);
    assert_eq!(Arc::strong_count(&lender), 1);
}
