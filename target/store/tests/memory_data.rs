//! Reading, writing and resizing files in memory.

mod common;

use common::*;
use millrace_mempool::Slice;
use millrace_store::memory::{MemoryStore, SIZE_MAX};
use millrace_store::{
    FileData, Handle, Namespace, Stability, StagedWrite, Store, StoreError, WriteVerifier,
};

const PAGE: u64 = 4096;
const BLOCK: u64 = 64 * 1024;

type Staged = StagedWrite<<MemoryStore as FileData>::Reservation>;

fn file(store: &MemoryStore) -> Handle {
    create(store, &ROOT, store.root(), b"file")
}

fn resize(store: &MemoryStore, file: Handle, bytes: u64) {
    now(store.set_attributes(&ROOT, file, &size(bytes), None))
        .result
        .unwrap();
}

/// Bytes taken by data.
fn used(store: &MemoryStore) -> u64 {
    let usage = store.usage();
    usage.used_bytes - usage.names_bytes
}

fn stage(store: &MemoryStore, file: Handle, offset: u64, length: u32) -> (Staged, Vec<Slice>) {
    let mut slices = Vec::new();
    let staged = now(store.stage_write(&ROOT, file, offset, length, &mut slices)).unwrap();
    (staged, slices)
}

fn commit(store: &MemoryStore, staged: Staged) {
    now(store.commit_write(staged, Stability::FileSync))
        .result
        .unwrap();
}

#[test]
fn what_is_written_is_read() {
    let store = store();
    let file = file(&store);
    let bytes = pattern(3, 300_000);
    let written = write(&store, file, 1000, &bytes).unwrap();
    assert_eq!(written.length, 300_000);
    assert_eq!(written.stability, Stability::FileSync);
    assert_eq!(written.verifier, WriteVerifier(1_u64.to_be_bytes()));
    let (found, outcome) = read_as(&store, &ROOT, file, 1000, 400_000).unwrap();
    assert_eq!(found, bytes);
    assert!(outcome.end_of_file);
    assert_eq!(outcome.attributes.size, 301_000);
    assert_eq!(read(&store, file, 0, 1000), vec![0; 1000]);
    let (part, outcome) = read_as(&store, &ROOT, file, 70_000, 10).unwrap();
    assert_eq!(part, bytes[69_000..69_010]);
    assert!(!outcome.end_of_file);
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, b"hello").unwrap();
    let (bytes, outcome) = read_as(&store, &ROOT, file, 3, 2).unwrap();
    assert_eq!((&bytes[..], outcome.end_of_file), (&b"lo"[..], true));
    let (bytes, outcome) = read_as(&store, &ROOT, file, 3, 1).unwrap();
    assert_eq!((&bytes[..], outcome.end_of_file), (&b"l"[..], false));
    for offset in [5, 6, u64::MAX] {
        let (bytes, outcome) = read_as(&store, &ROOT, file, offset, u32::MAX).unwrap();
        assert_eq!((bytes.len(), outcome.end_of_file), (0, true));
    }
}

#[test]
fn slices_of_others_are_left_alone() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, b"one").unwrap();
    let mut slices = Vec::new();
    for _ in 0..2 {
        now(store.read(&ROOT, file, 0, 3, &mut slices)).unwrap();
    }
    let big = store_total(&store) as u32 + 1;
    let refused = now(store.stage_write(&ROOT, file, 0, big, &mut slices));
    assert_eq!(refused.map(|_| ()), Err(StoreError::NoSpace));
    assert_eq!(gather(&slices), b"oneone");
}

fn store_total(store: &MemoryStore) -> u64 {
    now(store.statistics(store.root())).unwrap().total_bytes
}

#[test]
fn holes_are_zeros_and_take_no_space() {
    let store = store();
    let file = file(&store);
    let far = SIZE_MAX - 10;
    write(&store, file, far, b"0123456789").unwrap();
    assert_eq!(attributes(&store, file).size, SIZE_MAX);
    assert_eq!(attributes(&store, file).used, BLOCK);
    assert_eq!(used(&store), BLOCK);
    assert_eq!(read(&store, file, far - 5, 15), b"\0\0\0\0\x000123456789");
    assert_eq!(read(&store, file, 1 << 40, 1 << 20), vec![0; 1 << 20]);
    assert_eq!(
        write(&store, file, SIZE_MAX, b"x"),
        Err(StoreError::TooLarge)
    );
    assert_eq!(
        write(&store, file, u64::MAX, b"x"),
        Err(StoreError::TooLarge)
    );
    resize(&store, file, 10);
    assert_eq!(used(&store), 0);
    assert_eq!(read(&store, file, 0, 100), vec![0; 10]);
}

