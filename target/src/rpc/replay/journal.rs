//! The part of the cache that outlives the process: a file mapped into memory.
//!
//! Each reactor writes slots of its own, in a ring, without a lock and without a system call: the
//! first half of a slot before a call is executed, the second before it is answered
//! ([`super::layout`]). The next process reads them all, keeps what is young enough, and begins
//! another file with it.
//!
//! **What it survives.** Any end of the process, because all stores are in the page cache, but not
//! a crash of the host: a file of another boot is not read. Calls that were open at the crash were
//! recorded seconds before at most, and the page cache is not written back so soon. A recorded
//! reply may belong to a change that the file system lost. So after a crash of the host the server
//! behaves as without a journal, and no call ever waits for a disk.
//!
//! **Why a map and no thread that writes.** Writing by a thread would cost each call two changes of
//! threads before it could begin. A store into the map costs a few hundred nanoseconds, as long as
//! its page is writable at once. On a file system in memory (tmpfs) it always is. On a disk the
//! kernel write-protects a page when it has written it back, and the next store waits until
//! the file system has noted the time of the change, which can take as long as its own journal's
//! writes. A reactor must not, so the file goes where systemd keeps a run-time directory for the
//! service (`RUNTIME_DIRECTORY`), if that is in memory, and else into the state directory.
//!
//! **Full disks.** A store that the file system has no room for would end the process (SIGBUS). So
//! all space is reserved beforehand, pages are made writable at start, and only file systems are
//! used that overwrite reserved space in place: tmpfs, ramfs, ext2 to ext4, XFS. Elsewhere the
//! cache stays in memory, and a warning says so.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, OFlags};
use siphasher::sip::SipHasher24;

use super::carried::CarriedCalls;
use super::layout::{Begin, Fault, Header, JournalSlot, PAGE, SLOT, SLOTS_STEP, Sealer, Shape};
use super::{CallKey, ReplayLimits, map};

/// The file's name.
pub const FILE: &str = "replay-journal";

/// Least slots of a reactor.
const SLOTS_LEAST: usize = 1024;

/// How many slots are examined to find one whose call has ended.
const TRIES: usize = 64;

/// File systems on which a store into reserved space never fails: tmpfs, ramfs; ext2 to ext4, XFS.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
const DISK: [i64; 2] = [0xef53, 0x5846_5342];

/// A point in time by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Nanoseconds of the host's life.
    pub boot: u64,
    /// Nanoseconds since 1970.
    pub wall: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let nanoseconds = |time: Timespec| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(time.tv_nsec.unsigned_abs())
        };
        Self {
            boot: nanoseconds(clock_gettime(ClockId::Boottime)),
            // The clock of the files' time stamps, which advances with the kernel's ticks. On
            // shared virtual processors ticks are late (90 ms were observed). By the exact clock a
            // file changed by a call would then seem older than the call.
            wall: nanoseconds(clock_gettime(ClockId::RealtimeCoarse)),
        }
    }
}

/// A call that an earlier process recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub begin: Begin,
    /// When it was last seen, by the clock of processes, which stops while no process runs; `None`
    /// if the other times determine it, or if it was at the process's end.
    pub heard: Option<u64>,
    /// When it had been executed, and its reply; `None` if it is not known whether it was.
    pub done: Option<(u64, Box<[u8]>)>,
}

/// What an earlier process left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The key of the calls' checksums.
    pub(super) key: [u8; 16],
    /// Calls, the latest last.
    pub(super) calls: Vec<Recorded>,
}

/// The use of a name by a call.
struct UsedName {
    /// The hash of the name.
    target: u64,
    key: CallKey,
    /// When the call was first begun, by both clocks.
    began: (u64, u64),
    ended: u64,
}

