//! What must never happen, by a log of what clients were granted.

use std::collections::{BTreeMap, HashMap};

use super::shared_files::bytes;
use crate::state::{ByteRange, FileKey, LockMode};

/// Who has a lock: a client by one of its mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LockParty {
    pub client: usize,
    pub mount: usize,
}

/// A lock that a client believes that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct BelievedLock {
    pub range: ByteRange,
    pub mode: LockMode,
    /// The grant in the log.
    pub grant: u64,
    /// Whether it has been granted or reclaimed where its open is now.
    pub is_here: bool,
}

/// The grants of all bytes.
#[derive(Debug, Default)]
pub(super) struct GrantLog {
    serial: u64,
    /// The last grant of each byte to each party in each mode.
    grants: HashMap<(FileKey, u64), BTreeMap<(LockParty, bool), u64>>,
}

impl GrantLog {
    /// Notes a grant, and returns its serial number.
    pub fn note(
        &mut self,
        party: LockParty,
        file: &FileKey,
        range: &ByteRange,
        mode: LockMode,
    ) -> u64 {
        self.serial += 1;
        for byte in bytes(range) {
            let grants = self.grants.entry((*file, byte)).or_default();
            grants.insert((party, mode == LockMode::Write), self.serial);
        }
        self.serial
    }

    /// Who else was granted any of a range that a lock excludes, and when last.
    pub fn others(
        &self,
        party: LockParty,
        file: &FileKey,
        range: &ByteRange,
        mode: LockMode,
    ) -> BTreeMap<LockParty, u64> {
        let mut found = BTreeMap::new();
        for byte in bytes(range) {
            let grants = self.grants.get(&(*file, byte)).into_iter().flatten();
            for (&(other, writes), &serial) in grants {
                let excluded = writes || mode == LockMode::Write;
                if other.client != party.client && excluded {
                    let last: &mut u64 = found.entry(other).or_default();
                    *last = serial.max(*last);
                }
            }
        }
        found
    }
}
