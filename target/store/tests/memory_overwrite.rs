//! Writing bytes that are at hand to files in memory.

mod common;

use common::*;
use millrace_store::memory::{MemoryStore, SIZE_MAX};
use millrace_store::{FileData, Handle, Namespace, Stability, Store, WriteVerifier};

const BLOCK: u64 = 64 * 1024;

fn file(store: &MemoryStore) -> Handle {
    create(store, &ROOT, store.root(), b"file")
}

/// Bytes taken by data.
fn data_bytes(store: &MemoryStore) -> u64 {
    let usage = store.usage();
    usage.used_bytes - usage.names_bytes
}

#[test]
fn bytes_at_hand_are_written_in_place_unless_others_hold_the_extent() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, &pattern(3, 300_000)).unwrap();
    let before_all = data_bytes(&store);
    let mut expected = pattern(3, 300_000);
    let at_once = store.immediate().unwrap();
    // In a page and in a block, across pages, blocks and the end, and into a hole.
    for (seed, offset, length) in [
        (1, 100, 50),
        (2, 4000, 4096),
        (3, 70_000, 4096),
        (4, 131_000, 4096),
        (5, 140_000, 65_536),
        (6, 299_000, 4096),
        (7, 400_000, 4096),
        (8, 9, 0),
    ] {
        let bytes = pattern(seed, length);
        let mut lent = Vec::new();
        // Of one write in two, others have the bytes.
        if seed % 2 == 0 {
            now(store.read(&ROOT, file, offset, 4096, &mut lent)).unwrap();
        }
        let before = gather(&lent);
        let done = at_once.write(&ROOT, file, offset, &bytes).unwrap();
        let written = done.result.unwrap();
        let (length, stability) = (written.length as usize, written.stability);
        assert_eq!((length, stability), (bytes.len(), Stability::FileSync));
        assert_eq!(written.verifier, WriteVerifier(1_u64.to_be_bytes()));
        assert_eq!(done.consistency.after, Some(attributes(&store, file)));
        assert_eq!(gather(&lent), before, "lent bytes stay");
        if length > 0 {
            let (start, end) = (offset as usize, offset as usize + length);
            expected.resize(expected.len().max(end), 0);
            expected[start..end].copy_from_slice(&bytes);
        }
        assert_eq!(attributes(&store, file).size, expected.len() as u64);
        assert!(read(&store, file, 0, 500_000) == expected, "at {offset}");
    }
    assert_eq!(data_bytes(&store), before_all + BLOCK, "of the hole");
}

#[test]
fn bytes_at_hand_are_not_written_where_that_is_not_allowed() {
    let store = store();
    let file = file(&store);
    write(&store, file, 0, b"before").unwrap();
    let at_once = store.immediate().unwrap();
    let set = mode(0o6777);
    now(store.set_attributes(&ROOT, file, &set, None))
        .result
        .unwrap();
    let before = attributes(&store, file);
    // A write by another user takes the set-id bits away, one by the superuser does not.
    assert!(at_once.write(&ROOT, file, 0, b"B").is_some());
    assert_eq!(attributes(&store, file).mode, before.mode);
    assert!(at_once.write(&user(7), file, 1, b"E").is_some());
    assert_eq!(attributes(&store, file).mode, 0o777);
    now(store.set_attributes(&ROOT, file, &mode(0o644), None))
        .result
        .unwrap();
    let before = attributes(&store, file);
    assert!(at_once.write(&user(7), file, 0, b"other").is_none());
    assert!(at_once.write(&ROOT, file, SIZE_MAX, b"other").is_none());
    assert!(at_once.write(&ROOT, file, u64::MAX, b"other").is_none());
    assert!(at_once.write(&ROOT, store.root(), 0, b"other").is_none());
    assert_eq!(attributes(&store, file), before);
    assert_eq!(read(&store, file, 0, 100), b"BEfore");
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert!(at_once.write(&ROOT, file, 0, b"other").is_none());
}