#[test]
fn staged_bytes_are_seen_when_they_are_committed() {
    let store = store();
    let file = file(&store);
    resize(&store, file, 100);
    let (staged, slices) = stage(&store, file, 10, 5000);
    fill(&slices, &[7; 5000]);
    assert_eq!(read(&store, file, 0, 6000), vec![0; 100]);
    assert_eq!(attributes(&store, file).used, 0);
    assert_eq!(used(&store), 2 * PAGE, "reservations count");
    commit(&store, staged);
    let expected: Vec<_> = [0; 10].into_iter().chain([7; 5000]).collect();
    assert_eq!(read(&store, file, 0, 6000), expected);
    assert_eq!(attributes(&store, file).used, 2 * PAGE);
}

/// Writes of whole extents and of parts, over data, over the end, and into a hole.
const WRITES: [(u64, u32); 7] = [
    (0, 3 * BLOCK as u32),
    (PAGE, PAGE as u32),
    (100, 50),
    (BLOCK + 1000, 4096),
    (BLOCK + 1000, 60_000),
    (3 * BLOCK - 10, 100_000),
    (20 * BLOCK, 5000),
];

#[test]
fn a_write_that_is_given_up_changes_nothing() {
    let store = store();
    let owner = user(7);
    for (offset, length) in WRITES {
        let file = create(&store, &owner, store.root(), b"program");
        let old = pattern(1, 3 * BLOCK as usize);
        write_as(&store, &owner, file, 0, &old).unwrap();
        now(store.set_attributes(&owner, file, &mode(0o6755), None))
            .result
            .unwrap();
        read(&store, file, 0, 1);
        let (before, taken) = (attributes(&store, file), used(&store));

        let mut slices = Vec::new();
        let staged = now(store.stage_write(&user(7), file, offset, length, &mut slices)).unwrap();
        for slice in &slices[..slices.len().div_ceil(2)] {
            slice.copy_from(0, &vec![9; slice.len()]);
        }
        assert!(
            read(&store, file, 0, 4 * BLOCK as u32) == old,
            "at {offset}"
        );
        drop((staged, slices));
        assert!(
            read(&store, file, 0, 4 * BLOCK as u32) == old,
            "at {offset}"
        );
        assert_eq!(attributes(&store, file), before);
        assert_eq!(used(&store), taken);
        now(store.remove(&ROOT, store.root(), b"program"))
            .result
            .unwrap();
    }
}

#[test]
fn a_read_on_its_way_keeps_the_bytes_that_it_began_with() {
    let store = store();
    for (offset, length) in WRITES {
        let file = file(&store);
        let old = pattern(1, 3 * BLOCK as usize);
        write(&store, file, 0, &old).unwrap();
        let taken = used(&store);
        let mut lent = Vec::new();
        now(store.read(&ROOT, file, 0, 3 * BLOCK as u32, &mut lent)).unwrap();
        let new = pattern(200, length as usize);
        write(&store, file, offset, &new).unwrap();
        assert!(gather(&lent) == old, "a write at {offset}");
        assert!(read(&store, file, offset, length) == new, "at {offset}");
        let kept = old.len().min(offset as usize);
        assert!(read(&store, file, 0, kept as u32) == old[..kept]);
        resize(&store, file, offset.min(BLOCK) + 17);
        assert!(
            gather(&lent) == old,
            "a truncation after a write at {offset}"
        );
        drop(lent);
        assert!(used(&store) <= taken, "old memory is free again");
        now(store.remove(&ROOT, store.root(), b"file"))
            .result
            .unwrap();
    }
    assert_eq!(used(&store), 0);
}

