//! State that a machine credential protects (SP4_MACH_CRED, RFC 8881 section 2.10.8.3).

use std::cell::Cell;

use millrace::call::Answer;
use millrace::rpc::{GssAuthenticator, GssLimits};
use millrace_gss::Enctype;
use millrace_wire::nfs4::{
    BackchannelCtlOperation, Bitmap, COMPOUND, Compound, ConnectionBinding, Operation,
    OperationNumber, OperationResults, OperationStatus, ProtectedOperations, ProtectionAgreement,
    ProtectionOffer, SequenceOperation, SessionId, channel_direction,
};
use millrace_wire::rpc::GssService::{self, Integrity, Privacy};
use millrace_wire::xdr::Array;

use super::connections::{create, exchange};
use super::initiator::{self, Initiator, user};
use crate::support::Chunks;
use crate::support::callback_client::{CallbackWorld, callback_user};
use crate::support::message::encoded;
use crate::support::nfs4::Results4;

const OK: OperationStatus = OperationStatus::Ok;
const WRONG: OperationStatus = OperationStatus::WrongCredential;

/// The operations that Linux asks to be protected.
const LINUX: [OperationNumber; 5] = [
    OperationNumber::BindConnToSession,
    OperationNumber::ExchangeId,
    OperationNumber::CreateSession,
    OperationNumber::DestroySession,
    OperationNumber::DestroyClientid,
];

/// A server with Kerberos, and two machines with credentials.
struct ProtectedWorld {
    world: CallbackWorld,
    machine: Initiator,
    other: Initiator,
    xid: Cell<u32>,
}

/// A client with protected state, and its session.
struct ProtectedClient {
    id: u64,
    session: SessionId,
}

fn numbers(operations: &[OperationNumber]) -> Bitmap {
    let mut all = Bitmap::EMPTY;
    for operation in operations {
        assert!(all.insert(operation.number()));
    }
    all
}

fn offer(must_enforce: Bitmap) -> ProtectionOffer<'static> {
    ProtectionOffer::MachineCredential(ProtectedOperations {
        must_enforce,
        must_allow: numbers(&[OperationNumber::Close]),
    })
}

impl ProtectedWorld {
    fn new() -> Self {
        let world = CallbackWorld::new();
        let contexts = initiator::contexts();
        let gss = GssAuthenticator::new(&contexts, GssLimits::default());
        let _ = world.bench.programs.clone().with_gss(gss);
        let machine = |number| Initiator::new(&contexts, user(number), Enctype::Aes256Sha1);
        Self {
            machine: machine(0),
            other: machine(1),
            xid: Cell::new(0),
            world,
        }
    }

