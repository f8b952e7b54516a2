//! Transfers by system calls on other threads.
//!
//! Slices do not leave their reactor's thread, so a [`Task`] has addresses. Their owners stay in a
//! [`TransferTable`] until the task has been run and returns as [`Done`].

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use millrace_mempool::Slice;

use super::calls;
use super::work::{HeldResources, Work, WorkEntry};

/// The resources of one reactor's tasks, by slot.
pub struct TransferTable {
    /// Invariant: everything that a [`Task`] has the address of is here.
    held: Box<[Option<HeldResources>]>,
    running: usize,
}

/// A transfer that any thread may run.
pub struct Task {
    place: usize,
    file: Arc<OwnedFd>,
    entry: WorkEntry,
    memory: Memory,
}

/// The bytes of an entry.
struct Memory(*mut u8);

// SAFETY: the bytes are in a slice that stays in the table until the task has been run. There are
// no references to them, and every thread may use them.
unsafe impl Send for Memory {}

/// A completed transfer and its result.
pub struct Done {
    place: usize,
    outcome: i32,
}

/// Reads from an offset of a file to the start of a slice, with the flags of `preadv2`: with
/// `RWF_NOWAIT` as many bytes as the page cache has.
///
/// # Errors
/// Those of the kernel, with that flag also that it has no bytes there (`EAGAIN`), or that the file
/// system cannot tell (`EOPNOTSUPP`).
pub fn read_at(file: &OwnedFd, offset: u64, slice: &Slice, flags: i32) -> io::Result<usize> {
    let range = libc::iovec {
        iov_base: slice.as_ptr().cast(),
        iov_len: slice.len(),
    };
    let (file, offset) = (file.as_raw_fd(), offset.cast_signed());
    // SAFETY: the slice keeps its bytes mapped until this call has ended. There are no references to
    // them, and the kernel may change them as any thread may (`Slice::as_ptr`).
    let read = unsafe { libc::preadv2(file, &raw const range, 1, offset, flags) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

impl TransferTable {
    pub fn new(places: u32) -> Self {
        Self {
            held: (0..places).map(|_| None).collect(),
            running: 0,
        }
    }

    /// Makes a task for a free slot.
    ///
    /// # Panics
    /// If the slot is taken or does not exist, or if the entry reaches beyond its slice.
    pub fn start(&mut self, place: usize, held: HeldResources, entry: &WorkEntry) -> Task {
        assert!(self.held[place].is_none(), "one operation for each place");
        let memory = held.slice.as_ref().map_or(std::ptr::null_mut(), |slice| {
            assert!(entry.from + entry.length <= slice.len(), "within the slice");
            slice.as_ptr().wrapping_add(entry.from)
        });
        let task = Task {
            place,
            file: Arc::clone(&held.file),
            entry: *entry,
            memory: Memory(memory),
        };
        self.held[place] = Some(held);
        self.running += 1;
        task
    }

    /// Takes back the resources of a task: its slot, its result in the form of rings, and the
    /// resources held.
    ///
    /// # Panics
    /// If the task belongs to another table.
    pub fn end(&mut self, done: &Done) -> (usize, i32, HeldResources) {
        let held = self.held[done.place].take().expect("its own task");
        self.running -= 1;
        (done.place, done.outcome, held)
    }

    /// Tasks that have not returned.
    pub fn running(&self) -> usize {
        self.running
    }
}

impl Drop for TransferTable {
    fn drop(&mut self) {
        for held in &mut self.held {
            // A thread may use it for any time, so it is leaked.
            std::mem::forget(held.take());
        }
    }
}

impl Task {
    /// Runs it. Blocks as long as the device takes.
    pub fn run(self) -> Done {
        let file = self.file.as_raw_fd();
        let (memory, length) = (self.memory.0, self.entry.length);
        let range = libc::iovec {
            iov_base: memory.cast(),
            iov_len: length,
        };
        let flags = self.entry.work.flags();
        let offset = self.entry.offset.cast_signed();
        // SAFETY: the file is open as long as the task holds it. The bytes stay in the table until
        // this task has returned, and every thread may use them; the kernel checks the rest.
        let outcome = unsafe {
            match self.entry.work {
                Work::Read { .. } => libc::preadv2(file, &raw const range, 1, offset, flags),
                Work::Write(_) => calls::pwritev2(&self.file, &range, offset, flags),
                Work::Sync { attributes } => calls::sync_data(&self.file, attributes),
            }
        };
        if outcome < 0 {
            let error = io::Error::last_os_error().raw_os_error();
            return self.failed(error.unwrap_or(libc::EIO));
        }
        Done {
            place: self.place,
            outcome: i32::try_from(outcome).expect("at most 2 GiB at once"),
        }
    }

    /// It was not run, or its result is unknown.
    pub fn failed(self, error: i32) -> Done {
        Done {
            place: self.place,
            outcome: -error,
        }
    }
}
