//! Tests of what one process leaves to the next.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FileType, Mode};

use super::super::journal::{in_memory, place};
use super::super::layout::{Header, PAGE};
use super::super::map;
use super::*;

const CREATE: (u32, u32, u32) = (100_003, 3, 8);

fn limits() -> ReplayLimits {
    ReplayLimits {
        entries: 2048,
        bytes: 1 << 20,
        age: Duration::from_secs(120),
    }
}

fn open(directory: &Path) -> OpenedCache {
    let opened = ReplayCache::open(limits(), directory, 2);
    assert_eq!(opened.writers.len(), 2, "this file system is fit for it");
    opened
}

/// A copy of the journal as it is left if the process is killed now.
fn killed(directory: &Path) -> tempfile::TempDir {
    let next = tempfile::tempdir().unwrap();
    fs::copy(directory.join(JOURNAL_FILE), next.path().join(JOURNAL_FILE)).unwrap();
    next
}

fn key(cache: &ReplayCache, xid: u32) -> CallKey {
    super::key(cache, address(1), xid, PROGRAM, b"arguments")
}

fn begin(
    opened: &mut OpenedCache,
    reactor: usize,
    xid: u32,
    targets: [u64; 2],
) -> (CallKey, JournalPlace) {
    let key = key(&opened.cache, xid);
    let place = opened.writers[reactor].begin(&key, Moment::now(), targets, false);
    (key, place.expect("a free slot"))
}

fn done(opened: &mut OpenedCache, reactor: usize, xid: u32, targets: [u64; 2], reply: &[u8]) {
    let (_, place) = begin(opened, reactor, xid, targets);
    opened.writers[reactor].done(&place, Moment::now(), reply);
}

fn replayed(cache: &ReplayCache, key: CallKey) -> Option<Vec<u8>> {
    match enter(cache, key, Instant::now()) {
        Poll::Ready(Entered::Replay(reply)) => Some(reply.to_vec()),
        Poll::Ready(Entered::Execute(ticket)) => {
            assert_eq!(ticket.again(), None, "a call that nobody knows");
            None
        }
        other => panic!("neither known nor new: {other:?}"),
    }
}

fn again(cache: &ReplayCache, key: CallKey) -> InterruptedCall {
    let ticket = execute(cache, key, Instant::now());
    ticket.again().expect("a call that was begun")
}

#[test]
fn the_next_process_knows_what_was_done_begun_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    done(&mut first, 0, 1, [10, 0], b"one");
    done(&mut first, 1, 2, [20, 0], b"two");
    let began = Moment::now();
    let _ = begin(&mut first, 0, 3, [30, 0]);
    let (_, place) = begin(&mut first, 1, 4, [40, 0]);
    first.writers[1].void(&place);
    let (_, place) = begin(&mut first, 1, 5, [50, 0]);
    first.writers[1].done(&place, Moment::now(), &[0; REPLY_MAX + 1]);
    let unrecorded = [0, 1].map(|reactor| first.writers[reactor].unrecorded());
    assert_eq!(unrecorded, [0, 1]);

    let next = killed(folder.path());
    let second = open(next.path());
    let cache = &second.cache;
    assert_eq!(cache.usage(), (4, 6));
    assert_eq!(replayed(cache, key(cache, 1)).unwrap(), b"one");
    assert_eq!(replayed(cache, key(cache, 2)).unwrap(), b"two");
    let known = again(cache, key(cache, 3));
    assert!(known.alone && known.began >= began && known.began <= known.restarted);
    assert_eq!(replayed(cache, key(cache, 4)), None, "it was not executed");
    // The reply was too long to be kept, so no more is known than that it began.
    assert!(again(cache, key(cache, 5)).alone);
    assert_eq!(replayed(cache, key(cache, 6)), None);
}

#[test]
fn what_is_carried_over_outlives_the_next_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    done(&mut first, 0, 1, [10, 0], b"one");
    let (_, place) = begin(&mut first, 0, 2, [20, 0]);
    let (begun, _) = begin(&mut first, 0, 3, [30, 0]);
    let _ = place;
    let second_folder = killed(folder.path());
    let mut second = open(second_folder.path());
    let known = again(&second.cache, begun);
    // The call that was begun is repeated, recorded with the time of its first beginning, and its
    // process is killed before it is answered; and another one comes to its end.
    let place = second.writers[1].begin(&begun, known.began, [30, 0], !known.alone);
    assert!(place.is_some());
    let ended = key(&second.cache, 2);
    let ticket = execute(&second.cache, ended, Instant::now());
    let began = ticket.again().unwrap().began;
    let place = second.writers[0]
        .begin(&ended, began, [20, 0], false)
        .unwrap();
    second.writers[0].done(&place, Moment::now(), b"two");
    ticket.finish(b"two", Instant::now());
    let third_folder = killed(second_folder.path());
    let third = open(third_folder.path());
    assert_eq!(third.cache.usage().0, 3);
    assert_eq!(
        replayed(&third.cache, key(&third.cache, 1)).unwrap(),
        b"one"
    );
    assert_eq!(replayed(&third.cache, ended).unwrap(), b"two");
    let later = again(&third.cache, begun);
    assert_eq!((later.began, later.alone), (known.began, true));
}

