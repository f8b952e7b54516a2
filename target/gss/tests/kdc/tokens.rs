//! Tokens of both sides.

use std::ops::Range;

use millrace_gss::{ContextFlags, ContextRef, Damaged, Enctype, Progress};

use super::support::{RealmOptions, in_realm};
use super::{connected, service, settings};

const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 100, 4096, 65_537, 1 << 20];
const SLICE: usize = 16 << 10;

fn wrap(context: &ContextRef, message: &[u8]) -> Vec<u8> {
    let mut token = vec![0; message.len() + context.wrap_overhead()];
    token[context.wrap_prefix()..][..message.len()].copy_from_slice(message);
    let mut wrapping = context.wrapping(message.len());
    while wrapping.step(&mut token, SLICE).expect("the length") == Progress::More {}
    token
}

fn unwrap(context: &ContextRef, token: &mut [u8]) -> Result<Range<usize>, Damaged> {
    let mut unwrapping = context.unwrapping(token)?;
    loop {
        if let Progress::Done(range) = unwrapping.step(token, SLICE)? {
            return Ok(range);
        }
    }
}

/// Tokens of contexts with one encryption type, both ways.
fn both_ways(test: &str, enctype: Enctype, name: &str) {
    let options = RealmOptions {
        keys: &format!("{name}:normal"),
        permitted: name,
        ..RealmOptions::default()
    };
    in_realm(test, &options, |realm| {
        realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
        let service = service(settings(realm));
        for flags in [ContextFlags::MUTUAL, ContextFlags::NONE] {
            let (initiator, context) = connected(realm, &service, flags);
            assert_eq!(context.enctype(), enctype);
            for length in LENGTHS {
                let message: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
                let token = initiator.mic(&message);
                assert_eq!(token.len(), context.mic_length());
                assert!(context.verify_mic(&message, &token), "{length}");
                let mut own = vec![0; context.mic_length()];
                assert_eq!(context.sign(&message, &mut own), own.len());
                assert!(initiator.verifies(&message, &own), "{length}");
                // GSS-CRED-04: reflected.
                assert!(!context.verify_mic(&message, &own), "{length}");

                let mut token = initiator.wrap(&message, true);
                assert_eq!(token.len(), length + context.wrap_overhead());
                let range = unwrap(&context, &mut token).expect("a good token");
                assert!(token[range] == message, "{length}");
                let own = wrap(&context, &message);
                assert!(
                    initiator.unwrap(&own) == Some((message.clone(), true)),
                    "{length}"
                );
                assert!(unwrap(&context, &mut own.clone()).is_err());

                // GSS-PRIV-03: it verifies, but is not sealed.
                let mut plain = initiator.wrap(&message, false);
                assert_eq!(unwrap(&context, &mut plain), Err(Damaged), "{length}");
            }
        }
    });
}

#[test]
fn gss_priv_01_mit_and_we_take_each_others_tokens_aes256_sha2() {
    both_ways(
        "tokens::gss_priv_01_mit_and_we_take_each_others_tokens_aes256_sha2",
        Enctype::Aes256Sha384,
        "aes256-cts-hmac-sha384-192",
    );
}

#[test]
fn gss_priv_01_mit_and_we_take_each_others_tokens_aes128_sha2() {
    both_ways(
        "tokens::gss_priv_01_mit_and_we_take_each_others_tokens_aes128_sha2",
        Enctype::Aes128Sha256,
        "aes128-cts-hmac-sha256-128",
    );
}

#[test]
fn gss_priv_01_mit_and_we_take_each_others_tokens_aes256_sha1() {
    both_ways(
        "tokens::gss_priv_01_mit_and_we_take_each_others_tokens_aes256_sha1",
        Enctype::Aes256Sha1,
        "aes256-cts-hmac-sha1-96",
    );
}

#[test]
fn gss_priv_01_mit_and_we_take_each_others_tokens_aes128_sha1() {
    both_ways(
        "tokens::gss_priv_01_mit_and_we_take_each_others_tokens_aes128_sha1",
        Enctype::Aes128Sha1,
        "aes128-cts-hmac-sha1-96",
    );
}
