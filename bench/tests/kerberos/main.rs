//! The requester with Kerberos against a whole service, with tickets of a real KDC.

#[path = "../../../target/gss/tests/support/realm.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod realm;

mod callbacks;
mod failures;
mod loads;
mod probe;
mod sessions;

use std::sync::Arc;

use clap::Parser;
use millrace::service::Service;
use millrace_admin::config;
use millrace_bench::client::Client;
use realm::{REALM, Realm, RealmOptions, in_realm};

#[derive(Parser)]
struct ProgramArguments {
    #[command(flatten)]
    client: Client,
}

/// The names of `--security` that take a ticket.
const KERBEROS: [&str; 3] = ["krb5", "krb5i", "krb5p"];

/// Runs a test in a realm where `user1` has tickets.
fn with_tickets(test: &str, body: impl FnOnce(&Realm)) {
    in_realm(test, &RealmOptions::default(), |realm| {
        realm.ticket("user1", "user1.keytab", "nfs/server.test", &[], &[]);
        body(realm);
    });
}

/// A service with an export of this security, and the realm's keys.
fn service(realm: &Realm, security: &str) -> Service {
    start(security, &gss(realm))
}

/// The realm's keys, as the configuration names them.
fn gss(realm: &Realm) -> String {
    format!(
        "gss: {{ keytab: '{}' }}",
        realm.file("nfs.keytab").display()
    )
}

fn start(security: &str, more: &str) -> Service {
    let text = format!(
        "reactors: {{ cores: [0], poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 64MiB }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 32MiB }}, \
         security: [{security}], clients: [\"127.0.0.0/8\"] }}]\n\
         {more}"
    );
    let config = config::parse(&text, "test").expect("good");
    Service::start(Arc::new(config)).expect("starts")
}

/// A client of the service, with tickets for `nfs/server.test`.
fn client(service: &Service, security: &str) -> Client {
    client_for(service, security, &format!("nfs/server.test@{REALM}"))
}

fn client_for(service: &Service, security: &str, principal: &str) -> Client {
    let addresses = service.addresses();
    let target = addresses.fabric[0].to_string();
    let mount = addresses.rpc.expect("served").to_string();
    let line = [
        "test",
        "--target",
        &target,
        "--mount",
        &mount,
        "--settle",
        "0ms",
        "--timeout",
        "20s",
        "--security",
        security,
        "--principal",
        principal,
    ];
    ProgramArguments::try_parse_from(line)
        .expect("parses")
        .client
}