#[test]
fn names_that_others_used_since_are_contested() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    // A call that ended before does not contest the names, nor does one that was not executed.
    done(&mut first, 1, 1, [10, 0], b"before");
    let (before, place) = begin(&mut first, 1, 2, [10, 0]);
    first.writers[1].void(&place);
    let (alone, _) = begin(&mut first, 0, 3, [10, 11]);
    // Ended since, from another reactor, by its second name.
    let (since, _) = begin(&mut first, 0, 4, [20, 0]);
    done(&mut first, 1, 5, [21, 20], b"since");
    // Still running: both contest each other.
    let (one, _) = begin(&mut first, 0, 6, [30, 0]);
    let (other, _) = begin(&mut first, 1, 7, [30, 0]);
    let next = killed(folder.path());
    let second = open(next.path());
    assert_eq!(replayed(&second.cache, before), None);
    for (key, expected) in [(alone, true), (since, false), (one, false), (other, false)] {
        assert_eq!(again(&second.cache, key).alone, expected, "{key:?}");
    }
    // In the new process: by another call, not by the call itself.
    second.cache.contest(&alone, [10, 11]);
    assert!(again(&second.cache, alone).alone);
    second.cache.contest(&key(&second.cache, 99), [12, 11]);
    assert!(!again(&second.cache, alone).alone);
}

#[test]
fn a_call_that_others_outran_counts_as_contested() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (old, _) = begin(&mut first, 0, 0, [10, 0]);
    // The record of the call itself, which still runs, is kept. Records of calls that ended since
    // are lost.
    for xid in 1..3000 {
        done(&mut first, 1, xid, [20, 0], b"others");
    }
    let next = killed(folder.path());
    assert!(!again(&open(next.path()).cache, old).alone);
}

#[test]
fn bounds_hold_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    for xid in 0..10_000 {
        done(
            &mut first,
            (xid % 2) as usize,
            xid,
            [xid.into(), 0],
            &[7; 300],
        );
    }
    for xid in 10_000..10_100 {
        let _ = begin(&mut first, 0, xid, [0, 0]);
    }
    let next = killed(folder.path());
    let small = ReplayLimits {
        entries: 320,
        bytes: 16 * 3000,
        ..limits()
    };
    let opened = ReplayCache::open(small, next.path(), 1);
    let (entries, bytes) = opened.cache.usage();
    assert!(entries <= 320 && entries > 200, "{entries}");
    assert!(bytes <= 16 * 3000 && bytes > 0, "{bytes}");
    let totals = opened.cache.totals();
    assert_eq!(
        (totals.entries, totals.bytes),
        (entries as u64, bytes as u64)
    );
    // Those of which least is known are kept first.
    let begun = (10_000..10_100).filter(|&xid| {
        let ticket = execute(&opened.cache, key(&opened.cache, xid), Instant::now());
        ticket.again().is_some()
    });
    assert!(begun.count() > 60);
}

#[test]
fn more_running_calls_than_slots_are_served_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = open(folder.path());
    let writer = &mut opened.writers[0];
    let key = super::key(&opened.cache, address(1), 1, CREATE, b"");
    let places: Vec<JournalPlace> = (0..1024)
        .map_while(|_| writer.begin(&key, Moment::now(), [0; 2], false))
        .collect();
    assert_eq!(places.len(), 1024);
    assert!(writer.begin(&key, Moment::now(), [0; 2], false).is_none());
    assert_eq!(writer.unrecorded(), 1);
    writer.void(&places[1000]);
    let found = (0..1024 / 64).find_map(|_| writer.begin(&key, Moment::now(), [0; 2], false));
    assert!(found.is_some(), "the one that is free again is found");
    // A call that is given up frees its slot as well.
    writer.unknown(&places[500], Moment::now());
    let found = (0..1024 / 64).find_map(|_| writer.begin(&key, Moment::now(), [0; 2], false));
    assert!(found.is_some(), "the one that was given up is found");
}

