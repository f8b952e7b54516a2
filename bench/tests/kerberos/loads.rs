//! Loads, in both versions of NFS.

use std::time::Duration;

use millrace_bench::load::{Engine, NfsVersion, Operation, ServerCpu, Until, Workload};

use super::{KERBEROS, service, with_tickets};

/// Calls of a load.
const CALLS: u64 = 100;

#[test]
fn gss_sec_06_loads_of_each_version_and_service_move_the_right_data() {
    let test = "loads::gss_sec_06_loads_of_each_version_and_service_move_the_right_data";
    with_tickets(test, |realm| {
        for security in KERBEROS {
            let service = service(realm, security);
            let client = super::client(&service, security);
            for nfs in [NfsVersion::Three, NfsVersion::FourTwo] {
                let mut engine = Engine::speaking(&client, nfs, 2, 8, 1 << 20).expect(security);
                for (operation, size) in [
                    (Operation::Mixed, 4096),
                    (Operation::Mixed, 100_000),
                    (Operation::Getattr, 0),
                    (Operation::Lookup, 0),
                ] {
                    let load = Workload {
                        verify: true,
                        random: true,
                        until: Until::Count(CALLS),
                        ..Workload::new(operation, size, 8, Duration::ZERO)
                    };
                    let measured = engine.run(&load, &ServerCpu::default(), &mut |_| {});
                    let measured = measured.expect(security);
                    assert_eq!((measured.operations, measured.mismatches), (CALLS, 0));
                }
                engine.finish().expect("removed");
            }
        }
    });
}
