//! The folder of the records.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::layout::{FILE_MAX, StartRecord, decode_client, encode_client};
use crate::state::{DurableClient, RecordChange, RecoveredClients};

/// The folder in the state directory.
const FOLDER: &str = "clients";
/// The file of the starts.
const START: &str = "start";
/// How names of files end that are not complete, and those of records.
const TEMPORARY: &str = "new";
const RECORD: &str = "client";
/// Files in a group from which on the file system is synchronized as a whole. That may write much
/// data of others, but one by one so many files take longer than a client should wait.
const MANY: usize = 64;

/// The records of one server.
#[derive(Debug)]
pub struct RecordFolder {
    path: PathBuf,
    folder: File,
    starts: StartRecord,
    /// The longest lease of this start.
    lease: Duration,
}

/// A folder of records, and what it had.
#[derive(Debug)]
pub struct OpenedRecords {
    /// The folder.
    pub folder: RecordFolder,
    /// The clients that may reclaim.
    pub recovered: RecoveredClients,
    /// Records that could not be read.
    pub damaged: u64,
}

impl RecordFolder {
    /// Where the folder is in a state directory.
    #[must_use]
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join(FOLDER)
    }

    /// The clients that may reclaim by the records in a state directory that no server uses. Nothing
    /// is changed.
    ///
    /// # Errors
    /// Those of the file system. A damaged or missing record is none.
    pub fn look(directory: &Path) -> io::Result<RecoveredClients> {
        let path = Self::path_in(directory);
        let starts = match read(&path.join(START)) {
            Ok(bytes) => StartRecord::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(starts) = starts else {
            return Ok(RecoveredClients::default());
        };
        let mut clients = read_all(&path)?.clients;
        clients.retain(|client| client.start >= starts.ended);
        Ok(RecoveredClients {
            start: starts.start,
            clients,
            lease: starts.lease,
        })
    }

    /// Drops all clients of a state directory that no server uses, for good.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn drop_clients(directory: &Path) -> io::Result<()> {
        let mut opened = Self::open(directory, Duration::ZERO)?;
        opened.folder.apply(&[RecordChange::EndGrace])
    }

    /// Opens the folder in a state directory for another start of the server, whose lease this is.
    ///
    /// # Errors
    /// Those of the file system. A damaged record is none.
    pub fn open(directory: &Path, lease: Duration) -> io::Result<OpenedRecords> {
        let path = Self::path_in(directory);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&path)?;
        File::open(directory)?.sync_all()?;
        let folder = File::open(&path)?;
        let found = read_all(&path)?;
        let mut damaged = found.damaged;
        let known = match read(&path.join(START)) {
            Ok(bytes) => StartRecord::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound && found.clients.is_empty() => {
                Some(StartRecord {
                    start: 0,
                    ended: 0,
                    lease,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let latest = found.clients.iter().map(|client| client.start).max();
        let starts = known.unwrap_or_else(|| {
            damaged += 1;
            tracing::warn!(
                file = %path.join(START).display(),
                "missing or damaged: no client can reclaim its opens and locks"
            );
            // No record can be said to be valid.
            StartRecord {
                start: latest.unwrap_or(0) + 1,
                ended: latest.unwrap_or(0) + 1,
                lease,
            }
        });
        let is_valid = |client: &DurableClient| client.start >= starts.ended;
        let (clients, void): (Vec<_>, Vec<_>) = found.clients.into_iter().partition(is_valid);
        let recovered = RecoveredClients {
            start: starts.start + 1,
            lease: starts.lease.max(lease),
            clients,
        };
        let mut folder = Self {
            path,
            folder,
            starts: StartRecord {
                start: recovered.start,
                ended: starts.ended,
                lease: recovered.lease,
            },
            lease,
        };
        folder.write_starts(folder.starts)?;
        for client in void {
            folder.remove(&client.owner)?;
        }
        Ok(OpenedRecords {
            folder,
            recovered,
            damaged,
        })
    }

    /// Makes changes durable, in groups: of several changes of an owner the last one counts. To be
    /// called again after an error.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn apply(&mut self, changes: &[RecordChange]) -> io::Result<()> {
        let mut last: HashMap<&[u8], Option<&DurableClient>> = HashMap::new();
        let mut ends_grace = false;
        for change in changes {
            match change {
                RecordChange::Keep(client) => {
                    last.insert(&client.owner, Some(client));
                }
                RecordChange::Forget(owner) => {
                    last.insert(owner, None);
                }
                RecordChange::EndGrace => ends_grace = true,
                RecordChange::Lease(lease) => self.lease = self.lease.max(*lease),
            }
        }
        let kept: Vec<_> = last.values().flatten().copied().collect();
        let is_group = kept.len() >= MANY;
        let mut renamed = Vec::new();
        for client in kept {
            let Some(bytes) = encode_client(client) else {
                // Owner strings are bounded, so that this does not happen.
                continue;
            };
            let name = self.file(&client.owner);
            renamed.push((write_beside(&name, &bytes, !is_group)?, name));
        }
        if is_group {
            rustix::fs::syncfs(&self.folder)?;
        }
        for (temporary, name) in renamed {
            fs::rename(temporary, name)?;
        }
        for (owner, _) in last.iter().filter(|(_, client)| client.is_none()) {
            self.remove(owner)?;
        }
        if !last.is_empty() {
            self.folder.sync_all()?;
        }
        let starts = match ends_grace {
            true => StartRecord {
                start: self.starts.start,
                ended: self.starts.start,
                lease: self.lease,
            },
            false => StartRecord {
                lease: self.starts.lease.max(self.lease),
                ..self.starts
            },
        };
        if ends_grace || starts.lease != self.starts.lease {
            self.write_starts(starts)?;
        }
        Ok(())
    }

    fn write_starts(&mut self, starts: StartRecord) -> io::Result<()> {
        let name = self.path.join(START);
        let temporary = write_beside(&name, &starts.encode(), true)?;
        fs::rename(temporary, name)?;
        self.folder.sync_all()?;
        self.starts = starts;
        Ok(())
    }

    fn remove(&self, owner: &[u8]) -> io::Result<()> {
        match fs::remove_file(self.file(owner)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The file of a client: the hash of its owner string.
    fn file(&self, owner: &[u8]) -> PathBuf {
        let mut hasher = SipHasher24::new();
        hasher.write(owner);
        let name = format!("{:032x}", hasher.finish128().as_u128());
        self.path.join(name).with_extension(RECORD)
    }
}

/// What a folder has.
#[derive(Default)]
struct FoundRecords {
    clients: Vec<DurableClient>,
    damaged: u64,
}

fn read_all(path: &Path) -> io::Result<FoundRecords> {
    let mut found = FoundRecords::default();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        match file.extension().and_then(OsStr::to_str) {
            Some(TEMPORARY) => fs::remove_file(&file)?,
            Some(RECORD) => match read(&file).ok().as_deref().and_then(decode_client) {
                Some(client) => found.clients.push(client),
                None => {
                    found.damaged += 1;
                    tracing::warn!(
                        file = %file.display(),
                        "damaged: its client cannot reclaim its opens and locks"
                    );
                }
            },
            _ => {}
        }
    }
    Ok(found)
}

/// The content of a file, but no more than too much.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = FILE_MAX as u64 + 1;
    File::open(file)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file under a temporary name, which is returned.
fn write_beside(name: &Path, bytes: &[u8], synchronize: bool) -> io::Result<PathBuf> {
    let temporary = name.with_extension(TEMPORARY);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    if synchronize {
        file.sync_all()?;
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(90);

    fn client(owner: &str, start: u64) -> DurableClient {
        DurableClient {
            owner: owner.as_bytes().into(),
            verifier: [1; 8],
            principal: Box::default(),
            start,
            denies: false,
        }
    }

    fn keep(owner: &str, start: u64) -> RecordChange {
        RecordChange::Keep(client(owner, start))
    }

    fn forget(owner: &str) -> RecordChange {
        RecordChange::Forget(owner.as_bytes().into())
    }

    fn open(directory: &Path, lease: Duration) -> (RecordFolder, Vec<String>, RecoveredClients) {
        let opened = RecordFolder::open(directory, lease).unwrap();
        let owner = |one: &DurableClient| String::from_utf8(one.owner.to_vec()).unwrap();
        let mut owners: Vec<_> = opened.recovered.clients.iter().map(owner).collect();
        owners.sort();
        (opened.folder, owners, opened.recovered)
    }

    fn files(directory: &Path) -> usize {
        fs::read_dir(directory.join(FOLDER)).unwrap().count()
    }

    #[test]
    fn v4_lease_26_records_of_an_earlier_start_end_with_the_grace_period_of_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, owners, recovered) = open(directory.path(), LEASE);
        assert_eq!((owners.len(), recovered.start), (0, 1));
        let changes = [RecordChange::EndGrace, keep("a", 1), keep("b", 1)];
        folder.apply(&changes).unwrap();
        folder.apply(&[keep("c", 1), forget("a")]).unwrap();
        // Killed in the grace period, once with a client that has completed its reclaims.
        for start in [2, 3] {
            let (mut folder, owners, recovered) = open(directory.path(), LEASE);
            assert_eq!(owners, ["b", "c"]);
            assert_eq!(recovered.start, start);
            folder.apply(&[keep("c", start)]).unwrap();
        }
        let (mut folder, owners, _) = open(directory.path(), LEASE);
        assert_eq!(owners, ["b", "c"]);
        folder
            .apply(&[keep("c", 4), RecordChange::EndGrace])
            .unwrap();
        assert_eq!(files(directory.path()), 3);
        let (_, owners, recovered) = open(directory.path(), LEASE);
        assert_eq!((owners, recovered.start), (vec!["c".to_owned()], 5));
        assert_eq!(files(directory.path()), 2);
    }

    #[test]
    fn v4_lease_11_the_lease_of_the_previous_start_is_known_until_its_clients_have_reclaimed() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, ..) = open(directory.path(), LEASE);
        let changes = [RecordChange::EndGrace, keep("a", 1)];
        folder.apply(&changes).unwrap();
        for _ in 0..2 {
            let (_, _, recovered) = open(directory.path(), LEASE / 3);
            assert_eq!(recovered.lease, LEASE);
        }
        let (mut folder, ..) = open(directory.path(), LEASE / 3);
        folder.apply(&[RecordChange::EndGrace]).unwrap();
        let (_, _, recovered) = open(directory.path(), LEASE / 9);
        assert_eq!(recovered.lease, LEASE / 3);
    }

    #[test]
    fn v4_lease_11_a_lease_that_was_raised_is_known_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, ..) = open(directory.path(), LEASE);
        folder.apply(&[RecordChange::Lease(LEASE * 2)]).unwrap();
        // It was lowered again, which no client needs to know of.
        folder.apply(&[RecordChange::Lease(LEASE)]).unwrap();
        let (_, _, recovered) = open(directory.path(), LEASE / 3);
        assert_eq!(recovered.lease, LEASE * 2);
        let (mut folder, ..) = open(directory.path(), LEASE / 3);
        folder.apply(&[RecordChange::Lease(LEASE)]).unwrap();
        folder.apply(&[RecordChange::EndGrace]).unwrap();
        let (_, _, recovered) = open(directory.path(), LEASE / 9);
        assert_eq!(recovered.lease, LEASE);
    }

    #[test]
    fn v4_lease_27_damaged_records_are_skipped_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, ..) = open(directory.path(), LEASE);
        let names: Vec<String> = (0..70).map(|number| number.to_string()).collect();
        // As many as are synchronized together.
        let changes: Vec<_> = names.iter().map(|name| keep(name, 1)).collect();
        folder.apply(&changes).unwrap();
        fs::write(folder.file(b"7"), b"short").unwrap();
        fs::write(folder.file(b"8"), vec![0; 1 << 20]).unwrap();
        fs::write(directory.path().join("clients/left.new"), b"").unwrap();
        let opened = RecordFolder::open(directory.path(), LEASE).unwrap();
        assert_eq!(opened.damaged, 2);
        assert_eq!(opened.recovered.clients.len(), 68);
        assert!(!directory.path().join("clients/left.new").exists());
        // Without the file of the starts nothing can be said of any record.
        fs::write(directory.path().join("clients/start"), b"?").unwrap();
        let opened = RecordFolder::open(directory.path(), LEASE).unwrap();
        assert_eq!(opened.damaged, 3);
        assert!(opened.recovered.clients.is_empty());
        assert!(opened.recovered.start > 2);
    }

    #[test]
    fn a_change_that_failed_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, ..) = open(directory.path(), LEASE);
        fs::create_dir(folder.file(b"b").with_extension(TEMPORARY)).unwrap();
        let changes = [keep("a", 1), keep("b", 1), forget("c")];
        folder.apply(&changes).unwrap_err();
        fs::remove_dir(folder.file(b"b").with_extension(TEMPORARY)).unwrap();
        folder.apply(&changes).unwrap();
        assert_eq!(open(directory.path(), LEASE).1, ["a", "b"]);
    }
}