#[test]
fn each_reactor_has_its_part_of_the_entries_in_slots_and_a_thousand_at_least() {
    for (entries, reactors, expected) in [(2048, 2, 1024), (9000, 2, 4504), (9000, 10, 1024)] {
        let folder = tempfile::tempdir().unwrap();
        let limits = ReplayLimits {
            entries,
            ..limits()
        };
        let opened = ReplayCache::open(limits, folder.path(), reactors);
        assert_eq!(opened.writers.len(), reactors);
        let bytes = fs::read(folder.path().join(JOURNAL_FILE)).unwrap();
        let shape = Header::decode(&bytes, bytes.len() as u64).unwrap().shape;
        assert_eq!(shape.slots, expected, "{entries} for {reactors}");
    }
}

#[test]
fn calls_that_were_done_and_begun_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    for xid in 0..2 {
        done(&mut first, 0, xid, [0; 2], b"reply");
    }
    for xid in 2..5 {
        let _ = begin(&mut first, 0, xid, [0; 2]);
    }
    let bytes = fs::read(folder.path().join(JOURNAL_FILE)).unwrap();
    let boot = *bytes[32..].first_chunk::<16>().unwrap();
    let left = Left::read(&bytes, &boot, limits().age).unwrap();
    assert_eq!((left.done(), left.begun()), (2, 3));
}

/// A client may send a call to two reactors, and its numbers come round.
#[test]
fn of_two_records_of_a_call_the_first_begun_and_the_last_done_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let early = Moment::now();
    let late = Moment {
        boot: early.boot + 1000,
        wall: early.wall + 1000,
    };
    // In the order of the slots, and against it.
    for (xid, times) in [(1, [early, late]), (2, [late, early])] {
        let key = key(&first.cache, xid);
        for (writer, began) in first.writers.iter_mut().zip(times) {
            let _ = writer.begin(&key, began, [0; 2], false);
        }
    }
    for (xid, replies) in [
        (3, [(early, "old"), (late, "new")]),
        (4, [(late, "new"), (early, "old")]),
    ] {
        let key = key(&first.cache, xid);
        for (writer, (ended, reply)) in first.writers.iter_mut().zip(replies) {
            let place = writer.begin(&key, early, [0; 2], false).unwrap();
            writer.done(&place, ended, reply.as_bytes());
        }
    }
    let second = open(killed(folder.path()).path());
    let cache = &second.cache;
    for xid in [1, 2] {
        assert_eq!(again(cache, key(cache, xid)).began, early);
    }
    for xid in [3, 4] {
        assert_eq!(replayed(cache, key(cache, xid)).unwrap(), b"new");
    }
}

#[test]
fn a_call_stays_contested_when_it_is_repeated_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (begun, _) = begin(&mut first, 0, 1, [10, 0]);
    let second_folder = killed(folder.path());
    let mut second = open(second_folder.path());
    second.cache.contest(&key(&second.cache, 99), [10, 0]);
    let known = again(&second.cache, begun);
    assert!(!known.alone);
    let place = second.writers[0].begin(&begun, known.began, [10, 0], true);
    assert!(place.is_some());
    let third = open(killed(second_folder.path()).path());
    assert!(!again(&third.cache, begun).alone);
}

#[test]
fn what_others_do_during_a_repetition_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (begun, _) = begin(&mut first, 0, 1, [10, 0]);
    let second = open(killed(folder.path()).path());
    let ticket = execute(&second.cache, begun, Instant::now());
    assert!(ticket.again().unwrap().alone);
    second.cache.contest(&key(&second.cache, 99), [10, 0]);
    ticket.void();
    assert!(!again(&second.cache, begun).alone);
}

/// As the process may be killed between the two.
#[test]
fn a_repetition_recorded_under_another_key_does_not_contest_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (began, keys) = (Moment::now(), [1, 2, 3].map(|xid| key(&first.cache, xid)));
    let later = Moment {
        boot: began.boot + 1,
        ..began
    };
    for (key, began, names) in [
        (&keys[0], began, [10, 11]),
        (&keys[1], began, [10, 0]),
        (&keys[2], later, [11, 0]),
    ] {
        assert!(first.writers[0].begin(key, began, names, false).is_some());
    }
    let second = open(killed(folder.path()).path());
    let alone = keys.map(|key| again(&second.cache, key).alone);
    assert_eq!(alone, [false, true, false]);
}

