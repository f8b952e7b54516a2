//! Space, holes and copies of ranges.

use millrace_store::{
    FileData, FileRanges, FoundRange, Handle, Namespace, RangeContent, Result, Store, StoreError,
    UsageAdvice,
};

use crate::common::*;

const BLOCK: u64 = 64 << 10;

fn file(store: &impl Store, name: &[u8]) -> Handle {
    create(store, &user(10), store.root(), name)
}

fn seek(
    store: &impl Store,
    file: Handle,
    offset: u64,
    content: RangeContent,
) -> Result<(u64, bool)> {
    let found = now(store.seek(&ROOT, file, offset, content));
    found.map(
        |FoundRange {
             offset,
             end_of_file,
         }| (offset, end_of_file),
    )
}

fn data(store: &impl Store, file: Handle, offset: u64) -> Result<(u64, bool)> {
    seek(store, file, offset, RangeContent::Data)
}

fn hole(store: &impl Store, file: Handle, offset: u64) -> Result<(u64, bool)> {
    seek(store, file, offset, RangeContent::Hole)
}

pub fn space_is_allocated_and_the_file_grows(store: &impl Store) {
    let file = file(store, b"file");
    write(store, file, 10, b"abc").unwrap();
    let before = attributes(store, file);
    let done = now(store.allocate(&user(10), file, 5, 3 * BLOCK));
    assert_eq!(done.result, Ok(()));
    let after = attributes(store, file);
    assert_eq!(after.size, 5 + 3 * BLOCK);
    assert!(after.used >= 3 * BLOCK, "{}", after.used);
    assert!(after.change > before.change);
    assert_eq!(done.consistency.after.unwrap().size, after.size);
    let mut expected = vec![0; 5 + 3 * BLOCK as usize];
    expected[10..13].copy_from_slice(b"abc");
    assert_eq!(read(store, file, 0, 5 + 3 * BLOCK as u32), expected);
    // Inside the file the size stays.
    assert_eq!(now(store.allocate(&ROOT, file, 0, 100)).result, Ok(()));
    assert_eq!(attributes(store, file).size, after.size);
}

pub fn what_cannot_be_allocated_changes_nothing(store: &impl Store) {
    let file = file(store, b"file");
    let size_max = store.properties().size_max;
    let allocate = |offset, length| now(store.allocate(&ROOT, file, offset, length)).result;
    assert_eq!(allocate(size_max, 1), Err(StoreError::TooLarge));
    assert_eq!(allocate(u64::MAX, 2), Err(StoreError::TooLarge));
    let total = now(store.statistics(file)).unwrap().total_bytes;
    assert_eq!(allocate(0, total + BLOCK), Err(StoreError::NoSpace));
    assert_eq!(attributes(store, file).size, 0);
    let other = now(store.allocate(&user(11), file, 0, 1)).result;
    assert_eq!(other, Err(StoreError::Denied));
    let other = now(store.allocate(&ROOT, store.root(), 0, 1)).result;
    assert_eq!(other, Err(StoreError::IsDirectory));
}

