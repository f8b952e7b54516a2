//! Calls of the server under the context of its client.

use std::time::{Duration, Instant};

use millrace_bench::client;
use millrace_bench::requester::Session;
use millrace_bench::requester::session::{Callbacks, ClientSession, Error, RecalledDelegation};
use millrace_wire::nfs3::{CreateHow, SetAttributes};
use millrace_wire::nfs4::{OperationResults, OperationStatus, share};

use super::{KERBEROS, service, with_tickets};

/// After this, a recall does not come any more.
const PATIENCE: Duration = Duration::from_secs(60);
const PATH: (&str, &str) = ("/scratch", "file");

fn recalled(holder: &mut Session, callbacks: &Callbacks) -> RecalledDelegation {
    let start = Instant::now();
    loop {
        if let Some(recalled) = callbacks.next_recalled() {
            return recalled;
        }
        assert!(start.elapsed() < PATIENCE, "no CB_RECALL came");
        holder.turn(&mut |_| {});
    }
}

/// The status flags that SEQUENCE shows.
fn flags(session: &mut Session, of: &mut ClientSession) -> u32 {
    let flags = session.in_session(of, &[], |results| match results {
        [OperationResults::Sequence(Ok(reply))] => Some(reply.status_flags),
        _ => None,
    });
    flags.expect("answered")
}

#[test]
fn gss_sec_08_a_delegation_is_recalled_under_each_service() {
    let test = "callbacks::gss_sec_08_a_delegation_is_recalled_under_each_service";
    with_tickets(test, |realm| {
        for (security, version_two) in KERBEROS
            .into_iter()
            .flat_map(|one| [(one, false), (one, true)])
        {
            let service = service(realm, security);
            let mut client = super::client(&service, security);
            client.options.version_two = version_two;
            let pool = client::pool(16 << 20).expect("memory");
            let mut settings = client.settings(4);
            settings.reverse_credits = 4;
            let mut holder = client.session(&pool, settings).expect(security);
            let root = client.root().expect("mounts");
            let how = CreateHow::Guarded(SetAttributes::default());
            holder.create(root, b"file", how).expect("created");
            let callbacks = holder.serve_callbacks();
            let session = holder.create_session(1, b"holder", [1; 8], 1);
            let mut session = session.expect(security);
            let held = holder.open_path(&mut session, PATH, share::READ | share::WANT_READ);
            let held = held.expect("opened");
            let delegation = held.delegation.expect("a delegation");

            let mut other = client.session(&pool, client.settings(4)).expect(security);
            let others = other.create_session(1, b"other", [1; 8], 1);
            let mut others = others.expect(security);
            let access = share::WRITE | share::WANT_NONE;
            let refused = other.open_path(&mut others, PATH, access);
            let is_delayed = matches!(refused, Err(Error::Nfs4(_, OperationStatus::Delay)));
            assert!(is_delayed, "{refused:?}");
            let expected = RecalledDelegation {
                handle: held.handle.clone(),
                delegation,
            };
            assert_eq!(recalled(&mut holder, &callbacks), expected);
            holder
                .return_delegation(&mut session, &expected)
                .expect("returned");
            let opened = other.open_path(&mut others, PATH, access).expect("opened");
            // The reply to the callback was taken, so that its path is good.
            assert_eq!(flags(&mut holder, &mut session), 0);
            assert_eq!(holder.connection().counters().refused, 0);
            other.end_session(others, &opened).expect("ended");
            holder.end_session(session, &held).expect("ended");
            other.close();
            holder.close();
        }
    });
}
