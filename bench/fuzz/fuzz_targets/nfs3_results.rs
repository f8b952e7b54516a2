//! Results of NFS version 3: the first byte chooses the procedure.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{check, choice};
use millrace_wire::nfs3::*;
use millrace_wire::xdr::{Decode, Decoder};

fuzz_target!(|bytes: &[u8]| {
    let Some((procedure, bytes)) = choice(bytes, 24) else {
        return;
    };
    match procedure {
        1 => check::<GetattrResults>(bytes),
        2 => check::<SetattrResults>(bytes),
        3 => check::<LookupResults>(bytes),
        4 => check::<AccessResults>(bytes),
        5 => check::<ReadlinkResults<'_>>(bytes),
        6 => check::<ReadResults<'_>>(bytes),
        7 => check::<WriteResults>(bytes),
        8..=11 => check::<CreateResults>(bytes),
        12 | 13 => check::<RemoveResults>(bytes),
        14 => check::<RenameResults>(bytes),
        15 => check::<LinkResults>(bytes),
        16 => check::<ReaddirResults<'_>>(bytes),
        17 => check::<ReaddirplusResults<'_>>(bytes),
        18 => check::<FsstatResults>(bytes),
        19 => check::<FsinfoResults>(bytes),
        20 => check::<PathconfResults>(bytes),
        21 => check::<CommitResults>(bytes),
        _ => apart(bytes),
    }
});

/// Results of READ whose data is in a write chunk of which the peer says what it will.
fn apart(bytes: &[u8]) {
    let Some((head, results)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let chunks = [
        head[0].checked_sub(1).map(u32::from),
        Some(u32::from(head[1])),
    ];
    let mut input = Decoder::with_results(results, &chunks);
    let _ = ReadResults::decode(&mut input);
    let _ = ReadlinkResults::decode(&mut input);
}
