//! Records on a byte stream, received in pieces: the first byte is the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::rpc::{Fragment, RecordError, RecordScanner};

const MAX: usize = 4096;

/// The records in a stream that arrives in pieces.
fn records(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let mut scanner = RecordScanner::new(MAX);
    let (mut records, mut current) = (Vec::new(), Vec::new());
    for mut piece in stream.chunks(size) {
        loop {
            match scanner.next(&mut piece) {
                Ok(Some(Fragment::Bytes(bytes))) => current.extend(bytes),
                Ok(Some(Fragment::End)) => records.push(std::mem::take(&mut current)),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
            assert!(current.len() <= MAX);
        }
        assert!(piece.is_empty());
    }
    (records, None)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    let whole = records(stream, stream.len().max(1));
    assert_eq!(records(stream, usize::from(*size).max(1)), whole);
});