#[test]
fn rights_are_checked_again_when_a_write_is_committed() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[1; 5000]).unwrap();
    now(store.set_attributes(&ROOT, file, &mode(0o666), None))
        .result
        .unwrap();
    for offset in [0, 100] {
        let mut slices = Vec::new();
        let staged = now(store.stage_write(&user(7), file, offset, 4096, &mut slices)).unwrap();
        fill(&slices, &[2; 4096]);
        now(store.set_attributes(&ROOT, file, &mode(0o644), None))
            .result
            .unwrap();
        let before = attributes(&store, file);
        let refused = now(store.commit_write(staged, Stability::FileSync));
        assert_eq!(refused.result, Err(StoreError::Denied));
        assert_eq!(refused.consistency.after, Some(before));
        assert_eq!(attributes(&store, file), before);
        assert_eq!(read(&store, file, 0, 9000), [1; 5000]);
        now(store.set_attributes(&ROOT, file, &mode(0o666), None))
            .result
            .unwrap();
    }
}

#[test]
fn writes_of_one_extent_are_merged_in_the_order_of_their_commits() {
    let store = store();
    let file = file(&store);
    for base in [0, 5 * BLOCK] {
        write(&store, file, base, &[1; 4096]).unwrap();
        let (first, first_slices) = stage(&store, file, base + 100, 1000);
        let (second, second_slices) = stage(&store, file, base + 600, 3000);
        let (third, third_slices) = stage(&store, file, base, 4096);
        fill(&first_slices, &[2; 1000]);
        fill(&second_slices, &[3; 3000]);
        fill(&third_slices, &[4; 4096]);
        drop(third);
        commit(&store, second);
        commit(&store, first);
        drop((first_slices, second_slices, third_slices));
        let expected = [&[1; 100][..], &[2; 1000], &[3; 2500], &[1; 496]].concat();
        assert!(read(&store, file, base, 4096) == expected, "at {base}");
    }
}

#[test]
fn a_full_store_is_overwritten_but_does_not_grow() {
    let size = 4 * BLOCK;
    let store = store_of(config(size + PAGE));
    let file = file(&store);
    write(&store, file, 0, &pattern(1, size as usize)).unwrap();
    for (offset, length) in [
        (0, size),
        (17, 5000),
        (BLOCK, BLOCK),
        (2 * BLOCK + 9, 60_000),
    ] {
        let new = pattern(offset as u8, length as usize);
        write(&store, file, offset, &new).unwrap();
        assert!(read(&store, file, offset, length as u32) == new);
    }
    assert_eq!(write(&store, file, size, b"x"), Err(StoreError::NoSpace));

    // Writes that are staged over data find it cut off. Others take the space meanwhile.
    let other = create(&store, &ROOT, store.root(), b"other");
    let (over, over_slices) = stage(&store, file, 0, size as u32);
    resize(&store, file, BLOCK);
    assert_eq!(write(&store, other, BLOCK, b"x"), Err(StoreError::NoSpace));
    drop((over, over_slices));
    write(&store, other, BLOCK, &vec![1; 3 * BLOCK as usize]).unwrap();
    let (over, over_slices) = stage(&store, file, 0, BLOCK as u32);
    let (second, second_slices) = stage(&store, other, BLOCK, BLOCK as u32);
    resize(&store, file, 0);
    fill(&over_slices, &vec![2; BLOCK as usize]);
    let refused = now(store.commit_write(over, Stability::FileSync)).result;
    assert_eq!(
        refused,
        Err(StoreError::NoSpace),
        "with the second it would be too much"
    );
    assert_eq!(attributes(&store, file).size, 0);
    commit(&store, second);
    drop((over_slices, second_slices));
    assert_eq!(used(&store), 3 * BLOCK);
}

#[test]
fn overwrites_of_a_full_store_that_are_too_many_at_once_wait() {
    let store = store_of(config(BLOCK + PAGE));
    let file = file(&store);
    write(&store, file, 0, &vec![1; BLOCK as usize]).unwrap();
    let mut staged = Vec::new();
    let refused = loop {
        let mut slices = Vec::new();
        match now(store.stage_write(&ROOT, file, 0, BLOCK as u32, &mut slices)) {
            Ok(write) => staged.push((write, slices)),
            Err(error) => break error,
        }
        assert!(staged.len() < 1000);
    };
    assert_eq!(refused, StoreError::Delay);
    assert!(staged.len() > 16, "a WRITE of 1 MiB finds room");
    staged.pop();
    write(&store, file, 5, b"room again").unwrap();
    staged.clear();
    assert_eq!(used(&store), BLOCK);
}

/// Stages a write of one page of data in the second block of a file.
fn stage_page(store: &MemoryStore, file: Handle, byte: u8) -> (Staged, Vec<Slice>) {
    let (staged, slices) = stage(store, file, BLOCK + 5, 1000);
    fill(&slices, &[byte; 1000]);
    (staged, slices)
}

