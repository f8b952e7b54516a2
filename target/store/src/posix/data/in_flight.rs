//! Data operations in flight: the resources of volume and file that they hold until the kernel has
//! completed them, and the effects of their completion, even if no future waits for them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::Counters;
use super::admission::Admission;
use super::io_mode_lock::{IoModeLock, Way};
use crate::posix::errors::io_error;
use crate::posix::hold::{CompletionObserver, Hold};
use crate::posix::objects::Object;
use crate::posix::volume::Volume;
use crate::{ClientKey, Result};

/// One reactor's operations on one volume.
pub(super) struct InFlight {
    volume: Volume,
    admission: Rc<Admission>,
    counters: Arc<Counters>,
    entries: RefCell<Entries>,
}

#[derive(Default)]
struct Entries {
    places: Vec<RequestEntry>,
    free: Vec<u32>,
}

/// One request: the ticket of the requester, and a hold for the kernel's operation.
struct RequestEntry {
    holders: u32,
    bytes: usize,
    object: Option<Rc<Object>>,
    way: Option<Way>,
    work: KernelWork,
}

/// The operation of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelWork {
    Read,
    /// `durable`: the write includes a sync.
    Write {
        durable: bool,
    },
    /// A write without a sync, after one with a sync failed with this error. If it succeeds, the
    /// failure was in syncing the bytes written before.
    Probe {
        errno: i32,
    },
    /// `bytes` become durable.
    Sync {
        bytes: u64,
    },
}

impl InFlight {
    pub fn new(volume: &Volume, admission: Rc<Admission>, counters: Arc<Counters>) -> Rc<Self> {
        Rc::new(Self {
            volume: volume.clone(),
            admission,
            counters,
            entries: RefCell::default(),
        })
    }

    /// Begins a client's request with `bytes` of memory, in its turn.
    ///
    /// # Errors
    /// [`crate::StoreError::Delay`]: the volume is stuck, or too many wait.
    pub async fn begin(
        self: &Rc<Self>,
        client: ClientKey,
        object: &Rc<Object>,
        bytes: usize,
    ) -> Result<Ticket> {
        self.admission.enter(client, bytes).await?;
        let entry = RequestEntry {
            holders: 1,
            bytes,
            object: Some(Rc::clone(object)),
            way: None,
            work: KernelWork::Read,
        };
        let entries = &mut *self.entries.borrow_mut();
        let number = if let Some(number) = entries.free.pop() {
            entries.places[number as usize] = entry;
            number
        } else {
            entries.places.push(entry);
            u32::try_from(entries.places.len() - 1).expect("few are admitted")
        };
        Ok(Ticket {
            in_flight: Rc::clone(self),
            number,
        })
    }

    fn with<T>(&self, number: u32, action: impl FnOnce(&mut RequestEntry) -> T) -> T {
        action(&mut self.entries.borrow_mut().places[number as usize])
    }

    /// Releases one holder of an entry.
    fn release(&self, number: u32) {
        let gone = self.with(number, |entry| {
            entry.holders -= 1;
            (entry.holders == 0).then(|| (entry.object.take(), entry.way.take(), entry.bytes))
        });
        let Some((object, way, bytes)) = gone else {
            return;
        };
        self.entries.borrow_mut().free.push(number);
        if let (Some(object), Some(_)) = (&object, way) {
            object.shared.data.io_mode.leave();
        }
        self.admission.leave(bytes);
    }

    fn wrote(&self, object: &Object, bytes: u64) {
        object.shared.data.dirty.fetch_add(bytes, SeqCst);
        self.volume.data().dirty.fetch_add(bytes, SeqCst);
    }

    fn synced(&self, object: &Object, bytes: u64, outcome: Option<&io::Result<usize>>) {
        if let Some(outcome) = outcome {
            self.counters.syncs.add(1);
            // Before any waiter is woken.
            if let Err(error) = outcome {
                self.volume.data().lost(error);
            }
            self.volume.data().dirty.fetch_sub(bytes, SeqCst);
        } else {
            object.shared.data.dirty.fetch_add(bytes, SeqCst);
        }
        object.shared.data.syncing.fetch_sub(1, SeqCst);
        let outcome = outcome.map(|outcome| match outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(io_error(error)),
        });
        object.local.group.ended(outcome);
    }
}

impl CompletionObserver for InFlight {
    fn ended(&self, number: u32, outcome: Option<&io::Result<usize>>) {
        self.admission.progress();
        let (work, object, alone) = self.with(number, |entry| {
            (entry.work, entry.object.clone(), entry.holders == 1)
        });
        if let Some(object) = &object {
            match (work, outcome) {
                (KernelWork::Write { durable: false }, Some(&Ok(bytes))) => {
                    self.wrote(object, bytes as u64);
                }
                (KernelWork::Probe { errno }, Some(&Ok(bytes))) => {
                    self.volume
                        .data()
                        .lost(&io::Error::from_raw_os_error(errno));
                    self.wrote(object, bytes as u64);
                }
                (KernelWork::Write { durable: true }, Some(Err(error)))
                    if !is_refused(error) && (alone || may_be_no_space(error).is_none()) =>
                {
                    self.volume.data().lost(error);
                }
                (KernelWork::Sync { bytes }, outcome) => self.synced(object, bytes, outcome),
                _ => {}
            }
        }
        self.release(number);
    }
}

/// The error of a write with a sync, if the write itself may have failed for lack of space, and not
/// the sync of earlier bytes. The requester determines which, if it still waits.
pub(super) fn may_be_no_space(error: &io::Error) -> Option<i32> {
    error
        .raw_os_error()
        .filter(|errno| matches!(*errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// Whether a transfer was refused before it reached the data: nothing was synced, and nothing is
/// lost.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EROFS | libc::EPERM)
    )
}

/// The requester's part of a request. The request ends when both this is dropped and the kernel has
/// completed.
pub(super) struct Ticket {
    in_flight: Rc<InFlight>,
    number: u32,
}

impl Ticket {
    /// Acquires the lock of the request's file, in its turn.
    pub async fn enter(&self, object: &Object, way: Way) {
        let lock: &IoModeLock = &object.shared.data.io_mode;
        IoModeLock::enter(lock, way).await;
        self.in_flight
            .with(self.number, |entry| entry.way = Some(way));
    }

    /// Releases the lock, while no kernel operation is running.
    pub fn leave(&self, object: &Object) {
        if self
            .in_flight
            .with(self.number, |entry| entry.way.take())
            .is_some()
        {
            object.shared.data.io_mode.leave();
        }
    }

    /// The hold for the next kernel operation; there is one at a time.
    pub fn hold(&self, work: KernelWork) -> Hold {
        self.in_flight.with(self.number, |entry| {
            debug_assert_eq!(entry.holders, 1, "one operation at a time");
            entry.holders += 1;
            entry.work = work;
        });
        let observer: Rc<dyn CompletionObserver> =
            Rc::clone(&self.in_flight) as Rc<dyn CompletionObserver>;
        Hold::new(observer, self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let fenced = self.in_flight.with(self.number, |entry| {
            let left = entry.holders > 1 && entry.way.is_some();
            left.then(|| entry.object.clone()).flatten()
        });
        if let Some(object) = fenced {
            object.shared.data.io_mode.fence();
        }
        self.in_flight.release(self.number);
    }
}