#[test]
fn calls_that_have_another_key_from_now_on_keep_it_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    // As many as have no slot to spare in whole pages.
    const CALLS: u32 = 16;
    let mut keys = Vec::new();
    for xid in 0..CALLS {
        keys.push(begin(&mut first, 0, xid, [u64::from(xid) + 1, 0]).0);
    }
    let mut journal = killed(folder.path());
    for round in 1..4 {
        let next = open(journal.path());
        let key = |xid| key(&next.cache, xid);
        for (number, known) in (100 * round..).zip(&mut keys[..2]) {
            // More often than there are slots to spare.
            next.cache.reassign(known, key(50));
            next.cache.reassign(&key(50), key(51));
            next.cache.reassign(&key(51), key(number));
            *known = key(number);
            assert!(next.cache.has_interrupted());
        }
        journal = killed(journal.path());
    }
    let last = open(journal.path());
    assert_eq!(last.cache.usage().0, keys.len());
    for known in &keys {
        assert!(again(&last.cache, *known).alone);
    }
    // Two that are one call from now on, and one that is contested.
    last.cache.reassign(&keys[0], keys[1]);
    assert_eq!(last.cache.usage().0, keys.len() - 1);
    last.cache.contest(&key(&last.cache, 99), [3, 0]);
    last.cache.reassign(&keys[2], key(&last.cache, 60));
    let end = open(killed(journal.path()).path());
    assert_eq!(end.cache.usage().0, keys.len() - 1);
    assert!(again(&end.cache, keys[1]).alone);
    assert!(!again(&end.cache, key(&end.cache, 60)).alone);
}

#[test]
fn a_range_that_the_file_does_not_have_is_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE as u64).unwrap();
    assert_eq!(map::shared(&file, 0, PAGE).unwrap().len(), PAGE);
    assert!(map::shared(&file, 0, 2 * PAGE).is_err());
}

#[test]
fn old_calls_are_left_behind_and_time_without_a_process_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let seconds = |count: u64| Moment {
        boot: 1_000_000_000_000 + count * 1_000_000_000,
        wall: 0,
    };
    for (xid, ended) in [(1, 0), (2, 100), (3, 200)] {
        let key = key(&first.cache, xid);
        let place = first.writers[0].begin(&key, seconds(ended), [0; 2], false);
        first.writers[0].done(&place.unwrap(), seconds(ended), b"reply");
    }
    // One that was still being executed is never too old.
    let open_key = key(&first.cache, 4);
    let _ = first.writers[0].begin(&open_key, seconds(0), [0; 2], false);
    for _ in 0..3 {
        let next = killed(folder.path());
        let second = open(next.path());
        let known = |xid| replayed(&second.cache, key(&second.cache, xid)).is_some();
        assert_eq!([1, 2, 3].map(known), [false, true, true]);
        assert_eq!(again(&second.cache, open_key).began, seconds(0));
    }
}

#[test]
fn files_that_are_not_whole_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    done(&mut first, 0, 1, [0; 2], b"reply");
    let path = folder.path().join(JOURNAL_FILE);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "replies hold handles");
    let whole = fs::read(&path).unwrap();
    let boot = *whole[32..].first_chunk::<16>().unwrap();
    let age = Duration::from_secs(1);
    assert_eq!(Left::read(&whole, &boot, age).unwrap().done(), 1);
    assert_eq!(Left::read(&whole, &[0; 16], age), Err(Fault::OtherBoot));
    type Damage = fn(&Path);
    let damages: [Damage; 7] = [
        |path| fs::write(path, b"").unwrap(),
        |path| fs::write(path, b"something else that has been put here").unwrap(),
        |path| {
            OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(5000)
                .unwrap();
        },
        |path| {
            OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .write_all_at(&[9], 8)
                .unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        },
        |path| {
            let other = path.with_file_name("other");
            fs::rename(path, &other).unwrap();
            std::os::unix::fs::symlink(other, path).unwrap();
        },
        // Nothing waits for somebody who writes into it.
        |path| {
            fs::remove_file(path).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        },
    ];
    for damage in damages {
        let next = killed(folder.path());
        damage(&next.path().join(JOURNAL_FILE));
        let mut second = open(next.path());
        assert_eq!(second.cache.usage(), (0, 0));
        // It is a journal again.
        done(&mut second, 0, 2, [0; 2], b"reply");
        let third = open(killed(next.path()).path());
        assert_eq!(third.cache.usage().0, 1);
    }
}

