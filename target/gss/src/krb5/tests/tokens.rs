//! Tokens between the two ends of contexts with given keys.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use zeroize::Zeroizing;

use crate::krb5::{ContextKeys, Damaged, Enctype, Progress, Protection, Side};

fn keys(enctype: Enctype, acceptor_subkey: bool) -> ContextKeys {
    let key = (0..enctype.key_length()).map(|at| u8::try_from(at * 7 + 3).expect("small"));
    ContextKeys {
        enctype,
        key: Zeroizing::new(key.collect()),
        acceptor_subkey,
        send_sequence: 5,
    }
}

fn ends(enctype: Enctype) -> (Arc<Protection>, Arc<Protection>) {
    let end = |side| Protection::new(&keys(enctype, true), side).expect("a key");
    (end(Side::Initiator), end(Side::Acceptor))
}

fn wrap(end: &Arc<Protection>, plaintext: &[u8], slice: usize) -> Vec<u8> {
    let mut token = vec![0xee; plaintext.len() + end.wrap_overhead()];
    token[Protection::WRAP_PREFIX..][..plaintext.len()].copy_from_slice(plaintext);
    let mut wrapping = end.wrapping(plaintext.len());
    loop {
        match wrapping
            .step(&mut token, slice)
            .expect("a buffer of the length")
        {
            Progress::More => {}
            Progress::Done(range) => {
                assert_eq!(range, 0..token.len());
                return token;
            }
        }
    }
}

fn unwrap(end: &Arc<Protection>, token: &mut [u8], slice: usize) -> Result<Range<usize>, Damaged> {
    let mut unwrapping = end.unwrapping(token)?;
    loop {
        if let Progress::Done(range) = unwrapping.step(token, slice)? {
            return Ok(range);
        }
    }
}

fn mic(end: &Protection, message: &[u8]) -> Vec<u8> {
    let mut token = vec![0; end.mic_length()];
    assert_eq!(end.sign(message, &mut token), token.len());
    token
}

/// As a sender may rotate (RFC 4121 4.2.5).
fn rotate(token: &mut [u8], by: u16) {
    token[6..8].copy_from_slice(&by.to_be_bytes());
    let rest = &mut token[16..];
    rest.rotate_right(usize::from(by) % rest.len());
}

#[test]
fn gss_rdma_05_tokens_have_the_lengths_that_replies_are_sized_with() {
    for (enctype, mic, overhead) in [
        (Enctype::Aes128Sha1, 28, 60),
        (Enctype::Aes256Sha1, 28, 60),
        (Enctype::Aes128Sha256, 32, 64),
        (Enctype::Aes256Sha384, 40, 72),
    ] {
        let (initiator, _) = ends(enctype);
        assert_eq!(initiator.mic_length(), mic);
        assert_eq!(initiator.wrap_overhead(), overhead);
        let mut short = vec![0; mic - 1];
        assert_eq!(initiator.sign(b"message", &mut short), 0);
    }
}

#[test]
fn gss_cred_03_no_changed_bit_of_a_mic_or_its_message_passes() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = ends(enctype);
        let mut message = b"a call's header".to_vec();
        let mut token = mic(&initiator, &message);
        assert!(acceptor.verify_mic(&message, &token));
        for bit in 0..token.len() * 8 {
            token[bit / 8] ^= 1 << (bit % 8);
            assert!(!acceptor.verify_mic(&message, &token), "bit {bit}");
            token[bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 0..message.len() * 8 {
            message[bit / 8] ^= 1 << (bit % 8);
            assert!(!acceptor.verify_mic(&message, &token), "bit {bit}");
            message[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(acceptor.verify_mic(&message, &token));
        for length in 0..token.len() {
            assert!(!acceptor.verify_mic(&message, &token[..length]));
        }
        token.push(0);
        assert!(!acceptor.verify_mic(&message, &token));
    }
}

/// The checksum covers the header, so that a token whose header is wrong has to be made with the
/// keys of the other end.
#[test]
fn gss_cred_04_direction_subkey_filler_and_kind_are_checked() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = ends(enctype);
        // Reflected.
        let own = mic(&acceptor, b"message");
        assert!(!acceptor.verify_mic(b"message", &own));
        let mut wrapped = wrap(&acceptor, b"message", 64);
        assert_eq!(unwrap(&acceptor, &mut wrapped, 64), Err(Damaged));
        // With the right key, but a header that says something else.
        for (at, value) in [(0, 5), (1, 0), (2, 0), (2, 5), (2, 6), (3, 0), (7, 0)] {
            let mut parts = initiator.mic_in_parts(Side::Initiator);
            parts.update(b"message");
            parts.header.as_mut().expect("ours")[at] = value;
            let mut token = vec![0; initiator.mic_length()];
            assert_eq!(parts.finish(&mut token), token.len());
            assert!(!acceptor.verify_mic(b"message", &token), "{at}: {value}");
        }
        // Without the flag of the subkey.
        let other = Protection::new(&keys(enctype, false), Side::Initiator).expect("a key");
        assert!(!acceptor.verify_mic(b"message", &mic(&other, b"message")));
        let mut token = wrap(&other, b"message", 64);
        assert_eq!(unwrap(&acceptor, &mut token, 64), Err(Damaged));
    }
}

