//! Failures of creation, and changes of the keytab.

use std::fs;

use millrace_gss::{
    Accepted, ContextFlags, Failure, FailureReason, Kerberos, Mechanism, Settings, status,
};

use super::support::{Realm, RealmOptions, in_realm};
use super::{establish, first_token, initiator, service, settings};

fn user_ticket(realm: &Realm) {
    realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
}

/// What the mechanism says of a token.
fn failure(kerberos: &Kerberos, token: &[u8]) -> Failure {
    match kerberos.accept(token) {
        Accepted::Failed(failure) => failure,
        _ => panic!("the token is taken"),
    }
}

fn expect(failure: &Failure, reason: FailureReason, words: &[&str]) {
    assert_eq!(failure.reason, reason, "{}", failure.text);
    assert_ne!(failure.major, 0);
    for word in words {
        assert!(failure.text.contains(word), "{word}: {}", failure.text);
    }
}

#[test]
fn gss_ctx_07_changed_keys_at_the_kdc() {
    let test = "failures::gss_ctx_07_changed_keys_at_the_kdc";
    in_realm(test, &RealmOptions::default(), |realm| {
        let settings = settings(realm);
        let kerberos = Kerberos::load(&settings).expect("a keytab");
        realm.admin("cpw -randkey nfs/server.test");
        user_ticket(realm);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        let text = ["another version of the key", "kvno 2"];
        expect(&failure(&kerberos, &token), FailureReason::Key, &text);
        // Fetched again, they are taken up live.
        realm.take_keys("nfs/server.test", "nfs.keytab");
        kerberos.refresh().expect("a good keytab");
        assert!(matches!(kerberos.accept(&token), Accepted::Complete(_)));
    });
}

#[test]
fn gss_ctx_07_a_ticket_for_another_service() {
    let test = "failures::gss_ctx_07_a_ticket_for_another_service";
    in_realm(test, &RealmOptions::default(), |realm| {
        realm.admin("addprinc -randkey nfs/other.test");
        realm.ticket("user1", "user1.keytab", "nfs/other.test", &[], &[]);
        let kerberos = Kerberos::load(&settings(realm)).expect("a keytab");
        let target = super::target("nfs/other.test");
        let mut initiator = super::initiator_of(realm, &target, ContextFlags::MUTUAL);
        let text = ["another service", "nfs/server.test@", "nfs/other.test"];
        let failure = failure(&kerberos, &first_token(&mut initiator));
        expect(&failure, FailureReason::Key, &text);
    });
}

#[test]
fn gss_ctx_07_keys_of_another_kdc() {
    let test = "failures::gss_ctx_07_keys_of_another_kdc";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        // The same name and version, but other keys.
        realm.admin("delprinc -force nfs/server.test");
        realm.admin("addprinc -randkey nfs/server.test");
        fs::remove_file(realm.file("nfs.keytab")).expect("a keytab");
        realm.take_keys("nfs/server.test", "nfs.keytab");
        let kerberos = Kerberos::load(&settings(realm)).expect("a keytab");
        let text = ["cannot be decrypted", "another KDC"];
        expect(&failure(&kerberos, &token), FailureReason::Key, &text);
    });
}

#[test]
fn gss_ctx_07_noise_is_no_token() {
    let test = "failures::gss_ctx_07_noise_is_no_token";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        let service = service(settings(realm));
        let mut changed = Vec::new();
        // GSS-LIM-04: truncations with a frame that fits, and changed bytes.
        for length in (17..token.len()).step_by(7) {
            let mut cut = token[..length].to_vec();
            let inner = u16::try_from(length - 4).expect("short");
            cut[1] = 0x82;
            cut[2..4].copy_from_slice(&inner.to_be_bytes());
            changed.push(cut);
        }
        for at in (0..token.len()).step_by(3) {
            let mut other = token.clone();
            other[at] ^= 0x55;
            changed.push(other);
        }
        let count = u64::try_from(changed.len()).expect("few");
        let mut taken = 0;
        for token in changed {
            let established = establish(&service, token);
            taken += u64::from(established.major == 0);
            let is_refused = established.handle.is_none() && established.token.is_empty();
            assert!(established.major == 0 || is_refused);
        }
        // A few bytes are not covered, such as the key version of a ticket.
        assert!(taken < count / 10, "{taken} of {count}");
        let counters = service.counters();
        let failed = FailureReason::ALL.map(|reason| counters.failed(reason).get());
        assert_eq!(failed.iter().sum::<u64>(), count - taken);
        // It still serves.
        assert_eq!(establish(&service, token).major, status::COMPLETE);
    });
}

/// A first token of Kerberos with this content.
fn framed(content: &[u8]) -> Vec<u8> {
    let mut inner = vec![0x06, 9];
    inner.extend(millrace_gss::KERBEROS_OID);
    inner.extend(content);
    let length = u32::try_from(inner.len()).expect("small").to_be_bytes();
    [&[0x60, 0x84][..], &length, &inner].concat()
}

