//! How gateways tell each other what opens access and deny: by locks in files of the shared folder.
//!
//! By its handle each file has four bytes there, for readers, for writers, and for those who deny
//! reading and writing to others. A gateway holds a lock on each byte that concerns it. These locks
//! exclude nobody; that another gateway has one is found out by a test. They end with the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use millrace_reactor::Alarm;
use millrace_store::lock_file::{FileLock, LockFile};
use siphasher::sip::SipHasher24;

use super::folder::GatewayFolder;
use crate::log_limit::LogLimit;
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::state::{FileKey, ShareAction, ShareAnswer, ShareMode, ShareOrder};

/// The folder of the files with locks. No gateway has this name.
const FOLDER: &str = "open_shares";
/// How many of them there are: systems search all locks of a file for each new one.
const FILES: u64 = 64;
/// Threads that make announcements, as each lock takes a request to the cluster.
const THREADS: u64 = 4;

/// The bytes of a file, and what each stands for: an access, or a denial.
const BYTES: [(ShareMode, bool); 4] = [
    (ShareMode::READ, false),
    (ShareMode::WRITE, false),
    (ShareMode::READ, true),
    (ShareMode::WRITE, true),
];

/// Where the bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BytePlace {
    file: u64,
    offset: u64,
}

impl BytePlace {
    fn of(key: &FileKey) -> Self {
        // All gateways have to find the same place.
        let mut hasher = SipHasher24::new();
        hasher.write(&key.export.to_be_bytes());
        hasher.write(key.object.as_bytes());
        let hash = hasher.finish();
        Self {
            file: hash % FILES,
            offset: (hash / FILES) * 4,
        }
    }

    /// The lock of a byte.
    fn lock(self, byte: usize, writes: bool) -> FileLock {
        FileLock {
            offset: self.offset + byte as u64,
            length: 1,
            writes,
        }
    }
}

/// The ticket of an order, and its answer.
type TicketAnswer = (u64, ShareAnswer);

/// The ways to the threads. Each is started with its first order and ends with this.
#[derive(Debug)]
pub struct ShareThreads {
    folder: PathBuf,
    threads: HashMap<u64, Sender<ShareOrder>>,
    answers: (Sender<TicketAnswer>, Receiver<TicketAnswer>),
    /// Of the reactor with the home.
    alarm: Alarm,
}

impl ShareThreads {
    /// Without a thread. `alarm` is that of the reactor with the home.
    pub fn new(folder: PathBuf, alarm: Alarm) -> Self {
        Self {
            folder,
            threads: HashMap::new(),
            answers: crossbeam_channel::unbounded(),
            alarm,
        }
    }

    /// Hands an order over.
    pub fn send(&mut self, order: ShareOrder) {
        let place = BytePlace::of(&order.file);
        let thread = match self.threads.entry(place.file % THREADS) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let (orders, received) = crossbeam_channel::unbounded::<ShareOrder>();
                let mut files = ShareFiles::new(self.folder.clone());
                let (answers, alarm) = (self.answers.0.clone(), self.alarm.clone());
                let started =
                    thread::Builder::new()
                        .name("open-shares".to_owned())
                        .spawn(move || {
                            confine_thread(ThreadKind::StoreHelper);
                            while let Ok(order) = received.recv() {
                                if let Some(answer) = files.carry_out(&order) {
                                    let _ = answers.send(answer);
                                    alarm.ring();
                                }
                            }
                        });
                match started {
                    Ok(_) => vacant.insert(orders),
                    Err(error) => {
                        tracing::warn!(%error, "no thread for share reservations; clients try again");
                        if let ShareAction::Announce { ticket, .. } = order.action {
                            let _ = self.answers.0.send((ticket, ShareAnswer::Unavailable));
                            self.alarm.ring();
                        }
                        return;
                    }
                }
            }
        };
        let _ = thread.send(order);
    }

    /// The next answer, with the ticket of its order.
    pub fn answer(&self) -> Option<TicketAnswer> {
        self.answers.1.try_recv().ok()
    }
}

/// The files with locks, open, as one thread uses them.
struct ShareFiles {
    folder: PathBuf,
    files: HashMap<u64, LockFile>,
    warnings: LogLimit,
}

