//! Contexts with a real KDC, and tokens exchanged with MIT's library.

#[path = "../support/mod.rs"]
mod support;

mod creation;
mod failures;
mod initiators;
mod tokens;

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use millrace_gss::{
    ContextFlags, ContextRef, Directory, Establishment, GssService, Initiator, Kerberos, Settings,
    User,
};
use support::{REALM, Realm, block_on};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Knows `user1`, who is in 100 groups.
struct OneUser;

impl Directory for OneUser {
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>> {
        Ok((name == "user1").then(|| User {
            uid: 1001,
            gid: 100,
            groups: (2000..2100).take(groups_max).collect(),
        }))
    }
}

fn settings(realm: &Realm) -> Settings {
    Settings {
        keytab: realm.file("nfs.keytab"),
        ..Settings::default()
    }
}

fn service(settings: Settings) -> GssService {
    let kerberos = Kerberos::load(&settings).expect("the library and a keytab");
    GssService::with_directory(settings, kerberos, OneUser)
}

fn target(name: &str) -> String {
    format!("{name}@{REALM}")
}

fn initiator(realm: &Realm, flags: ContextFlags) -> Initiator {
    initiator_of(realm, &target("nfs/server.test"), flags)
}

fn initiator_of(realm: &Realm, target: &str, flags: ContextFlags) -> Initiator {
    Initiator::new(Some(&realm.cache()), target, flags).expect("tickets")
}

/// The first token of a client.
fn first_token(initiator: &mut Initiator) -> Vec<u8> {
    initiator.step(&[]).expect("a ticket").token
}

fn establish(service: &GssService, token: Vec<u8>) -> Establishment {
    block_on(service.establish(token, None, CLIENT))
}

/// A complete context, from both sides.
fn connected(realm: &Realm, service: &GssService, flags: ContextFlags) -> (Initiator, ContextRef) {
    let mut initiator = initiator(realm, flags);
    let token = first_token(&mut initiator);
    let established = establish(service, token);
    assert_eq!(established.major, 0);
    if !established.token.is_empty() {
        initiator.step(&established.token).expect("a good reply");
    }
    let handle = established.handle.expect("complete");
    let context = service.context(handle.as_bytes(), Instant::now());
    (initiator, context.expect("known"))
}
