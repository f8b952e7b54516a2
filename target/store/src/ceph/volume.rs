//! A volume: what all reactors share of an export of a CephFS file system.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use super::config::*;
use super::handle::ObjectKey;
use super::leases::BREAKERS;
use super::session::Session;
use super::sys::{Mount, SpaceFound};
use crate::posix::helpers::{HelperLoad, Helpers};
use crate::posix::volume_info::FileSystemSpace;
use crate::verifier::Verifier;
use crate::{ClientKey, Handle, Result, StoreError, WriteVerifier};

/// The helper of a [`Closer`].
const ONE_HELPER: HelperLimits = HelperLimits {
    threads: 1,
    queue: 1,
};

/// How long to wait before the next attempt to mount.
const REMOUNT_PAUSE: Duration = Duration::from_secs(2);

/// How often to look whether the locks of a lost session were given up.
const LOCKS_PAUSE: Duration = Duration::from_millis(10);

/// How long closing a volume waits for them.
const LOCKS_WAIT: Duration = Duration::from_secs(5);

/// An export of a CephFS file system. Clones share it.
#[derive(Clone)]
pub struct CephVolume(Arc<VolumeState>);

struct VolumeState {
    config: CephConfig,
    /// Helpers for names and attributes, and for data.
    names: Helpers,
    data: Helpers,
    /// Closes what is idle. Its jobs are no progress of clients' ones.
    sweeper: Closer,
    /// Closes files whose leases have ended.
    lease_closer: Closer,
    /// Have others end their leases.
    lease_breakers: Helpers,
    root: Handle,
    file_system: u64,
    verifier: Verifier,
    /// Whether another session may be used in place of a lost one.
    may_reopen: OnceLock<Box<dyn Fn() -> bool + Send + std::marker::Sync>>,
    session: Mutex<Option<Arc<Session>>>,
    closed: AtomicBool,
    counters: CephCounters,
}

/// A helper that closes something, which is requested once for all reactors: requests must not pile
/// up while the cluster does not answer.
struct Closer {
    helper: Helpers,
    /// Whether it is requested and has not begun.
    is_requested: AtomicBool,
}

impl Closer {
    fn new(name: &str) -> Self {
        Self {
            helper: Helpers::new(name, ONE_HELPER),
            is_requested: AtomicBool::new(false),
        }
    }
}

/// What helpers count.
#[derive(Default)]
pub(super) struct CephCounters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub name_syncs: AtomicU64,
    pub commits: AtomicU64,
    pub sync_errors: AtomicU64,
    pub delays: AtomicU64,
    pub lost_sessions: AtomicU64,
}

/// Figures of a volume, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CephFigures {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of names and attributes.
    pub name_syncs: u64,
    /// Commits that succeeded.
    pub commits: u64,
    /// Syncs and synchronous writes that failed, so that written data may be lost.
    pub sync_errors: u64,
    /// Changes of the write verifier since the start.
    pub verifier_changes: u64,
    /// Operations that clients were asked to repeat later.
    pub delays: u64,
    /// Sessions with the cluster that were lost.
    pub lost_sessions: u64,
    /// Whether there is a session now.
    pub is_mounted: bool,
    /// Objects known, now.
    pub known_objects: u64,
    /// Files open, now.
    pub open_files: u64,
}