    /// The results of a COMPOUND under Kerberos.
    fn run(&self, who: &Initiator, service: GssService, all: &[Operation<'_>]) -> Results4 {
        self.xid.set(self.xid.get() + 1);
        let compound = Compound {
            minor_version: 2,
            operations: all,
            ..Compound::default()
        };
        let called = (100_003, 4, COMPOUND);
        let message = who.call(self.xid.get(), called, service, &encoded(&compound));
        let sent = (self.world.bench).send(&message, &[], &mut Chunks::default());
        let reply = sent.1;
        let bytes = who.results(service, who.sequence.get(), &reply).unwrap();
        Results4 {
            bytes,
            items: millrace::call::BulkResults::default(),
        }
    }

    /// The status of an operation of the machine with integrity.
    fn status(&self, operation: Operation<'_>) -> OperationStatus {
        self.run(&self.machine, Integrity, &[operation]).status()
    }

    /// The statuses of the same operation of others: without integrity, of another principal, and of
    /// the same user without Kerberos.
    fn statuses_of_others(&self, operation: Operation<'_>) -> [OperationStatus; 3] {
        [
            self.run(&self.machine, GssService::None, &[operation]),
            self.run(&self.other, Privacy, &[operation]),
            self.world.bench.compound(&[operation]),
        ]
        .map(|results| results.status())
    }

    /// What EXCHANGE_ID by the machine returns: client, sequence number and protected operations.
    fn exchange(&self, must_enforce: Bitmap) -> (u64, u32, Bitmap) {
        let asked = exchange(b"client", 0, offer(must_enforce));
        let results = self.run(&self.machine, Integrity, &[asked]);
        let OperationResults::ExchangeId(Ok(reply)) = results.last() else {
            panic!("{results:?}")
        };
        let ProtectionAgreement::MachineCredential(agreed) = reply.protection else {
            panic!("{reply:?}")
        };
        assert!(agreed.must_allow.is_empty());
        (reply.client, reply.sequence, agreed.must_enforce)
    }

    fn client(&self, must_enforce: Bitmap) -> ProtectedClient {
        let (id, sequence, _) = self.exchange(must_enforce);
        let results = self.run(&self.machine, Integrity, &[create(id, sequence)]);
        let OperationResults::CreateSession(Ok(reply)) = results.last() else {
            panic!("{results:?}")
        };
        ProtectedClient {
            id,
            session: reply.session,
        }
    }
}

#[test]
fn gss_sec_07_v4_sess_77_what_is_asked_for_and_can_be_protected_is_agreed() {
    let world = ProtectedWorld::new();
    assert_eq!(world.exchange(numbers(&LINUX)).2, numbers(&LINUX));
    let exchange_id = numbers(&[OperationNumber::ExchangeId]);
    assert_eq!(world.exchange(Bitmap::EMPTY).2, exchange_id);
    // READ needs a file handle; those are nobody's but the user's.
    let more = [
        OperationNumber::ExchangeId,
        OperationNumber::BackchannelCtl,
        OperationNumber::Delegpurge,
    ];
    let mut asked = numbers(&more);
    asked.insert(OperationNumber::Read.number());
    assert_eq!(world.exchange(asked).2, numbers(&more));
}

#[test]
fn gss_sec_07_v4_sess_77_a_machine_credential_has_integrity() {
    let world = ProtectedWorld::new();
    let asked = exchange(b"client", 0, offer(numbers(&LINUX)));
    let plain = world.run(&world.machine, GssService::None, &[asked]);
    assert_eq!(plain.status(), OperationStatus::Invalid);
    let private = world.run(&world.machine, Privacy, &[asked]);
    assert_eq!(private.status(), OK);
}

#[test]
fn gss_sec_07_v4_sess_77_only_the_machine_confirms_and_ends_its_client() {
    let world = ProtectedWorld::new();
    let (id, sequence, _) = world.exchange(Bitmap::EMPTY);
    // The confirming session needs the credential although it was not asked for.
    let confirm = create(id, sequence);
    assert_eq!(world.statuses_of_others(confirm), [WRONG; 3]);
    assert_eq!(world.status(confirm), OK);
    assert_eq!(
        world
            .run(&world.other, Integrity, &[create(id, sequence + 1)])
            .status(),
        OK,
        "a further session was not asked to be protected"
    );

    let world = ProtectedWorld::new();
    let client = world.client(numbers(&LINUX));
    let binding = Operation::BindConnToSession(ConnectionBinding {
        session: client.session,
        direction: channel_direction::FORE_OR_BOTH,
        rdma_mode: false,
    });
    let destroy_client = Operation::DestroyClientid(client.id);
    let destroy_session = Operation::DestroySession(client.session);
    for operation in [
        create(client.id, 9),
        binding,
        destroy_client,
        destroy_session,
    ] {
        assert_eq!(
            world.statuses_of_others(operation),
            [WRONG; 3],
            "{operation:?}"
        );
    }
    assert_eq!(world.status(binding), OK);
    assert_eq!(world.status(destroy_client), OperationStatus::ClientIdBusy);
    assert_eq!(world.status(destroy_session), OK);
    assert_eq!(world.statuses_of_others(destroy_client), [WRONG; 3]);
    assert_eq!(world.status(destroy_client), OK);
}

#[test]
fn gss_sec_07_v4_sess_78_nobody_else_takes_the_place_of_a_protected_client() {
    let world = ProtectedWorld::new();
    let client = world.client(numbers(&LINUX));
    // It has no state but a session.
    let in_use = OperationStatus::ClientIdInUse;
    let asked = exchange(b"client", 0, ProtectionOffer::Unprotected);
    assert_eq!(world.statuses_of_others(asked), [in_use; 3]);
    // Whatever it asks for now, a confirmed client keeps its protection.
    let (same, _, agreed) = world.exchange(Bitmap::EMPTY);
    assert_eq!((same, agreed), (client.id, numbers(&LINUX)));
}

/// The next SEQUENCE of a client in its first slot.
fn sequence(client: &ProtectedClient, number: u32) -> Operation<'static> {
    Operation::Sequence(SequenceOperation {
        session: client.session,
        sequence: number,
        slot: 0,
        highest_slot: 0,
        cache_this: false,
    })
}

