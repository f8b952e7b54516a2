//! Private data of connections.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::private_data::PrivateData;

fuzz_target!(|bytes: &[u8]| {
    if let Some(found) = PrivateData::find(bytes) {
        assert_eq!(PrivateData::find(&found.to_bytes()), Some(found));
        assert!((1024..=262_144).contains(&found.inline_to(&found)));
    }
});
