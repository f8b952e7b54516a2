//! COMPOUND and CB_COMPOUND of NFS version 4, arguments and results: the first byte chooses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::choice;
use millrace_wire::nfs4::*;
use millrace_wire::xdr::{Decode, Decoder, Encode, from_bytes, to_bytes};

/// Encodes what was decoded. Bitmaps may come out shorter, so the lengths may differ.
fn encoded(value: &impl Encode, room: usize) -> Vec<u8> {
    let mut bytes = vec![0; room];
    let length = to_bytes(value, &mut bytes).expect("a decoded value encodes in its own room");
    bytes.truncate(length);
    bytes
}

macro_rules! check_arguments {
    ($bytes:ident, $header:ident, $operation:ident) => {{
        let mut input = Decoder::new($bytes);
        let Ok(header) = $header::decode(&mut input) else {
            return;
        };
        let minor = header.minor_version;
        let operations = OperationReader::<$operation<'_>>::new(input, minor, header.operations);
        for operation in operations.flatten() {
            let once = encoded(&operation, $bytes.len());
            let again = $operation::decode_operation(minor, &mut Decoder::new(&once));
            let again = again.expect("what was encoded decodes");
            assert_eq!(encoded(&again, $bytes.len()), once, "{operation:?}");
        }
    }};
}

macro_rules! check_results {
    ($bytes:ident, $results:ident) => {{
        let mut input = Decoder::new($bytes);
        let Ok(header) = CompoundReplyHeader::decode(&mut input) else {
            return;
        };
        for results in ResultsReader::<$results<'_>>::new(input, header.results).flatten() {
            let once = encoded(&results, $bytes.len());
            let again = from_bytes::<$results<'_>>(&once).expect("what was encoded decodes");
            assert_eq!(encoded(&again, $bytes.len()), once, "{results:?}");
        }
    }};
}

fuzz_target!(|bytes: &[u8]| {
    match choice(bytes, 5) {
        Some((0, bytes)) => check_arguments!(bytes, CompoundHeader, Operation),
        Some((1, bytes)) => check_arguments!(bytes, CallbackHeader, CallbackOperation),
        Some((2, bytes)) => check_results!(bytes, OperationResults),
        Some((3, bytes)) => check_results!(bytes, CallbackResults),
        Some((_, bytes)) => {
            if let Ok(attributes) = from_bytes::<Attributes<'_>>(bytes) {
                assert!(attributes.iter().count() <= 96 + 1);
                let _ = SettableAttributes::decode(&attributes);
            }
        }
        None => {}
    }
});
