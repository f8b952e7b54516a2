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
//!
//! **Journals that other servers read** ([`super::shared`]) are in a file system of a cluster. They
//! are written by a thread, and calls wait for it.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, OFlags};
use siphasher::sip::SipHasher24;

use super::carried::CarriedCalls;
use super::layout::{Fault, Header, PAGE, SLOT, SLOTS_STEP, Sealer, Shape};
use super::left::{Left, Recorded};
use super::moment::{Moment, Timeline};
use super::shared_slots::SlotThread;
use super::writer::{Slots, Writer};
use super::{ReplayLimits, map};

/// The file's name.
pub const FILE: &str = "replay-journal";

/// Least slots of a reactor.
const SLOTS_LEAST: usize = 1024;

/// File systems on which a store into reserved space never fails: tmpfs, ramfs; ext2 to ext4, XFS.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
const DISK: [i64; 2] = [0xef53, 0x5846_5342];

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    pub key: [u8; 16],
    pub timeline: Timeline,
    /// The calls that were carried over.
    pub left: Left,
    /// The records of those that are not settled.
    pub carried: Option<CarriedCalls>,
    pub writers: Vec<Writer>,
}

/// How slots get into a file.
pub(super) enum SlotsBacking<'a> {
    /// The file is mapped.
    Mapped,
    /// A thread writes the file, which other servers read.
    Shared(&'a SlotThread),
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
        let left = match left {
            Some(left) => left,
            None => Left {
                key: fresh()?,
                calls: Vec::new(),
            },
        };
        Self::begin(
            directory,
            boot,
            left,
            reactors,
            limits,
            &SlotsBacking::Mapped,
        )
    }

    /// Begins a new file with what earlier processes left.
    pub fn begin(
        directory: &Path,
        boot: [u8; 16],
        mut left: Left,
        reactors: usize,
        limits: ReplayLimits,
        backing: &SlotsBacking<'_>,
    ) -> io::Result<Self> {
        let timeline = backing.timeline();
        left.carry(limits.entries, timeline.time(Moment::now()));
        let slots = (limits.entries / reactors.max(1)).max(SLOTS_LEAST);
        let regions = (words(reactors), words(slots.next_multiple_of(SLOTS_STEP)));
        let carried = CarriedFile::of(&left, boot, regions);
        let (shape, sealer) = (carried.shape, Sealer::new(&left.key));
        let file = backing.make(directory, &carried)?;
        let length = shape.slots as usize * SLOT;
        let writers = (0..shape.regions).map(|region| {
            let first = shape.first(region);
            let slots = backing.slots(&file, (first, length), &[], sealer)?;
            Ok(Writer::new(slots, timeline))
        });
        let writers = writers.collect::<io::Result<_>>()?;
        let carried = carried.calls(&left, &file, backing)?;
        // Only now: until here the file before is whole.
        fs::rename(directory.join(NEW), directory.join(FILE))?;
        Ok(Self {
            key: left.key,
            timeline,
            left,
            carried,
            writers,
        })
    }
}

/// The beginning of a file: its header, and calls that are carried over.
pub(super) struct CarriedFile {
    pub shape: Shape,
    /// Header and slots.
    front: Vec<u8>,
}

impl CarriedFile {
    /// The beginning of a file with the calls in `left`, and behind them so many regions of so many
    /// slots.
    pub fn of(left: &Left, boot: [u8; 16], (regions, slots): (u32, u32)) -> Self {
        let shape = Shape {
            carried: words(slots_for(&left.calls).next_multiple_of(SLOTS_STEP)),
            regions,
            slots,
        };
        let header = Header {
            shape,
            boot,
            key: left.key,
        };
        let sealer = Sealer::new(&left.key);
        let mut front = vec![0; PAGE + shape.carried as usize * SLOT];
        front[..PAGE].copy_from_slice(&header.encode());
        let slots = front[PAGE..].chunks_exact_mut(SLOT);
        for (place, (slot, call)) in (0..).zip(slots.zip(&left.calls)) {
            sealer.begin(slot, place, CARRIED, &call.begin);
            if let Some((ended, reply)) = &call.done {
                sealer.done(slot, place, CARRIED, *ended, reply);
            }
        }
        Self { shape, front }
    }