pub fn holes_read_as_zeros_and_release_space(store: &impl Store) {
    let file = file(store, b"file");
    let bytes = pattern(7, 6 * BLOCK as usize);
    write(store, file, 0, &bytes).unwrap();
    now(store.commit(file, 0, 0)).result.unwrap();
    for (offset, length) in [
        (5, 3),
        (4090, 12),
        (100, 2 * 4096),
        (BLOCK - 10, BLOCK + 20),
        (3 * BLOCK, BLOCK),
        (5 * BLOCK + 100, 200),
    ] {
        write(store, file, 0, &bytes).unwrap();
        let before = attributes(store, file);
        let done = now(store.deallocate(&user(10), file, offset, length));
        assert_eq!(done.result, Ok(()));
        let after = attributes(store, file);
        assert_eq!(after.size, before.size);
        assert!(after.change > before.change, "{offset} {length}");
        let mut expected = bytes.clone();
        expected[offset as usize..(offset + length) as usize].fill(0);
        let found = read(store, file, 0, 6 * BLOCK as u32);
        assert!(found == expected, "{offset} {length}");
    }
    now(store.deallocate(&ROOT, file, 0, 4 * BLOCK))
        .result
        .unwrap();
    assert!(attributes(store, file).used <= 2 * BLOCK + 4096);
    assert_eq!(data(store, file, 0), Ok((4 * BLOCK, false)));
    // All of the rest, however long the range is.
    now(store.deallocate(&ROOT, file, 4 * BLOCK + 1, u64::MAX))
        .result
        .unwrap();
    assert_eq!(attributes(store, file).size, 6 * BLOCK);
    let mut expected = vec![0; 2 * BLOCK as usize];
    expected[0] = bytes[4 * BLOCK as usize];
    assert_eq!(read(store, file, 4 * BLOCK, 2 * BLOCK as u32), expected);
    // Nothing is there to release, and nothing grows.
    now(store.deallocate(&ROOT, file, 1 << 40, 5))
        .result
        .unwrap();
    assert_eq!(attributes(store, file).size, 6 * BLOCK);
    let other = now(store.deallocate(&user(11), file, 0, 1)).result;
    assert_eq!(other, Err(StoreError::Denied));
}

pub fn lent_memory_stays_as_it_is(store: &impl Store) {
    let file = file(store, b"file");
    let bytes = pattern(3, 3 * BLOCK as usize);
    write(store, file, 0, &bytes).unwrap();
    let mut slices = Vec::new();
    now(store.read(&ROOT, file, 0, 3 * BLOCK as u32, &mut slices)).unwrap();
    now(store.deallocate(&ROOT, file, 100, 3 * BLOCK - 200))
        .result
        .unwrap();
    assert!(gather(&slices) == bytes);
    let mut expected = bytes;
    expected[100..3 * BLOCK as usize - 100].fill(0);
    assert!(read(store, file, 0, 3 * BLOCK as u32) == expected);
}

pub fn data_and_holes_are_found(store: &impl Store) {
    let file = file(store, b"file");
    assert_eq!(data(store, file, 0), Err(StoreError::NoDevice));
    let end = 20 * BLOCK + 5;
    now(store.set_attributes(&ROOT, file, &size(end), None))
        .result
        .unwrap();
    assert_eq!(data(store, file, 0), Ok((end, true)));
    assert_eq!(hole(store, file, 0), Ok((0, false)));
    assert_eq!(hole(store, file, 7), Ok((7, false)));
    for block in [0, 2, 3, 9] {
        write(store, file, block * BLOCK, &[1; BLOCK as usize]).unwrap();
    }
    for (from, next_data, next_hole) in [
        (0, 0, BLOCK),
        (5, 5, BLOCK),
        (BLOCK, 2 * BLOCK, BLOCK),
        (BLOCK + 1, 2 * BLOCK, BLOCK + 1),
        (2 * BLOCK, 2 * BLOCK, 4 * BLOCK),
        (3 * BLOCK + 9, 3 * BLOCK + 9, 4 * BLOCK),
        (5 * BLOCK, 9 * BLOCK, 5 * BLOCK),
    ] {
        assert_eq!(data(store, file, from), Ok((next_data, false)), "{from}");
        assert_eq!(hole(store, file, from), Ok((next_hole, false)), "{from}");
    }
    assert_eq!(data(store, file, 10 * BLOCK), Ok((end, true)));
    for from in [end, end + 1, u64::MAX] {
        assert_eq!(data(store, file, from), Err(StoreError::NoDevice));
        assert_eq!(hole(store, file, from), Err(StoreError::NoDevice));
    }
    // The hole behind the end.
    now(store.set_attributes(&ROOT, file, &size(10 * BLOCK - 3), None))
        .result
        .unwrap();
    assert_eq!(hole(store, file, 9 * BLOCK), Ok((10 * BLOCK - 3, true)));
    let other = now(store.seek(&user(11), file, 0, RangeContent::Data));
    assert_eq!(
        other.map(|found| found.offset),
        Ok(0),
        "anybody may read it"
    );
    let other = now(store.seek(&ROOT, store.root(), 0, RangeContent::Data));
    assert_eq!(other, Err(StoreError::IsDirectory));
}

