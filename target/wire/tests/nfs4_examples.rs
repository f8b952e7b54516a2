//! Operations of a Linux mount, word for word from the XDR of RFC 5662.

mod common;

use common::{encode, hex};
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::*;
use millrace_wire::rpc::AuthSys;
use millrace_wire::xdr::{Array, BoundedBytes, Bulk, Decoder, from_bytes};

const SESSION: SessionId = *b"0123456789abcdef";
const STATE: StateId = StateId {
    sequence: 1,
    other: *b"abcdefghijkl",
};
/// The same in words.
const SESSION_WORDS: &str = "30313233 34353637 38396162 63646566";
const STATE_WORDS: &str = "00000001 61626364 65666768 696a6b6c";

fn arguments(operation: &Operation<'_>, words: &str) {
    let bytes = hex(words);
    assert_eq!(encode(operation), bytes);
    let mut input = Decoder::new(&bytes);
    assert_eq!(
        Operation::decode_operation(1, &mut input).as_ref(),
        Ok(operation)
    );
    assert_eq!(input.remaining(), 0);
}

fn results(results: &OperationResults<'_>, words: &str) {
    let bytes = hex(words);
    assert_eq!(encode(results), bytes);
    assert_eq!(
        from_bytes::<OperationResults<'_>>(&bytes).as_ref(),
        Ok(results)
    );
}

#[test]
fn a_compound() {
    let call = Compound {
        tag: BoundedBytes(b"tag"),
        minor_version: 2,
        operations: &[Operation::Putrootfh(()), Operation::Getfh(())],
    };
    assert_eq!(
        encode(&call),
        hex("00000003 74616700 00000002 00000002 00000018 0000000a")
    );
    let operations = [CallbackOperation::RecallSlot(4)];
    let callback = CallbackCompound {
        minor_version: 1,
        operations: &operations,
    };
    assert_eq!(
        encode(&callback),
        hex("00000000 00000001 00000000 00000001 0000000a 00000004")
    );
}

#[test]
fn exchange_id() {
    arguments(
        &Operation::ExchangeId(ExchangeIdOperation {
            owner: ClientOwner {
                verifier: *b"verifier",
                owner: BoundedBytes(b"Linux"),
            },
            flags: exchange_flags::SUPPORTS_REFERRALS | exchange_flags::BIND_PRINCIPAL,
            protection: ProtectionOffer::Unprotected,
            implementation: Some(ImplementationId {
                domain: b"kernel.org",
                name: b"Linux",
                date: Timestamp {
                    seconds: 0,
                    nanoseconds: 0,
                },
            }),
        }),
        "0000002a 76657269 66696572 00000005 4c696e75 78000000 00000101 00000000 00000001
         0000000a 6b65726e 656c2e6f 72670000 00000005 4c696e75 78000000 00000000 00000000 00000000",
    );
    results(
        &OperationResults::ExchangeId(Ok(ExchangeIdReply {
            client: 0x1122_3344_5566_7788,
            sequence: 1,
            flags: exchange_flags::NON_PNFS,
            protection: ProtectionAgreement::Unprotected,
            owner: ServerOwner {
                minor: 0,
                major: BoundedBytes(b"server"),
            },
            scope: BoundedBytes(b"scope"),
            implementation: None,
        })),
        "0000002a 00000000 11223344 55667788 00000001 00010000 00000000 00000000 00000000
         00000006 73657276 65720000 00000005 73636f70 65000000 00000000",
    );
}

