//! Contexts from the side of a client: its keys, and why it gets none.

use std::fs;
use std::time::Duration;

use millrace_gss::{
    ContextFlags, GssService, Initiator, InitiatorError, Kerberos, Protection, Side,
};

use super::support::{REALM, Realm, RealmOptions, in_realm};
use super::{connected, initiator, service, settings, target};

fn user_ticket(realm: &Realm) {
    realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
}

/// Why there is no first token for a target.
fn refused(target: &str) -> String {
    let initiator = Initiator::new(None, target, ContextFlags::MUTUAL);
    let made = initiator.and_then(|mut initiator| initiator.step(&[]));
    made.expect_err("no token").to_string()
}

fn expect_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn both_ends_have_the_same_keys() {
    let test = "initiators::both_ends_have_the_same_keys";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let service: GssService = service(settings(realm));
        for flags in [ContextFlags::MUTUAL, ContextFlags::NONE] {
            let (initiator, context) = connected(realm, &service, flags);
            let (keys, lifetime) = initiator.into_keys().expect("complete");
            assert!(lifetime > Duration::from_hours(9) && lifetime <= Duration::from_hours(10));
            let own = Protection::new(&keys, Side::Initiator).expect("a key");
            let mut mic = vec![0; own.mic_length()];
            assert_eq!(own.sign(b"header", &mut mic), mic.len());
            assert!(context.verify_mic(b"header", &mic));
            assert_eq!(context.sign(b"window", &mut mic), mic.len());
            assert!(own.verify_mic(b"window", &mic));
        }
    });
}

#[test]
fn services_are_named_by_host_and_by_principal_with_the_cache_of_the_environment() {
    let test =
        "initiators::services_are_named_by_host_and_by_principal_with_the_cache_of_the_environment";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        for name in [
            "nfs@server.test",
            "nfs/server.test",
            &target("nfs/server.test"),
        ] {
            let initiator = Initiator::new(None, name, ContextFlags::MUTUAL);
            let token = initiator.expect("tickets").step(&[]).expect(name);
            assert!(!token.token.is_empty() && !token.is_complete, "{name}");
        }
    });
}

#[test]
fn a_context_that_is_not_complete_has_no_keys() {
    let test = "initiators::a_context_that_is_not_complete_has_no_keys";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let mut begun = initiator(realm, ContextFlags::MUTUAL);
        begun.into_keys().map(drop).expect_err("not begun");
        begun = initiator(realm, ContextFlags::MUTUAL);
        begun.step(&[]).expect("a ticket");
        begun.into_keys().map(drop).expect_err("no answer yet");
    });
}

#[test]
fn an_answer_of_another_acceptor_is_refused() {
    let test = "initiators::an_answer_of_another_acceptor_is_refused";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let mut one = initiator(realm, ContextFlags::MUTUAL);
        let mut other = initiator(realm, ContextFlags::MUTUAL);
        one.step(&[]).expect("a ticket");
        let service = service(settings(realm));
        let token = other.step(&[]).expect("a ticket").token;
        let answer = super::establish(&service, token).token;
        let error = one.step(&answer).expect_err("it is for the other");
        assert!(matches!(error, InitiatorError::Other { .. }), "{error}");
        other.step(&answer).expect("its own");
    });
}

#[test]
fn errors_say_what_to_do() {
    let test = "initiators::errors_say_what_to_do";
    in_realm(test, &RealmOptions::default(), |realm| {
        expect_words(&refused("nfs@server.test"), &["kinit", "KRB5CCNAME"]);
        user_ticket(realm);
        let missing = Initiator::new(
            Some("FILE:/missing"),
            "nfs@server.test",
            ContextFlags::MUTUAL,
        );
        let error = missing.and_then(|mut begun| begun.step(&[]));
        expect_words(
            &error.expect_err("no cache").to_string(),
            &["kinit", "KRB5CCNAME"],
        );
        let words = ["KDC knows no service nfs@other.test", "host name"];
        expect_words(&refused("nfs@other.test"), &words);
        let principal = format!("nfs/other.test@{REALM}");
        expect_words(&refused(&principal), &["KDC knows no service", &principal]);
        // Without a KDC, tickets of the cache are still good, and no others can be had.
        let pid = fs::read_to_string(realm.file("kdc.pid")).expect("a KDC");
        let pid = pid.trim().parse::<i32>().expect("a number").to_string();
        let killed = std::process::Command::new("kill").arg(pid).status();
        assert!(killed.expect("kill").success());
        expect_words(&refused("nfs@third.test"), &["no KDC answers", "krb5.conf"]);
        let known = Initiator::new(None, "nfs@server.test", ContextFlags::MUTUAL);
        known.expect("tickets").step(&[]).expect("in the cache");
    });
}

#[test]
fn an_expired_ticket_is_called_so() {
    let test = "initiators::an_expired_ticket_is_called_so";
    let options = RealmOptions {
        clock: "+12h",
        ..RealmOptions::default()
    };
    in_realm(test, &options, |realm| {
        if !realm.file("cc").exists() {
            user_ticket(realm);
            return;
        }
        expect_words(&refused("nfs@server.test"), &["expired", "kinit"]);
        // The keytab of the service is of no use to the client.
        Kerberos::load(&settings(realm)).expect("a keytab");
    });
}