impl ShareFiles {
    fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            files: HashMap::new(),
            warnings: LogLimit::default(),
        }
    }

    /// Carries an order out. Returns the answer, if there is to be one.
    fn carry_out(&mut self, order: &ShareOrder) -> Option<TicketAnswer> {
        let place = BytePlace::of(&order.file);
        let done = self.file(place.file).and_then(|file| match order.action {
            ShareAction::Announce {
                access,
                deny,
                compares,
                ..
            } => announce(file, place, (access, deny), compares),
            ShareAction::Keep { access, deny } => {
                withdraw(file, place, (access, deny)).map(|()| ShareAnswer::Free)
            }
        });
        let answer = done.unwrap_or_else(|error| {
            if self.warnings.is_due(Instant::now()) {
                tracing::warn!(
                    %error,
                    folder = %self.folder.display(),
                    "other gateways cannot be told of share reservations: clients try again"
                );
            }
            ShareAnswer::Unavailable
        });
        match order.action {
            ShareAction::Announce { ticket, .. } => Some((ticket, answer)),
            ShareAction::Keep { .. } => None,
        }
    }

    fn file(&mut self, number: u64) -> io::Result<&LockFile> {
        Ok(match self.files.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let made = fs::DirBuilder::new().mode(0o700).create(&self.folder);
                made.or_else(|error| match error.kind() {
                    ErrorKind::AlreadyExists => Ok(()),
                    _ => Err(error),
                })?;
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).mode(0o600);
                let file = options.open(self.folder.join(format!("{number:02}")))?;
                place.insert(LockFile::of_host(file.into()))
            }
        })
    }
}

/// The bytes of an access and a denial, with those in which others would conflict with them.
fn bytes((access, deny): (ShareMode, ShareMode)) -> impl Iterator<Item = (usize, usize)> {
    let all = BYTES.into_iter().enumerate();
    let own = all.filter(move |(_, (mode, denies))| match denies {
        true => deny.includes(*mode),
        false => access.includes(*mode),
    });
    own.map(|(byte, _)| (byte, (byte + 2) % 4))
}

/// Locks the bytes of an announcement, and then looks for those of others that conflict.
fn announce(
    file: &LockFile,
    place: BytePlace,
    shares: (ShareMode, ShareMode),
    compares: bool,
) -> io::Result<ShareAnswer> {
    for (own, _) in bytes(shares) {
        if !file.lock(place.lock(own, false))? {
            return Err(io::Error::other(
                "a program has locks in the files of gateways",
            ));
        }
    }
    for (_, other) in bytes(shares).filter(|_| compares) {
        if file.conflict(place.lock(other, true))?.is_some() {
            return Ok(ShareAnswer::Conflict);
        }
    }
    Ok(ShareAnswer::Free)
}

/// Unlocks all bytes but these.
fn withdraw(
    file: &LockFile,
    place: BytePlace,
    (access, deny): (ShareMode, ShareMode),
) -> io::Result<()> {
    let without = |mode| ShareMode::BOTH.without(mode);
    for (byte, _) in bytes((without(access), without(deny))) {
        file.unlock(place.offset + byte as u64, 1)?;
    }
    Ok(())
}

/// Where gateways announce what opens access and deny.
pub(super) fn folder(of: &GatewayFolder) -> PathBuf {
    of.path().join(FOLDER)
}

/// Tries a lock in the shared folder, whose file system need not have any.
///
/// # Errors
/// It has none, or cannot be used.
pub(super) fn try_locks(of: &GatewayFolder) -> io::Result<()> {
    let mut files = ShareFiles::new(folder(of));
    // Where no file has its bytes.
    let place = BytePlace {
        file: 0,
        offset: u64::MAX / FILES * 4 + 4,
    };
    let tried = files.file(place.file);
    let tried =
        tried.and_then(|file| announce(file, place, (ShareMode::READ, ShareMode::NONE), true));
    tried.map(drop).map_err(|error| {
        let text = format!(
            "share_reservations needs byte-range locks in {}: {error}",
            files.folder.display()
        );
        io::Error::new(error.kind(), text)
    })
}