#[test]
fn create_session() {
    let fore = ChannelAttributes {
        header_padding: 0,
        request_size: 1_049_620,
        response_size: 1_049_480,
        cached_size: 7584,
        operations: 8,
        requests: 64,
        rdma_ird: None,
    };
    let back = ChannelAttributes {
        request_size: 4068,
        response_size: 4068,
        cached_size: 0,
        operations: 2,
        requests: 16,
        ..fore
    };
    let security = [
        CallbackSecurity::None,
        CallbackSecurity::Gss(GssHandles {
            service: GssService::Privacy,
            server: b"server",
            client: b"client",
        }),
        CallbackSecurity::Sys(AuthSys {
            stamp: 1,
            machine: b"node",
            uid: 0,
            gid: 0,
            gids: [].into_iter().collect(),
        }),
    ];
    let channels = "00000000 00100414 00100388 00001da0 00000008 00000040 00000000
        00000000 00000fe4 00000fe4 00000000 00000002 00000010 00000000";
    arguments(
        &Operation::CreateSession(CreateSessionOperation {
            client: 0x1122_3344_5566_7788,
            sequence: 1,
            flags: session_flags::PERSIST | session_flags::BACKCHANNEL,
            fore,
            back,
            callback_program: 0x4000_0000,
            security: Array::new(&security),
        }),
        &format!(
            "0000002b 11223344 55667788 00000001 00000003 {channels} 40000000 00000003
             00000000
             00000006 00000003 00000006 73657276 65720000 00000006 636c6965 6e740000
             00000001 00000001 00000004 6e6f6465 00000000 00000000 00000000"
        ),
    );
    results(
        &OperationResults::CreateSession(Ok(CreateSessionReply {
            session: SESSION,
            sequence: 1,
            flags: session_flags::BACKCHANNEL,
            fore,
            back,
        })),
        &format!("0000002b 00000000 {SESSION_WORDS} 00000001 00000002 {channels}"),
    );
}

#[test]
fn sequence() {
    arguments(
        &Operation::Sequence(SequenceOperation {
            session: SESSION,
            sequence: 2,
            slot: 3,
            highest_slot: 4,
            cache_this: true,
        }),
        &format!("00000035 {SESSION_WORDS} 00000002 00000003 00000004 00000001"),
    );
    results(
        &OperationResults::Sequence(Ok(SequenceReply {
            session: SESSION,
            sequence: 2,
            slot: 3,
            highest_slot: 63,
            target_highest_slot: 62,
            status_flags: sequence_flags::CALLBACK_PATH_DOWN,
        })),
        &format!("00000035 00000000 {SESSION_WORDS} 00000002 00000003 0000003f 0000003e 00000001"),
    );
    results(
        &OperationResults::Sequence(Err(OperationStatus::BadSession)),
        "00000035 00002744",
    );
}

#[test]
fn root_security_and_end_of_reclaim() {
    arguments(&Operation::Putrootfh(()), "00000018");
    arguments(
        &Operation::SecinfoNoName(SecinfoStyle::Current),
        "00000034 00000000",
    );
    let flavors = [
        SecurityFlavor::Flavor(1),
        SecurityFlavor::Gss(GssMechanism {
            mechanism: b"oid",
            quality: 0,
            service: GssService::Integrity,
        }),
    ];
    results(
        &OperationResults::SecinfoNoName(Ok(Array::new(&flavors))),
        "00000034 00000000 00000002 00000001 00000006 00000003 6f696400 00000000 00000002",
    );
    arguments(&Operation::ReclaimComplete(false), "0000003a 00000000");
}

#[test]
fn open_arguments() {
    let set = |bits| Bitmap::from_words([bits, 0, 0]);
    let value = Attribute::OpenArguments(OpenArguments {
        access: set(0b1110),
        deny: set(0b1111),
        wishes: Bitmap::from_words([1 << 3, 0, 0]),
        claims: set(1 << 5),
        creation: set(0),
    });
    assert_eq!(AttributeNumber::OpenArguments.number(), 86);
    let mut room = [0; 64];
    assert_eq!(
        Attributes::build(&[value], &mut room).unwrap().values,
        hex("00000001 0000000e 00000001 0000000f 00000001 00000008 00000001 00000020 00000000")
    );
}

#[test]
fn getattr() {
    let wanted = Bitmap::of(&[AttributeNumber::Size, AttributeNumber::MountedOnFileId]);
    arguments(
        &Operation::Getattr(wanted),
        "00000009 00000002 00000010 00800000",
    );
    let values = hex("00000000 00000007");
    let mask = Bitmap::of(&[AttributeNumber::Size]);
    results(
        &OperationResults::Getattr(Ok(Attributes {
            mask,
            values: &values,
        })),
        "00000009 00000000 00000001 00000010 00000008 00000000 00000007",
    );
}

