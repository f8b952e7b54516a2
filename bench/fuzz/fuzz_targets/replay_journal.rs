//! What a process finds of the one before: any bytes in the place of its journal of replies. The
//! header of a file that the bytes are slots of is made good, as they would seldom get past it.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millrace::replay::Left;

fuzz_target!(|bytes: &[u8]| {
    let boot = [0; 16];
    let age = Duration::from_secs(120);
    let check = |bytes: &[u8]| {
        if let Ok(left) = Left::read(bytes, &boot, age) {
            // Never more calls than there are slots.
            assert!((left.done() + left.begun()) * 512 <= bytes.len());
        }
    };
    check(bytes);
    check(&Left::whole(bytes, boot));
});
