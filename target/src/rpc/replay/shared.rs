//! Journals of servers that act as one, each in a folder of its own that the others can read.
//!
//! A change of names is executed when the others can read that it was begun. Where a server takes
//! the place of another one, it takes the calls of that one over, and looks up in the journals of
//! all whether others have used the same names meanwhile. Names that others use later are known by
//! the time stamps of their objects ([`InterruptedCall::is_shared`]).
//!
//! [`InterruptedCall::is_shared`]: super::InterruptedCall::is_shared

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::carried::CarriedCalls;
use super::journal::{self, CarriedFile, FILE, Journal, NEW, SlotsBacking, Unread};
use super::layout::{Fault, Header};
use super::left::{JournalReader, Left};
use super::moment::{Moment, Timeline};
use super::shared_slots::SlotThread;
use super::{OpenedCache, ReplayCache, ReplayLimits, lock};

/// What stands for the boot of the host in these journals: their slots are durable.
const NO_BOOT: [u8; 16] = [0; 16];

/// How long what was recorded may take to be readable, when the calls of another server are taken
/// over.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// The journals of servers that act as one, as one of them uses them.
#[derive(Debug)]
pub struct SharedJournals {
    /// The folder of this server.
    own: PathBuf,
    key: [u8; 16],
    timeline: Timeline,
    thread: SlotThread,
    cache: ReplayCache,
    /// The files with calls that were taken over, and when.
    taken: Mutex<Vec<(Instant, PathBuf)>>,
}

/// How many calls were taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenCalls {
    /// Executed calls with their replies.
    pub done: usize,
    /// Calls of which it is not known whether they were executed.
    pub begun: usize,
}

impl ReplayCache {
    /// The cache that earlier processes left in the folder `own`, where other servers read what this
    /// one records, as it reads theirs in `others`. All of them have the same key. A thread that
    /// writes is started, and calls `on_start` first.
    ///
    /// The caller has to ensure that no other process writes to `own`.
    ///
    /// # Errors
    /// The folder of this server cannot be used.
    pub fn open_shared(
        limits: ReplayLimits,
        own: &Path,
        others: &[PathBuf],
        key: [u8; 16],
        reactors: usize,
        on_start: impl FnOnce() + Send + 'static,
    ) -> io::Result<(OpenedCache, SharedJournals)> {
        let thread = SlotThread::start(on_start)?;
        let mut reader = JournalReader::default();
        let before = files_in(own)?;
        for file in &before {
            take(file, &key, |bytes, header| reader.take(bytes, header));
        }
        let left = with_uses(reader, others, &key, limits.age);
        let backing = SlotsBacking::Shared(&thread);
        let journal = Journal::begin(own, NO_BOOT, left, reactors, limits, &backing)?;
        for file in before.iter().filter(|file| **file != own.join(FILE)) {
            fs::remove_file(file)?;
        }
        File::open(own)?.sync_all()?;
        let timeline = journal.timeline;
        let opened = Self::load(limits, journal, true);
        let journals = SharedJournals {
            own: own.to_owned(),
            key,
            timeline,
            thread,
            cache: opened.cache.clone(),
            taken: Mutex::default(),
        };
        Ok((opened, journals))
    }
}

impl SharedJournals {
    /// Changes that were executed before other servers could read of them, and records that they
    /// cannot read.
    #[must_use]
    pub fn unshared(&self) -> u64 {
        self.thread.unshared()
    }

