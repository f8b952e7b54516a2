//! Each version, and each way between them.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use millrace::rpc::reverse::{ReverseCall as ServersCall, ReverseError};
use millrace_bench::requester::{
    Call, CallError, Extension, RequesterState, ReverseCall, ReverseService, Settings,
};
use millrace_reactor::fabric::ControlPath;
use millrace_wire::nfs3::{
    CreateResults, NameInDirectory, Procedure, ReadlinkResults, SetAttributes, SymlinkArguments,
};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{Accepted, CallHeader, Credential, OpaqueAuth};
use millrace_wire::rpcrdma::{Optional, Version, Versions};
use millrace_wire::xdr::{self, Bulk, Encode, Encoder};

use crate::world::{World, pattern};

fn offering(versions: Versions) -> Settings {
    Settings {
        versions,
        credits: 16,
        calls: 16,
        ..Settings::default()
    }
}

/// Files of all sizes in and out again.
fn exercise(world: &mut World) {
    for (number, length) in [1, 700, 3000, 4096, 65_537, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let file = world.create(format!("file {number}").as_bytes());
        let data = world.memory(length);
        let cut = length / 3;
        let data = [data.slice(0..cut), data.slice(cut..length)];
        world.write(file, &data);
        let (bytes, _) = world.read(file, length);
        assert!(bytes == pattern(length), "{length} bytes");
    }
}

#[test]
fn reads_and_writes_in_both_versions() {
    for (server, client, spoken) in [
        (Versions::BOTH, Versions::ONE, Version::One),
        (Versions::BOTH, Versions::TWO, Version::Two),
        (Versions::BOTH, Versions::BOTH, Version::Two),
        (Versions::TWO, Versions::BOTH, Version::Two),
        (Versions::ONE, Versions::ONE, Version::One),
    ] {
        let mut world = World::new(server, offering(client));
        assert_eq!(world.connection.version(), Some(spoken));
        exercise(&mut world);
        let counters = world.connection.counters();
        assert_eq!(
            counters.invalidated > 0,
            world.client.remote_invalidation().receives,
            "the server takes keys back, where it may"
        );
        assert_eq!(
            (counters.surprises, counters.dropped, counters.errors),
            (0, 0, 0)
        );
    }
}

#[test]
fn rr2_neg_05_a_server_of_version_one_only_is_used_over_the_same_connection() {
    let mut world = World::new(Versions::ONE, offering(Versions::BOTH));
    let queue_pair = world.connection.queue_pair();
    assert_eq!(world.connection.version(), Some(Version::One));
    exercise(&mut world);
    assert_eq!(world.connection.queue_pair(), queue_pair);
    assert_eq!(world.connection.counters().errors, 1, "ERR_VERS");
}

#[test]
fn rr2_neg_06_servers_and_clients_without_a_common_version_part() {
    let world = World::new(Versions::ONE, offering(Versions::TWO));
    let error = CallError::Version { low: 1, high: 1 };
    assert_eq!(world.connection.state(), &RequesterState::NoVersion(error));

    let mut world = World::new(Versions::TWO, offering(Versions::ONE));
    let call = Call::nfs3(1, Procedure::Null, (), 0);
    let error = CallError::Version { low: 2, high: 2 };
    assert_eq!(world.call(&call, |_| ()), Err(error));
}

#[test]
fn rr2_neg_09_inline_messages_are_as_long_as_the_version_allows() {
    for (server, limit) in [(Versions::ONE, 1024), (Versions::BOTH, 4096)] {
        let mine = Settings {
            private_data: None,
            ..offering(Versions::BOTH)
        };
        let mut world = World::new(server, mine);
        exercise(&mut world);
        assert_eq!(world.connection.limits().send, limit);
        let inline = world.connection.counters().forms[0];
        // Writes of 1 and 700 bytes fit both, that of 3000 only the longer one. Reads and creates
        // are inline always.
        assert_eq!(inline, if limit == 1024 { 14 } else { 15 });
    }
}