#[test]
fn small_overwrites_of_large_extents_take_a_page_each() {
    let store = store_of(config(2 * BLOCK + PAGE));
    let file = file(&store);
    write(&store, file, 0, &vec![1; 2 * BLOCK as usize]).unwrap();
    let count = 200;
    let mut flight: Vec<_> = (0..count)
        .map(|index| stage_page(&store, file, index))
        .collect();
    assert_eq!(used(&store), 2 * BLOCK + u64::from(count) * PAGE);
    for (staged, _) in flight.drain(..) {
        commit(&store, staged);
    }
    let expected = [&[1; 5][..], &[count - 1; 1000], &[1; 3091]].concat();
    assert!(read(&store, file, BLOCK, 4096) == expected);
    assert_eq!(used(&store), 2 * BLOCK);
}

#[test]
fn a_small_overwrite_of_lent_bytes_needs_room_for_their_extent() {
    let store = store_of(config(2 * BLOCK + PAGE));
    let file = file(&store);
    write(&store, file, 0, &vec![1; 2 * BLOCK as usize]).unwrap();
    let (first, _slices) = stage_page(&store, file, 2);
    let (second, _other_slices) = stage_page(&store, file, 3);
    let mut lent = Vec::new();
    now(store.read(&ROOT, file, BLOCK, BLOCK as u32, &mut lent)).unwrap();
    let mut room = Vec::new();
    let mut slices = Vec::new();
    while let Ok(staged) = now(store.stage_write(&ROOT, file, BLOCK, BLOCK as u32, &mut slices)) {
        room.push(staged);
    }
    slices.clear();
    let before = attributes(&store, file);
    let refused = now(store.commit_write(first, Stability::FileSync));
    assert_eq!(refused.result, Err(StoreError::Delay));
    assert_eq!(attributes(&store, file), before);
    assert!(read(&store, file, BLOCK, 4096) == [1; 4096]);
    room.pop();
    commit(&store, second);
    assert!(gather(&lent) == vec![1; BLOCK as usize]);
    let expected = [&[1; 5][..], &[3; 1000], &[1; 3091]].concat();
    assert!(read(&store, file, BLOCK, 4096) == expected);
    room.clear();
    drop((lent, _slices, _other_slices));
    assert_eq!(used(&store), 2 * BLOCK);
}

#[test]
fn a_small_overwrite_outlives_a_truncation_if_there_is_room() {
    let store = store_of(config(3 * BLOCK + PAGE));
    let (file, other) = (file(&store), create(&store, &ROOT, store.root(), b"other"));
    for takes_all in [false, true] {
        write(&store, file, 0, &vec![1; 2 * BLOCK as usize]).unwrap();
        let (staged, slices) = stage_page(&store, file, 2);
        resize(&store, file, BLOCK);
        if takes_all {
            write(&store, other, BLOCK, &vec![1; BLOCK as usize]).unwrap();
            write(&store, other, 0, &[1]).unwrap();
        }
        let done = now(store.commit_write(staged, Stability::FileSync)).result;
        drop(slices);
        if takes_all {
            assert_eq!(done.unwrap_err(), StoreError::NoSpace);
            assert_eq!(attributes(&store, file).size, BLOCK);
            continue;
        }
        done.unwrap();
        let expected = [&[0; 5][..], &[2; 1000]].concat();
        assert!(read(&store, file, BLOCK, 4096) == expected);
        assert_eq!(attributes(&store, file).used, 2 * BLOCK);
        assert_eq!(used(&store), 2 * BLOCK);
    }
}

#[test]
fn a_dropped_staged_write_leaves_nothing() {
    let store = store();
    let file = file(&store);
    let (staged, slices) = stage(&store, file, 0, 1 << 20);
    fill(&slices, &[7; 1 << 20]);
    assert_eq!(used(&store), 1 << 20);
    drop(staged);
    assert_eq!(used(&store), 1 << 20, "a fabric may still write there");
    drop(slices);
    assert_eq!(used(&store), 0);
    assert_eq!(attributes(&store, file).size, 0);
}