    /// Takes over the calls of another server, which must not execute any more of them, from its
    /// folder. `others` are the folders of all other servers.
    ///
    /// # Errors
    /// Those of the file system. The order can be repeated.
    pub fn take_over(&self, of: &Path, others: &[PathBuf]) -> io::Result<TakenCalls> {
        let files = files_in(of)?;
        let mut reader = JournalReader::default();
        for file in &files {
            take(file, &self.key, |bytes, header| reader.take(bytes, header));
        }
        let limits = self.cache.limits();
        let mut left = reader.clone().left(self.key, limits.age);
        left.carry(limits.entries, self.timeline.time(Moment::now()));
        let taken = TakenCalls {
            done: left.done(),
            begun: left.begun(),
        };
        let carried = self.keep(&left)?;
        self.cache.take_in(left.calls, self.timeline, true);
        self.cache.carry(carried);
        // Whoever uses their names from now on contests them. What this server has begun before is
        // in its journal.
        if !self.thread.flush(FLUSH_WAIT) {
            reader.miss_uses();
        }
        let mut all = others.to_vec();
        all.push(self.own.clone());
        let left = with_uses(reader, &all, &self.key, limits.age);
        let contested = left.calls.iter().filter(|call| call.begin.contested);
        self.cache
            .contest_calls(contested.map(|call| &call.begin.key));
        for file in &files {
            fs::remove_file(file)?;
        }
        File::open(of)?.sync_all()?;
        Ok(taken)
    }

    /// Keeps calls for the next process, which may be that of another server. Forgets what was kept
    /// too long ago.
    fn keep(&self, left: &Left) -> io::Result<Option<CarriedCalls>> {
        let mut taken = lock(&self.taken);
        let age = self.cache.limits().age;
        for (_, old) in taken.extract_if(.., |(since, _)| since.elapsed() > age) {
            fs::remove_file(old)?;
        }
        if left.calls.is_empty() {
            return Ok(None);
        }
        let backing = SlotsBacking::Shared(&self.thread);
        let front = CarriedFile::of(left, NO_BOOT, (0, 0));
        let file = backing.make(&self.own, &front)?;
        let carried = front.calls(left, &file, &backing)?;
        let path = self.own.join(self.next_name()?);
        fs::rename(self.own.join(NEW), &path)?;
        File::open(&self.own)?.sync_all()?;
        taken.push((Instant::now(), path));
        Ok(carried)
    }

    /// Waits until others can read all that was recorded, but not longer than `within`. Says whether
    /// they can.
    #[must_use]
    pub fn flush(&self, within: Duration) -> bool {
        self.thread.flush(within)
    }

    /// A name for one more file with calls that were taken over.
    fn next_name(&self) -> io::Result<String> {
        let numbers = files_in(&self.own)?;
        let numbers = numbers.iter().filter_map(|path| number_of(path));
        let next = numbers.max().map_or(0, |last| last + 1);
        Ok(format!("{FILE}.{next}"))
    }
}

/// The journals in a folder: that of its server, and one of each that it has taken over.
fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_own = path.file_name().is_some_and(|name| name == FILE);
        if is_own || number_of(&path).is_some() {
            found.push(path);
        }
    }
    Ok(found)
}

fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix(FILE)?.strip_prefix('.')?;
    number.parse().ok()
}

/// Reads a journal of these servers. Says whether it could be read, or is gone.
fn take(file: &Path, key: &[u8; 16], with: impl FnOnce(&[u8], &Header)) -> bool {
    let error = match journal::read_file(file) {
        Ok((bytes, header)) if header.key == *key && header.boot == NO_BOOT => {
            with(&bytes, &header);
            return true;
        }
        Ok(_) => Unread::Fault(Fault::Foreign),
        Err(Unread::Missing) => return true,
        Err(error) => error,
    };
    tracing::warn!(
        path = %file.display(),
        "this journal of replies cannot be used: {error}; calls in it that are repeated are executed \
         again"
    );
    false
}

/// What journals have left, with the uses of names in others.
fn with_uses(mut reader: JournalReader, others: &[PathBuf], key: &[u8; 16], age: Duration) -> Left {
    for folder in others {
        let read = files_in(folder).is_ok_and(|files| {
            let mut all = true;
            for file in files {
                all &= take(&file, key, |bytes, header| reader.take_uses(bytes, header));
            }
            all
        });
        if !read {
            reader.miss_uses();
        }
    }
    reader.left(*key, age)
}