#[cfg(test)]
mod tests {
    use millrace_admin::config;
    use millrace_store::Handle;

    use super::*;

    const NONE: ShareMode = ShareMode::NONE;

    fn key(number: u8) -> FileKey {
        FileKey {
            export: 7,
            object: Handle::new(&[number; 12]).unwrap(),
        }
    }

    fn announce(
        files: &mut ShareFiles,
        number: u8,
        access: ShareMode,
        deny: ShareMode,
    ) -> ShareAnswer {
        let action = ShareAction::Announce {
            ticket: 5,
            access,
            deny,
            compares: true,
        };
        let file = key(number);
        let (ticket, answer) = files.carry_out(&ShareOrder { file, action }).unwrap();
        assert_eq!(ticket, 5);
        answer
    }

    fn keep(files: &mut ShareFiles, number: u8, access: ShareMode, deny: ShareMode) {
        let action = ShareAction::Keep { access, deny };
        let file = key(number);
        assert_eq!(files.carry_out(&ShareOrder { file, action }), None);
    }

    #[test]
    fn gateways_find_each_others_announcements() {
        let shared = tempfile::tempdir().unwrap();
        let gateway = || ShareFiles::new(shared.path().join(FOLDER));
        let modes = [NONE, ShareMode::READ, ShareMode::WRITE, ShareMode::BOTH];
        for access in modes {
            for deny in modes {
                for other_access in modes {
                    for other_deny in modes {
                        let [mut one, mut other] = [gateway(), gateway()];
                        assert_eq!(announce(&mut one, 1, access, deny), ShareAnswer::Free);
                        let found = announce(&mut other, 1, other_access, other_deny);
                        let conflicts = access.meets(other_deny) || deny.meets(other_access);
                        assert_eq!(found == ShareAnswer::Conflict, conflicts);
                        // Other files are not concerned, and what is withdrawn.
                        let found = announce(&mut other, 2, other_access, other_deny);
                        assert_eq!(found, ShareAnswer::Free);
                        keep(&mut one, 1, NONE, NONE);
                        let found = announce(&mut other, 1, other_access, other_deny);
                        assert_eq!(found, ShareAnswer::Free);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_kept_stays_announced_until_the_gateway_ends() {
        let shared = tempfile::tempdir().unwrap();
        let [mut one, mut other] = [0; 2].map(|_| ShareFiles::new(shared.path().join(FOLDER)));
        let both = ShareMode::BOTH;
        assert_eq!(announce(&mut one, 1, both, both), ShareAnswer::Free);
        keep(&mut one, 1, ShareMode::READ, ShareMode::WRITE);
        let found = |other: &mut ShareFiles, access, deny| {
            let found = announce(other, 1, access, deny);
            keep(other, 1, NONE, NONE);
            found
        };
        assert_eq!(
            found(&mut other, ShareMode::READ, ShareMode::WRITE),
            ShareAnswer::Free
        );
        assert_eq!(
            found(&mut other, ShareMode::WRITE, NONE),
            ShareAnswer::Conflict
        );
        assert_eq!(
            found(&mut other, ShareMode::READ, ShareMode::READ),
            ShareAnswer::Conflict
        );
        drop(one);
        assert_eq!(found(&mut other, both, both), ShareAnswer::Free);
    }

    #[test]
    fn a_gateway_tries_a_lock_and_leaves_none() {
        let shared = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"]
            .map(|name| GatewayFolder::open(&config::Gateways::new(name, shared.path())).unwrap());
        try_locks(&a).unwrap();
        try_locks(&b).unwrap();
        fs::remove_dir_all(folder(&a)).unwrap();
        fs::write(folder(&a), "").unwrap();
        let error = try_locks(&a).unwrap_err().to_string();
        assert!(
            error.contains("byte-range locks in ") && error.contains(FOLDER),
            "{error}"
        );
    }

    #[test]
    fn a_folder_that_is_gone_is_no_conflict() {
        let shared = tempfile::tempdir().unwrap();
        let mut files = ShareFiles::new(shared.path().join("missing").join(FOLDER));
        let found = announce(&mut files, 1, ShareMode::READ, NONE);
        assert_eq!(found, ShareAnswer::Unavailable);
    }
}
