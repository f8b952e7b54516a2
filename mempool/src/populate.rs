//! Faulting memory in by pieces, so that it can be interrupted.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes that are faulted in between two checks of the interrupt, in a few hundredths of a second.
const PIECE: usize = 64 << 20;

/// The interrupt and the progress of faulting memory in, for all mappings of a registry.
#[derive(Debug, Default)]
pub(crate) struct Population {
    interrupt: Arc<AtomicBool>,
    populated: AtomicU64,
}

impl Population {
    /// Faulting in that ends once `interrupt` is set.
    pub fn interrupted_by(interrupt: Arc<AtomicBool>) -> Self {
        Self {
            interrupt,
            populated: AtomicU64::default(),
        }
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Relaxed)
    }

    /// Bytes faulted in so far, those included that are unmapped again.
    pub fn populated(&self) -> u64 {
        self.populated.load(Relaxed)
    }

    /// Calls `populate` for the pieces of `len` bytes, which are whole pages.
    ///
    /// # Errors
    /// The first of `populate`; [`io::ErrorKind::Interrupted`] once the interrupt is set.
    pub fn in_pieces(
        &self,
        len: usize,
        page_size: usize,
        mut populate: impl FnMut(Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let step = PIECE.max(page_size);
        for start in (0..len).step_by(step) {
            if self.is_interrupted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let piece = start..len.min(start + step);
            let bytes = piece.len() as u64;
            populate(piece)?;
            self.populated.fetch_add(bytes, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_pages_and_make_the_whole() {
        let population = Population::default();
        for (len, page_size) in [
            (PIECE / 2, 4096),
            (3 * PIECE + 4096, 4096),
            (3 << 30, 1 << 30),
        ] {
            let before = population.populated();
            let mut end = 0;
            let populated = population.in_pieces(len, page_size, |piece| {
                assert_eq!(piece.start, end);
                assert!(piece.start.is_multiple_of(page_size));
                end = piece.end;
                Ok(())
            });
            populated.unwrap();
            assert_eq!(end, len);
            assert_eq!(population.populated() - before, len as u64);
        }
    }

    #[test]
    fn an_interrupt_is_seen_before_the_next_piece() {
        let interrupt = Arc::new(AtomicBool::default());
        let population = Population::interrupted_by(Arc::clone(&interrupt));
        let mut pieces = 0;
        let outcome = population.in_pieces(10 * PIECE, 4096, |_| {
            pieces += 1;
            interrupt.store(pieces == 2, Relaxed);
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(pieces, 2);
        assert_eq!(population.populated(), 2 * PIECE as u64);
    }
}
