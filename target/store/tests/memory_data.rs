//! Reading, writing and resizing files in memory.

mod common;

use common::*;
use millrace_store::{Handle, Stability, Store, WriteVerifier};

fn file(store: &millrace_store::memory::MemoryStore) -> Handle {
    create(store, &ROOT, store.root(), b"file")
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
