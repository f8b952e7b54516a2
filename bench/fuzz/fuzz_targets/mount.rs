//! Arguments and results of MOUNT: the first byte chooses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{check, choice};
use millrace_wire::mount::{DumpResults, ExportResults, MountResults, Path};

fuzz_target!(|bytes: &[u8]| {
    match choice(bytes, 4) {
        Some((0, bytes)) => check::<Path<'_>>(bytes),
        Some((1, bytes)) => check::<MountResults>(bytes),
        Some((2, bytes)) => check::<DumpResults<'_>>(bytes),
        Some((_, bytes)) => check::<ExportResults<'_>>(bytes),
        None => {}
    }
});