#[test]
fn gss_sec_07_v4_sess_71_connections_are_bound_by_the_machine_only() {
    let world = ProtectedWorld::new();
    let client = world.client(numbers(&LINUX));
    assert_eq!(world.status(sequence(&client, 1)), OK);
    // Another connection, which serves more sessions than are remembered of it.
    world.world.bench.call_by(&world.world.connect().connection);
    for number in 0..20_u8 {
        let owner = [number];
        let asked = exchange(&owner, 0, ProtectionOffer::Unprotected);
        let results = world.run(&world.other, Integrity, &[asked]);
        let OperationResults::ExchangeId(Ok(reply)) = results.last() else {
            panic!("{results:?}")
        };
        let created = create(reply.client, reply.sequence);
        assert_eq!(world.run(&world.other, Integrity, &[created]).status(), OK);
    }
    let unbound = OperationStatus::ConnectionNotBound;
    for _ in 0..2 {
        assert_eq!(world.status(sequence(&client, 2)), unbound);
        assert_eq!(world.statuses_of_others(sequence(&client, 2)), [unbound; 3]);
    }
    let binding = Operation::BindConnToSession(ConnectionBinding {
        session: client.session,
        direction: channel_direction::FORE_OR_BOTH,
        rdma_mode: false,
    });
    assert_eq!(world.status(binding), OK);
    // The slot is as it was, whoever calls.
    assert_eq!(
        world
            .run(&world.other, GssService::None, &[sequence(&client, 2)])
            .status(),
        OK
    );

    // Where binding needs no credential, requests bind.
    let world = ProtectedWorld::new();
    let client = world.client(numbers(&[OperationNumber::CreateSession]));
    world.world.bench.call_by(&world.world.connect().connection);
    assert_eq!(world.status(sequence(&client, 1)), OK);
}

#[test]
fn gss_sec_07_v4_sess_77_the_backchannel_is_protected_where_that_is_asked_for() {
    for (asked, expected) in [
        (&[OperationNumber::BackchannelCtl][..], [WRONG; 2]),
        (&[], [OK; 2]),
    ] {
        let world = ProtectedWorld::new();
        let client = world.client(numbers(asked));
        let security = [callback_user()];
        let number = Cell::new(0);
        let change = || {
            number.set(number.get() + 1);
            [
                sequence(&client, number.get()),
                Operation::BackchannelCtl(BackchannelCtlOperation {
                    callback_program: 7,
                    security: Array::new(&security),
                }),
            ]
        };
        let found = [
            world.run(&world.other, Integrity, &change()).status(),
            world
                .run(&world.machine, GssService::None, &change())
                .status(),
        ];
        assert_eq!(found, expected);
        assert_eq!(world.run(&world.machine, Privacy, &change()).status(), OK);
    }
}

#[test]
fn gss_seq_08_replies_of_slots_are_not_dropped() {
    let world = ProtectedWorld::new();
    let client = world.client(Bitmap::EMPTY);
    let sequence = Operation::Sequence(SequenceOperation {
        session: client.session,
        sequence: 1,
        slot: 0,
        highest_slot: 0,
        cache_this: true,
    });
    let first = world.run(&world.machine, Integrity, &[sequence]);
    assert_eq!(first.status(), OK);
    for service in [Integrity, Privacy, GssService::None] {
        // With a number that was used already, the call does not get that far.
        let compound = Compound {
            minor_version: 2,
            operations: &[sequence],
            ..Compound::default()
        };
        let called = (100_003, 4, COMPOUND);
        let message = world.machine.call(7, called, service, &encoded(&compound));
        for answer in [Answer::Send, Answer::Silent, Answer::Silent] {
            let sent = (world.world.bench).send(&message, &[], &mut Chunks::default());
            assert_eq!(sent.0, answer);
        }
        let again = world.run(&world.machine, service, &[sequence]);
        assert_eq!(again.bytes, first.bytes);
    }
}