/// RFC 4121 4.2.2: the receiver must ignore unknown flags.
#[test]
fn gss_cred_04_unknown_flags_are_ignored() {
    let (initiator, acceptor) = ends(Enctype::Aes256Sha384);
    let mut parts = initiator.mic_in_parts(Side::Initiator);
    parts.update(b"message");
    parts.header.as_mut().expect("ours")[2] |= 0x80;
    let mut token = vec![0; initiator.mic_length()];
    assert_eq!(parts.finish(&mut token), token.len());
    assert!(acceptor.verify_mic(b"message", &token));
}

#[test]
fn gss_priv_02_no_changed_bit_of_a_wrap_token_passes() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = ends(enctype);
        let token = wrap(&initiator, b"sequence number and arguments", 16);
        // A changed RRC is another rotation, and the flags that nobody knows are part of the
        // header within.
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                unwrap(&acceptor, &mut changed, 16),
                Err(Damaged),
                "bit {bit}"
            );
        }
        for length in 0..token.len() {
            let mut cut = token[..length].to_vec();
            assert_eq!(unwrap(&acceptor, &mut cut, 16), Err(Damaged));
        }
    }
}

#[test]
fn gss_priv_03_a_token_that_is_not_sealed_is_refused() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = ends(enctype);
        // Whatever else is right: the flag is gone from both headers.
        let mut wrapping = initiator.wrapping(64);
        wrapping.header[2] &= !2;
        let mut token = vec![0; 64 + initiator.wrap_overhead()];
        while wrapping.step(&mut token, 64).expect("the length") == Progress::More {}
        assert_eq!(unwrap(&acceptor, &mut token, 64), Err(Damaged));
        wrapping = initiator.wrapping(64);
        while wrapping.step(&mut token, 64).expect("the length") == Progress::More {}
        assert!(unwrap(&acceptor, &mut token, 64).is_ok());
    }
}

#[test]
fn gss_priv_04_any_rotation_and_filler_is_taken() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = ends(enctype);
        for length in [0, 1, 16, 100, 4096] {
            let plaintext: Vec<u8> = (0..length).map(|at: u16| at.to_be_bytes()[1]).collect();
            let mut lengths = vec![1, 12, 16, 28, 44, 65_535];
            lengths.extend([15, 17].map(|more| length + more));
            for rotation in lengths {
                for extra in [0, 1, 16, 300] {
                    // The filler is plaintext to the wrapping.
                    let mut filled = plaintext.clone();
                    filled.resize(plaintext.len() + usize::from(extra), 0x55);
                    let mut wrapping = initiator.wrapping(filled.len());
                    wrapping.header[4..6].copy_from_slice(&u16::to_be_bytes(extra));
                    let mut token = vec![0; filled.len() + initiator.wrap_overhead()];
                    token[Protection::WRAP_PREFIX..][..filled.len()].copy_from_slice(&filled);
                    while wrapping.step(&mut token, 1000).expect("the length") == Progress::More {}
                    rotate(&mut token, rotation);
                    for slice in [1, 1 << 20] {
                        let mut token = token.clone();
                        let range = unwrap(&acceptor, &mut token, slice).expect("a good token");
                        assert!(token[range] == plaintext, "{length} {rotation} {extra}");
                    }
                }
            }
        }
    }
}

/// RFC 4121 4.2.4: EC and SND_SEQ of the header within the ciphertext protect those outside.
#[test]
fn gss_priv_04_the_header_within_is_the_one_outside() {
    let (initiator, acceptor) = ends(Enctype::Aes256Sha384);
    let token = wrap(&initiator, &[7; 100], 64);
    for (at, value) in [(5, 1), (15, 99), (2, 0x86)] {
        let mut token = token.clone();
        token[at] = value;
        assert_eq!(unwrap(&acceptor, &mut token, 64), Err(Damaged));
    }
    // More filler than there is.
    let mut token = token.clone();
    token[4] = 0xff;
    assert_eq!(acceptor.unwrapping(&token).err(), Some(Damaged));
}