    /// The calls that are not settled, with their slots in the file.
    pub fn calls(
        &self,
        left: &Left,
        file: &Arc<File>,
        backing: &SlotsBacking<'_>,
    ) -> io::Result<Option<CarriedCalls>> {
        if self.shape.carried == 0 {
            return Ok(None);
        }
        let slots = &self.front[PAGE..];
        let sealer = Sealer::new(&left.key);
        let slots = backing.slots(file, (0, slots.len()), slots, sealer)?;
        let calls = left.calls.iter().enumerate();
        let unsettled = calls.filter(|(_, call)| call.done.is_none());
        let places = unsettled.map(|(index, call)| (call.begin.key, index));
        let places: HashMap<_, _> = places.collect();
        Ok(Some(CarriedCalls::new(slots, places, left.calls.len())))
    }
}

impl SlotsBacking<'_> {
    fn timeline(&self) -> Timeline {
        match self {
            Self::Mapped => Timeline::HOST,
            Self::Shared(_) => Timeline::of_all_hosts(),
        }
    }

    /// Makes the file, beside the one before, with all its space.
    pub fn make(&self, directory: &Path, front: &CarriedFile) -> io::Result<Arc<File>> {
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
        let length = front.shape.length();
        match self {
            Self::Mapped => {
                let kind = kind(&file)?;
                if !MEMORY.contains(&kind) && !DISK.contains(&kind) {
                    let text = format!(
                        "a full file system of this type ({kind:#x}) could end the process; use \
                         tmpfs, ext4 or XFS"
                    );
                    return Err(io::Error::new(io::ErrorKind::Unsupported, text));
                }
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length)?;
                file.write_all_at(&front.front, 0)?;
            }
            Self::Shared(_) => {
                file.write_all_at(&front.front, 0)?;
                file.set_len(length)?;
                file.sync_all()?;
            }
        }
        Ok(Arc::new(file))
    }

    /// Slots of a file from the one with the number `first` on, in `length` bytes, which begin with
    /// `content`.
    fn slots(
        &self,
        file: &Arc<File>,
        (first, length): (u64, usize),
        content: &[u8],
        sealer: Sealer,
    ) -> io::Result<Slots> {
        let (map, shared) = match self {
            Self::Mapped => {
                let offset = PAGE as u64 + first * SLOT as u64;
                (map::shared(file, offset, length)?, None)
            }
            Self::Shared(thread) => {
                let mut copy = MmapMut::map_anon(length)?;
                copy[..content.len()].copy_from_slice(content);
                (copy, Some(thread.file(file)))
            }
        };
        Ok(Slots::new(map, sealer, first, shared))
    }
}

/// The sequence number of calls carried over.
const CARRIED: u64 = 1;

/// Slots for calls that are carried over: one more, to write a record anew into.
fn slots_for(calls: &[Recorded]) -> usize {
    calls.len() + usize::from(!calls.is_empty())
}

/// The name of a file until it is complete.
pub(super) const NEW: &str = "replay-journal.new";

/// Why there is nothing to take over.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("there is none")]
    Missing,
    #[error("{0}")]
    Fault(Fault),
    #[error("{0}")]
    Read(io::Error),
}

fn read(path: &Path, boot: &[u8; 16], age: Duration) -> Result<Option<Left>, Unread> {
    let (bytes, _) = read_file(path)?;
    let left = Left::read(&bytes, boot, age).map_err(Unread::Fault)?;
    Ok(Some(left))
}

/// Reads a file with a sound header.
pub(super) fn read_file(path: &Path) -> Result<(Vec<u8>, Header), Unread> {
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
    let (found, expected) = (bytes.len() as u64, header.shape.length());
    if found != expected {
        return Err(Unread::Fault(Fault::Length { found, expected }));
    }
    Ok((bytes, header))
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
