//! Faults of a server that the checks have to notice, each put in by the run itself.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFault {
    /// All records of clients are lost.
    ForgetRecords,
    /// The record of one client is damaged.
    DamageRecord,
    /// The file of the starts is lost.
    ForgetStarts,
    /// What was written is lost.
    LoseData,
    /// A lock is not there after the restart: a client does not reclaim it.
    LoseLock,
    /// A denial is not there after the restart: a client reclaims its open without it.
    LoseDenial,
    /// There is a lock that no client has: one reclaims more than it had.
    InventLock,
    /// A lock is granted although it conflicts: a refusal is taken for a grant.
    GrantTwice,
}

impl StateFault {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ForgetRecords,
        Self::DamageRecord,
        Self::ForgetStarts,
        Self::LoseData,
        Self::LoseLock,
        Self::LoseDenial,
        Self::InventLock,
        Self::GrantTwice,
    ];

    /// Whether it can be put into a run: with denials, and with the files of a folder.
    pub const fn is_of(self, denies: bool, has_folder: bool) -> bool {
        match self {
            Self::LoseDenial => denies,
            Self::LoseData => has_folder,
            _ => true,
        }
    }

    /// Damages files of the server while it is down: those in the folder of its clients' records,
    /// or in the folder of the run.
    ///
    /// # Errors
    /// The system's.
    pub fn strike(self, clients: &Path, folder: &Path) -> Result<()> {
        let records = || -> Result<Vec<_>> {
            let entries = fs::read_dir(clients)?.filter_map(|entry| Some(entry.ok()?.path()));
            let mut records: Vec<_> = entries
                .filter(|path| path.extension().is_some_and(|end| end == "client"))
                .collect();
            records.sort();
            Ok(records)
        };
        match self {
            Self::ForgetRecords => {
                for record in records()? {
                    fs::remove_file(record)?;
                }
            }
            Self::DamageRecord => {
                if let Some(record) = records()?.first() {
                    let mut bytes = fs::read(record)?;
                    if let Some(byte) = bytes.get_mut(20) {
                        *byte ^= 1;
                    }
                    fs::write(record, bytes)?;
                }
            }
            Self::ForgetStarts => fs::remove_file(clients.join("start"))?,
            Self::LoseData => {
                for file in fs::read_dir(folder.join("export"))? {
                    let file = fs::File::options().write(true).open(file?.path())?;
                    file.set_len(0)?;
                }
            }
            Self::LoseLock | Self::LoseDenial | Self::InventLock | Self::GrantTwice => {}
        }
        Ok(())
    }
}