#[test]
fn gss_lim_05_no_step_works_on_more_than_its_slice() {
    let (initiator, acceptor) = ends(Enctype::Aes256Sha1);
    let plaintext = vec![1; 1 << 16];
    let mut token = vec![0; plaintext.len() + initiator.wrap_overhead()];
    token[Protection::WRAP_PREFIX..][..plaintext.len()].copy_from_slice(&plaintext);
    let mut wrapping = initiator.wrapping(plaintext.len());
    let mut steps = 1;
    while wrapping.step(&mut token, 4096).expect("the length") == Progress::More {
        steps += 1;
        let plain = Protection::WRAP_PREFIX + 4096 * steps;
        assert!(
            token[plain.min(token.len() - 60)..token.len() - 60]
                .iter()
                .all(|&byte| byte == 1)
        );
    }
    assert_eq!(steps, 16);
    rotate(&mut token, 28);
    let mut unwrapping = acceptor.unwrapping(&token).expect("a good header");
    let mut steps = 1;
    while unwrapping.step(&mut token, 4096).expect("a good token") == Progress::More {
        steps += 1;
    }
    // Two passes of the rotation over all bytes, and the decryption.
    assert!((32 + 16..=35 + 16).contains(&steps), "{steps}");
}

#[test]
fn gss_priv_05_a_million_tokens_have_as_many_confounders() {
    let confounder = |_| {
        let mut confounder = [0; 16];
        crate::krb5::random::fill(&mut confounder);
        u128::from_ne_bytes(confounder)
    };
    let mut all: Vec<_> = (0..1_000_000).map(confounder).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1_000_000);
}

#[test]
fn gss_priv_05_each_token_has_another_confounder_and_number() {
    let (initiator, _) = ends(Enctype::Aes256Sha384);
    let tokens: Vec<_> = (0..100).map(|_| wrap(&initiator, b"same", 64)).collect();
    let bodies: HashSet<_> = tokens.iter().map(|token| token[16..32].to_vec()).collect();
    assert_eq!(bodies.len(), tokens.len());
    for (token, number) in tokens.iter().zip(5_u64..) {
        assert_eq!(token[8..16], number.to_be_bytes());
    }
}

#[test]
fn keys_of_another_length_are_refused() {
    for enctype in Enctype::ALL {
        let mut keys = keys(enctype, true);
        keys.key.push(1);
        assert!(Protection::new(&keys, Side::Acceptor).is_none());
    }
}

#[test]
fn gss_lim_07_keys_are_not_printed() {
    let text = format!("{:?}", keys(Enctype::Aes128Sha1, true));
    assert_eq!(text, "ContextKeys { enctype: Aes128Sha1, .. }");
}

fn enctypes() -> impl Strategy<Value = Enctype> {
    prop::sample::select(&Enctype::ALL[..])
}

proptest! {
    #[test]
    fn gss_priv_01_what_is_wrapped_in_slices_is_unwrapped_in_others(
        enctype in enctypes(),
        plaintext in prop::collection::vec(any::<u8>(), 0..2000),
        slices in (1_usize..600, 1_usize..600),
        rotation in any::<u16>(),
    ) {
        let (initiator, acceptor) = ends(enctype);
        for (from, to) in [(&initiator, &acceptor), (&acceptor, &initiator)] {
            let mut token = wrap(from, &plaintext, slices.0);
            rotate(&mut token, rotation);
            let range = unwrap(to, &mut token, slices.1).expect("a good token");
            prop_assert_eq!(&token[range], &plaintext[..]);
        }
    }

    #[test]
    fn gss_int_01_a_mic_by_parts_is_that_of_the_whole(
        enctype in enctypes(),
        message in prop::collection::vec(any::<u8>(), 0..2000),
        part in 1_usize..600,
    ) {
        let (initiator, acceptor) = ends(enctype);
        let mut making = initiator.mic_in_parts(Side::Initiator);
        let mut checking = acceptor.mic_in_parts(Side::Initiator);
        for part in message.chunks(part) {
            making.update(part);
            checking.update(part);
        }
        let mut token = vec![0; initiator.mic_length()];
        prop_assert_eq!(making.finish(&mut token), token.len());
        prop_assert!(acceptor.verify_mic(&message, &token));
        prop_assert!(checking.verify(&token));
    }

    #[test]
    fn noise_is_no_token(
        enctype in enctypes(),
        mut noise in prop::collection::vec(any::<u8>(), 0..300),
        header in any::<bool>(),
    ) {
        let (_, acceptor) = ends(enctype);
        if header && noise.len() >= 4 {
            noise[..4].copy_from_slice(&[5, 4, 6, 0xff]);
        }
        prop_assert!(unwrap(&acceptor, &mut noise, 16).is_err());
        prop_assert!(!acceptor.verify_mic(b"message", &noise));
    }
}
