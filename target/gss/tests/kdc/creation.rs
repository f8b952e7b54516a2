//! Creation of contexts.

use std::time::{Duration, Instant};

use millrace_gss::{
    Accepted, ContextFlags, Enctype, HandleError, Kerberos, MachinePolicy, Mechanism, Settings,
    status,
};

use super::support::{Realm, RealmOptions, in_realm};
use super::{REALM, connected, establish, first_token, initiator, service, settings, target};

fn user_ticket(realm: &Realm) {
    realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
}

#[test]
fn gss_ctx_05_a_context_is_created_and_its_window_signed() {
    let test = "creation::gss_ctx_05_a_context_is_created_and_its_window_signed";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let service = service(settings(realm));
        let mut initiator = initiator(realm, ContextFlags::MUTUAL);
        let token = first_token(&mut initiator);
        let established = establish(&service, token);
        assert_eq!(
            (established.major, established.window),
            (status::COMPLETE, 2048)
        );
        assert!(
            !established.token.is_empty(),
            "the reply to a mutual request"
        );
        initiator.step(&established.token).expect("a good reply");
        let context = established.context.expect("complete");
        let window = established.window.to_be_bytes();
        let mut verifier = vec![0; context.mic_length()];
        assert_eq!(context.sign(&window, &mut verifier), verifier.len());
        assert!(initiator.verifies(&window, &verifier));
        let identity = context.identity();
        assert_eq!(*identity.principal, *target("user1"));
        // GSS-SEC-12: far more groups than AUTH_SYS has.
        let user = identity.user.as_ref().expect("known");
        assert_eq!((user.uid, user.gid, user.groups.len()), (1001, 100, 100));
        let counters = service.counters();
        assert_eq!((counters.created.get(), counters.contexts.get()), (1, 1));
        assert_eq!(counters.pending.get(), 0);
        // GSS-SEC-13.
        let handle = *established.handle.expect("complete").as_bytes();
        assert_eq!(service.flush(Some(&target("other"))), 0);
        assert!(service.context(&handle, Instant::now()).is_ok());
        assert_eq!(service.flush(Some(&target("user1"))), 1);
        let found = service.context(&handle, Instant::now());
        assert_eq!(found.err(), Some(HandleError::Unknown));
    });
}

#[test]
fn gss_ctx_10_any_nfs_key_is_taken_and_no_host_key() {
    let test = "creation::gss_ctx_10_any_nfs_key_is_taken_and_no_host_key";
    in_realm(test, &RealmOptions::default(), |realm| {
        realm.admin("addprinc -randkey nfs/alias.test");
        realm.take_keys("nfs/alias.test", "nfs.keytab");
        realm.take_keys("host/client.test", "nfs.keytab");
        let service = service(settings(realm));
        for (name, is_taken) in [
            ("nfs/server.test", true),
            ("nfs/alias.test", true),
            ("host/client.test", false),
        ] {
            realm.ticket("user1", "user1.keytab", name, &[], &[]);
            let mut initiator = super::initiator_of(realm, &target(name), ContextFlags::MUTUAL);
            let established = establish(&service, first_token(&mut initiator));
            assert_eq!(established.major == 0, is_taken, "{name}");
        }
        // One host only.
        let one = super::service(Settings {
            principal: "nfs@alias.test".to_owned(),
            ..settings(realm)
        });
        user_ticket(realm);
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        assert_ne!(establish(&one, token).major, 0);
    });
}

#[test]
fn gss_ctx_11_replay_sequence_and_delegation_are_ignored() {
    let test = "creation::gss_ctx_11_replay_sequence_and_delegation_are_ignored";
    in_realm(test, &RealmOptions::default(), |realm| {
        realm.ticket("user1", "user1.keytab", "nfs/server.test", &["-f"], &[]);
        let service = service(settings(realm));
        let (initiator, context) = connected(realm, &service, ContextFlags::ALL);
        let tokens: Vec<_> = (0..4).map(|_| initiator.mic(b"message")).collect();
        // In any order, and again.
        for token in tokens.iter().rev().chain(&tokens) {
            assert!(context.verify_mic(b"message", token));
        }
        let without = connected(realm, &service, ContextFlags::NONE);
        assert!(without.1.verify_mic(b"message", &without.0.mic(b"message")));
    });
}

