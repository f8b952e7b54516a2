//! Data operations in flight: the resources of volume and file that they hold until the kernel has
//! completed them, and the effects of their completion, even if no future waits for it any more.

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

/// One request: the ticket of whoever asked, and a hold for what the kernel is at.
struct RequestEntry {
    holders: u32,
    bytes: usize,
    object: Option<Rc<Object>>,
    way: Option<Way>,
    work: KernelWork,
}

/// What the kernel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelWork {
    Read,
    /// `durable`: it syncs what it wrote.
    Write {
        durable: bool,
    },
    /// A write without a sync, as one that syncs failed by this error: if it succeeds, it was the
    /// sync of what was written before that failed.
    Probe {
        errno: i32,
    },
    /// `bytes` are what it will have made durable.
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

    /// One of the holders of an entry is gone.
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
            // Before anybody who waits is told.
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

/// The error of a write that syncs, if it may have failed by itself for lack of space, rather than
/// the sync of what was written before. Whoever asked finds out, if they are still there.
pub(super) fn may_be_no_space(error: &io::Error) -> Option<i32> {
    error
        .raw_os_error()
        .filter(|errno| matches!(*errno, libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// Whether a transfer never came to the data: nothing was synced, and nothing is lost.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EROFS | libc::EPERM)
    )
}

/// Whoever asked for a request. When they are gone and the kernel is done with its part, so is
/// the request.
pub(super) struct Ticket {
    in_flight: Rc<InFlight>,
    number: u32,
}

impl Ticket {
    /// Enters the lock of the request's file, in its turn.
    pub async fn enter(&self, object: &Object, way: Way) {
        let lock: &IoModeLock = &object.shared.data.io_mode;
        IoModeLock::enter(lock, way).await;
        self.in_flight
            .with(self.number, |entry| entry.way = Some(way));
    }

    /// Leaves the lock again, when the kernel is at nothing.
    pub fn leave(&self, object: &Object) {
        if self
            .in_flight
            .with(self.number, |entry| entry.way.take())
            .is_some()
        {
            object.shared.data.io_mode.leave();
        }
    }

    /// For the operation that the kernel is asked for next; it is at one at a time.
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
