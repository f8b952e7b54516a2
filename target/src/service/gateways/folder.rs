//! The folder that gateways share.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::config::{self, is_gateway_name};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::exports::ExportId;
use crate::service::client_records::RecordFolder;
use crate::service::durable_file::write_durably;
use crate::service::lock::StateLock;
use crate::service::secret;
use crate::state::{DurableClient, GatewayRecord, GatewayRecords, RecoveredClients};

/// The file of a gateway's record, in the folder of its name.
const RECORD: &str = "gateway";
/// The first word of that file.
const MARK: &str = "millrace-gateway-1";
/// The longest such file.
const RECORD_MAX: u64 = 256;
/// The file whose lock orders changes of records.
const LOCK: &str = "lock";
/// The file of what all gateways have in common.
const IDENTITY: &str = "identity";
/// How folders begin with the records of a gateway that another one has taken the place of.
const TAKEN: &str = "taken-";
/// The file in such a folder that says that its clients may reclaim.
const PROVED: &str = "proved";

/// How long a change waits for those of others. A host that is gone may hold the lock until the file
/// system takes it away.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The folder that gateways share, as one of them uses it.
#[derive(Clone, Debug)]
pub(super) struct GatewayFolder {
    path: PathBuf,
    name: String,
    /// What all gateways have in common.
    identity: [u8; 16],
}

