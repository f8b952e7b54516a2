//! The thread that makes changes of records durable.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use millrace_primitives::Gauge;
use millrace_reactor::Alarm;

use super::RecordFolder;
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::service::lock::StateLock;
use crate::state::{RecordChange, RecordProgress};

/// Pause after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// What has become of records.
#[derive(Debug, Default)]
pub struct RecordCounters {
    /// Records that could not be read at the start.
    pub damaged: Gauge,
    /// Groups of changes that were written.
    pub groups: Gauge,
    /// Failed attempts to write.
    pub failures: Gauge,
}

/// Changes with the serial number of the last one.
type Batch = (u64, Vec<RecordChange>);

/// The way of changes to the thread. It ends with the last clone.
#[derive(Clone, Debug)]
pub struct RecordBatches(Sender<Batch>);

impl RecordBatches {
    /// Hands changes over. The home waits for those before, so there is room.
    pub fn send(&self, batch: Batch) {
        let _ = self.0.try_send(batch);
    }
}

/// A thread that makes changes durable.
#[derive(Debug)]
pub struct RecordWriter {
    folder: RecordFolder,
    progress: Arc<RecordProgress>,
    counters: Arc<RecordCounters>,
    /// Reactors that may wait.
    alarms: Arc<Mutex<Vec<Alarm>>>,
    /// The folder is this process's as long as the thread uses it.
    _lock: Option<Arc<StateLock>>,
}

impl RecordWriter {
    /// A writer that has no thread yet.
    #[must_use]
    pub fn new(
        folder: RecordFolder,
        progress: Arc<RecordProgress>,
        counters: Arc<RecordCounters>,
        alarms: Arc<Mutex<Vec<Alarm>>>,
        lock: Option<Arc<StateLock>>,
    ) -> Self {
        Self {
            folder,
            progress,
            counters,
            alarms,
            _lock: lock,
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts none.
    pub fn spawn(mut self) -> io::Result<RecordBatches> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let thread = thread::Builder::new().name("client-records".to_owned());
        thread.spawn(move || {
            confine_thread(ThreadKind::StoreHelper);
            self.run(&receiver);
        })?;
        Ok(RecordBatches(sender))
    }

    fn run(&mut self, batches: &Receiver<Batch>) {
        while let Ok((serial, changes)) = batches.recv() {
            let mut has_failed = false;
            while let Err(error) = self.folder.apply(&changes) {
                self.counters.failures.add(1);
                if !has_failed {
                    tracing::error!(
                        %error,
                        "records of clients cannot be written: clients get no opens and locks"
                    );
                }
                has_failed = true;
                // Nothing comes before these changes are durable.
                if batches.recv_timeout(AGAIN) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
            if has_failed {
                tracing::info!("records of clients are written again");
            }
            self.counters.groups.add(1);
            self.progress.advance(serial);
            let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
            alarms.iter().for_each(Alarm::ring);
        }
    }
}
