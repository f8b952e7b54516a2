//! READ, WRITE and COMMIT.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `verifier` | the write verifier, and what a clean stop leaves |
//! | `counters` | figures for operators |

mod counters;
mod verifier;

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_mempool::Slice;
use millrace_reactor::Clock;

pub use self::counters::VolumeFigures;

pub(super) use self::counters::Counters;
use self::verifier::Verifier;
use super::objects::{Object, SharedFile};
use super::volume::{Volume, VolumeConfig};
use super::{Inner, identity::Identity};
use crate::{
    Caller, Handle, Modified, ReadOutcome, Result, Stability, StagedWrite, StoreError,
    WriteVerifier, Written,
};

/// What all reactors share of a volume's data.
pub(super) struct VolumeData {
    name: String,
    state: Option<std::path::PathBuf>,
    verifier: Verifier,
    /// Bytes written and not known to be durable.
    dirty: AtomicU64,
    write_back_errors: AtomicU64,
    /// One for every reactor that ever had a store of the volume.
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl VolumeData {
    /// Takes what a clean stop left.
    pub fn new(config: &VolumeConfig) -> Self {
        Self {
            name: config.name.clone(),
            verifier: Verifier::start(config.state.as_deref()),
            state: config.state.clone(),
            dirty: AtomicU64::new(0),
            write_back_errors: AtomicU64::new(0),
            counters: Mutex::default(),
        }
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.verifier.get()
    }

    /// Counters for one more reactor.
    pub fn register(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        counters
    }

    pub fn figures(&self) -> VolumeFigures {
        let mut sum = VolumeFigures {
            write_back_errors: self.write_back_errors.load(SeqCst),
            verifier_changes: self.verifier.changes(),
            dirty_bytes: self.dirty.load(SeqCst),
            ..VolumeFigures::default()
        };
        let all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        for counters in all.iter() {
            counters.add_to(&mut sum);
        }
        sum
    }

    /// Writing back failed: what was written and not committed may be lost, and every client has
    /// to know before anything else is answered.
    fn lost(&self, error: &std::io::Error) {
        self.verifier.change();
        self.write_back_errors.fetch_add(1, SeqCst);
        tracing::error!(
            "{}: writing back failed: {error}; clients send again what they have not committed",
            self.name
        );
    }

    /// Leaves the verifier for the next start if everything is durable.
    pub fn close(&self) {
        let Some(path) = &self.state else {
            return;
        };
        let dirty = self.dirty.load(SeqCst);
        if dirty > 0 {
            tracing::warn!(
                "{}: {dirty} bytes are not known to be durable; clients send again what they have \
                 not committed",
                self.name
            );
        } else if let Err(error) = self.verifier.save(path) {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}

/// What all reactors share of a file's data.
#[derive(Default)]
pub(super) struct FileState {
    /// Bytes written and not known to be durable, but for those that a sync is at.
    dirty: AtomicU64,
}

impl FileState {
    /// Whether something is not known to be durable: then [`settle`] comes before the last file
    /// that it was written through is closed.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(SeqCst) > 0
    }
}

/// What one reactor's reads, writes and syncs of an object are at.
#[derive(Default)]
pub(super) struct ObjectState {}

/// Makes durable what was written to a file that is about to be closed: the kernel may forget an
/// error of writing back that comes when nobody has the file open. Blocks.
pub(super) fn settle(volume: &Volume, shared: &SharedFile, file: impl AsFd) {
    let bytes = shared.data.dirty.swap(0, SeqCst);
    if bytes == 0 {
        return;
    }
    if let Err(error) = rustix::fs::fsync(file) {
        volume.data().lost(&error.into());
    }
    volume.data().dirty.fetch_sub(bytes, SeqCst);
}

/// One reactor's part of a volume's data.
pub(super) struct Local {
    /// The reactor's figures. `objects` keeps the number of open ones.
    pub counters: Arc<Counters>,
}

impl Local {
    pub fn new(volume: &Volume, _clock: &Clock) -> Rc<Self> {
        Rc::new(Self {
            counters: volume.data().register(),
        })
    }
}

/// The memory of a staged write and where it shall go.
pub struct Reservation {
    _object: Rc<Object>,
    _slice: Option<Slice>,
    _identity: Identity,
}

impl Inner {
    pub(super) async fn read(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u32,
        _slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn stage_write(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u32,
        _slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Reservation>> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn commit_write(
        &self,
        _staged: StagedWrite<Reservation>,
        _stability: Stability,
    ) -> Modified<Written> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn commit(
        &self,
        _file: Handle,
        _offset: u64,
        _length: u32,
    ) -> Modified<WriteVerifier> {
        Modified::failed(StoreError::NotSupported)
    }
}