impl Left {
    /// Reads a file of this boot of the host. Calls that are older than `age`, counted from the
    /// latest, are left out: while no process ran, no client could have begun anything.
    ///
    /// # Errors
    /// It is not a whole file of this layout and boot.
    pub fn read(bytes: &[u8], boot: &[u8; 16], age: Duration) -> Result<Self, Fault> {
        let header = Header::decode(bytes, bytes.len() as u64)?;
        if header.boot != *boot {
            return Err(Fault::OtherBoot);
        }
        let (shape, sealer) = (header.shape, Sealer::new(&header.key));
        let mut calls: HashMap<CallKey, Recorded> = HashMap::new();
        let mut used: Vec<UsedName> = Vec::new();
        // Since when every region still has all its calls.
        let mut complete = 0;
        for (place, slot) in (0..).zip(bytes[PAGE..].chunks_exact(SLOT)) {
            let (begin, done) = match sealer.read(slot, place).0 {
                JournalSlot::Empty => continue,
                JournalSlot::Begun(begin) => (begin, None),
                JournalSlot::Done {
                    begin,
                    ended,
                    reply,
                } => (begin, Some((ended, reply))),
            };
            // Slots that were carried over have not been another's before.
            let heard = (place < u64::from(shape.carried)).then_some(begin.evicted);
            if heard.is_none() {
                complete = complete.max(begin.evicted);
            }
            // A call that the last process only took over was executed before that process began,
            // if at all. Otherwise a client that died with open calls would make all later calls
            // doubtful.
            let ended = match (&done, heard) {
                (Some((ended, _)), _) => *ended,
                (None, Some(_)) => begin.began,
                (None, None) => u64::MAX,
            };
            let names = begin.targets.iter().filter(|target| **target != 0);
            used.extend(names.map(|&target| UsedName {
                target,
                key: begin.key,
                began: (begin.began, begin.wall),
                ended,
            }));
            let one = Recorded { begin, heard, done };
            match calls.entry(begin.key) {
                Entry::Occupied(mut other) => {
                    other.get_mut().merge(one);
                }
                Entry::Vacant(place) => {
                    place.insert(one);
                }
            }
        }
        let mut calls: Vec<Recorded> = calls.into_values().collect();
        let newest = calls.iter().map(|call| call.heard().max(call.last()));
        let newest = newest.max().unwrap_or(0);
        let oldest = newest.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        calls.retain(|call| call.is_open() || call.heard() >= oldest);
        // Calls that are not known to have ended are forgotten last.
        calls.sort_unstable_by_key(|call| (call.done.is_none(), call.last()));
        used.sort_unstable_by_key(|name| name.target);
        for call in calls.iter_mut().filter(|call| call.done.is_none()) {
            let Begin {
                key,
                began,
                wall,
                targets,
                ..
            } = call.begin;
            let contested = |target: &u64| {
                let first = used.partition_point(|name| name.target < *target);
                used[first..]
                    .iter()
                    .take_while(|name| name.target == *target)
                    // A repetition under another key has the times of the first execution.
                    .any(|name| {
                        name.key != key && name.began != (began, wall) && name.ended >= began
                    })
            };
            call.begin.contested |= complete >= began || targets.iter().any(contested);
        }
        Ok(Self {
            key: header.key,
            calls,
        })
    }

    /// A file of one region with these bytes as slots, cut to whole pages, to test
    /// [`read`](Self::read) on damaged slots. The key of its checksums is zero.
    #[must_use]
    pub fn whole(slots: &[u8], boot: [u8; 16]) -> Vec<u8> {
        let slots = &slots[..slots.len() / PAGE * PAGE];
        let shape = Shape {
            carried: 0,
            regions: 1,
            slots: words(slots.len() / SLOT),
        };
        let header = Header {
            shape,
            boot,
            key: [0; 16],
        };
        [&header.encode()[..], slots].concat()
    }

    /// Executed calls with a known reply.
    #[must_use]
    pub fn done(&self) -> usize {
        self.calls.iter().filter(|call| call.done.is_some()).count()
    }

    /// Calls of which it is not known whether they were executed.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.calls.len() - self.done()
    }
}

