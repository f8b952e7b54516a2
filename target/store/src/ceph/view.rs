//! The context of operations: the reactor's part of the volume, and the client.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_mempool::{Buffer, Pool};

use super::call::{CallContext, Changed, FoundObject};
use super::sys::LoanTable;
use super::volume::CephVolume;
use crate::posix::helpers::Helpers;
use crate::{Caller, ClientKey, Handle, Modified, Result, StoreError};

/// The interval of closing what is idle.
const SWEEP: Duration = Duration::from_secs(2);

/// The caller of what the server does for itself.
pub(super) static SERVER: Caller = Caller::SUPERUSER;

/// The store for one operation of a client.
#[derive(Clone, Copy)]
pub(super) struct ClientView<'a> {
    pub inner: &'a ReactorView,
    pub client: ClientKey,
}

impl Deref for ClientView<'_> {
    type Target = ReactorView;

    fn deref(&self) -> &ReactorView {
        self.inner
    }
}

/// One reactor's part of a volume.
pub(super) struct ReactorView {
    pub volume: CephVolume,
    pool: Pool,
    /// Memory that jobs use whose futures are gone.
    pub loans: Rc<LoanTable>,
    next_sweep: Cell<Option<Instant>>,
}

impl ReactorView {
    pub fn new(volume: &CephVolume, pool: &Pool) -> Self {
        Self {
            volume: volume.clone(),
            pool: pool.clone(),
            loans: Rc::default(),
            next_sweep: Cell::new(None),
        }
    }

    /// Memory for one transfer, charged to the client.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: timeout, or the answer is no longer awaited.
    pub async fn memory(&self, bytes: usize) -> Result<Buffer> {
        let obtained = self.pool.obtain_another(bytes).await;
        obtained.map_err(|_| StoreError::Delay)
    }

    pub fn poll(&self, now: Instant) -> usize {
        let released = if self.loans.len() > 0 {
            self.loans.sweep()
        } else {
            0
        };
        match self.next_sweep.get() {
            Some(next) if now < next => return released,
            Some(_) => self.volume.request_sweep(now),
            None => {}
        }
        self.next_sweep.set(Some(now + SWEEP));
        released
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_sweep.get()
    }
}

impl ClientView<'_> {
    /// Runs a job for a caller on one of the volume's helpers for names.
    pub async fn ask<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&CallContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = move |context: &CallContext| {
            let _shared = context.session.share_names();
            work(context)
        };
        self.run(self.volume.names(), caller, job).await
    }

    /// The same while no other such job runs.
    pub async fn ask_alone<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&CallContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = move |context: &CallContext| {
            let _own = context.session.own_names();
            work(context)
        };
        self.run(self.volume.names(), caller, job).await
    }

    /// Runs a job for a caller on one of the volume's helpers for data.
    pub async fn transfer<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&CallContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(self.volume.data(), caller, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        helpers: &Helpers,
        caller: &Caller,
        work: impl FnOnce(&CallContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volume, caller) = (self.volume.clone(), caller.clone());
        let job = move || CallContext::new(volume, caller).and_then(|context| work(&context));
        let outcome = helpers.run(self.client, job).await.and_then(|done| done);
        self.volume.count_delay(&outcome);
        outcome
    }

    /// Changes an object, or names in a directory.
    pub async fn change<T: Send + 'static>(
        &self,
        caller: &Caller,
        object: Handle,
        work: impl FnOnce(&CallContext, &FoundObject) -> Result<Changed<T>> + Send + 'static,
    ) -> Modified<T> {
        let done = self.ask(caller, move |context| {
            let place = context.place(object);
            Ok(context.change(place, |place| work(context, place)))
        });
        self.counted(done.await)
    }

    /// Changes names in a directory.
    pub async fn in_directory<T: Send + 'static>(
        &self,
        caller: &Caller,
        directory: Handle,
        work: impl FnOnce(&CallContext, &FoundObject) -> Result<Changed<T>> + Send + 'static,
    ) -> Modified<T> {
        let done = self.ask(caller, move |context| {
            let place = context.directory(directory);
            Ok(context.change(place, |place| work(context, place)))
        });
        self.counted(done.await)
    }

    fn counted<T>(&self, done: Result<Modified<T>>) -> Modified<T> {
        match done {
            Ok(done) => {
                self.volume.count_delay(&done.result);
                done
            }
            Err(error) => Modified::failed(error),
        }
    }
}
