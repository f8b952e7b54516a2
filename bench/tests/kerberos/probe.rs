//! The probe's questions about RPCSEC_GSS, to a service with Kerberos.

use clap::Parser;
use millrace_bench::conformance::Conformance;

use super::realm::REALM;
use super::{gss, start, with_tickets};

/// The recorded answers of a service with Kerberos.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/kerberos.md");

#[derive(Parser)]
struct ProbeArguments {
    #[command(flatten)]
    probe: Conformance,
}

#[test]
fn answers_about_kerberos_are_as_recorded() {
    with_tickets("probe::answers_about_kerberos_are_as_recorded", |realm| {
        let service = start("krb5, sys", &gss(realm));
        let addresses = service.addresses();
        let target = addresses.fabric[0].to_string();
        let port = addresses.rpc.expect("served").port().to_string();
        let principal = format!("nfs/server.test@{REALM}");
        let server = ["probe", &target, "--mount-port", &port, "--nfs-port", &port];
        let ticket = ["--principal", &principal];
        let chosen = ["--settle", "0ms", "--only", "GSS", "--expect", RECORDED];
        let line = server.iter().chain(&ticket).chain(&chosen);
        let probe = ProbeArguments::try_parse_from(line).expect("parses").probe;
        assert!(probe.run().expect("the service answers"), "not as recorded");
    });
}