pub fn ranges_share_storage_where_the_store_can(store: &impl Store) {
    let (one, other) = (file(store, b"one"), file(store, b"other"));
    let bytes = pattern(9, 3 * BLOCK as usize + 77);
    write(store, one, 0, &bytes).unwrap();
    let clone = |from, to, length| {
        now(store.clone_range(&user(10), (one, from), (other, to), length)).result
    };
    if store.properties().clone_block.is_none() {
        assert_eq!(clone(0, 0, BLOCK), Err(StoreError::NotSupported));
        return;
    }
    let end = bytes.len() as u64;
    assert_eq!(clone(BLOCK, 2 * BLOCK, end - BLOCK), Ok(()));
    assert_eq!(attributes(store, other).size, end + BLOCK);
    let mut expected = vec![0; 2 * BLOCK as usize];
    expected.extend(&bytes[BLOCK as usize..]);
    assert!(read(store, other, 0, 6 * BLOCK as u32) == expected);
    // A later write to one leaves the other alone.
    write(store, one, BLOCK, &[0xee; 10]).unwrap();
    assert!(read(store, other, 0, 6 * BLOCK as u32) == expected);
    assert_eq!(clone(1, 0, BLOCK), Err(StoreError::Invalid));
    let denied = now(store.clone_range(&user(11), (one, 0), (other, 0), BLOCK)).result;
    assert_eq!(denied, Err(StoreError::Denied));
}

pub fn ranges_are_copied_where_the_store_can(store: &impl Store) {
    let (one, other) = (file(store, b"one"), file(store, b"other"));
    let bytes = pattern(5, 3 * BLOCK as usize + 77);
    write(store, one, 0, &bytes).unwrap();
    let before = attributes(store, other);
    let copy =
        |caller, from, to, length| now(store.copy_range(&caller, (one, from), (other, to), length));
    let done = copy(user(10), 5, 70_000, 3 * BLOCK);
    let copied = match done.result {
        Err(StoreError::NotSupported) => return,
        copied => copied.unwrap(),
    };
    assert_eq!(copied.length, 3 * BLOCK);
    let verifier = now(store.commit(other, 0, 0)).result.unwrap();
    assert_eq!(copied.verifier, verifier);
    assert_eq!(done.consistency.after.unwrap().size, 70_000 + 3 * BLOCK);
    assert!(attributes(store, other).change > before.change);
    let mut expected = vec![0; 70_000];
    expected.extend(&bytes[5..5 + 3 * BLOCK as usize]);
    assert!(read(store, other, 0, 6 * BLOCK as u32) == expected);
    assert_eq!(copy(user(11), 0, 0, 1).result, Err(StoreError::Denied));
}

pub fn advice_is_no_error(store: &impl Store) {
    let file = file(store, b"file");
    write(store, file, 0, &[1; 5000]).unwrap();
    for advice in [
        UsageAdvice::Normal,
        UsageAdvice::Sequential,
        UsageAdvice::Random,
        UsageAdvice::WillNeed,
        UsageAdvice::DontNeed,
    ] {
        for (offset, length) in [(0, 0), (5, 10), (0, u64::MAX), (u64::MAX, 5)] {
            assert!(now(store.advise(&ROOT, file, offset, length, advice)).is_ok());
        }
    }
    assert_eq!(read(store, file, 0, 5000), vec![1; 5000]);
}