impl CephVolume {
    /// Mounts a file system. Waits for the cluster.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn open(config: CephConfig) -> std::result::Result<Self, MountError> {
        let session = Session::open(&config)?;
        let helpers = config.limits.helpers;
        Ok(Self(Arc::new(VolumeState {
            names: Helpers::new(&format!("names {}", config.name), helpers),
            data: Helpers::new(&format!("data {}", config.name), helpers),
            sweeper: Closer::new(&format!("sweep {}", config.name)),
            lease_closer: Closer::new(&format!("leases {}", config.name)),
            lease_breakers: Helpers::new(&format!("breaks {}", config.name), BREAKERS),
            root: session.root_handle,
            file_system: session.file_system,
            verifier: Verifier::start(None),
            may_reopen: OnceLock::new(),
            session: Mutex::new(Some(Arc::new(session))),
            closed: AtomicBool::new(false),
            counters: CephCounters::default(),
            config,
        })))
    }

    /// Whether both are one and the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the session of another server in the cluster, whatever it is doing. Returns whether there
    /// was one. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn fence(&self, session: &str) -> std::result::Result<bool, MountError> {
        Self::end_session(self.config(), session)
    }

    /// The same for a volume that is not open.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn end_session(
        config: &CephConfig,
        session: &str,
    ) -> std::result::Result<bool, MountError> {
        let mut config = config.library_mount();
        config.uuid = None;
        config.predecessor = Some(session.to_owned());
        // Mounted, so that it ends in order, too.
        Ok(Mount::open(&config)?.had_predecessor())
    }

    /// Asks this before another session takes the place of a lost one. Only the first call has an
    /// effect.
    pub fn reopen_if(&self, may: impl Fn() -> bool + Send + std::marker::Sync + 'static) {
        let _ = self.0.may_reopen.set(Box::new(may));
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &CephConfig {
        &self.0.config
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.0.root
    }

    /// The identity of the file system in handles: equal on all servers.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.0.file_system
    }

    /// Helpers for names and attributes.
    #[must_use]
    pub fn names(&self) -> &Helpers {
        &self.0.names
    }

    /// Helpers for data.
    #[must_use]
    pub fn data(&self) -> &Helpers {
        &self.0.data
    }

    /// Helpers that have others end their leases.
    pub(super) fn lease_breakers(&self) -> &Helpers {
        &self.0.lease_breakers
    }

    /// The load of both kinds of helpers.
    #[must_use]
    pub fn load(&self) -> HelperLoad {
        let (names, data) = (self.0.names.load(), self.0.data.load());
        HelperLoad {
            threads: names.threads + data.threads,
            running: names.running + data.running,
            queued: names.queued + data.queued,
            queued_clients: names.queued_clients.max(data.queued_clients),
            stuck: names.stuck.max(data.stuck),
        }
    }

    /// Whether nothing else uses it: no reactor and no job.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether a change of names or attributes is durable when it is answered.
    pub(super) fn is_strict(&self) -> bool {
        self.0.config.sync == Sync::Strict
    }

    pub(super) fn counters(&self) -> &CephCounters {
        &self.0.counters
    }

    /// The write verifier. It has to be read after the session, and before the write.
    pub(super) fn verifier(&self) -> WriteVerifier {
        self.0.verifier.get()
    }

    /// Written data may be lost.
    pub(super) fn change_verifier(&self) {
        self.0.verifier.change();
    }

    /// The session.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: there is none now.
    pub(super) fn session(&self) -> Result<Arc<Session>> {
        self.0.lock().clone().ok_or(StoreError::Delay)
    }

    /// The meaning of an error of a session.
    pub(super) fn error(&self, session: &Arc<Session>, error: Errno) -> StoreError {
        match error {
            Errno::NOTCONN | Errno::SHUTDOWN => {
                self.lose(session);
                StoreError::Delay
            }
            Errno::TIMEDOUT => StoreError::Delay,
            error => crate::posix::errors::store_error(error),
        }
    }

    /// Whether a session is not lost.
    pub(super) fn is_current(&self, session: &Arc<Session>) -> bool {
        let current = self.0.lock();
        current
            .as_ref()
            .is_some_and(|one| Arc::ptr_eq(one, session))
    }

    /// Whether a file is open for writing, and was written by this user last.
    pub(super) fn is_written(&self, file: &Handle, user: u32) -> bool {
        let current = self.0.lock();
        current.as_ref().is_some_and(|session| {
            let key = ObjectKey::from_handle(file, session.file_system);
            key.is_ok_and(|key| session.is_written(key.inode, user))
        })
    }

    /// The volume, for those that may outlive it.
    pub(super) fn downgrade(&self) -> WeakVolume {
        WeakVolume(Arc::downgrade(&self.0))
    }

    /// Counts a file that is open for locks in a session.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: the session is lost.
    pub(super) fn lock_in(&self, session: &Arc<Session>, lost: Box<dyn Fn() + Send>) -> Result<()> {
        let current = self.0.lock();
        let current = current.as_ref().filter(|one| Arc::ptr_eq(one, session));
        let session = current.ok_or(StoreError::Delay)?;
        session.begin_lock_file(lost);
        Ok(())
    }

    /// The cluster has ended a session: another one is begun, and data that was not durable counts
    /// as lost.
    fn lose(&self, session: &Arc<Session>) {
        let mut current = self.0.lock();
        if !current
            .as_ref()
            .is_some_and(|one| Arc::ptr_eq(one, session))
        {
            return;
        }
        // Before there is another session, so that no sync of that one has this verifier.
        self.change_verifier();
        self.0.counters.lost_sessions.fetch_add(1, SeqCst);
        let lost = current.take();
        drop(current);
        tracing::error!(
            path = self.0.config.name,
            "the cluster has ended this server's session; clients write uncommitted data again"
        );
        if let Some(lost) = &lost {
            lost.lose_locks();
            lost.leases.lose();
        }
        let volume = Arc::downgrade(&self.0);
        let thread = std::thread::Builder::new().name("ceph-mount".to_owned());
        let begun = thread.spawn(move || {
            if let Some(lost) = &lost {
                lost.mount().abort();
                await_locks(&volume, lost);
            }
            drop(lost);
            remount(&volume);
        });
        if let Err(error) = begun {
            tracing::error!(path = self.0.config.name, %error, "the export cannot be mounted again");
        }
    }

    /// Makes written data durable and unmounts. Blocks; no operation may be started any more.
    pub fn close(&self) {
        self.0.closed.store(true, SeqCst);
        let Some(session) = self.0.lock().take() else {
            return;
        };
        // Whoever has files open for locks is about to drop them. The session ends here and not on
        // another thread, beside the end of the process.
        let begun = Instant::now();
        while Arc::strong_count(&session) > 1 && begun.elapsed() < LOCKS_WAIT {
            std::thread::sleep(LOCKS_PAUSE);
        }
        for file in session.written_files() {
            if let Err(error) = file.sync(false) {
                self.0.counters.sync_errors.fetch_add(1, SeqCst);
                tracing::error!(path = self.0.config.name, %error, "a file could not be synced");
            }
        }
    }

    /// The space of the file system. Blocks.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn space(&self) -> Result<FileSystemSpace> {
        let session = self.session()?;
        let SpaceFound {
            total,
            free,
            objects,
            ..
        } = session
            .root()
            .space()
            .map_err(|error| self.error(&session, error))?;
        Ok(FileSystemSpace {
            total_bytes: total,
            used_bytes: total.saturating_sub(free),
            inodes: objects,
            total_inodes: None,
        })
    }

    /// Figures.
    #[must_use]
    pub fn figures(&self) -> CephFigures {
        let session = self.0.lock().clone();
        let (objects, files) = session.as_ref().map_or((0, 0), |session| session.kept());
        let counters = &self.0.counters;
        let figures = CephFigures {
            reads: counters.reads.load(SeqCst),
            read_bytes: counters.read_bytes.load(SeqCst),
            writes: counters.writes.load(SeqCst),
            written_bytes: counters.written_bytes.load(SeqCst),
            syncs: counters.syncs.load(SeqCst),
            name_syncs: counters.name_syncs.load(SeqCst),
            commits: counters.commits.load(SeqCst),
            sync_errors: counters.sync_errors.load(SeqCst),
            verifier_changes: self.0.verifier.changes(),
            delays: counters.delays.load(SeqCst),
            lost_sessions: counters.lost_sessions.load(SeqCst),
            is_mounted: session.is_some(),
            known_objects: objects as u64,
            open_files: files as u64,
        };
        end(session);
        figures
    }

    /// Asks the client of an operation to repeat it.
    pub(super) fn count_delay<T>(&self, outcome: &Result<T>) {
        if matches!(outcome, Err(StoreError::Delay)) {
            self.0.counters.delays.fetch_add(1, SeqCst);
        }
    }

    /// Has a helper close what has been idle for long.
    pub(super) fn request_sweep(&self, now: Instant) {
        self.request(|state| &state.sweeper, move |session| session.sweep(now));
    }

    fn request(
        &self,
        closer: fn(&VolumeState) -> &Closer,
        close: impl FnOnce(&Session) + Send + 'static,
    ) {
        if closer(&self.0).is_requested.swap(true, SeqCst) {
            return;
        }
        let volume = self.clone();
        let job = closer(&self.0).helper.run(ClientKey::OWN, move || {
            closer(&volume.0).is_requested.store(false, SeqCst);
            if let Ok(session) = volume.session() {
                close(&session);
            }
        });
        if job.is_refused() {
            closer(&self.0).is_requested.store(false, SeqCst);
        }
    }
}

