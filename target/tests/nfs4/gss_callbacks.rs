//! Callbacks under RPCSEC_GSS, by contexts that clients offer (RFC 8881 sections 18.33 and 18.36).

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millrace::rpc::reverse::ReverseError;
use millrace::rpc::{GssAuthenticator, GssLimits};
use millrace::state::{ClientId, FileKey};
use millrace_gss::{Enctype, GssService as Contexts};
use millrace_store::Handle;
use millrace_wire::nfs4::{
    BackchannelCtlOperation, COMPOUND, CallbackSecurity, Compound, ConnectionBinding, GssHandles,
    Operation, OperationResults, OperationStatus, ProtectionOffer, SequenceOperation,
    sequence_flags,
};
use millrace_wire::rpc::{Accepted, GssService};
use millrace_wire::xdr::Array;

use super::connections::exchange;
use super::initiator::{self, Initiator, keys, user};
use crate::support::Chunks;
use crate::support::callback_client::{
    CALLBACK_USER, CallbackClient, CallbackWorld, ReceivedCallback, SessionWish, callback_user,
};
use crate::support::message::encoded;
use crate::support::nfs4::Results4;

const OK: OperationStatus = OperationStatus::Ok;
const EXPIRING: u32 = sequence_flags::CALLBACK_GSS_EXPIRING;
const EXPIRED: u32 = sequence_flags::CALLBACK_GSS_EXPIRED;

/// The client's handle of its context.
const HANDLE: &[u8] = b"of client";
const PROGRAM: u32 = 0x4000_0000;

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

/// A server with Kerberos.
struct GssWorld {
    world: CallbackWorld,
    contexts: Contexts,
    xid: Cell<u32>,
}

fn offer(service: GssService, context: &Initiator) -> CallbackSecurity<'_> {
    CallbackSecurity::Gss(GssHandles {
        service,
        server: &context.handle,
        client: HANDLE,
    })
}

impl GssWorld {
    fn new() -> Self {
        let contexts = initiator::contexts();
        let world = CallbackWorld::with_contexts(&contexts);
        let gss = GssAuthenticator::new(&contexts, GssLimits::default());
        let _ = world.bench.programs.clone().with_gss(gss);
        Self {
            world,
            contexts,
            xid: Cell::new(0),
        }
    }

    /// A context of a user, which lives for so long.
    fn context(&self, number: u32, lifetime: Duration) -> Rc<Initiator> {
        let keys = keys(Enctype::Aes256Sha1);
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let handle = self.contexts.insert(&keys, user(number), lifetime, client);
        Rc::new(Initiator::with(&keys, handle.unwrap().as_bytes()))
    }

    fn lasting_context(&self, number: u32) -> Rc<Initiator> {
        self.context(number, Duration::from_hours(10))
    }