#[test]
fn open_and_close() {
    let mode = hex("000001a4");
    let attributes = Attributes {
        mask: Bitmap::of(&[AttributeNumber::Mode]),
        values: &mode,
    };
    let create = ExclusiveCreate {
        verifier: *b"verifier",
        attributes,
    };
    arguments(
        &Operation::Open(OpenOperation {
            sequence: 0,
            access: share::WRITE | share::WANT_ANY,
            deny: 0,
            owner: StateOwner {
                client: 5,
                owner: BoundedBytes(b"open id:"),
            },
            create: Some(CreateMode::ExclusiveWithAttributes(create)),
            claim: OpenClaim::Name(b"file"),
        }),
        "00000012 00000000 00000302 00000000 00000000 00000005 00000008 6f70656e 2069643a
         00000001 00000003 76657269 66696572 00000002 00000000 00000002 00000004 000001a4
         00000000 00000004 66696c65",
    );
    results(
        &OperationResults::Open(Ok(OpenReply {
            open: STATE,
            directory: ChangeInfo {
                atomic: true,
                before: 1,
                after: 2,
            },
            flags: open_flags::POSIX_LOCKS,
            attributes_set: Bitmap::EMPTY,
            delegation: OpenDelegation::Read(ReadDelegation {
                state: STATE,
                recalled: false,
                permissions: AccessControlEntry {
                    kind: 0,
                    flags: 0,
                    mask: 1,
                    who: b"",
                },
            }),
        })),
        &format!(
            "00000012 00000000 {STATE_WORDS} 00000001 00000000 00000001 00000000 00000002
             00000004 00000000 00000001 {STATE_WORDS} 00000000 00000000 00000000 00000001 00000000"
        ),
    );
    let close = CloseOperation {
        sequence: 0,
        open: STATE,
    };
    arguments(
        &Operation::Close(close),
        &format!("00000004 00000000 {STATE_WORDS}"),
    );
    results(
        &OperationResults::Close(Ok(StateId::INVALID)),
        "00000004 00000000 ffffffff 00000000 00000000 00000000",
    );
}

#[test]
fn read_and_write() {
    let read = ReadOperation {
        state: STATE,
        offset: 8,
        count: 16,
    };
    arguments(
        &Operation::Read(read),
        &format!("00000019 {STATE_WORDS} 00000000 00000008 00000010"),
    );
    results(
        &OperationResults::Read(Ok(ReadReply {
            eof: true,
            data: Bulk::inline(b"hello"),
        })),
        "00000019 00000000 00000001 00000005 68656c6c 6f000000",
    );
    arguments(
        &Operation::Write(WriteOperation {
            state: STATE,
            offset: 8,
            stable: Stability::FileSync,
            data: Bulk::inline(b"hello"),
        }),
        &format!("00000026 {STATE_WORDS} 00000000 00000008 00000002 00000005 68656c6c 6f000000"),
    );
    results(
        &OperationResults::Write(Ok(WriteReply {
            count: 5,
            committed: Stability::Unstable,
            verifier: *b"verifier",
        })),
        "00000026 00000000 00000005 00000000 76657269 66696572",
    );
}

#[test]
fn lock() {
    arguments(
        &Operation::Lock(LockOperation {
            kind: LockType::WriteWait,
            reclaim: false,
            offset: 0,
            length: u64::MAX,
            locker: Locker::New(NewLockOwner {
                open_sequence: 0,
                open: STATE,
                lock_sequence: 0,
                owner: StateOwner {
                    client: 5,
                    owner: BoundedBytes(b"lock"),
                },
            }),
        }),
        &format!(
            "0000000c 00000004 00000000 00000000 00000000 ffffffff ffffffff 00000001
             00000000 {STATE_WORDS} 00000000 00000000 00000005 00000004 6c6f636b"
        ),
    );
    results(
        &OperationResults::Lock(Err(LockFailure::Denied(ConflictingLock {
            offset: 1,
            length: 2,
            kind: LockType::Read,
            owner: StateOwner {
                client: 0,
                owner: BoundedBytes(b"host"),
            },
        }))),
        "0000000c 0000271a 00000000 00000001 00000000 00000002 00000001 00000000 00000000
         00000004 686f7374",
    );
}