impl Recorded {
    /// Whether it was being executed when the process ended, as far as is known.
    fn is_open(&self) -> bool {
        self.done.is_none() && self.heard.is_none()
    }

    /// When it ended, or else began.
    fn last(&self) -> u64 {
        let ended = self.done.as_ref().map(|(ended, _)| *ended);
        ended.unwrap_or(self.begin.began)
    }

    /// When it was last seen.
    fn heard(&self) -> u64 {
        self.heard.unwrap_or_else(|| self.last())
    }

    /// Takes in another record of the same call.
    fn merge(&mut self, other: Self) {
        match (&self.done, &other.done) {
            // Both may have been executed, or one of them twice.
            (None, None) => {
                let contested = self.begin.contested || other.begin.contested;
                self.heard = self
                    .heard
                    .zip(other.heard)
                    .map(|(one, other)| one.max(other));
                if other.begin.began < self.begin.began {
                    self.begin = other.begin;
                }
                self.begin.contested = contested;
            }
            // A call that began after the other had been answered is another call with a reused
            // XID.
            _ if other.last() > self.last() => *self = other,
            _ => {}
        }
    }
}

/// One reactor's slots.
#[derive(Debug)]
pub struct Writer {
    slots: Slots,
    /// When the call of each slot ended; `u64::MAX` while it runs.
    ended: Vec<u64>,
    next: usize,
    sequence: u64,
    /// Calls without a free slot, or with a reply that is longer than a slot.
    unrecorded: u64,
}

/// A slot that holds a call being executed.
#[derive(Debug)]
#[must_use = "a call ends as done, void or unknown"]
pub struct JournalPlace(usize, u64);

/// Slots in a row of a mapped file.
#[derive(Debug)]
pub(super) struct Slots {
    map: MmapMut,
    sealer: Sealer,
    first: u64,
}

impl Slots {
    fn slot(&mut self, index: usize) -> (&mut [u8], u64) {
        let at = index * SLOT;
        (&mut self.map[at..at + SLOT], self.first + index as u64)
    }

    /// Writes that a call is about to be executed.
    pub fn begin(&mut self, index: usize, sequence: u64, begin: &Begin) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.begin(slot, place, sequence, begin);
    }

    /// The call of a slot is settled elsewhere.
    pub fn void(&mut self, index: usize, sequence: u64) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.void(slot, place, sequence);
    }

    /// The content of a slot, and the sequence number that it was written under.
    pub fn read(&mut self, index: usize) -> (JournalSlot, u64) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.read(slot, place)
    }
}

impl Writer {
    fn new(slots: Slots) -> Self {
        Self {
            ended: vec![0; slots.map.len() / SLOT],
            slots,
            next: 0,
            sequence: 0,
            unrecorded: 0,
        }
    }

    /// Records that a call is about to be executed, which began at `began` and changes the names
    /// that `targets` are the hashes of. `None` where all slots are taken by running calls.
    pub fn begin(
        &mut self,
        key: &CallKey,
        began: Moment,
        targets: [u64; 2],
        contested: bool,
    ) -> Option<JournalPlace> {
        let found = (0..TRIES)
            .map(|step| (self.next + step) % self.ended.len())
            .find(|&index| self.ended[index] != u64::MAX);
        let Some(index) = found else {
            self.next = (self.next + TRIES) % self.ended.len();
            self.unrecorded += 1;
            return None;
        };
        self.next = (index + 1) % self.ended.len();
        self.sequence += 1;
        let begin = Begin {
            key: *key,
            began: began.boot,
            wall: began.wall,
            evicted: self.ended[index],
            targets,
            contested,
        };
        self.slots.begin(index, self.sequence, &begin);
        self.ended[index] = u64::MAX;
        Some(JournalPlace(index, self.sequence))
    }