/// A volume, unless it is gone by now.
pub(super) struct WeakVolume(Weak<VolumeState>);

impl WeakVolume {
    /// Has a helper close the files whose leases have ended.
    pub fn request_closing(&self) {
        if let Some(volume) = self.0.upgrade().map(CephVolume) {
            volume.request(
                |state| &state.lease_closer,
                |session| session.leases.close_ended(),
            );
        }
    }
}

impl VolumeState {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for VolumeState {
    fn drop(&mut self) {
        end(self.lock().take());
    }
}

/// Drops a session. If it is the last of it, that unmounts, which a reactor must not wait for.
pub(super) fn end(session: Option<Arc<Session>>) {
    let Some(session) = session.and_then(Arc::into_inner) else {
        return;
    };
    let thread = std::thread::Builder::new().name("ceph-unmount".to_owned());
    // Without a thread, it is unmounted here.
    drop(thread.spawn(move || drop(session)));
}

/// Waits until nobody relies on locks of a lost session any more: their clients must not read and
/// write in the next one as if they had them.
fn await_locks(volume: &Weak<VolumeState>, lost: &Session) {
    let is_open = || {
        let volume = volume.upgrade();
        volume.is_some_and(|volume| !volume.closed.load(SeqCst))
    };
    while lost.has_lock_files() && is_open() {
        std::thread::sleep(LOCKS_PAUSE);
    }
}

/// Mounts a volume again, until that succeeds or the volume is gone.
fn remount(volume: &Weak<VolumeState>) {
    let mut told = false;
    loop {
        let Some(config) = volume.upgrade().and_then(|volume| {
            let is_open = !volume.closed.load(SeqCst);
            is_open.then(|| volume.config.clone())
        }) else {
            return;
        };
        let opened = Session::open(&config);
        let Some(volume) = volume.upgrade() else {
            return;
        };
        let path = &volume.config.name;
        match opened {
            Ok(session) if session.file_system != volume.file_system => {
                tracing::error!(
                    path,
                    "another file system is there now; the export stays closed"
                );
                return;
            }
            // Asked when there is one: whoever forbids it ends the session after that.
            Ok(session) if volume.may_reopen.get().is_some_and(|may| !may()) => {
                drop(session);
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(path, "the export may not be mounted again now");
                }
            }
            Ok(session) => {
                tracing::info!(path, "the export is mounted again");
                *volume.lock() = Some(Arc::new(session));
                return;
            }
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(path, %error, "the export cannot be mounted again yet");
                }
            }
        }
        drop(volume);
        std::thread::sleep(REMOUNT_PAUSE);
    }
}
