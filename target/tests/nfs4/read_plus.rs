//! READ_PLUS (RFC 7862 section 15.10).

use millrace_wire::nfs4::{
    FileSegment, HasStatus, HoleSegment, Operation, OperationResults, OperationStatus as Status,
    ReadOperation, StateId,
};

use crate::support::nfs4::{Bench4, put};
use crate::version2::{BLOCK, bytes, fill, on, write};

type Parts = Vec<(u64, Result<Vec<u8>, u64>)>;

fn read_plus(
    bench: &Bench4,
    file: &[u8],
    offset: u64,
    count: u32,
) -> Result<(Parts, bool), Status> {
    let operation = Operation::ReadPlus(ReadOperation {
        state: StateId::ANONYMOUS,
        offset,
        count,
    });
    let results = bench.run(&[put(file), operation]);
    let (_, all) = results.read();
    match &all[1] {
        OperationResults::ReadPlus(Ok(reply)) => {
            let parts = reply.segments.iter().map(|segment| match segment {
                FileSegment::Data(data) => (data.offset, Ok(data.data.to_vec())),
                FileSegment::Hole(HoleSegment { offset, length }) => (offset, Err(length)),
            });
            Ok((parts.collect(), reply.eof))
        }
        other => Err(other.status()),
    }
}

#[test]
fn v4_v42_19_and_20_reads_tell_holes() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let block = bytes(BLOCK);
    assert_eq!(on(&bench, &file, write(BLOCK, &block)), Status::Ok);
    assert_eq!(
        on(&bench, &file, write(4 * BLOCK, &block[..10])),
        Status::Ok
    );
    let read = |offset, count| read_plus(&bench, &file, offset, count).unwrap();
    let (size, data) = (BLOCK as u32, |at: u64, bytes: &[u8]| {
        (at, Ok(bytes.to_vec()))
    });
    assert_eq!(read(0, 1000), (vec![(0, Err(1000))], false));
    assert_eq!(read(0, 0), (vec![], false));
    assert_eq!(
        read(5, size),
        (vec![(5, Err(BLOCK - 5)), data(BLOCK, &block[..5])], false)
    );
    // Holes that are too short to save anything.
    assert_eq!(read(0, 10), (vec![data(0, &[0; 10])], false));
    let before = [&[0; 3], &block[..5]].concat();
    assert_eq!(read(BLOCK - 3, 8), (vec![data(BLOCK - 3, &before)], false));
    let behind = [&block[size as usize - 5..], &[0; 3]].concat();
    assert_eq!(
        read(2 * BLOCK - 5, 8),
        (vec![data(2 * BLOCK - 5, &behind)], false)
    );
    let rest = (2 * BLOCK, Err(2 * BLOCK));
    let end = data(4 * BLOCK, &block[..10]);
    assert_eq!(
        read(BLOCK + 1, 4 * size),
        (vec![data(BLOCK + 1, &block[1..]), rest, end], true)
    );
    assert_eq!(
        read(4 * BLOCK, 9),
        (vec![data(4 * BLOCK, &block[..9])], false)
    );
    assert_eq!(
        read(4 * BLOCK, 10),
        (vec![data(4 * BLOCK, &block[..10])], true)
    );
    for offset in [4 * BLOCK + 10, u64::MAX] {
        assert_eq!(read(offset, 100), (vec![], true));
    }
    // What is too long for one answer goes on without a gap.
    let long = bench.file(b"long", 0o644);
    let bytes = bytes(1 << 20);
    fill(&bench, &long, &bytes);
    let mut all = Vec::new();
    loop {
        let (parts, eof) = read_plus(&bench, &long, all.len() as u64, 1 << 20).unwrap();
        assert_eq!(parts.len(), 1);
        for (offset, part) in parts {
            assert_eq!(offset, all.len() as u64);
            all.extend(part.unwrap());
        }
        if eof {
            break;
        }
    }
    assert!(all == bytes);
    let root = bench.walk("/export");
    assert_eq!(read_plus(&bench, &root, 0, 10), Err(Status::WrongType));
}

#[test]
fn v4_v42_20_no_answer_is_longer_than_one_of_read() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    assert_eq!(on(&bench, &file, write(BLOCK, &bytes(BLOCK))), Status::Ok);
    assert_eq!(on(&bench, &file, write(4 * BLOCK, &bytes(10))), Status::Ok);
    let size = BLOCK as u32;
    // Linux provides no more space.
    let around = [
        BLOCK - 513,
        BLOCK - 512,
        BLOCK - 511,
        BLOCK - 3,
        BLOCK,
        BLOCK + 1,
        BLOCK + 511,
    ];
    let places = (0..5).flat_map(|block| around.map(|at| at + block * BLOCK));
    for offset in places.chain([0, 3]) {
        for count in [1, 3, 4, 35, 513, size - 1, size + 3, 2 * size + 1, 4 * size] {
            let (parts, _) = read_plus(&bench, &file, offset, count).unwrap();
            let lengths = parts.iter().map(|(_, part)| match part {
                Ok(data) => 16 + data.len().next_multiple_of(4),
                Err(_) => 20,
            });
            let length: usize = lengths.sum();
            let most = 16 + (count as usize).next_multiple_of(4);
            assert!(length <= most, "{count} bytes at {offset}: {length} bytes");
            let mut ends = parts.iter().map(|(at, part)| match part {
                Ok(data) => at + data.len() as u64,
                Err(hole) => at + hole,
            });
            let expected = std::iter::once(offset).chain(ends.clone());
            assert!(
                parts
                    .iter()
                    .map(|(at, _)| *at)
                    .eq(expected.take(parts.len()))
            );
            let end = (offset + u64::from(count)).min(4 * BLOCK + 10).max(offset);
            assert_eq!(
                ends.next_back().unwrap_or(offset),
                end,
                "{count} bytes at {offset}"
            );
        }
    }
}
