//! How long operations of stores take, for a sample of them.
//!
//! Reading the clock twice costs as much as some operations of a store in memory take, so one in
//! [`SAMPLED`] of each class is timed, the first one to begin with.

use std::ops::Deref;
use std::time::Instant;

use millrace_primitives::{Counter, Histogram};

/// One operation in so many is timed.
pub const SAMPLED: u64 = 64;

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreClass {
    /// Find the memory of a file's bytes.
    Read,
    /// Reserve memory for bytes, or make them part of the file.
    Write,
    /// Anything about names and attributes.
    Metadata,
    /// Make what was written durable.
    Commit,
}

impl StoreClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Metadata, Self::Commit];

    /// The word for it in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Metadata => "metadata",
            Self::Commit => "commit",
        }
    }
}

/// The times of one reactor's operations.
#[derive(Debug, Default)]
pub struct StoreTimes {
    classes: [Times; StoreClass::ALL.len()],
}

#[derive(Debug, Default)]
struct Times {
    operations: Counter,
    took: Histogram,
}

impl StoreTimes {
    /// The times of a class.
    #[must_use]
    pub fn class(&self, class: StoreClass) -> &Histogram {
        &self.classes[class as usize].took
    }

    /// An operation of this class on a store begins; it ends when what is returned is dropped.
    #[inline]
    pub fn begin<S>(&self, class: StoreClass, store: S) -> Timed<'_, S> {
        let times = &self.classes[class as usize];
        let sampled = times.operations.get().is_multiple_of(SAMPLED);
        times.operations.increment();
        Timed {
            store,
            sample: sampled.then(|| (&times.took, Instant::now())),
        }
    }
}

/// A store while it is used for one operation.
#[derive(Debug)]
pub struct Timed<'a, S> {
    store: S,
    sample: Option<(&'a Histogram, Instant)>,
}

impl<S> Deref for Timed<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S> Drop for Timed<'_, S> {
    fn drop(&mut self) {
        if let Some((took, since)) = self.sample {
            let nanoseconds = since.elapsed().as_nanos();
            took.observe(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_operation_of_each_class_and_one_in_so_many_are_timed() {
        let times = StoreTimes::default();
        let count = |class| times.class(class).snapshot().count();
        for _ in 0..SAMPLED {
            drop(times.begin(StoreClass::Read, &()));
        }
        drop(times.begin(StoreClass::Commit, &()));
        assert_eq!(StoreClass::ALL.map(count), [1, 0, 0, 1]);
        let begun = times.begin(StoreClass::Read, &());
        assert_eq!(count(StoreClass::Read), 1, "it has not ended");
        drop(begun);
        assert_eq!(count(StoreClass::Read), 2);
    }
}
