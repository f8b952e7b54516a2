//! Leases of files in the cluster. Other servers and clients of the cluster that change a file wait
//! until its leases have ended, and so do changes by this server's own session.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;

use super::call::CallContext;
use super::session::Session;
use super::sys::{File, Inode, LeasedFile, OpenMode};
use super::view::{ClientView, SERVER};
use super::volume::{self, CephVolume, HelperLimits, WeakVolume};
use crate::{ClientKey, FileLease, Handle, LeaseBreak, Result};

/// How long a lease may last at most when it has to end. Threads of other servers wait for it.
const LONGEST: Duration = Duration::from_secs(10);

/// Helpers that wait until others end leases. What they refuse is requested again.
pub(super) const BREAKERS: HelperLimits = HelperLimits {
    threads: 4,
    queue: 4,
};

impl ClientView<'_> {
    pub(super) async fn lease(&self, file: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
        self.ask(&SERVER, move |context| take(context, file, end))
            .await
    }
}

fn take(context: &CallContext, file: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
    let session = &context.session;
    let Some(time) = session.leases.time else {
        return Ok(None);
    };
    let found = context.file(file)?;
    let opened = File::open(&found.inode, &session.superuser, OpenMode::Read);
    let opened = opened.map_err(|error| context.error(error))?;
    let told = end.clone();
    match LeasedFile::new(opened, move || told.announce()) {
        Ok(file) => {
            let held = HeldLease {
                number: session.leases.keep(file, end.clone()),
                session: Arc::downgrade(session),
                volume: context.volume.downgrade(),
            };
            // A session that was lost before has not told this one.
            if !context.volume.is_current(session) {
                end.announce();
            }
            Ok(Some(FileLease::new(held, end, time)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(context.error(error)),
    }
}

impl CephVolume {
    /// Has others end their leases of a file, which takes until their clients have returned what
    /// depends on them.
    pub(super) fn request_break(
        &self,
        session: &Arc<Session>,
        (number, inode): (u64, &Arc<Inode>),
    ) {
        if !session.leases.begin_break(number) {
            return;
        }
        let (lasting, inode) = (Arc::clone(session), Arc::clone(inode));
        let job = self.lease_breakers().run(ClientKey::OWN, move || {
            // That breaks them, and may wait for their end.
            let opened = File::open(&inode, &lasting.superuser, OpenMode::Write);
            drop(opened);
            lasting.leases.end_break(number);
        });
        if job.is_refused() {
            session.leases.end_break(number);
        }
    }
}

/// The leases of a session.
pub(super) struct SessionLeases {
    /// How long one may last when it has to end; `None` without leases.
    time: Option<Duration>,
    serial: AtomicU64,
    kept: Mutex<KeptLeases>,
}

#[derive(Default)]
struct KeptLeases {
    /// Files whose leases others are being asked to end.
    breaking: HashSet<u64>,
    taken: HashMap<u64, (LeasedFile, LeaseBreak)>,
    /// Those that have ended, to be closed.
    ended: Vec<LeasedFile>,
}

impl SessionLeases {
    /// None so far. `most`: how long the cluster waits for the end of one, if there are any.
    pub fn new(most: Option<Duration>) -> Self {
        Self {
            time: most.map(|most| (most / 2).min(LONGEST)),
            serial: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// Whether there are any.
    pub fn exist(&self) -> bool {
        self.time.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, KeptLeases> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, file: LeasedFile, end: LeaseBreak) -> u64 {
        let number = self.serial.fetch_add(1, SeqCst);
        self.lock().taken.insert(number, (file, end));
        number
    }

    fn end(&self, number: u64) {
        let mut kept = self.lock();
        let file = kept.taken.remove(&number).map(|(file, _)| file);
        kept.ended.extend(file);
    }

    /// Whether others are to be asked now to end their leases of a file.
    fn begin_break(&self, number: u64) -> bool {
        self.lock().breaking.insert(number)
    }

    fn end_break(&self, number: u64) {
        self.lock().breaking.remove(&number);
    }

    /// Closes files whose leases have ended. May block.
    pub fn close_ended(&self) {
        let ended = std::mem::take(&mut self.lock().ended);
        drop(ended);
    }

    /// Tells all holders that the leases have ended with the session.
    pub fn lose(&self) {
        self.lock()
            .taken
            .values()
            .for_each(|(_, end)| end.announce());
    }
}

/// One lease of its holder.
struct HeldLease {
    session: Weak<Session>,
    volume: WeakVolume,
    number: u64,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let session = self.session.upgrade();
        if let Some(session) = &session {
            session.leases.end(self.number);
            // Others wait for it, so that it is closed soon.
            self.volume.request_closing();
        }
        volume::end(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_end_long_before_the_cluster_ends_the_session() {
        let time = |most| SessionLeases::new(most).time;
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(time(seconds(150)), seconds(10));
        assert_eq!(time(seconds(14)), seconds(7));
        assert_eq!(time(None), None);
    }
}