    /// The results of a COMPOUND under Kerberos.
    fn run(&self, who: &Initiator, all: &[Operation<'_>]) -> Results4 {
        self.xid.set(self.xid.get() + 1);
        let compound = Compound {
            minor_version: 2,
            operations: all,
            ..Compound::default()
        };
        let (called, service) = ((100_003, 4, COMPOUND), GssService::Integrity);
        let message = who.call(self.xid.get(), called, service, &encoded(&compound));
        let sent = (self.world.bench).send(&message, &[], &mut Chunks::default());
        let bytes = who.results(service, who.sequence.get(), &sent.1).unwrap();
        self.world.turn();
        Results4 {
            bytes,
            items: millrace::call::BulkResults::default(),
        }
    }

    /// A client whose callbacks are secured so, by a principal.
    fn try_client(
        &self,
        who: &Initiator,
        wish: SessionWish<'_>,
    ) -> Result<CallbackClient, OperationStatus> {
        let link = self.world.connect();
        self.world.bench.call_by(&link.connection);
        let asked = exchange(b"client", 0, ProtectionOffer::Unprotected);
        let results = self.run(who, &[asked]);
        let OperationResults::ExchangeId(Ok(reply)) = results.last() else {
            panic!("{results:?}")
        };
        let id = reply.client;
        let results = self.run(who, &[wish.operation((id, reply.sequence))]);
        let session = match results.read().1[..] {
            [OperationResults::CreateSession(outcome)] => outcome?.session,
            ref other => panic!("{other:?}"),
        };
        Ok(CallbackClient {
            id,
            session,
            sequence: Cell::new(0),
            link: link.into(),
        })
    }

    fn client(&self, who: &Initiator, security: &[CallbackSecurity<'_>]) -> CallbackClient {
        self.try_client(who, SessionWish::linux(security)).unwrap()
    }

    /// Has the client called.
    fn call(&self, client: &CallbackClient) {
        self.call_about(client, b"owner");
    }

    /// Has the client told that a lock of an owner is free.
    fn call_about(&self, client: &CallbackClient, owner: &[u8]) {
        let file = FileKey {
            export: 1,
            object: Handle::new(&[1]).unwrap(),
        };
        let owner = Arc::from(owner);
        let link = self.world.bench.state.link();
        link.ask_here(|home, now| home.notify_lock(ClientId(client.id), file, owner, now));
        self.world.turn();
    }

    /// BACKCHANNEL_CTL by a principal.
    fn control(
        &self,
        (client, who): (&CallbackClient, &Initiator),
        security: &[CallbackSecurity<'_>],
    ) -> OperationStatus {
        client.sequence.set(client.sequence.get() + 1);
        let sequence = Operation::Sequence(SequenceOperation {
            session: client.session,
            sequence: client.sequence.get(),
            slot: 0,
            highest_slot: 0,
            cache_this: false,
        });
        let control = Operation::BackchannelCtl(BackchannelCtlOperation {
            callback_program: PROGRAM,
            security: Array::new(security),
        });
        self.run(who, &[sequence, control]).status()
    }

    /// Gives the client a new connection for callbacks.
    fn rebind(&self, client: &CallbackClient) {
        client.link.replace(self.world.connect());
        self.world.bench.call_by(&client.link.borrow().connection);
        let bind = Operation::BindConnToSession(ConnectionBinding {
            session: client.session,
            direction: 3,
            rdma_mode: false,
        });
        assert_eq!(self.world.bench.compound(&[bind]).status(), OK);
        self.world.turn();
    }

    /// What SEQUENCE shows of contexts.
    fn context_flags(&self, client: &CallbackClient) -> u32 {
        self.world.flags(client) & (EXPIRING | EXPIRED)
    }

    fn unverified(&self) -> u64 {
        let all = self.contexts.all_call_counters();
        all.iter().map(|one| one.unverified_replies.get()).sum()
    }
}

/// Opens a callback under a context, whose reply is protected by it. Returns its sequence number.
fn open(call: &mut ReceivedCallback, context: &Rc<Initiator>, service: GssService) -> u32 {
    let (plain, sequence) = context.opened_call(service, HANDLE, &call.message);
    call.message = plain;
    let context = Rc::clone(context);
    call.protect = Some(Box::new(move |reply| {
        context.reply(service, sequence, reply)
    }));
    sequence
}

/// The flags of a client whose callbacks have no connection.
const DOWN: u32 = sequence_flags::CALLBACK_PATH_DOWN | sequence_flags::CALLBACK_PATH_DOWN_SESSION;

#[test]
fn gss_sec_08_callbacks_are_protected_by_each_service_under_numbers_of_their_own() {
    for service in SERVICES {
        let world = GssWorld::new();
        let context = world.lasting_context(0);
        // GSS is preferred, wherever it stands.
        let offered = [
            callback_user(),
            offer(service, &context),
            CallbackSecurity::None,
        ];
        let client = world.client(&context, &offered);
        for number in 1..=3 {
            world.call(&client);
            let mut call = client.callback();
            assert_eq!(open(&mut call, &context, service), number);
            assert_eq!(call.read(|header, _, _| header.program), PROGRAM);
            assert_eq!(call.slot(), (0, number));
            call.answer(OK);
            world.world.turn();
        }
        assert_eq!(world.unverified(), 0);
        assert_eq!(world.world.path_flags(&client), 0);
        assert_eq!(world.context_flags(&client), 0);
    }
}

#[test]
fn gss_sec_08_other_statuses_than_success_have_no_results_to_protect() {
    let world = GssWorld::new();
    let context = world.lasting_context(0);
    let offered = [offer(GssService::Privacy, &context)];
    let client = world.client(&context, &offered);
    world.call(&client);
    let mut call = client.callback();
    open(&mut call, &context, GssService::Privacy);
    call.reject(Accepted::ProgramMismatch { low: 4, high: 4 });
    world.world.turn();
    let mut call = client.callback();
    assert_eq!(open(&mut call, &context, GssService::Privacy), 2);
    assert_eq!(call.read(|header, _, _| header.version), 4);
    assert_eq!(world.unverified(), 0);
}

#[test]
fn gss_sec_08_a_reply_that_does_not_verify_is_none() {
    type Change = fn(&Initiator, GssService, u32, &[u8]) -> Vec<u8>;
    let plain: Change = |_, _, _, reply| reply.to_vec();
    let of_another_call: Change =
        |context, service, sequence, reply| context.reply(service, sequence + 1, reply);
    let changed_verifier: Change = |context, service, sequence, reply| {
        let mut reply = context.reply(service, sequence, reply);
        reply[40] ^= 1;
        reply
    };
    let changed_results: Change = |context, service, sequence, reply| {
        let mut reply = context.reply(service, sequence, reply);
        let length = reply.len();
        reply[length - 5] ^= 1;
        reply
    };
    let results_of_another_call: Change = |context, service, sequence, reply| {
        let other = context.body(service, sequence + 1, &reply[24..]);
        let mut reply = context.reply(service, sequence, reply);
        let length = reply.len() - other.len();
        reply.truncate(length);
        [reply, other].concat()
    };
    let headers = [plain, of_another_call, changed_verifier];
    let all = [&headers[..], &[changed_results, results_of_another_call]].concat();
    for service in SERVICES {
        let world = GssWorld::new();
        let context = world.lasting_context(0);
        let client = world.client(&context, &[offer(service, &context)]);
        let changes = match service {
            GssService::None => &headers[..],
            _ => &all,
        };
        for (count, change) in (1..).zip(changes) {
            world.call(&client);
            let mut call = client.callback();
            let sequence = open(&mut call, &context, service);
            let (by, change) = (Rc::clone(&context), *change);
            call.protect = Some(Box::new(move |reply| change(&by, service, sequence, reply)));
            call.answer(OK);
            world.world.turn();
            assert_eq!(world.unverified(), count, "{service:?}");
            assert_eq!(world.world.path_flags(&client), DOWN);
            // It is sent again in its slot.
            world.rebind(&client);
            let mut call = client.callback();
            assert!(open(&mut call, &context, service) > sequence);
            assert_eq!(call.slot(), (0, count as u32));
            call.answer(OK);
            world.world.turn();
            assert_eq!(world.world.path_flags(&client), 0);
        }
    }
}

#[test]
fn gss_sec_08_v4_sess_36_v4_sess_75_unknown_and_foreign_contexts_are_refused() {
    let world = GssWorld::new();
    let (own, other) = (world.lasting_context(0), world.lasting_context(1));
    let unknown = Initiator::with(&keys(Enctype::Aes256Sha1), &[7; 16]);
    let ended = world.lasting_context(2);
    assert_eq!(world.contexts.flush(Some("user2@EXAMPLE.COM")), 1);
    let handles = |context, client| {
        CallbackSecurity::Gss(GssHandles {
            service: GssService::None,
            server: context,
            client,
        })
    };
    let long = [0; 381];
    let noent = OperationStatus::NoEntry;
    let client = world.client(&own, &[offer(GssService::None, &own)]);
    for (handles, status) in [
        (handles(&unknown.handle, HANDLE), noent),
        (handles(b"short", HANDLE), noent),
        (handles(&ended.handle, HANDLE), noent),
        (handles(&other.handle, HANDLE), noent),
        (handles(&own.handle, &long), OperationStatus::Invalid),
        (handles(&own.handle, &long[..380]), OK),
    ] {
        let offered = [callback_user(), handles];
        let made = world.try_client(&own, SessionWish::linux(&offered));
        assert_eq!(made.map_or_else(|status| status, |_| OK), status);
        assert_eq!(world.control((&client, &own), &offered), status);
    }
    // The same user without Kerberos is another principal.
    let offered = [offer(GssService::None, &own)];
    let wish = SessionWish::linux(&offered);
    let (id, sequence) = world.world.exchange(b"another client");
    let made = (world.world.bench).compound(&[wish.operation((id, sequence))]);
    assert_eq!(made.status(), noent);
}

#[test]
fn gss_sec_08_v4_sess_61_when_its_context_ends_a_session_falls_back_and_is_told() {
    let hour = Duration::from_hours(1);
    for lasting in [Some(callback_user()), None] {
        let world = GssWorld::new();
        let context = world.context(0, hour);
        let gss = offer(GssService::Integrity, &context);
        let offered: Vec<_> = [Some(gss), lasting.clone()].into_iter().flatten().collect();
        let client = world.client(&context, &offered);
        world.world.pass(hour / 2);
        assert_eq!(world.context_flags(&client), 0);
        // Less than a lease before the end.
        world.world.pass(hour / 2 - Duration::from_secs(60));
        assert_eq!(world.context_flags(&client), EXPIRING);
        world.world.pass(Duration::from_secs(61));
        assert_eq!(world.context_flags(&client), EXPIRED);
        world.call(&client);
        let users: Vec<_> = (client.callbacks().iter())
            .map(ReceivedCallback::user)
            .collect();
        let expected = lasting.map(|_| Some(CALLBACK_USER));
        assert_eq!(users, Vec::from_iter(expected));
        // Its connection is not what is missing.
        assert_eq!(world.world.path_flags(&client), 0);
    }
}

#[test]
fn gss_sec_08_a_context_that_ends_unnoticed_is_missed_when_a_callback_is_due() {
    let world = GssWorld::new();
    let context = world.lasting_context(0);
    let client = world.client(&context, &[offer(GssService::None, &context)]);
    assert_eq!(world.contexts.flush(None), 1);
    assert_eq!(world.context_flags(&client), 0);
    world.call(&client);
    assert!(client.callbacks().is_empty());
    assert_eq!(world.context_flags(&client), EXPIRED);
    // The callback goes out with the next context.
    let next = world.lasting_context(0);
    let offered = [offer(GssService::None, &next)];
    assert_eq!(world.control((&client, &next), &offered), OK);
    assert_eq!(world.context_flags(&client), 0);
    world.world.pass(Duration::from_secs(2));
    open(&mut client.callback(), &next, GssService::None);
}

#[test]
fn gss_sec_08_v4_sess_75_backchannel_ctl_adds_contexts_and_the_new_one_is_used() {
    let world = GssWorld::new();
    let first = world.lasting_context(0);
    let client = world.client(&first, &[offer(GssService::Privacy, &first)]);
    let second = world.context(0, Duration::from_hours(1));
    let offered = [offer(GssService::Integrity, &second)];
    assert_eq!(world.control((&client, &first), &offered), OK);
    world.call(&client);
    let mut call = client.callback();
    assert_eq!(open(&mut call, &second, GssService::Integrity), 1);
    call.answer(OK);
    world.world.turn();
    // Without it, the first is still there.
    world.world.pass(Duration::from_hours(2));
    assert_eq!(world.context_flags(&client), 0);
    world.call(&client);
    let mut call = client.callback();
    assert_eq!(open(&mut call, &first, GssService::Privacy), 1);
    call.answer(OK);
    world.world.turn();
    // More than are remembered.
    let mut latest = first;
    for number in 0..20 {
        latest = world.lasting_context(0);
        let offered = [offer(GssService::None, &latest)];
        let status = world.control((&client, &latest), &offered);
        assert_eq!(status, OK, "{number}");
    }
    world.call(&client);
    open(&mut client.callback(), &latest, GssService::None);
}

#[test]
fn gss_sec_08_a_retransmission_is_signed_anew_under_its_old_xid() {
    for service in SERVICES {
        let world = GssWorld::new();
        let context = world.lasting_context(0);
        let client = world.client(&context, &[offer(service, &context)]);
        world.call(&client);
        let mut lost = client.callback();
        assert_eq!(open(&mut lost, &context, service), 1);
        lost.fail(ReverseError::ConnectionLost { xid: 0xabcd });
        world.world.turn();
        world.rebind(&client);
        let mut again = client.callback();
        assert_eq!(again.repeats, Some(0xabcd));
        assert_eq!(open(&mut again, &context, service), 2);
        assert_eq!(again.read(|header, _, _| header.xid), 0xabcd);
        assert_eq!((again.slot(), lost.slot()), ((0, 1), (0, 1)));
    }
}

#[test]
fn gss_sec_08_v4_bc_04_a_callback_that_is_too_long_once_protected_is_not_sent() {
    let lengths = |service, size| {
        let world = GssWorld::new();
        let context = world.lasting_context(0);
        let offered = [offer(service, &context)];
        let wish = SessionWish {
            size,
            ..SessionWish::linux(&offered)
        };
        let client = world.try_client(&context, wish).unwrap();
        world.call_about(&client, &[7; 900]);
        let calls = client.callbacks();
        Vec::from_iter(calls.iter().map(|call| call.message.len() as u32))
    };
    for service in SERVICES {
        let length = lengths(service, 4096)[0];
        assert_eq!(lengths(service, length), [length]);
        assert!(lengths(service, length - 1).is_empty());
    }
}
