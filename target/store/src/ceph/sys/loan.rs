//! Memory of a reactor's slices that a helper's job may use.
//!
//! Slices do not leave their reactor's thread. A job gets the address of their bytes as a
//! [`LentMemory`], and the slice stays with the reactor until that has been dropped, also if the
//! future that waits for the job was dropped before.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use millrace_mempool::Slice;

/// The slices of one reactor whose jobs outlived their futures.
#[derive(Default)]
pub struct LoanTable {
    outliving: RefCell<Vec<(Slice, Arc<AtomicBool>)>>,
}

impl LoanTable {
    /// Releases slices whose jobs have ended. Returns their number.
    pub fn sweep(&self) -> usize {
        let mut outliving = self.outliving.borrow_mut();
        let before = outliving.len();
        outliving.retain(|(_, ended)| !ended.load(Acquire));
        before - outliving.len()
    }

    /// Slices whose jobs have not ended.
    pub fn len(&self) -> usize {
        self.outliving.borrow().len()
    }
}

impl Drop for LoanTable {
    fn drop(&mut self) {
        for (slice, ended) in self.outliving.borrow_mut().drain(..) {
            if !ended.load(Acquire) {
                // The job may use it at any later time, so it is leaked.
                std::mem::forget(slice);
            }
        }
    }
}

/// A slice whose memory is lent to a job.
pub struct Loan {
    slice: Option<Slice>,
    ended: Arc<AtomicBool>,
    table: Rc<LoanTable>,
}

/// The bytes of a slice, for a job.
pub struct LentMemory {
    start: *mut u8,
    length: usize,
    ended: Arc<AtomicBool>,
}

// SAFETY: the bytes are in a slice that stays with its reactor until this value is dropped. There
// are no references to them, and every thread may use them.
unsafe impl Send for LentMemory {}

impl Loan {
    /// Lends the memory of a slice.
    pub fn new(slice: Slice, table: &Rc<LoanTable>) -> (Self, LentMemory) {
        let ended = Arc::new(AtomicBool::new(false));
        let lent = LentMemory {
            start: slice.as_ptr(),
            length: slice.len(),
            ended: Arc::clone(&ended),
        };
        let loan = Self {
            slice: Some(slice),
            ended,
            table: Rc::clone(table),
        };
        (loan, lent)
    }

    /// The slice, once its job has ended.
    pub fn end(mut self) -> Option<Slice> {
        if self.ended.load(Acquire) {
            self.slice.take()
        } else {
            None
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(slice) = self.slice.take()
            && !self.ended.load(Acquire)
        {
            let ended = Arc::clone(&self.ended);
            self.table.outliving.borrow_mut().push((slice, ended));
        }
    }
}

impl LentMemory {
    /// The address and length of the bytes from `from` on.
    pub(super) fn part(&self, from: usize) -> (*mut u8, usize) {
        let from = from.min(self.length);
        (self.start.wrapping_add(from), self.length - from)
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        self.ended.store(true, Release);
    }
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

    use super::*;

    fn slice(pool: &Pool) -> Slice {
        pool.try_acquire(Class::Control).unwrap().into_slice(0..16)
    }

    fn in_use(pool: &Pool) -> u64 {
        pool.gauges().class(Class::Control).in_use()
    }

    #[test]
    fn memory_stays_until_the_job_has_ended_whatever_happens_to_its_future() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
        let table = Rc::new(LoanTable::default());
        let (loan, lent) = Loan::new(slice(&pool), &table);
        drop(loan);
        assert_eq!((table.sweep(), table.len(), in_use(&pool)), (0, 1, 1));
        std::thread::spawn(move || drop(lent)).join().unwrap();
        assert_eq!((table.sweep(), table.len(), in_use(&pool)), (1, 0, 0));
        let (loan, lent) = Loan::new(slice(&pool), &table);
        assert!(loan.end().is_none(), "the job still has it");
        assert_eq!((table.len(), in_use(&pool)), (1, 1));
        drop(lent);
        table.sweep();
        let (loan, lent) = Loan::new(slice(&pool), &table);
        drop(lent);
        assert!(loan.end().is_some());
        assert_eq!((table.len(), in_use(&pool)), (0, 0));
        // A reactor that ends before the job leaves the memory alone.
        let (loan, lent) = Loan::new(slice(&pool), &table);
        drop(loan);
        drop(table);
        drop(lent);
        assert_eq!(in_use(&pool), 1);
    }
}