#[test]
fn writes_to_one_hole_are_merged() {
    let store = store();
    let file = file(&store);
    for base in [0, 10 * BLOCK] {
        let (first, first_slices) = stage(&store, file, base, 1000);
        let (second, second_slices) = stage(&store, file, base + 500, 1000);
        fill(&first_slices, &[1; 1000]);
        fill(&second_slices, &[2; 1000]);
        commit(&store, second);
        assert_eq!(read(&store, file, base, 500), vec![0; 500]);
        commit(&store, first);
        drop((first_slices, second_slices));
        let expected: Vec<_> = [1; 1000].into_iter().chain([2; 500]).collect();
        assert_eq!(read(&store, file, base, 5000), expected);
    }
    assert_eq!(used(&store), PAGE + BLOCK);
    assert_eq!(attributes(&store, file).used, PAGE + BLOCK);
}

#[test]
fn appending_inside_an_extent_shows_nothing_early() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, &[1; 1000]).unwrap();
    let (staged, slices) = stage(&store, file, 1000, 1000);
    fill(&slices, &[2; 1000]);
    resize(&store, file, 3000);
    assert_eq!(read(&store, file, 1000, 2000), vec![0; 2000]);
    commit(&store, staged);
    assert_eq!(
        read(&store, file, 1000, 2000),
        [[2; 1000], [0; 1000]].concat()
    );
    drop(slices);
    assert_eq!(used(&store), PAGE);
}

#[test]
fn an_overwrite_outlives_a_truncation_before_its_commit() {
    let store = store();
    let file = file(&store);
    for length in [3 * PAGE, 3 * BLOCK] {
        write(&store, file, 0, &vec![1; length as usize]).unwrap();
        for kept in [0, 100, PAGE, BLOCK + 100]
            .into_iter()
            .filter(|kept| *kept < length)
        {
            write(&store, file, 0, &vec![1; length as usize]).unwrap();
            let (staged, slices) = stage(&store, file, 0, length as u32);
            fill(&slices[..1], &vec![2; slices[0].len()]);
            resize(&store, file, kept);
            fill(&slices[1..], &vec![2; length as usize - slices[0].len()]);
            commit(&store, staged);
            let found = read(&store, file, 0, 1 << 20);
            assert!(found == vec![2; length as usize], "{length} cut to {kept}");
        }
        assert_eq!(attributes(&store, file).used, used(&store));
        resize(&store, file, 0);
        assert_eq!(used(&store), 0);
    }
}

#[test]
fn bytes_that_land_after_a_truncation_do_not_come_back() {
    let store = store();
    let file = file(&store);
    for length in [PAGE, 3 * BLOCK] {
        write(&store, file, 0, &vec![1; length as usize]).unwrap();
        let (staged, slices) = stage(&store, file, 0, length as u32);
        resize(&store, file, length - 100);
        fill(&slices, &vec![2; length as usize]);
        drop(staged);
        resize(&store, file, length);
        assert_eq!(read(&store, file, length - 100, 100), vec![0; 100]);
        resize(&store, file, 0);
    }
}

#[test]
fn shrinking_and_growing_shows_zeros() {
    let store = store();
    let file = file(&store);
    for length in [5000, 200_000] {
        for kept in [0, 1, 4095, 4096, 4097] {
            write(&store, file, 0, &vec![1; length]).unwrap();
            resize(&store, file, kept);
            resize(&store, file, length as u64);
            let expected: Vec<_> = (0..length)
                .map(|index| u8::from(index < kept as usize))
                .collect();
            assert!(
                read(&store, file, 0, length as u32) == expected,
                "{length} cut to {kept}"
            );
        }
    }
}

#[test]
fn the_limit_is_exact_and_space_comes_back() {
    let store = store_of(config(BLOCK + 6 * PAGE));
    let file = file(&store);
    write(
        &store,
        file,
        0,
        &vec![1; BLOCK as usize + 5 * PAGE as usize],
    )
    .unwrap_err();
    assert_eq!(used(&store), 0);
    write(&store, file, 0, &vec![1; BLOCK as usize]).unwrap();
    let other = create(&store, &ROOT, store.root(), b"other");
    write(&store, other, 0, &vec![1; 5 * PAGE as usize]).unwrap();
    assert_eq!(
        write(&store, other, 5 * PAGE, b"x"),
        Err(StoreError::NoSpace)
    );
    assert_eq!(write(&store, file, BLOCK, b"x"), Err(StoreError::NoSpace));
    write(&store, file, 17, b"overwriting needs no space").unwrap();
    resize(&store, other, 5 * PAGE - 1);
    resize(&store, other, 5 * PAGE);
    assert_eq!(
        read(&store, other, 5 * PAGE - 2, 2),
        [1, 0],
        "a full store can shrink"
    );
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(used(&store), 5 * PAGE);
    write(&store, other, BLOCK, &[1; 10]).unwrap();
    now(store.remove(&ROOT, store.root(), b"other"))
        .result
        .unwrap();
    assert_eq!(used(&store), 0);
}

