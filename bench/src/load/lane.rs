//! The connections of a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use millrace_reactor::fabric::{Event, QueuePairId};
use millrace_wire::nfs3::FileHandle;

use super::calls::{LoadSlot, Templates};
use super::compounds::LaneSession;
use super::pattern::Pattern;
use super::workload::NfsVersion;
use crate::requester::{CallTemplate, Connection, GssContext, Session};

/// Files named so far.
static FILES: AtomicU64 = AtomicU64::new(0);

/// The name of another file. No two engines share one, in whatever process they are.
pub(super) fn file_name() -> String {
    let file = FILES.fetch_add(1, Ordering::Relaxed);
    format!("millrace-bench.{}.{file}", std::process::id())
}

/// The connections of a load, and what is on them.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The version of NFS that loads call. Version 3 makes and removes the files in any case.
    pub nfs: NfsVersion,
    /// Connections that loads are made on.
    pub connections: usize,
    /// Further ones, which make one call and are then idle.
    pub idle: usize,
    /// Calls in flight on each connection at most.
    pub depth: usize,
    /// Bytes of each connection's file.
    pub file_size: usize,
    /// Further opens of each connection's file, in version 4.
    pub opens: u32,
    /// Whether the files have that size without data.
    pub sparse: bool,
    /// Further files, which LOOKUPs are for.
    pub files: FileCount,
}

/// Files for LOOKUPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCount {
    /// Files; none, unless LOOKUPs are to be for many.
    pub files: u64,
    /// The directories that they are spread over.
    pub directories: usize,
}

impl FileCount {
    /// Files and directories.
    pub(super) const fn all(self) -> u64 {
        self.files.saturating_add(self.directories as u64)
    }
}

impl Lanes {
    /// So many calls in flight on a connection.
    pub(super) const fn depth_of(&self, number: usize) -> usize {
        if number < self.connections {
            self.depth
        } else {
            1
        }
    }

    /// All connections.
    pub(super) const fn all(&self) -> usize {
        self.connections + self.idle
    }
}

/// The file of a connection, and what the server keeps for it.
pub(super) struct LaneFile {
    pub(super) name: String,
    pub(super) handle: FileHandle,
    pub(super) pattern: Pattern,
    /// The session and the open file in it, with NFS version 4.
    pub(super) session: Option<LaneSession>,
    /// What authenticates the calls of the connection, with Kerberos.
    pub(super) context: Option<Arc<GssContext>>,
}

impl LaneFile {
    /// Ends what the server keeps for the connection, and removes the file.
    pub(super) fn remove(&mut self, session: &mut Session, root: FileHandle) -> Result<()> {
        if let Some(opened) = self.session.take() {
            opened.end(session)?;
        }
        if let Some(context) = self.context.take() {
            session.end_context(&context)?;
        }
        session.remove(root, self.name.as_bytes())?;
        Ok(())
    }
}

/// A connection with a file of its own.
pub(super) struct LoadLane {
    pub(super) connection: Connection,
    pub(super) file: LaneFile,
    pub(super) places: Vec<LoadSlot>,
    pub(super) templates: Option<Templates>,
    /// Of a load on many files, by directory.
    pub(super) in_tree: Vec<CallTemplate>,
    pub(super) next: u64,
    pub(super) random: u64,
    /// Whether it is among the engine's due ones.
    pub(super) is_due: bool,
}

impl LoadLane {
    /// Has it looked at in the next turn.
    pub(super) fn becomes_due(&mut self, own: usize, due: &mut Vec<usize>) {
        if !self.is_due {
            self.is_due = true;
            due.push(own);
        }
    }
}

/// The queue pair of an event.
pub(super) fn queue_pair(event: &Event) -> Option<QueuePairId> {
    match event {
        Event::Established { queue_pair, .. }
        | Event::Rejected { queue_pair, .. }
        | Event::Received { queue_pair, .. }
        | Event::Completed { queue_pair, .. }
        | Event::Revoked { queue_pair, .. }
        | Event::Disconnected { queue_pair, .. } => Some(*queue_pair),
        Event::Incoming(_) | Event::ConnectRequest { .. } => None,
    }
}
