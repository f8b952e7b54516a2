//! The order of a session's chunks (RFC 5043 sections 5.2.1 and 6.1).

use std::collections::BTreeMap;

/// Most chunks that are kept because one before them is missing.
pub const EARLY_MAX: usize = 64;
/// Most bytes of such chunks.
pub const EARLY_BYTES_MAX: usize = 256 * 1024;

/// Why a chunk has no place in the order. The session is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OrderError {
    /// The number was received already, or is too far ahead to be kept.
    #[error("sequence number {found}, {next} is the next")]
    Sequence {
        /// The number that came.
        found: u16,
        /// The number that is due.
        next: u16,
    },
    /// Too many bytes wait for a missing chunk.
    #[error("{0} bytes wait for a missing chunk")]
    Bytes(usize),
}

/// Puts chunks that arrive in any order in the order of their sequence numbers. What it keeps is
/// bounded by [`EARLY_MAX`] and [`EARLY_BYTES_MAX`].
#[derive(Debug)]
pub struct Order<T> {
    next: u16,
    /// By distance from the first number of the session, so that wrapping numbers stay sorted.
    early: BTreeMap<u64, (usize, T)>,
    passed: u64,
    bytes: usize,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self {
            next: 0,
            early: BTreeMap::new(),
            passed: 0,
            bytes: 0,
        }
    }
}

impl<T> Order<T> {
    /// Takes a chunk of `length` bytes.
    ///
    /// # Errors
    ///
    /// [`OrderError`]; the chunk is dropped.
    pub fn push(&mut self, sequence: u16, length: usize, chunk: T) -> Result<(), OrderError> {
        let ahead = usize::from(sequence.wrapping_sub(self.next));
        let place = self.passed + ahead as u64;
        if ahead > EARLY_MAX || self.early.contains_key(&place) {
            return Err(OrderError::Sequence {
                found: sequence,
                next: self.next,
            });
        }
        let bytes = self.bytes + length;
        if ahead > 0 && bytes > EARLY_BYTES_MAX {
            return Err(OrderError::Bytes(bytes));
        }
        self.bytes = bytes;
        self.early.insert(place, (length, chunk));
        Ok(())
    }

    /// The chunk that is due, if it has come.
    pub fn pop(&mut self) -> Option<T> {
        let (length, chunk) = self.early.remove(&self.passed)?;
        self.bytes -= length;
        self.passed += 1;
        self.next = self.next.wrapping_add(1);
        Some(chunk)
    }
}
