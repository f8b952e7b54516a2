//! What the journal of calls costs.
//!
//! `cargo run --release -p millrace --example replay_cost [DISK [MEMORY]]`
//!
//! First, one record (a beginning and an end) by the map on a file system in memory, by the map on
//! a disk, and by a thread that writes and is waited for before the call begins; each while the
//! disk is idle, and while others write to it and sync. Then whole calls, CREATE and REMOVE in turn
//! over a store in memory, without a journal and with it. Rounds alternate.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace::access::CallIdentity;
use millrace::exports::Exports;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::replay::{Moment, ReplayCache, ReplayLimits, Writer};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_wire::nfs3::{CreateArguments, CreateHow, NameInDirectory, Procedure};
use support::lasting::Lasting;
use support::{Bench, Chunks, nfs::MODE, rules};

const RECORDS: usize = 100_000;
const CALLS: usize = 20_000;
const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let disk = arguments.next().unwrap_or_else(|| "/var/tmp".into());
    let memory = arguments.next().unwrap_or_else(|| "/dev/shm".into());
    println!("one record, in nanoseconds    median      99 %    99.9 %   longest");
    for busy in [false, true] {
        let stop = Arc::new(AtomicBool::new(false));
        let load = busy.then(|| {
            let (stop, folder) = (Arc::clone(&stop), folder(&disk));
            std::thread::spawn(move || press(folder.path(), &stop))
        });
        let state = if busy { "busy" } else { "idle" };
        for _ in 0..2 {
            report(&format!("map in memory, disk {state}"), map(&memory));
            report(&format!("map on disk, disk {state}"), map(&disk));
            report(&format!("thread, disk {state}"), thread(&disk));
        }
        stop.store(true, Relaxed);
        if let Some(load) = load {
            load.join().expect("the load ends");
        }
    }
    println!("one call, in nanoseconds       without      with     more");
    for round in 0..ROUNDS {
        let (without, with) = (calls(None), calls(Some(&memory)));
        println!(
            "CREATE and REMOVE, round {round} {without:>11} {with:>9} {:>8}",
            with.saturating_sub(without)
        );
    }
}

fn folder(below: &Path) -> tempfile::TempDir {
    tempfile::tempdir_in(below).expect("a folder for the measurement")
}

fn report(what: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, longest) = (at(0.5), at(1.0));
    println!(
        "{what:<26} {median:>9} {:>9} {:>9} {longest:>9}",
        at(0.99),
        at(0.999)
    );
}

/// Others' writes and syncs on the same file system, as a log or a database makes them.
fn press(folder: &Path, stop: &AtomicBool) {
    let mut file = File::create(folder.join("load")).expect("a file");
    while !stop.load(Relaxed) {
        file.write_all(&vec![7; 4 << 20]).expect("room on the disk");
        file.sync_all().expect("a disk that works");
        // What the journal's pages are exposed to on any host every few seconds.
        rustix::fs::sync();
        file.set_len(0).expect("a file system that works");
    }
}

fn writer(below: &Path) -> (tempfile::TempDir, ReplayCache, Writer) {
    let folder = folder(below);
    let mut opened = ReplayCache::open(ReplayLimits::default(), folder.path(), 1);
    let writer = opened.writers.pop().expect("a fit file system");
    (folder, opened.cache, writer)
}

/// About as long as a record takes no time, so that all variants are spread over a while.
const GAP: Duration = Duration::from_micros(10);

fn timed(mut record: impl FnMut(u32)) -> Vec<u64> {
    (0..RECORDS as u32)
        .map(|number| {
            let begun = Instant::now();
            record(number);
            let took = begun.elapsed();
            while begun.elapsed() < GAP {
                std::hint::spin_loop();
            }
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
        })
        .collect()
}

fn map(below: &Path) -> Vec<u64> {
    let (_folder, cache, mut writer) = writer(below);
    timed(|xid| {
        let key = cache.key(
            [192, 0, 2, 1].into(),
            xid,
            (100_003, 3, 8),
            &CallIdentity::default(),
            [b"arguments", b""],
        );
        let place = writer.begin(&key, Moment::now(), [1, 0], false);
        writer.done(&place.expect("a free slot"), Moment::now(), &[5; 304]);
    })
}

/// A thread that writes. The beginning of a call is waited for, its end is not.
fn thread(below: &Path) -> Vec<u64> {
    let folder = folder(below);
    let file = File::create(folder.path().join("journal")).expect("a file");
    let (jobs, work) = mpsc::channel::<(u64, bool)>();
    let (answers, answered) = mpsc::channel();
    let writing = std::thread::spawn(move || {
        for (slot, wait) in work {
            let slot = slot % 16_384 * 512;
            file.write_all_at(&[1; 384], slot)
                .expect("room on the disk");
            if wait && answers.send(()).is_err() {
                break;
            }
        }
    });
    let times = timed(|xid| {
        jobs.send((xid.into(), true)).expect("the thread lives");
        // Polled, as a reactor does.
        while answered.try_recv().is_err() {
            std::hint::spin_loop();
        }
        jobs.send((xid.into(), false)).expect("the thread lives");
    });
    drop(jobs);
    writing.join().expect("the thread ends");
    times
}

/// Nanoseconds of one call.
fn calls(journal: Option<&PathBuf>) -> u64 {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = Lasting::new(support::memory_store(&registry));
    let exports = Exports::new([(rules("/export"), store.clone())]).expect("a good path");
    let key = HandleKey::new(&support::SECRET);
    let opened = journal.map(|folder| writer(folder));
    let cache = opened.as_ref().map_or_else(
        || ReplayCache::new(ReplayLimits::default()),
        |(_, cache, _)| cache.clone(),
    );
    let service =
        millrace::service::ReactorPrograms::new(exports, key, cache, MountTable::default());
    let (_folder, service) = match opened {
        Some((folder, _, writer)) => (
            Some(folder),
            service.with_journal(writer, &Clock::new(Instant::now())),
        ),
        None => (None, service),
    };
    let bench = Bench::over(&registry, store, service);
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"a name of usual length",
    };
    let create = CreateArguments {
        entry,
        how: CreateHow::Guarded(MODE),
    };
    let messages: Vec<Box<[u8]>> = (0..CALLS)
        .map(|number| {
            let message = if number % 2 == 0 {
                bench.message((100_003, 3, Procedure::Create.number()), &create)
            } else {
                bench.message((100_003, 3, Procedure::Remove.number()), &entry)
            };
            // Without the room that it was encoded in.
            message.into_boxed_slice()
        })
        .collect();
    let begun = Instant::now();
    for message in &messages {
        let replied = bench.send(message, &[], &mut Chunks::default());
        assert_eq!(
            support::served::status(support::results(&replied.message)),
            0
        );
    }
    let nanoseconds = begun.elapsed().as_nanos() / CALLS as u128;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}
