//! The thread that takes byte-range locks on the host, in the order in which the home of the state
//! wants them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use millrace_reactor::Alarm;
use millrace_store::posix::host_locks::{HostLock, HostLockFile};
use millrace_store::posix::volume::Volume;

use crate::log_limit::LogLimit;
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::state::{
    ByteRange, FileKey, HostLockAction, HostLockAnswer, HostLockOrder, LockMode, UnionPart,
};

/// Most orders that wait for the thread. Those beyond that wait in the home.
const ORDERS_MAX: usize = 1024;

/// An order, and the folder that its file is in.
type PlacedOrder = (Option<Volume>, HostLockOrder);
type TicketAnswer = (u64, HostLockAnswer);

/// The way to the thread, which is started with the first order and ends with this.
#[derive(Debug)]
pub(super) struct HostLockThread {
    orders: Sender<PlacedOrder>,
    answers: Receiver<TicketAnswer>,
}

impl HostLockThread {
    /// Starts the thread. `alarm` is that of the reactor with the home.
    ///
    /// # Errors
    /// The system starts none.
    pub fn start(alarm: Alarm) -> io::Result<Self> {
        let (orders, received) = crossbeam_channel::bounded::<PlacedOrder>(ORDERS_MAX);
        // Each answer is to an order that has left the other channel.
        let (sender, answers) = crossbeam_channel::unbounded();
        let thread = thread::Builder::new().name("host-locks".to_owned());
        thread.spawn(move || {
            confine_thread(ThreadKind::StoreHelper);
            let mut files = HostLockFiles::default();
            while let Ok((volume, order)) = received.recv() {
                if let Some(answer) = files.carry_out(volume.as_ref(), order) {
                    let _ = sender.send(answer);
                    alarm.ring();
                }
            }
        })?;
        Ok(Self { orders, answers })
    }

    /// Whether it takes an order now.
    pub fn has_room(&self) -> bool {
        !self.orders.is_full()
    }

    /// Hands an order over.
    pub fn send(&self, volume: Option<Volume>, order: HostLockOrder) {
        let _ = self.orders.try_send((volume, order));
    }

    /// The next answer.
    pub fn answer(&self) -> Option<TicketAnswer> {
        self.answers.try_recv().ok()
    }
}

/// The files with locks, open.
#[derive(Default)]
struct HostLockFiles {
    files: HashMap<FileKey, HostLockFile>,
    warnings: LogLimit,
}

impl HostLockFiles {
    fn carry_out(&mut self, volume: Option<&Volume>, order: HostLockOrder) -> Option<TicketAnswer> {
        let key = order.file;
        match order.action {
            HostLockAction::Acquire(ticket, ranges, mode) => {
                let answer = self.ask(volume, key, |file| {
                    for lock in ranges.into_iter().map(|range| host_lock(range, mode)) {
                        if !file.lock(lock)? {
                            // It may be free by now; then these bytes were taken a moment ago.
                            return Ok(Some(file.conflict(lock)?.unwrap_or(lock)));
                        }
                    }
                    Ok(None)
                });
                Some((ticket, answer))
            }
            HostLockAction::Test(ticket, range, mode) => {
                let lock = host_lock(range, mode);
                Some((ticket, self.ask(volume, key, |file| file.conflict(lock))))
            }
            HostLockAction::Settle(parts) => {
                if let Some(file) = self.files.get(&key)
                    && let Err(error) = settle(file, &parts)
                {
                    self.warn(&error);
                }
                None
            }
            HostLockAction::Close => {
                self.files.remove(&key);
                None
            }
        }
    }

    /// Asks the host about a file. Where it has no locks, nobody is in the way.
    fn ask(
        &mut self,
        volume: Option<&Volume>,
        key: FileKey,
        question: impl FnOnce(&HostLockFile) -> io::Result<Option<HostLock>>,
    ) -> HostLockAnswer {
        let file = match self.files.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match volume.map(|volume| volume.open_for_locks(key.object)) {
                Some(Ok(file)) => place.insert(file),
                // A file that is gone, or an export.
                Some(Err(_)) | None => return HostLockAnswer::Free,
            },
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
            Err(error) => {
                self.warn(&error);
                HostLockAnswer::Free
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

/// Has the host keep these locks only. None of them is new, so that they cannot be refused.
fn settle(file: &HostLockFile, parts: &[UnionPart]) -> io::Result<()> {
    for part in parts {
        match part.mode {
            Some(mode) => file.lock(host_lock(part.range, mode)).map(drop)?,
            None => file.unlock(part.range.offset(), part.range.length())?,
        }
    }
    Ok(())
}

fn host_lock(range: ByteRange, mode: LockMode) -> HostLock {
    HostLock {
        offset: range.offset(),
        length: range.length(),
        writes: mode == LockMode::Write,
    }
}
