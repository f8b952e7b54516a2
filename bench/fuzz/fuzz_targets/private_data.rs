//! What peers tell each other of their limits: private data, whose sizes survive being sent again,
//! and the connection configuration protocol, whose words do.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::ccp::{Limits, Wish};
use millrace_wire::private_data::PrivateData;
use millrace_wire::xdr::{from_bytes, to_bytes};

fuzz_target!(|bytes: &[u8]| {
    if let Some(found) = PrivateData::find(bytes) {
        assert_eq!(PrivateData::find(&found.to_bytes()), Some(found));
        assert!((1024..=262_144).contains(&found.inline_to(&found)));
    }
    let mut again = [0; 12];
    if let Ok(wish) = from_bytes::<Wish>(bytes) {
        assert_eq!(to_bytes(&wish, &mut again), Ok(12));
        assert_eq!(again, bytes[..12]);
    }
    if let Ok(limits) = from_bytes::<Limits>(bytes) {
        assert_eq!(to_bytes(&limits, &mut again), Ok(12));
        assert_eq!(again, bytes[..12]);
    }
});
