//! Transfers on threads, for systems that forbid rings and for writes that a ring does not get to.
//! The results are the same, but slower.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_reactor::Alarm;

use crate::ClientKey;
use crate::posix::helpers::{HelperLimits, Helpers};
use crate::posix::identity::Identity;
use crate::posix::sys::identity::assume;
use crate::posix::sys::transfer::{Done, Task, TransferTable};
use crate::posix::sys::work::{HeldResources, WorkEntry};

pub struct Threads {
    helpers: Helpers,
    table: TransferTable,
    finished: Arc<Finished>,
    /// Taken from `finished` at once.
    taken: VecDeque<Done>,
    places: usize,
}

/// Results of threads that the reactor has not collected.
struct Finished {
    done: Mutex<VecDeque<Done>>,
    arrived: Condvar,
    alarm: Option<Alarm>,
}

impl Threads {
    pub fn new(places: u32, alarm: Option<Alarm>) -> Self {
        let most = places as usize;
        let limits = HelperLimits {
            threads: most.max(1),
            queue: most.max(1),
        };
        Self {
            helpers: Helpers::new("file-data", limits),
            table: TransferTable::new(places),
            finished: Arc::new(Finished {
                done: Mutex::new(VecDeque::with_capacity(most)),
                arrived: Condvar::new(),
                alarm,
            }),
            taken: VecDeque::with_capacity(most),
            places: most,
        }
    }

    /// Limits the threads.
    pub fn set_workers(&self, most: usize) {
        self.helpers.set_limits(HelperLimits {
            threads: most.clamp(1, self.places.max(1)),
            queue: self.places.max(1),
        });
    }

    /// Operations that have not been collected.
    pub fn running(&self) -> usize {
        self.table.running()
    }

    pub fn start(
        &mut self,
        place: usize,
        held: HeldResources,
        entry: &WorkEntry,
        person: Option<Identity>,
        client: ClientKey,
    ) -> usize {
        let mut errand = Errand {
            task: Some(self.table.start(place, held, entry)),
            finished: Arc::clone(&self.finished),
        };
        // The future is not needed: the result arrives in `finished`.
        drop(
            self.helpers
                .run(client, move || errand.run(person.as_ref())),
        );
        entry.length
    }

    pub fn turn(&mut self) -> usize {
        if self.taken.is_empty() && self.table.running() > 0 {
            std::mem::swap(&mut self.taken, &mut *self.finished.lock());
        }
        self.taken.len()
    }

    pub fn take(&mut self) -> Option<(usize, i32, HeldResources)> {
        self.taken.pop_front().map(|done| self.table.end(&done))
    }

    pub fn is_quiet(&self) -> bool {
        self.taken.is_empty() && self.finished.lock().is_empty()
    }

    pub fn wait(&self, most: Duration) {
        let done = self.finished.lock();
        if self.taken.is_empty() && done.is_empty() {
            let _ = self.finished.arrived.wait_timeout(done, most);
        }
    }
}

impl Finished {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, done: Done) {
        self.lock().push_back(done);
        self.arrived.notify_one();
        if let Some(alarm) = &self.alarm {
            alarm.ring();
        }
    }
}

/// Returns its result in every case: run, refused, or without a thread to run it.
struct Errand {
    task: Option<Task>,
    finished: Arc<Finished>,
}

impl Errand {
    fn run(&mut self, person: Option<&Identity>) {
        let refused = match person {
            None => {
                self.carry_out();
                return;
            }
            Some(person) => assume(person, || self.carry_out()),
        };
        if let Err(error) = refused {
            self.fail(&error);
        }
    }

    fn carry_out(&mut self) {
        if let Some(task) = self.task.take() {
            self.finished.push(task.run());
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if let Some(task) = self.task.take() {
            let error = error.raw_os_error().unwrap_or(libc::EIO);
            self.finished.push(task.failed(error));
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.fail(&io::Error::from_raw_os_error(libc::EAGAIN));
    }
}
