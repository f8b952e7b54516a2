//! The file system that all gateways share: byte-range locks, which sessions hold.

use std::collections::{HashMap, HashSet};

use crate::state::{ByteRange, FileKey, LockMode};

/// The bytes of a file that clients lock.
pub(super) const BYTES: u64 = 8;

/// A session of a gateway with the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SharedSession(u64);

/// A lock of one byte.
#[derive(Clone, Copy, Debug)]
struct SharedByteLock {
    session: SharedSession,
    byte: u64,
    mode: LockMode,
}

/// All sessions that have not ended, and their locks.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    serial: u64,
    /// The files with locks of each session.
    sessions: HashMap<SharedSession, HashSet<FileKey>>,
    locks: HashMap<FileKey, Vec<SharedByteLock>>,
}

/// The bytes of a range, which is one of the first bytes.
pub(super) fn bytes(range: &ByteRange) -> impl Iterator<Item = u64> + use<> {
    let first = range.offset();
    first..first.saturating_add(range.length()).min(BYTES)
}

impl SharedFiles {
    pub fn open_session(&mut self) -> SharedSession {
        self.serial += 1;
        let session = SharedSession(self.serial);
        self.sessions.insert(session, HashSet::new());
        session
    }

    pub fn has_session(&self, session: SharedSession) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Ends a session with its locks. Returns whether it was there.
    pub fn end_session(&mut self, session: SharedSession) -> bool {
        let Some(files) = self.sessions.remove(&session) else {
            return false;
        };
        for file in files {
            if let Some(locks) = self.locks.get_mut(&file) {
                locks.retain(|lock| lock.session != session);
            }
        }
        true
    }

    /// A lock of another session that excludes one.
    pub fn conflict(
        &self,
        session: SharedSession,
        file: &FileKey,
        range: &ByteRange,
        mode: LockMode,
    ) -> Option<(ByteRange, LockMode)> {
        let excludes = |lock: &&SharedByteLock| {
            lock.session != session
                && lock.mode.excludes(mode)
                && bytes(range).any(|byte| byte == lock.byte)
        };
        let found = self.locks.get(file)?.iter().find(excludes)?;
        Some((ByteRange::new(found.byte, 1).ok()?, found.mode))
    }

    /// Changes what a session has in a range. Nobody else has it.
    pub fn set(
        &mut self,
        session: SharedSession,
        file: &FileKey,
        range: &ByteRange,
        mode: Option<LockMode>,
    ) {
        let Some(files) = self.sessions.get_mut(&session) else {
            return;
        };
        files.insert(*file);
        let locks = self.locks.entry(*file).or_default();
        locks.retain(|lock| lock.session != session || !bytes(range).any(|byte| byte == lock.byte));
        locks.extend(bytes(range).filter_map(|byte| {
            Some(SharedByteLock {
                session,
                byte,
                mode: mode?,
            })
        }));
    }

    /// Ends all locks of a session on a file.
    pub fn close(&mut self, session: SharedSession, file: &FileKey) {
        if let Some(files) = self.sessions.get_mut(&session) {
            files.remove(file);
        }
        if let Some(locks) = self.locks.get_mut(file) {
            locks.retain(|lock| lock.session != session);
        }
    }
}