#[test]
fn memory_that_an_operation_holds_is_not_reused() {
    let store = store_of(config(BLOCK + PAGE));
    let file = file(&store);
    write(&store, file, 0, &vec![9; BLOCK as usize]).unwrap();
    let mut slices = Vec::new();
    now(store.read(&ROOT, file, 0, BLOCK as u32, &mut slices)).unwrap();
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(used(&store), BLOCK);
    let other = create(&store, &ROOT, store.root(), b"other");
    assert_eq!(write(&store, other, 0, b"x"), Err(StoreError::NoSpace));
    assert_eq!(gather(&slices), vec![9; BLOCK as usize]);
    drop(slices);
    assert_eq!(used(&store), 0);
    write(&store, other, 100, b"x").unwrap();
    assert_eq!(
        read(&store, other, 0, 100),
        vec![0; 100],
        "no old bytes around"
    );
}

#[test]
fn removed_files_are_stale_at_once() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, &[1; 100]).unwrap();
    let (staged, slices) = stage(&store, file, 0, 100);
    let mut found = Vec::new();
    now(store.read(&ROOT, file, 0, 100, &mut found)).unwrap();
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    fill(&slices, &[2; 100]);
    let committed = now(store.commit_write(staged, Stability::FileSync));
    assert_eq!(committed.result, Err(StoreError::Stale));
    assert_eq!(now(store.attributes(file)), Err(StoreError::Stale));
    assert_eq!(
        read_as(&store, &ROOT, file, 0, 1).map(|_| ()),
        Err(StoreError::Stale)
    );
    assert_eq!(now(store.commit(file, 0, 0)).result, Err(StoreError::Stale));
    drop((slices, found));
    assert_eq!(used(&store), 0);
    let again = create(&store, &ROOT, store.root(), b"file");
    assert_eq!(
        again.as_bytes()[..8],
        file.as_bytes()[..8],
        "numbers are used again"
    );
    assert_ne!(again, file, "but not generations");
    assert_eq!(now(store.attributes(file)), Err(StoreError::Stale));
}

#[test]
fn an_empty_write_changes_nothing() {
    let store = store();
    let file = file(&store);
    let before = attributes(&store, file);
    write(&store, file, 1000, b"").unwrap();
    assert_eq!(attributes(&store, file), before);
}

#[test]
fn a_write_reports_the_file_before_and_after() {
    let store = store();
    let file = file(&store);
    let before = attributes(&store, file);
    let modified = write_as(&store, &ROOT, file, 0, b"12345").unwrap();
    let shown = modified.consistency.before.unwrap();
    assert_eq!((shown.size, shown.changed), (0, before.changed));
    let after = modified.consistency.after.unwrap();
    assert_eq!(after, attributes(&store, file));
    assert_eq!(after.size, 5);
    assert!(after.changed > before.changed);
    assert_eq!(after.modified, after.changed);
}

#[test]
fn only_files_have_data() {
    let store = store();
    let directory = make_directory(&store, store.root(), b"directory");
    let link = now(store.symlink(&ROOT, store.root(), b"link", b"text", &mode(0o777)));
    for (object, error) in [
        (directory, StoreError::IsDirectory),
        (link.result.unwrap().0, StoreError::Invalid),
    ] {
        assert_eq!(read_as(&store, &ROOT, object, 0, 1).map(|_| ()), Err(error));
        assert_eq!(write(&store, object, 0, b"x"), Err(error));
        let set = now(store.set_attributes(&ROOT, object, &size(0), None));
        assert_eq!(set.result, Err(error));
        assert_eq!(now(store.commit(object, 0, 0)).result, Err(error));
    }
}

#[test]
fn access_times_follow_the_first_read_after_a_change() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, b"12345").unwrap();
    let written = attributes(&store, file);
    assert!(written.accessed < written.modified);
    read(&store, file, 0, 5);
    let first = attributes(&store, file);
    assert!(first.accessed >= written.modified);
    assert_eq!(first.changed, written.changed);
}