#[test]
fn rr2_err_09_a_reply_longer_than_foreseen_comes_at_the_second_try() {
    let mine = Settings {
        private_data: Some(PrivateData {
            remote_invalidation: true,
            send_size: 1024,
            receive_size: 1024,
        }),
        ..offering(Versions::TWO)
    };
    let mut world = World::new(Versions::BOTH, mine);
    let arguments = SymlinkArguments {
        entry: NameInDirectory {
            directory: world.root,
            name: b"far away",
        },
        attributes: SetAttributes::default(),
        text: Bulk::inline(&[b'x'; 1000]),
    };
    let call = Call::nfs3(1, Procedure::Symlink, arguments, 0);
    let link = world.call(&call, |reply| {
        let results = reply.results::<CreateResults>().expect("results");
        results.expect("made").object.expect("a handle")
    });
    // No room for the text, and as if nothing longer than 200 bytes could come.
    let call = Call {
        largest_reply: 200,
        ..Call::nfs3(1, Procedure::Readlink, link.expect("a reply"), 0)
    };
    let text = world.call(&call, |reply| {
        let results = reply.results::<ReadlinkResults<'_>>().expect("results");
        let text = results.expect("read").text;
        text.as_inline().expect("in the reply").to_vec()
    });
    assert!(text.expect("a reply") == [b'x'; 1000]);
    assert_eq!(world.connection.counters().retried, 1);
}

/// Notes what is refused.
struct Stranger(Rc<RefCell<Vec<(u32, CallError)>>>);

impl Extension for Stranger {
    fn kinds(&self) -> &[u32] {
        &[0x1234]
    }

    fn received(&mut self, _: u32, _: &Optional<'_>, _: &mut Encoder<'_>) -> Option<u32> {
        None
    }

    fn refused(&mut self, xid: u32, error: CallError) {
        self.0.borrow_mut().push((xid, error));
    }
}

#[test]
fn rr2_opt_02_an_extension_that_only_one_side_knows_costs_nothing() {
    let mut world = World::new(Versions::BOTH, offering(Versions::TWO));
    let refused = Rc::default();
    let stranger = Stranger(Rc::clone(&refused));
    world.connection.register(Box::new(stranger)).expect("free");
    let sent = world
        .connection
        .send_option(&mut world.client, 0x1234, b"who knows?");
    world.settle();
    assert_eq!(
        *refused.borrow(),
        [(sent.expect("sent"), CallError::InvalidOption)]
    );
    exercise(&mut world);
}

/// Adds one to its argument.
struct Adder;

impl ReverseService for Adder {
    fn serve(
        &mut self,
        call: &ReverseCall<'_>,
        results: &mut Encoder<'_>,
    ) -> xdr::Result<Accepted> {
        let number = xdr::from_bytes::<u32>(call.arguments)?;
        results.u32(number + 1)?;
        Ok(Accepted::Success)
    }
}

#[test]
fn rr2_dir_01_the_server_calls_its_client_in_the_version_used_forward() {
    for (client, version) in [(Versions::ONE, Version::One), (Versions::TWO, Version::Two)] {
        let mine = Settings {
            reverse_credits: 2,
            ..offering(client)
        };
        let mut world = World::new(Versions::BOTH, mine);
        world.connection.set_reverse_service(Box::new(Adder));
        // The server learns the version from the first call.
        let call = Call::nfs3(1, Procedure::Null, (), 0);
        world.call(&call, |_| ()).expect("a reply");
        let end = world.server_end();
        assert_eq!(end.version(), Some(version));
        end.identity().allow_reverse();
        for number in 0..10_u32 {
            let mut message = [0; 256];
            let mut out = Encoder::new(&mut message);
            let header = CallHeader {
                xid: 0,
                program: 0x4000_0000,
                version: 1,
                procedure: 1,
                credential: Credential::Other(OpaqueAuth::NONE),
                verifier: OpaqueAuth::NONE,
            };
            header.encode(&mut out).expect("room");
            out.u32(number).expect("room");
            let length = out.position();
            let call = ServersCall {
                message: &message[..length],
                protection: None,
                repeats: None,
                deadline: world.now + Duration::from_secs(1),
            };
            let reply: Result<Vec<u8>, ReverseError> =
                world.wait(pin!(end.identity().call_client(call)));
            let reply = reply.expect("a reply");
            assert!(reply.ends_with(&(number + 1).to_be_bytes()));
        }
        assert_eq!(world.connection.counters().reverse_calls, 10);
        assert_eq!(end.reverse_credits().0, 2, "the client's grant");
        exercise(&mut world);
    }
}
