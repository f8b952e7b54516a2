//! The threads that take byte-range locks where others of the same files meet them, in the order in
//! which the home of the state wants them: one for each export, since its file system may block.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use millrace_reactor::Alarm;
use millrace_store::StoreError;
use millrace_store::any::AnyVolume;
use millrace_store::lock_file::{FileLock, LockFile};

use crate::log_limit::LogLimit;
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::state::{
    ByteRange, FileKey, HostLockAction, HostLockAnswer, HostLockOrder, LockMode, UnionPart,
};

/// An order, and the volume that its file is in.
type PlacedOrder = (Option<AnyVolume>, HostLockOrder);

/// What a thread reports.
#[derive(Debug)]
pub(super) enum LockReport {
    /// The answer to an order with a ticket.
    Answer(u64, HostLockAnswer),
    /// All locks of an export are gone.
    Lost(u64),
}

/// The ways to the threads. Each is started with the first order for its export and ends with this.
#[derive(Debug)]
pub(super) struct HostLockThreads {
    /// By export. The home has bounds for what it orders, so these channels have none.
    threads: HashMap<u64, Sender<PlacedOrder>>,
    reporter: LockReporter,
    reports: Receiver<LockReport>,
}

/// How a thread reports.
#[derive(Clone, Debug)]
struct LockReporter {
    reports: Sender<LockReport>,
    /// Of the reactor with the home.
    alarm: Alarm,
}

impl LockReporter {
    fn report(&self, report: LockReport) {
        let _ = self.reports.send(report);
        self.alarm.ring();
    }
}

impl HostLockThreads {
    /// Without a thread. `alarm` is that of the reactor with the home.
    pub fn new(alarm: Alarm) -> Self {
        let (sender, reports) = crossbeam_channel::unbounded();
        Self {
            threads: HashMap::new(),
            reporter: LockReporter {
                reports: sender,
                alarm,
            },
            reports,
        }
    }

    /// Hands an order over.
    pub fn send(&mut self, volume: Option<AnyVolume>, order: HostLockOrder) {
        let (export, ticket) = (order.file.export, order.ticket());
        let thread = match self.threads.entry(export) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match start(export, self.reporter.clone()) {
                Ok(thread) => place.insert(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread for locks of files; clients try again");
                    if let Some(ticket) = ticket {
                        let answer = LockReport::Answer(ticket, HostLockAnswer::Unavailable);
                        self.reporter.report(answer);
                    }
                    return;
                }
            },
        };
        let _ = thread.send((volume, order));
    }

    /// The next report.
    pub fn report(&self) -> Option<LockReport> {
        self.reports.try_recv().ok()
    }
}

fn start(export: u64, reporter: LockReporter) -> io::Result<Sender<PlacedOrder>> {
    let (orders, received) = crossbeam_channel::unbounded::<PlacedOrder>();
    let thread = thread::Builder::new().name("file-locks".to_owned());
    thread.spawn(move || {
        confine_thread(ThreadKind::StoreHelper);
        let mut files = ExportLockFiles::new(export, reporter);
        while let Ok((volume, order)) = received.recv() {
            files.carry_out(volume.as_ref(), order);
        }
    })?;
    Ok(orders)
}

/// The files of an export with locks, open.
struct ExportLockFiles {
    export: u64,
    files: HashMap<FileKey, LockFile>,
    warnings: LogLimit,
    reporter: LockReporter,
}

impl ExportLockFiles {
    fn new(export: u64, reporter: LockReporter) -> Self {
        Self {
            export,
            files: HashMap::new(),
            warnings: LogLimit::default(),
            reporter,
        }
    }

    fn carry_out(&mut self, volume: Option<&AnyVolume>, order: HostLockOrder) {
        let key = order.file;
        match order.action {
            HostLockAction::Acquire(ticket, ranges, mode) => {
                let answer = self.ask(volume, key, |file| {
                    for lock in ranges.into_iter().map(|range| file_lock(range, mode)) {
                        if !file.lock(lock)? {
                            // It may be free by now; then these bytes were taken a moment ago.
                            return Ok(Some(file.conflict(lock)?.unwrap_or(lock)));
                        }
                    }
                    Ok(None)
                });
                self.reporter.report(LockReport::Answer(ticket, answer));
                // They may have been lost, and that been told, before the answer.
                if self.files.get(&key).is_some_and(|file| !file.is_in_force()) {
                    self.reporter.report(LockReport::Lost(self.export));
                }
            }
            HostLockAction::Test(ticket, range, mode) => {
                let lock = file_lock(range, mode);
                let answer = self.ask(volume, key, |file| file.conflict(lock));
                self.reporter.report(LockReport::Answer(ticket, answer));
            }
            HostLockAction::Settle(parts) => {
                if let Some(file) = self.files.get(&key)
                    && let Err(error) = settle(file, &parts)
                {
                    self.warn(&error);
                }
            }
            HostLockAction::Close => {
                self.files.remove(&key);
            }
        }
    }

    /// Asks about a file. Where it has no locks, nobody is in the way.
    fn ask(
        &mut self,
        volume: Option<&AnyVolume>,
        key: FileKey,
        question: impl FnOnce(&LockFile) -> io::Result<Option<FileLock>>,
    ) -> HostLockAnswer {
        let file = match self.files.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let (reporter, export) = (self.reporter.clone(), self.export);
                let lost = move || reporter.report(LockReport::Lost(export));
                match volume.map(|volume| volume.open_for_locks(key.object, lost)) {
                    Some(Ok(file)) => place.insert(file),
                    Some(Err(StoreError::Delay)) => return HostLockAnswer::Unavailable,
                    // A file that is gone, or an export.
                    Some(Err(_)) | None => return HostLockAnswer::Free,
                }
            }
        };
        match question(file) {
            Ok(Some(taken)) => {
                let mode = match taken.writes {
                    true => LockMode::Write,
                    false => LockMode::Read,
                };
                match ByteRange::new(taken.offset, taken.length) {
                    Ok(range) => HostLockAnswer::Taken(range, mode),
                    Err(_) => HostLockAnswer::Free,
                }
            }
            Ok(None) => HostLockAnswer::Free,
            Err(error) if has_no_locks(&error) => {
                self.warn(&error);
                HostLockAnswer::Free
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => HostLockAnswer::Unavailable,
            Err(error) => {
                if self.warnings.is_due(Instant::now()) {
                    tracing::warn!(%error, "a byte-range lock cannot be taken now: clients try again");
                }
                HostLockAnswer::Unavailable
            }
        }
    }

    fn warn(&mut self, error: &io::Error) {
        if self.warnings.is_due(Instant::now()) {
            tracing::warn!(
                %error,
                "a byte-range lock cannot be taken on the host: only clients of this server respect it"
            );
        }
    }
}

/// Whether the file system has no locks for the file at all.
fn has_no_locks(error: &io::Error) -> bool {
    let without = [
        libc::ENOLCK,
        libc::ENOSYS,
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::EBADF,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| without.contains(&code))
}

/// Keeps these locks only. None of them is new, so that they cannot be refused.
fn settle(file: &LockFile, parts: &[UnionPart]) -> io::Result<()> {
    for part in parts {
        match part.mode {
            Some(mode) => file.lock(file_lock(part.range, mode)).map(drop)?,
            None => file.unlock(part.range.offset(), part.range.length())?,
        }
    }
    Ok(())
}

fn file_lock(range: ByteRange, mode: LockMode) -> FileLock {
    FileLock {
        offset: range.offset(),
        length: range.length(),
        writes: mode == LockMode::Write,
    }
}