    /// The call was executed, and is answered so.
    pub fn done(&mut self, place: &JournalPlace, now: Moment, reply: &[u8]) {
        let &JournalPlace(index, sequence) = place;
        self.ended[index] = now.boot;
        let sealer = self.slots.sealer;
        let (slot, number) = self.slots.slot(index);
        if !sealer.done(slot, number, sequence, now.boot, reply) {
            self.unrecorded += 1;
        }
    }

    /// The call was not executed.
    pub fn void(&mut self, place: &JournalPlace) {
        let &JournalPlace(index, sequence) = place;
        self.slots.void(index, sequence);
        self.ended[index] = 0;
    }

    /// The call was abandoned; it is unknown whether it was executed.
    pub fn unknown(&mut self, place: &JournalPlace, now: Moment) {
        self.ended[place.0] = now.boot;
    }

    /// Calls that could not be recorded, or not their replies.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    pub key: [u8; 16],
    /// The calls that were carried over.
    pub left: Left,
    /// The records of those that are not settled.
    pub carried: Option<CarriedCalls>,
    pub writers: Vec<Writer>,
}

impl Journal {
    /// Takes over the journal in a directory and begins a new file there, for `reactors` reactors.
    pub fn open(directory: &Path, reactors: usize, limits: ReplayLimits) -> io::Result<Self> {
        let (boot, path) = (boot()?, directory.join(FILE));
        let left = match read(&path, &boot, limits.age) {
            Ok(left) => left,
            Err(Unread::Missing) => None,
            Err(Unread::Fault(Fault::OtherBoot)) => {
                tracing::info!("the host was rebooted: a new journal of replies is started");
                None
            }
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    "the journal of replies cannot be used and is started anew: {error}; repeated \
                     calls are executed again"
                );
                None
            }
        };
        Self::begin(directory, boot, left, reactors, limits)
    }

    fn begin(
        directory: &Path,
        boot: [u8; 16],
        left: Option<Left>,
        reactors: usize,
        limits: ReplayLimits,
    ) -> io::Result<Self> {
        let mut left = match left {
            Some(left) => left,
            None => Left {
                key: fresh()?,
                calls: Vec::new(),
            },
        };
        let excess = left.calls.len().saturating_sub(limits.entries);
        left.calls.drain(..excess);
        // Their time does not run while there is no process.
        let now = Moment::now().boot;
        let newest = left.calls.iter().map(|call| call.heard().max(call.last()));
        let newest = newest.max().unwrap_or(0);
        for call in &mut left.calls {
            let heard = if call.is_open() { newest } else { call.heard() };
            let heard = now.saturating_sub(newest.saturating_sub(heard));
            call.begin.evicted = heard;
        }
        let slots = (limits.entries / reactors.max(1)).max(SLOTS_LEAST);
        let shape = Shape {
            carried: words(slots_for(&left.calls).next_multiple_of(SLOTS_STEP)),
            regions: words(reactors),
            slots: words(slots.next_multiple_of(SLOTS_STEP)),
        };
        let header = Header {
            shape,
            boot,
            key: left.key,
        };
        let sealer = Sealer::new(&left.key);
        let mut front = vec![0; PAGE + shape.carried as usize * SLOT];
        front[..PAGE].copy_from_slice(&header.encode());
        let mut unsettled = HashMap::new();
        let carried = front[PAGE..].chunks_exact_mut(SLOT);
        for (index, (slot, call)) in carried.zip(&left.calls).enumerate() {
            let place = index as u64;
            sealer.begin(slot, place, CARRIED, &call.begin);
            match &call.done {
                Some((ended, reply)) => {
                    sealer.done(slot, place, CARRIED, *ended, reply);
                }
                None => {
                    unsettled.insert(call.begin.key, index);
                }
            }
        }
        let file = make(directory, shape.length(), &front)?;
        let carried = (shape.carried > 0)
            .then(|| map::shared(&file, PAGE as u64, front.len() - PAGE))
            .transpose()?
            .map(|map| Slots {
                map,
                sealer,
                first: 0,
            })
            .map(|slots| CarriedCalls::new(slots, unsettled, left.calls.len()));
        let length = shape.slots as usize * SLOT;
        let writers = (0..shape.regions).map(|region| {
            let first = shape.first(region);
            let map = map::shared(&file, PAGE as u64 + first * SLOT as u64, length)?;
            Ok(Writer::new(Slots { map, sealer, first }))
        });
        let writers = writers.collect::<io::Result<_>>()?;
        // Only now: until here the file before is whole.
        fs::rename(directory.join(NEW), directory.join(FILE))?;
        Ok(Self {
            key: left.key,
            left,
            carried,
            writers,
        })
    }
}

