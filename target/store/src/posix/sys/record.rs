//! For tests: the system calls that change files or make them durable, with the order in which they
//! began and ended. Not compiled into the service.
//!
//! Numbers of one counter order the calls of all threads, and the [marks](mark) of a test. A call
//! of a ring begins when it is queued and ends when its completion is reaped: a sync that began
//! after a write ended here did so in the kernel too.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use io_uring::{opcode, squeue};
use rustix::io::Errno;

/// A file or directory, by any name or descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub fn of(file: impl AsFd) -> Self {
        let found = rustix::fs::fstat(file).expect("it is open");
        Self {
            device: found.st_dev,
            inode: found.st_ino,
        }
    }

    fn is_beside(self, other: Self) -> bool {
        self.device == other.device
    }
}

/// The system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedCall {
    /// A name in a directory is added, removed or changed.
    Name,
    /// The size or other attributes are set.
    Attributes,
    /// Data is written, with these flags of `pwritev2`.
    Write {
        offset: u64,
        length: u64,
        flags: i32,
    },
    /// `fsync`, or `fdatasync` without attributes.
    Sync { attributes: bool },
    /// `syncfs`.
    SyncFileSystem,
}

/// One call of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord {
    pub call: RecordedCall,
    pub file: FileId,
    pub began: u64,
    /// When it returned.
    pub ended: Option<u64>,
    /// Whether it succeeded.
    pub done: bool,
}

impl CallRecord {
    /// Whether a success makes earlier changes of `file` durable.
    pub fn syncs(&self, file: FileId) -> bool {
        match self.call {
            RecordedCall::Sync { attributes } => attributes && self.file == file,
            RecordedCall::SyncFileSystem => self.file.is_beside(file),
            _ => false,
        }
    }
}

#[derive(Default)]
struct Journal {
    calls: Vec<CallRecord>,
    marks: u64,
    /// Syncs of these are blocked.
    held: HashSet<FileId>,
    /// Syncs of these fail.
    failing: HashSet<FileId>,
}

static JOURNAL: Mutex<Option<Journal>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();
/// One test records at a time.
static RECORDER: Mutex<()> = Mutex::new(());

fn journal() -> MutexGuard<'static, Option<Journal>> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }
}

/// Records the calls of the whole process until it is dropped.
pub struct Recording {
    _alone: MutexGuard<'static, ()>,
}

impl Recording {
    pub fn start() -> Self {
        let alone = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
        *journal() = Some(Journal::default());
        Self { _alone: alone }
    }

    /// The number of this moment.
    pub fn mark(&self) -> u64 {
        self.with(Journal::mark)
    }

    pub fn calls(&self) -> Vec<CallRecord> {
        self.with(|journal| journal.calls.clone())
    }

    /// Syncs of this file that began and have not ended.
    pub fn syncing(&self, file: FileId) -> usize {
        self.with(|journal| {
            let calls = journal.calls.iter();
            calls
                .filter(|call| call.syncs(file) && call.ended.is_none())
                .count()
        })
    }

    /// From now on syncs of this file begin and do not end.
    pub fn hold(&self, file: FileId) {
        self.with(|journal| journal.held.insert(file));
    }

    /// Releases all syncs.
    pub fn release(&self) {
        self.with(|journal| journal.held.clear());
        RELEASED.notify_all();
    }

    /// From now on syncs of this file fail, or no longer.
    pub fn fail(&self, file: FileId, fails: bool) {
        self.with(|journal| match fails {
            true => journal.failing.insert(file),
            false => journal.failing.remove(&file),
        });
    }

    #[allow(clippy::unused_self)] // Only who records looks.
    fn with<T>(&self, action: impl FnOnce(&mut Journal) -> T) -> T {
        action(journal().as_mut().expect("it records"))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        *journal() = None;
        RELEASED.notify_all();
    }
}

/// A call in progress.
pub struct PendingCall {
    index: usize,
    file: FileId,
    is_sync: bool,
}

/// Records the begin of a call. `None` without a recording.
pub fn begin(file: impl AsFd, call: RecordedCall) -> Option<PendingCall> {
    let mut journal = journal();
    let journal = journal.as_mut()?;
    let record = CallRecord {
        call,
        file: FileId::of(file),
        began: journal.mark(),
        ended: None,
        done: false,
    };
    journal.calls.push(record);
    Some(PendingCall {
        index: journal.calls.len() - 1,
        file: record.file,
        is_sync: record.syncs(record.file),
    })
}

impl PendingCall {
    /// Records its end.
    pub fn end(self, done: bool) {
        if let Some(journal) = journal().as_mut() {
            let now = journal.mark();
            // Otherwise it belongs to an earlier recording.
            if let Some(record) = journal.calls.get_mut(self.index)
                && record.file == self.file
            {
                record.ended = Some(now);
                record.done = done;
            }
        }
    }

    /// Whether its end is blocked.
    pub fn is_held(&self) -> bool {
        let journal = journal();
        self.is_sync
            && journal
                .as_ref()
                .is_some_and(|it| it.held.contains(&self.file))
    }

    /// Waits while its end is blocked. Returns the error to fail with.
    pub fn wait(&self) -> Option<Errno> {
        let mut journal = journal();
        loop {
            let known = journal.as_ref().filter(|_| self.is_sync)?;
            if !known.held.contains(&self.file) {
                return known.failing.contains(&self.file).then_some(Errno::IO);
            }
            journal = RELEASED
                .wait(journal)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// `IORING_FSYNC_DATASYNC`.
const DATASYNC: u32 = 1;

/// The call of a ring entry, by the bytes that the kernel will read (`struct io_uring_sqe`). `None`
/// for one that changes nothing.
pub fn call_of(entry: &squeue::Entry) -> Option<RecordedCall> {
    const { assert!(size_of::<squeue::Entry>() == 64) };
    // SAFETY: an entry is that structure of the kernel: 64 bytes without gaps, of plain numbers.
    let bytes: [u8; 64] = unsafe { std::mem::transmute_copy(entry) };
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
    let offset = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight"));
    match bytes[0] {
        opcode::Write::CODE | opcode::WriteFixed::CODE => Some(RecordedCall::Write {
            offset,
            length: word(24).into(),
            flags: word(28).cast_signed(),
        }),
        opcode::Fsync::CODE => Some(RecordedCall::Sync {
            attributes: word(28) & DATASYNC == 0,
        }),
        _ => None,
    }
}
