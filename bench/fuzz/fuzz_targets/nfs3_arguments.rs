//! Arguments of NFS version 3: the first byte chooses the procedure.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{check, choice};
use millrace_wire::nfs3::*;
use millrace_wire::xdr::{Decode, Decoder, Padding, Taken};

fuzz_target!(|bytes: &[u8]| {
    let Some((procedure, bytes)) = choice(bytes, 24) else {
        return;
    };
    match procedure {
        2 => check::<SetattrArguments>(bytes),
        3 => check::<EntryArguments<'_>>(bytes),
        4 => check::<AccessArguments>(bytes),
        6 => check::<ReadArguments>(bytes),
        7 => check::<WriteArguments<'_>>(bytes),
        8 => check::<CreateArguments<'_>>(bytes),
        9 => check::<MkdirArguments<'_>>(bytes),
        10 => check::<SymlinkArguments<'_>>(bytes),
        11 => check::<MknodArguments<'_>>(bytes),
        14 => check::<RenameArguments<'_>>(bytes),
        15 => check::<LinkArguments<'_>>(bytes),
        16 => check::<ReaddirArguments>(bytes),
        17 => check::<ReaddirplusArguments>(bytes),
        21 => check::<CommitArguments>(bytes),
        22 | 23 => apart(bytes, procedure == 23),
        _ => check::<ObjectArguments>(bytes),
    }
});

/// A WRITE and a SYMLINK whose data may be elsewhere, at positions of the input's choice.
fn apart(bytes: &[u8], padded: bool) {
    let Some((head, message)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let [position, length, gap, second, align, threshold] = head.map(u32::from);
    let position = 4 * position;
    let taken = [
        Taken { position, length },
        Taken {
            position: position + 4 * gap,
            length: second,
        },
    ];
    let mut input = Decoder::with_taken(message, &taken);
    if padded {
        input = input.padded(Padding { align, threshold });
    }
    let write = WriteArguments::decode(&mut input);
    let symlink = SymlinkArguments::decode(&mut input);
    if let (Ok(write), Ok(_), Ok(())) = (write, symlink, input.finish()) {
        assert!(
            write
                .data
                .as_inline()
                .is_none_or(|data| data.len() == write.data.length as usize)
        );
    }
}