/// Without replay cache, a token makes another context each time.
#[test]
fn gss_ctx_11_a_repeated_token_costs_a_slot_only() {
    let test = "creation::gss_ctx_11_a_repeated_token_costs_a_slot_only";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let service = service(settings(realm));
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        let handles = [0; 3].map(|_| establish(&service, token.clone()).handle);
        assert!(handles.iter().all(Option::is_some));
        assert!(handles[0] != handles[1] && handles[1] != handles[2]);
        assert_eq!(service.list().len(), 3);
    });
}

#[test]
fn gss_ctx_12_encryption_types_are_those_of_the_settings() {
    let test = "creation::gss_ctx_12_encryption_types_are_those_of_the_settings";
    in_realm(test, &RealmOptions::default(), |realm| {
        user_ticket(realm);
        let all = service(settings(realm));
        let (_, context) = connected(realm, &all, ContextFlags::MUTUAL);
        let used = context.enctype();
        let others = Enctype::ALL.into_iter().filter(|other| *other != used);
        let few = service(Settings {
            enctypes: others.collect(),
            ..settings(realm)
        });
        let established = establish(
            &few,
            first_token(&mut initiator(realm, ContextFlags::MUTUAL)),
        );
        assert_eq!(established.major, status::FAILURE);
        assert!(established.handle.is_none() && established.token.is_empty());
        assert_eq!(
            few.counters()
                .failed(millrace_gss::FailureReason::Enctype)
                .get(),
            1
        );
    });
}

#[test]
fn gss_ctx_12_rc4_is_refused() {
    let test = "creation::gss_ctx_12_rc4_is_refused";
    let options = RealmOptions {
        keys: "arcfour-hmac:normal",
        permitted: "arcfour-hmac",
        ..RealmOptions::default()
    };
    in_realm(test, &options, |realm| {
        user_ticket(realm);
        let kerberos = Kerberos::load(&settings(realm)).expect("a keytab");
        let token = first_token(&mut initiator(realm, ContextFlags::MUTUAL));
        let Accepted::Failed(failure) = kerberos.accept(&token) else {
            panic!("a context with RC4");
        };
        assert!(failure.text.contains("RC4"), "{}", failure.text);
        let service = service(settings(realm));
        let established = establish(
            &service,
            first_token(&mut initiator(realm, ContextFlags::MUTUAL)),
        );
        assert_eq!(established.major, status::FAILURE);
        assert_eq!(
            service
                .counters()
                .failed(millrace_gss::FailureReason::Enctype)
                .get(),
            1
        );
    });
}

#[test]
fn gss_hdl_03_a_context_ends_with_its_ticket() {
    let test = "creation::gss_hdl_03_a_context_ends_with_its_ticket";
    let options = RealmOptions {
        life: "1min",
        ..RealmOptions::default()
    };
    in_realm(test, &options, |realm| {
        user_ticket(realm);
        let service = service(settings(realm));
        connected(realm, &service, ContextFlags::MUTUAL);
        let remaining = service.list()[0].remaining;
        // One minute, and the library's 300 seconds of skew.
        assert!(remaining <= Duration::from_secs(360), "{remaining:?}");
        assert!(remaining > Duration::from_secs(60), "{remaining:?}");
    });
}

#[test]
fn gss_sec_10_machines_are_anonymous_or_user_0() {
    let test = "creation::gss_sec_10_machines_are_anonymous_or_user_0";
    in_realm(test, &RealmOptions::default(), |realm| {
        realm.ticket(
            "host/client.test",
            "host.keytab",
            "nfs/server.test",
            &[],
            &[],
        );
        for (machine, uid) in [
            (MachinePolicy::Anonymous, None),
            (MachinePolicy::Root, Some(0)),
        ] {
            let service = service(Settings {
                machine,
                ..settings(realm)
            });
            let (_, context) = connected(realm, &service, ContextFlags::MUTUAL);
            let identity = context.identity();
            assert_eq!(*identity.principal, *format!("host/client.test@{REALM}"));
            assert_eq!(identity.user.as_ref().map(|user| user.uid), uid);
        }
    });
}
