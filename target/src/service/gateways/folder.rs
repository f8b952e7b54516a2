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
use crate::state::{GatewayRecord, GatewayRecords, RecoveredClients};

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
    /// Makes the folder of this gateway if there is none.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(gateways: &config::Gateways) -> io::Result<Self> {
        let mut folder = Self {
            path: gateways.directory.clone(),
            name: gateways.name.clone(),
            identity: [0; 16],
        };
        fs::create_dir_all(folder.own())?;
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

    /// The records of all gateways.
    ///
    /// # Errors
    /// Those of the file system, and records that are damaged.
    pub fn read(&self) -> io::Result<GatewayRecords> {
        let mut records = GatewayRecords::default();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| is_gateway_name(name)) else {
                continue;
            };
            match read_record(&self.path.join(name).join(RECORD)) {
                Ok(record) => {
                    records.0.insert(name.to_owned(), record);
                }
                // A folder that was made just now.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
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

    /// Moves the records of another gateway's clients into the folder of this one. They are there
    /// already if an earlier attempt was cut short.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn take_clients(&self, of: &str) -> io::Result<()> {
        let clients = RecordFolder::path_in(&self.path.join(of));
        let taken = self.taken(of);
        fs::create_dir_all(&taken)?;
        match fs::rename(clients, RecordFolder::path_in(&taken)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => File::open(&taken)?.sync_all(),
        }
    }

    fn taken(&self, of: &str) -> PathBuf {
        self.own().join(format!("{TAKEN}{of}"))
    }

    /// Keeps the clients whose records were taken: they may reclaim.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn prove_taken(&self, of: &str) -> io::Result<()> {
        write_durably(&self.taken(of).join(PROVED), b"")
    }

    /// The clients whose records were taken, if they may reclaim.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn taken_clients(&self, of: &str) -> io::Result<Option<RecoveredClients>> {
        let taken = self.taken(of);
        let is_proved = taken.join(PROVED).try_exists()?;
        is_proved.then(|| RecordFolder::look(&taken)).transpose()
    }

    /// Forgets the clients whose records were taken.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget_taken(&self, of: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.taken(of)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The clients of other gateways that an earlier start of this one has taken and that may
    /// reclaim. The rest is forgotten.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn taken_before(&self) -> io::Result<Vec<RecoveredClients>> {
        let mut kept = Vec::new();
        for of in self.taken_names()? {
            match self.taken_clients(&of)? {
                Some(clients) => kept.push(clients),
                None => self.forget_taken(&of)?,
            }
        }
        Ok(kept)
    }

    /// Forgets all clients of other gateways, once they have reclaimed or are recorded here.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget_all_taken(&self) -> io::Result<()> {
        self.taken_names()?
            .iter()
            .try_for_each(|of| self.forget_taken(of))
    }

    fn taken_names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.own())? {
            let name = entry?.file_name();
            let of = name.to_str().and_then(|name| name.strip_prefix(TAKEN));
            names.extend(of.map(str::to_owned));
        }
        Ok(names)
    }
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