/// The sequence number of calls carried over.
const CARRIED: u64 = 1;

/// Slots for calls that are carried over: one more, to write a record anew into.
fn slots_for(calls: &[Recorded]) -> usize {
    calls.len() + usize::from(!calls.is_empty())
}

/// The name of a file until it is complete.
const NEW: &str = "replay-journal.new";

/// Why there is nothing to take over.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("there is none")]
    Missing,
    #[error("{0}")]
    Fault(Fault),
    #[error("{0}")]
    Read(io::Error),
}

fn read(path: &Path, boot: &[u8; 16], age: Duration) -> Result<Option<Left>, Unread> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unread::Missing),
        Err(error) => return Err(Unread::Read(error)),
    };
    // The header first: it bounds what is read.
    let mut bytes = Vec::new();
    let head = (&mut file).take(PAGE as u64).read_to_end(&mut bytes);
    head.map_err(Unread::Read)?;
    let length = file.metadata().map_err(Unread::Read)?.len();
    let header = Header::decode(&bytes, length).map_err(Unread::Fault)?;
    let rest = header.shape.length() - PAGE as u64;
    let rest = file.take(rest).read_to_end(&mut bytes);
    rest.map_err(Unread::Read)?;
    let left = Left::read(&bytes, boot, age).map_err(Unread::Fault)?;
    Ok(Some(left))
}

/// Makes the file, beside the one before, with all its space.
fn make(directory: &Path, length: u64, front: &[u8]) -> io::Result<File> {
    let path = directory.join(NEW);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let kind = kind(&file)?;
    if !MEMORY.contains(&kind) && !DISK.contains(&kind) {
        let text = format!(
            "a full file system of this type ({kind:#x}) could end the process; use tmpfs, ext4 or \
             XFS"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length)?;
    file.write_all_at(front, 0)?;
    Ok(file)
}

/// Where the journal goes: the run-time directory of the service if it is in memory, else the state
/// directory. `runtime` is the value of `RUNTIME_DIRECTORY`. A file in the other directory is
/// removed, so that it is never mistaken for a current one.
pub(super) fn place(state: &Path, runtime: Option<&OsStr>) -> PathBuf {
    let runtime = runtime
        .and_then(|list| env::split_paths(list).next())
        .filter(|path| path.is_absolute() && path != state && in_memory(path));
    match runtime {
        Some(runtime) => {
            let _ = fs::remove_file(state.join(FILE));
            runtime
        }
        None => state.to_owned(),
    }
}

/// Whether a directory is on a file system in memory.
pub(super) fn in_memory(directory: &Path) -> bool {
    let kind = File::open(directory).and_then(|directory| kind(&directory));
    kind.is_ok_and(|kind| MEMORY.contains(&kind))
}

fn kind(file: &File) -> io::Result<i64> {
    #[allow(clippy::useless_conversion)] // Narrower on other machines.
    Ok(i64::from(rustix::fs::fstatfs(file)?.f_type))
}

/// The identifier of this boot of the host.
fn boot() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(number.to_be_bytes())
}

fn fresh() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

fn words(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The hash of a name in a directory, to find calls that use the same name. Never zero.
#[must_use]
pub fn target(key: &SipHasher24, directory: &[u8], name: &[u8]) -> u64 {
    let mut hasher = *key;
    hasher.write_usize(directory.len());
    hasher.write(directory);
    hasher.write(name);
    hasher.finish().max(1)
}
