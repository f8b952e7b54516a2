//! READ, WRITE and COMMIT.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `read`, `write` | the operations, and `route`: past the page cache or through it |
//! | `gate` | writes of both ways keep out of each other's pages |
//! | `commit` | syncs of files, shared by those who wait |
//! | `admission`, `under_way` | how much may be under way, and what its end means |
//! | `verifier` | the write verifier, and what a clean stop leaves |
//! | `counters` | figures for operators |

mod admission;
mod commit;
mod counters;
mod gate;
mod read;
mod route;
mod under_way;
mod verifier;
mod write;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_mempool::{Buffer, Class};
use millrace_reactor::Clock;

pub use self::counters::VolumeFigures;
pub use self::write::Reservation;

use self::admission::Admission;
use self::commit::Group;
pub(super) use self::counters::Counters;
use self::gate::Gate;
use self::under_way::UnderWay;
use self::verifier::Verifier;
use super::engine::Engine;
use super::objects::{Object, SharedFile};
use super::sys;
use super::volume::{Volume, VolumeConfig};
use crate::posix::Inner;
use crate::{Kind, Result, StoreError, WriteVerifier};

/// Most bytes of one transfer: one buffer. Longer reads are short, and so are longer writes
/// ([`crate::StagedWrite::length`] tells).
const TRANSFER_MAX: u32 = Class::Large.size() as u32;

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
    /// Syncs that are under way or whose errors are not told yet, by all reactors and helpers.
    syncing: AtomicU32,
    /// Which way its writes go.
    gate: Gate,
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
pub(super) struct ObjectState {
    group: Group,
    /// A success of its syncs says all.
    settled: Cell<bool>,
}

/// Makes durable what was written to a file that is about to be closed: the kernel may forget an
/// error of writing back that comes when nobody has the file open. Blocks.
pub(super) fn settle(volume: &Volume, shared: &SharedFile, file: impl AsFd) {
    let bytes = shared.data.dirty.swap(0, SeqCst);
    if bytes == 0 {
        return;
    }
    shared.data.syncing.fetch_add(1, SeqCst);
    if let Err(error) = sys::calls::fsync(file) {
        volume.data().lost(&error.into());
    }
    shared.data.syncing.fetch_sub(1, SeqCst);
    volume.data().dirty.fetch_sub(bytes, SeqCst);
}

/// One reactor's part of a volume's data.
pub(super) struct Local {
    /// The reactor's figures. `objects` keeps the number of open ones.
    pub counters: Arc<Counters>,
    admission: Rc<Admission>,
    under_way: Rc<UnderWay>,
}

impl Local {
    pub fn new(volume: &Volume, engine: &Engine, clock: &Clock) -> Self {
        let counters = volume.data().register();
        let gauges = engine.pool().gauges();
        // One volume's device that hangs leaves the others half of the memory.
        let bytes = move || usize::try_from(gauges.bytes() / 2).unwrap_or(usize::MAX);
        let limited = volume.clone();
        let operations = move || limited.config().limits.operations;
        let admission = Admission::new(operations, bytes, clock, Arc::clone(&counters));
        let admission = Rc::new(admission);
        Self {
            under_way: UnderWay::new(volume, Rc::clone(&admission), Arc::clone(&counters)),
            counters,
            admission,
        }
    }
}

/// Only regular files have data (RFC 1813 section 3.3.6).
fn regular(object: &Object) -> Result<()> {
    match object.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(StoreError::IsDirectory),
        Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
    }
}

impl Inner {
    /// Memory for one transfer, charged to whoever is served.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: none came in time, or nobody waits for the answer any more.
    async fn memory(&self, bytes: usize) -> Result<Buffer> {
        let obtained = self.engine.pool().obtain_another(bytes).await;
        obtained.map_err(|_| StoreError::Delay)
    }
}