impl GatewayFolder {
    /// Makes the folder of this gateway if there is none, but not the one that all share: if that is
    /// missing, its file system is not mounted.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(gateways: &config::Gateways) -> io::Result<Self> {
        let mut folder = Self {
            path: gateways.directory.clone(),
            name: gateways.name.clone(),
            identity: [0; 16],
        };
        match fs::create_dir(folder.own()) {
            Ok(()) => File::open(&folder.path)?.sync_all()?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let text = format!("{}: {error}", folder.own().display());
                return Err(io::Error::new(error.kind(), text));
            }
        }
        let _lock = folder.lock()?;
        // Made by the first gateway.
        folder.identity = secret::load(Some(&folder.path), IDENTITY)?;
        Ok(folder)
    }

    /// What all gateways have in common.
    pub fn identity(&self) -> [u8; 16] {
        self.identity
    }

    /// The name of a gateway's session in the cluster for an export: any other gateway can end it.
    pub fn session_name(&self, gateway: &str, export: &str) -> String {
        let identity = u128::from_be_bytes(self.identity);
        let export = ExportId::of(export).0;
        format!("millrace-{identity:032x}-{gateway}-{export:016x}")
    }

    /// The folder that all gateways share.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of this gateway.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of this gateway.
    pub fn own(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    /// Keeps others from using the name of this gateway.
    ///
    /// # Errors
    /// Another one does.
    pub fn take_name(&self) -> io::Result<StateLock> {
        StateLock::take(&self.own())
    }

    /// The names and folders of all gateways.
    fn all(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Files of the folder itself may be called like a gateway.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let name = entry.file_name();
            if let Some(name) = name.to_str().filter(|name| is_gateway_name(name)) {
                all.push((name.to_owned(), self.path.join(name)));
            }
        }
        Ok(all)
    }

    /// The names and folders of the other gateways.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn others(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let mut others = self.all()?;
        others.retain(|(name, _)| *name != self.name);
        Ok(others)
    }

    /// The records of all gateways.
    ///
    /// # Errors
    /// Those of the file system, and records that are damaged.
    pub fn read(&self) -> io::Result<GatewayRecords> {
        let mut records = GatewayRecords::default();
        for (name, folder) in self.all()? {
            match read_record(&folder.join(RECORD)) {
                Ok(record) => {
                    records.0.insert(name, record);
                }
                // A folder that was made just now.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Changes records, while nobody else does.
    ///
    /// # Errors
    /// Those of the file system; records may be changed in part then, in any order.
    pub fn change<T>(&self, change: impl FnOnce(&mut GatewayRecords) -> T) -> io::Result<T> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut after = before.clone();
        let outcome = change(&mut after);
        for (name, record) in &after.0 {
            if before.0.get(name) != Some(record) {
                let file = self.path.join(name).join(RECORD);
                write_durably(&file, written(record).as_bytes())?;
            }
        }
        Ok(outcome)
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.path.join(LOCK);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(&path)?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_WAIT => thread::sleep(LOCK_PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let text = format!("another gateway holds {} for long", path.display());
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Moves the records of another gateway's clients into the folder of this one, with those that
    /// it has taken itself. They are here already if an earlier attempt was cut short. To be called
    /// while no record is changed by others.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn take_clients(&self, of: &str) -> io::Result<()> {
        let other = self.path.join(of);
        let clients = RecordFolder::path_in(&other);
        let theirs = taken_in(&other)?;
        if clients.try_exists()? || !theirs.is_empty() {
            // Of a start before this one, which nobody has proved.
            for taken in self.taken_from(of)? {
                if !is_proved(&taken)? {
                    fs::remove_dir_all(taken)?;
                }
            }
            let used = self.taken_from(of)?;
            let last = used.last().and_then(|taken| number_of(taken));
            let number = last.map_or(0, |last| last + 1);
            let taken = self.own().join(format!("{TAKEN}{of}.{number}"));
            fs::create_dir(&taken)?;
            for part in theirs.into_iter().chain(Some(clients)) {
                let name = part.file_name().unwrap_or_default();
                match fs::rename(&part, taken.join(name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            File::open(&taken)?.sync_all()?;
        }
        File::open(self.own())?.sync_all()
    }

    /// The folders with records that were taken from a gateway, in their order.
    fn taken_from(&self, of: &str) -> io::Result<Vec<PathBuf>> {
        let mut all = taken_in(&self.own())?;
        all.retain(|taken| taken_of(taken).as_deref() == Some(of));
        all.sort_by_key(|taken| number_of(taken));
        Ok(all)
    }

    /// Keeps the clients whose records were taken last: they may reclaim.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn prove_taken(&self, of: &str) -> io::Result<()> {
        match self.taken_from(of)?.last() {
            Some(taken) => write_durably(&taken.join(PROVED), b""),
            None => Ok(()),
        }
    }

    /// Whether the clients whose records were taken last may reclaim. If there are none, nobody loses
    /// anything.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn may_reclaim(&self, of: &str) -> io::Result<bool> {
        match self.taken_from(of)?.last() {
            Some(taken) => Ok(is_proved(taken)? || clients_in(taken)?.clients.is_empty()),
            None => Ok(true),
        }
    }

    /// The clients of other gateways that this one has taken and that may reclaim. The rest is
    /// forgotten.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn all_taken(&self) -> io::Result<Vec<RecoveredClients>> {
        let mut kept = Vec::new();
        for taken in taken_in(&self.own())? {
            match is_proved(&taken)? {
                true => kept.push(clients_in(&taken)?),
                false => fs::remove_dir_all(taken)?,
            }
        }
        Ok(kept)
    }

    /// Forgets all clients of other gateways, when they have reclaimed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget_taken(&self) -> io::Result<()> {
        for taken in taken_in(&self.own())? {
            fs::remove_dir_all(taken)?;
        }
        Ok(())
    }
}

/// The folders with taken records in the folder of a gateway.
fn taken_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if taken_of(&path).is_some() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The gateway that records in a folder were taken from, and the number of the folder.
fn parts_of(taken: &Path) -> Option<(&str, u32)> {
    let name = taken.file_name()?.to_str()?.strip_prefix(TAKEN)?;
    let (of, number) = name.rsplit_once('.')?;
    Some((of, number.parse().ok()?))
}

fn taken_of(taken: &Path) -> Option<String> {
    parts_of(taken).map(|(of, _)| of.to_owned())
}

fn number_of(taken: &Path) -> Option<u32> {
    parts_of(taken).map(|(_, number)| number)
}

/// The clients of a folder with taken records, and of those in it that its gateway had taken.
fn clients_in(taken: &Path) -> io::Result<RecoveredClients> {
    let mut found = RecordFolder::look(taken)?;
    for inner in taken_in(taken)? {
        if is_proved(&inner)? {
            let more = clients_in(&inner)?;
            found.lease = found.lease.max(more.lease);
            let is_new =
                |one: &DurableClient| !found.clients.iter().any(|own| own.owner == one.owner);
            let new: Vec<_> = more.clients.into_iter().filter(is_new).collect();
            found.clients.extend(new);
        }
    }
    Ok(found)
}

fn is_proved(taken: &Path) -> io::Result<bool> {
    taken.join(PROVED).try_exists()
}

/// A record as words, which operators can read.
fn written(record: &GatewayRecord) -> String {
    let mut text = MARK.to_owned();
    for (is_set, word) in words(record) {
        if is_set {
            text.push(' ');
            text.push_str(word);
        }
    }
    text.push('\n');
    text
}

fn words(record: &GatewayRecord) -> [(bool, &'static str); 4] {
    [
        (record.enforces, "enforces"),
        (record.recovers, "recovers"),
        (record.is_proved, "proved"),
        (record.is_replaced, "replaced"),
    ]
}

fn read_record(file: &Path) -> io::Result<GatewayRecord> {
    let mut text = String::new();
    File::open(file)?
        .take(RECORD_MAX)
        .read_to_string(&mut text)?;
    let damaged = || {
        let text = format!("{} is no record of a gateway", file.display());
        io::Error::new(ErrorKind::InvalidData, text)
    };
    let mut found = text.split_ascii_whitespace();
    if found.next() != Some(MARK) {
        return Err(damaged());
    }
    let mut record = GatewayRecord::default();
    for word in found {
        let flag = match word {
            "enforces" => &mut record.enforces,
            "recovers" => &mut record.recovers,
            "proved" => &mut record.is_proved,
            "replaced" => &mut record.is_replaced,
            _ => return Err(damaged()),
        };
        *flag = true;
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::RecordChange;

    const LEASE: Duration = Duration::from_secs(90);

    fn gateway(directory: &Path, name: &str) -> GatewayFolder {
        GatewayFolder::open(&config::Gateways::new(name, directory)).unwrap()
    }

    /// Records a client at a gateway.
    fn record(gateway: &GatewayFolder, owner: &str) {
        let mut opened = RecordFolder::open(&gateway.own(), LEASE).unwrap();
        let client = DurableClient {
            owner: owner.as_bytes().into(),
            verifier: [1; 8],
            principal: Box::default(),
            start: opened.recovered.start,
            denies: false,
        };
        opened.folder.apply(&[RecordChange::Keep(client)]).unwrap();
    }

    fn owners<'a>(all: impl IntoIterator<Item = &'a RecoveredClients>) -> Vec<String> {
        let clients = all.into_iter().flat_map(|one| &one.clients);
        let owner = |one: &DurableClient| String::from_utf8(one.owner.to_vec()).unwrap();
        let mut owners: Vec<_> = clients.map(owner).collect();
        owners.sort();
        owners
    }

    #[test]
    fn records_are_words_and_others_are_refused_by_the_name_of_their_file() {
        let shared = tempfile::tempdir().unwrap();
        let folder = gateway(shared.path(), "a");
        let all = GatewayRecord {
            enforces: true,
            recovers: true,
            is_proved: true,
            is_replaced: true,
        };
        for record in [GatewayRecord::default(), all] {
            let changed = |records: &mut GatewayRecords| records.0.insert("a".to_owned(), record);
            folder.change(changed).unwrap();
            assert_eq!(folder.read().unwrap().0["a"], record);
        }
        let file = shared.path().join("a/gateway");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            "millrace-gateway-1 enforces recovers proved replaced\n"
        );
        for text in ["", "millrace-gateway-2\n", "millrace-gateway-1 odd\n"] {
            fs::write(&file, text).unwrap();
            let error = folder.read().unwrap_err().to_string();
            assert!(error.contains("a/gateway is no record"), "{error}");
        }
        // Files of others in the folder do not matter, and a gateway without a record.
        fs::write(&file, "millrace-gateway-1\n").unwrap();
        fs::write(shared.path().join("note"), "").unwrap();
        fs::create_dir(shared.path().join("b")).unwrap();
        assert_eq!(folder.read().unwrap().0.len(), 1);
        let others = folder.others().unwrap();
        assert_eq!(others, [("b".to_owned(), shared.path().join("b"))]);
        assert_eq!(gateway(shared.path(), "c").identity(), folder.identity());
        let unmounted = config::Gateways::new("a", &shared.path().join("missing"));
        let error = GatewayFolder::open(&unmounted).unwrap_err().to_string();
        assert!(error.contains("missing/a: No such file"), "{error}");
    }

    #[test]
    fn clients_are_taken_once_and_kept_if_that_is_proved() {
        let shared = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| gateway(shared.path(), name));
        record(&a, "one");
        b.take_clients("a").unwrap();
        // An attempt that was cut short is repeated.
        b.take_clients("a").unwrap();
        assert!(!b.may_reclaim("a").unwrap());
        b.prove_taken("a").unwrap();
        assert!(b.may_reclaim("a").unwrap());
        // The next start of that gateway has other clients, which nobody has proved yet.
        record(&a, "two");
        b.take_clients("a").unwrap();
        assert!(!b.may_reclaim("a").unwrap());
        // Those of the next one but one go without a proof.
        record(&a, "three");
        b.take_clients("a").unwrap();
        b.prove_taken("a").unwrap();
        assert_eq!(owners(&b.all_taken().unwrap()), ["one", "three"]);
        b.forget_taken().unwrap();
        assert!(b.all_taken().unwrap().is_empty());
        // One without clients loses nothing.
        RecordFolder::open(&a.own(), LEASE).unwrap();
        b.take_clients("a").unwrap();
        assert!(b.may_reclaim("a").unwrap() && b.may_reclaim("c").unwrap());
    }

    #[test]
    fn what_a_gateway_has_taken_goes_with_its_own_clients() {
        let shared = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| gateway(shared.path(), name));
        record(&a, "one");
        b.take_clients("a").unwrap();
        b.prove_taken("a").unwrap();
        record(&b, "two");
        c.take_clients("b").unwrap();
        assert!(b.all_taken().unwrap().is_empty());
        // All of it is lost with the locks of that gateway, unless they were kept.
        assert!(!c.may_reclaim("b").unwrap());
        c.prove_taken("b").unwrap();
        assert_eq!(owners(&c.all_taken().unwrap()), ["one", "two"]);
    }
}
