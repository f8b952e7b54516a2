//! Space, holes and extended attributes of a memory store.

mod common;
mod suites;

use common::*;
use millrace_store::memory::MemoryStore;
use millrace_store::{ExtendedAttributes, FileRanges, Namespace, SetXattrHow, Store, StoreError};

fn with(test: impl FnOnce(&MemoryStore)) {
    // Much work goes on in steps.
    drive(|| {});
    test(&store());
}

suites::range_tests!(with);
suites::xattr_tests!(with);

#[test]
fn what_is_allocated_can_be_written_in_a_full_store() {
    drive(|| {});
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    let other = create(&store, &ROOT, store.root(), b"other");
    now(store.allocate(&ROOT, file, 0, 4 << 20)).result.unwrap();
    let (mut offset, block) = (0, vec![1; 64 << 10]);
    while write(&store, other, offset, &block).is_ok() {
        offset += block.len() as u64;
    }
    assert_eq!(
        write(&store, other, offset, &block),
        Err(StoreError::NoSpace)
    );
    for at in (0..4 << 20).step_by(64 << 10) {
        write(&store, file, at, &block).expect("it has its space");
    }
    // Without space for all of it, nothing is taken.
    let before = used(&store);
    let done = now(store.allocate(&ROOT, file, 0, 6 << 20)).result;
    assert_eq!(done, Err(StoreError::NoSpace));
    assert_eq!(used(&store), before);
    assert_eq!(attributes(&store, file).size, 4 << 20);
}

#[test]
fn all_space_comes_back_by_holes() {
    drive(|| {});
    let store = store();
    let empty = used(&store);
    let file = create(&store, &ROOT, store.root(), b"file");
    let named = used(&store);
    for far in [0, 1 << 20, 1 << 30, 1 << 45, 1 << 60] {
        write(&store, file, far, &[1; 5000]).unwrap();
    }
    now(store.allocate(&ROOT, file, 3 << 20, 1 << 20))
        .result
        .unwrap();
    assert!(used(&store) > named);
    now(store.deallocate(&ROOT, file, 0, (1 << 60) + 4000))
        .result
        .unwrap();
    assert_eq!(read(&store, file, (1 << 60) + 4000, 1000), [1; 1000]);
    let found = now(store.seek(&ROOT, file, 0, millrace_store::RangeContent::Data));
    assert_eq!(found.unwrap().offset, 1 << 60);
    now(store.deallocate(&ROOT, file, 0, u64::MAX))
        .result
        .unwrap();
    assert_eq!(used(&store), named);
    assert_eq!(attributes(&store, file).used, 0);
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(used(&store), empty);
}

#[test]
fn extended_attributes_count_against_the_store() {
    let store = store();
    let empty = used(&store);
    let file = create(&store, &ROOT, store.root(), b"file");
    let named = used(&store);
    let how = SetXattrHow::Either;
    let set =
        |name: &[u8], value: &[u8]| now(store.set_xattr(&ROOT, file, name, value, how)).result;
    set(b"a", &[1; 1000]).unwrap();
    assert!(used(&store) >= named + 1000);
    set(b"a", &[1; 10]).unwrap();
    let small = used(&store);
    assert!(small < named + 1000);
    let value = vec![7; 64 << 10];
    let count = (0..1000_u32)
        .take_while(|number| set(number.to_string().as_bytes(), &value).is_ok())
        .count();
    assert!((100..128).contains(&count), "{count} of 64 KiB in 8 MiB");
    assert_eq!(set(b"more", &value), Err(StoreError::NoSpace));
    for number in 0..count as u32 {
        now(store.remove_xattr(&ROOT, file, number.to_string().as_bytes()))
            .result
            .unwrap();
    }
    assert_eq!(used(&store), small);
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(used(&store), empty);
}

#[test]
fn an_object_has_names_that_fit_one_list() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    let how = SetXattrHow::Either;
    let set = |number: u32| {
        let name = format!("{number:0250}");
        now(store.set_xattr(&ROOT, file, name.as_bytes(), b"", how)).result
    };
    let count = (0..1000).take_while(|number| set(*number).is_ok()).count();
    assert_eq!(count, (64 << 10) / 251);
    let mut list = Vec::new();
    now(store.xattrs(&ROOT, file, &mut list)).unwrap();
    assert_eq!(list.len(), count * 251);
}
