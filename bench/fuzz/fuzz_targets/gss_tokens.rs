//! Tokens of Kerberos: any bytes, good tokens with any rotation and filler, and good tokens with
//! one byte changed.

#![no_main]

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use millrace_gss::{
    ContextKeys, Damaged, Enctype, Progress, Protection, Side, check_initial_token,
};

/// Initiator and acceptor of a context of each encryption type.
static ENDS: LazyLock<Vec<[Arc<Protection>; 2]>> = LazyLock::new(|| {
    let ends = Enctype::ALL.map(|enctype| {
        let keys = ContextKeys {
            enctype,
            key: vec![7; enctype.key_length()].into(),
            acceptor_subkey: true,
            send_sequence: 0,
        };
        [Side::Initiator, Side::Acceptor].map(|side| Protection::new(&keys, side).expect("a key"))
    });
    ends.into()
});

fn unwrap(end: &Arc<Protection>, token: &mut [u8], most: usize) -> Result<Range<usize>, Damaged> {
    let mut unwrapping = end.unwrapping(token)?;
    loop {
        if let Progress::Done(range) = unwrapping.step(token, most)? {
            return Ok(range);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, most, rotation, change, at], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let [initiator, acceptor] = &ENDS[usize::from(kind % 4)];
    let most = usize::from(most);

    let _ = check_initial_token(rest);
    assert!(!acceptor.verify_mic(b"message", rest));
    assert_eq!(unwrap(acceptor, &mut rest.to_vec(), most), Err(Damaged));

    let mut token = vec![0; rest.len() + initiator.wrap_overhead()];
    token[Protection::WRAP_PREFIX..][..rest.len()].copy_from_slice(rest);
    let mut wrapping = initiator.wrapping(rest.len());
    while wrapping.step(&mut token, most) == Ok(Progress::More) {}
    let by = usize::from(rotation) * 3;
    token[6..8].copy_from_slice(&(by as u16).to_be_bytes());
    let body = token.len() - 16;
    token[16..].rotate_right(by % body);
    let at = usize::from(at) * 5 % token.len();
    token[at] ^= change;
    let unwrapped = unwrap(acceptor, &mut token, most);
    if change == 0 {
        assert_eq!(&token[unwrapped.expect("a good token")], rest);
    } else if !(6..8).contains(&at) {
        // Another RRC may stand for the same rotation.
        assert_eq!(unwrapped, Err(Damaged));
    }
});