#[test]
fn a_runtime_directory_in_memory_is_preferred_and_the_file_beside_it_removed() {
    let state = tempfile::tempdir().unwrap();
    let Ok(runtime) = tempfile::tempdir_in("/dev/shm") else {
        return millrace_testing::skip!("there is no /dev/shm");
    };
    let (state, memory) = (state.path(), runtime.path());
    open(memory);
    fs::remove_file(memory.join(JOURNAL_FILE)).unwrap();
    assert!(in_memory(memory) && !in_memory(Path::new("/proc")));
    fs::write(state.join(JOURNAL_FILE), b"").unwrap();
    let at = |runtime: &str| place(state, Some(runtime.as_ref()));
    assert_eq!(place(state, None), state);
    for unfit in ["/proc", "dev/shm", "/dev/shm/none", ""] {
        assert_eq!(at(unfit), state, "{unfit:?}");
    }
    assert!(state.join(JOURNAL_FILE).exists());
    assert_eq!(at(&format!("{}:/proc", memory.display())), memory);
    assert!(!state.join(JOURNAL_FILE).exists());
    // The state directory may be the same one.
    let file = memory.join(JOURNAL_FILE);
    fs::write(&file, b"").unwrap();
    assert_eq!(place(memory, Some(memory.as_os_str())), memory);
    assert!(file.exists());
}

#[test]
fn a_file_tells_the_boot_of_the_host_and_has_a_key_of_its_own() {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let header = || {
        let folder = tempfile::tempdir().unwrap();
        let _opened = open(folder.path());
        let bytes = fs::read(folder.path().join(JOURNAL_FILE)).unwrap();
        Header::decode(&bytes, bytes.len() as u64).unwrap()
    };
    let (one, other) = (header(), header());
    let digits: String = one.boot.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, id.trim().replace('-', ""));
    assert_ne!(one.key, other.key);
}

#[test]
fn without_a_fit_file_system_the_cache_stays_in_memory() {
    let opened = ReplayCache::open(limits(), Path::new("/proc/self"), 2);
    assert!(opened.writers.is_empty());
    let opened = ReplayCache::open(limits(), Path::new("/nowhere/at/all"), 2);
    assert!(opened.writers.is_empty());
    drop(execute(
        &opened.cache,
        key(&opened.cache, 1),
        Instant::now(),
    ));
}

#[test]
fn a_repetition_that_is_not_executed_stays_unsure() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (begun, _) = begin(&mut first, 0, 1, [10, 0]);
    let second = open(killed(folder.path()).path());
    for _ in 0..3 {
        assert!(again(&second.cache, begun).alone);
    }
    execute(&second.cache, begun, Instant::now()).finish(b"reply", Instant::now());
    assert_eq!(replayed(&second.cache, begun).unwrap(), b"reply");
    assert_eq!(second.cache.usage(), (1, 5));
    // Forgotten for its age like any other.
    let third = open(killed(folder.path()).path());
    let later = Instant::now() + Duration::from_secs(1000);
    assert_eq!(execute(&third.cache, begun, later).again(), None);
}

/// A cache after a restart: a call that was begun, and 399 that were finished, some in each part of
/// the cache.
fn one_begun_and_many_done() -> (OpenedCache, CallKey) {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (begun, _) = begin(&mut first, 0, 0, [10, 0]);
    for xid in 1..400 {
        done(&mut first, 0, xid, [0; 2], b"reply");
    }
    (open(killed(folder.path()).path()), begun)
}

#[test]
fn a_repetition_leaves_others_to_be_forgotten() {
    let (second, begun) = one_begun_and_many_done();
    let ticket = execute(&second.cache, begun, Instant::now());
    let later = Instant::now() + Duration::from_secs(1000);
    for xid in 1000..1400 {
        drop(execute(&second.cache, key(&second.cache, xid), later));
    }
    assert_eq!(second.cache.usage(), (1, 0), "the one that is executed");
    ticket.finish(b"late", later);
    assert_eq!(second.cache.usage(), (1, 4));
}

#[test]
fn a_call_with_another_key_leaves_others_to_be_forgotten() {
    let (second, begun) = one_begun_and_many_done();
    second.cache.reassign(&begun, key(&second.cache, 5000));
    assert_eq!(second.cache.usage().0, 400);
    let later = Instant::now() + Duration::from_secs(1000);
    for xid in 1000..1400 {
        drop(execute(&second.cache, key(&second.cache, xid), later));
    }
    assert_eq!(second.cache.usage(), (0, 0));
}

#[test]
fn a_call_that_was_finished_is_unsure_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (begun, _) = begin(&mut first, 0, 1, [10, 0]);
    let second_folder = killed(folder.path());
    let second = open(second_folder.path());
    // No slot was free to record it.
    execute(&second.cache, begun, Instant::now()).finish(b"reply", Instant::now());
    let third = open(killed(second_folder.path()).path());
    assert_eq!(replayed(&third.cache, begun), None);
}