#[test]
fn gss_lim_04_large_and_deep_tokens_are_refused_in_time() {
    let test = "failures::gss_lim_04_large_and_deep_tokens_are_refused_in_time";
    in_realm(test, &RealmOptions::default(), |realm| {
        let service = service(settings(realm));
        let noise: Vec<u8> = (0_u32..1 << 20)
            .map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes()[0])
            .collect();
        let mut contents = vec![noise.clone(), [&[1, 0][..], &noise].concat()];
        // Elements in elements: of indefinite length, and each with all of the rest.
        contents.push([vec![1, 0, 0x6e, 0x80], [0x30, 0x80].repeat(1 << 19)].concat());
        let mut deep = Vec::new();
        for depth in 0..4000_u32 {
            let length = (4000 - depth) * 6 - 6;
            deep.extend([if depth == 0 { 0x6e } else { 0x30 }, 0x84]);
            deep.extend(length.to_be_bytes());
        }
        contents.push([vec![1, 0], deep].concat());
        // An element that claims to be as long as memory.
        contents.push(vec![1, 0, 0x6e, 0x84, 0xff, 0xff, 0xff, 0xff, 0x30]);
        for (at, content) in contents.iter().enumerate() {
            let established = establish(&service, framed(content));
            assert_ne!(established.major, status::COMPLETE, "{at}");
            assert_ne!(
                established.major,
                status::UNAVAILABLE,
                "{at}: the deadline passed"
            );
            assert!(established.handle.is_none() && established.token.is_empty());
        }
        user_ticket(realm);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        assert_eq!(establish(&service, token).major, status::COMPLETE);
    });
}

/// The client makes its token with the machine's clock. The process that accepts is ahead.
fn with_clock(test: &str, clock: &str, reason: FailureReason, words: &[&str]) {
    let options = RealmOptions {
        clock,
        ..RealmOptions::default()
    };
    in_realm(test, &options, |realm| {
        let path = realm.file("token");
        let Ok(token) = fs::read(&path) else {
            user_ticket(realm);
            let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
            fs::write(path, token).expect("written");
            return;
        };
        let kerberos = Kerberos::load(&settings(realm)).expect("a keytab");
        expect(&failure(&kerberos, &token), reason, words);
    });
}

#[test]
fn gss_ctx_07_clock_skew() {
    let test = "failures::gss_ctx_07_clock_skew";
    with_clock(test, "+10m", FailureReason::Clock, &["time service", "UTC"]);
}

#[test]
fn gss_ctx_07_an_ended_ticket() {
    let test = "failures::gss_ctx_07_an_ended_ticket";
    with_clock(test, "+12h", FailureReason::Expired, &["renew"]);
}

#[test]
fn a_keytab_that_cannot_be_used_is_an_error_at_start_and_later_leaves_the_old_one() {
    let test =
        "failures::a_keytab_that_cannot_be_used_is_an_error_at_start_and_later_leaves_the_old_one";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let load = |name: &str| {
            let settings = Settings {
                keytab: realm.file(name),
                ..settings(realm)
            };
            Kerberos::load(&settings)
                .map(drop)
                .expect_err("no keytab")
                .to_string()
        };
        assert!(
            load("missing").contains("No such file"),
            "{}",
            load("missing")
        );
        assert!(load("krb5.conf").contains("not a keytab"));
        assert!(load("host.keytab").contains("no key of nfs, only of: host/client.test@"));
        let kerberos = Kerberos::load(&settings(realm)).expect("a keytab");
        assert_eq!(kerberos.realms(), [super::REALM]);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        for damage in [&b""[..], b"noise"] {
            fs::write(realm.file("nfs.keytab"), damage).expect("written");
            kerberos.refresh().expect_err("no keytab");
            assert!(matches!(kerberos.accept(&token), Accepted::Complete(_)));
            // It is reported until it is repaired.
            kerberos.refresh().expect_err("no keytab");
        }
        fs::remove_file(realm.file("nfs.keytab")).expect("a file");
        kerberos.refresh().expect_err("no keytab");
        assert!(matches!(kerberos.accept(&token), Accepted::Complete(_)));
        realm.take_keys("nfs/server.test", "nfs.keytab");
        kerberos.refresh().expect("a good keytab");
        assert!(matches!(kerberos.accept(&token), Accepted::Complete(_)));
    });
}

/// The only helper looks at the keytab before it takes the next token.
#[test]
fn a_reload_takes_up_the_keytab_and_contexts_stay() {
    let test = "failures::a_reload_takes_up_the_keytab_and_contexts_stay";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let service = service(Settings {
            helpers: 1,
            ..settings(realm)
        });
        let (initiator, context) = super::connected(realm, &service, ContextFlags::MUTUAL);
        realm.admin("cpw -randkey nfs/server.test");
        fs::remove_file(realm.file("nfs.keytab")).expect("a keytab");
        realm.take_keys("nfs/server.test", "nfs.keytab");
        user_ticket(realm);
        let token = first_token(&mut super::initiator(realm, ContextFlags::MUTUAL));
        assert_ne!(establish(&service, token.clone()).major, status::COMPLETE);
        assert_eq!(service.counters().failed(FailureReason::Key).get(), 1);
        service.reload();
        assert_eq!(establish(&service, token).major, status::COMPLETE);
        let handle = context.handle();
        let found = service.context(handle.as_bytes(), std::time::Instant::now());
        assert!(found.is_ok_and(|old| old.verify_mic(b"header", &initiator.mic(b"header"))));
    });
}
