//! The responder and optional operations of version two (version two draft sections 4.1 to 4.3).

use std::cell::RefCell;
use std::rc::Rc;

use millrace::call::Peer;
use millrace::rdma::options::{Extension, OptionOutcome};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Body, Header, Optional, RegisterError, Rules};

use crate::support::message::{
    BAD_XDR, INVALID_OPTION, PROGRAM, check_error, optional, parse, plain, rpc, word,
};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script, scripted};

/// Messages as they were taken: XID, whether a reply, type, opaque bytes, payload.
type Seen = (u32, bool, u32, Vec<u8>, Vec<u8>);

/// Type 7 is answered by type 8 with its bytes reversed, 8 is not answered, 9 is malformed unless
/// it is empty, 10 answers too much.
#[derive(Default)]
struct Reverser {
    seen: RefCell<Vec<Seen>>,
}

impl Extension for Reverser {
    fn kinds(&self) -> &[u32] {
        &[7, 8, 9, 10]
    }

    fn take(
        &self,
        _: Peer,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Vec<u8>,
    ) -> OptionOutcome {
        let is_reply = message.direction == MessageType::Reply;
        let (opaque, payload) = (message.opaque.to_vec(), message.payload.to_vec());
        answer.extend(opaque.iter().rev());
        let seen = (xid, is_reply, message.kind, opaque, payload);
        self.seen.borrow_mut().push(seen);
        match message.kind {
            7 => OptionOutcome::Answered(8),
            9 if !answer.is_empty() => OptionOutcome::Malformed,
            10 => {
                answer.resize(5000, 0);
                OptionOutcome::Answered(10)
            }
            _ => OptionOutcome::Unanswered,
        }
    }
}

fn extended() -> (World<Script>, Script, Rc<Reverser>) {
    let (world, script) = scripted(CallScript::default(), Options::default());
    let extension = Rc::new(Reverser::default());
    world.shared.options.register(extension.clone()).unwrap();
    (world, script, extension)
}

#[track_caller]
fn check_served(world: &mut World<Script>) {
    let reply = world.exchange(0, &plain(&rpc(0x1111, PROGRAM, &[])));
    assert_eq!(parse(&reply).xid, 0x1111);
}

#[test]
fn rr2_opt_02_an_unknown_type_changes_nothing_else() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    world.send(0, &plain(&rpc(5, PROGRAM, &[])));
    for kind in [0, 1, u32::MAX] {
        for opaque in [&[][..], &[1], &[1, 2, 3, 4, 5]] {
            let error = world.exchange(0, &optional(5, false, kind, opaque, &[]));
            check_error(&error, 5, INVALID_OPTION);
        }
    }
    // A call of the same XID goes on.
    script.release(1);
    world.settle();
    assert_eq!(parse(&world.received(0)[0]).xid, 5);
    script.plan(CallScript::default());
    check_served(&mut world);
    world.check_clean();
}

#[test]
fn rr2_opt_04_an_answer_of_the_responder_is_a_reply() {
    let (mut world, _, extension) = extended();
    let answer = world.exchange(0, &optional(0x99, false, 7, &[1, 2, 3, 4, 5], &[]));
    let header = Header::parse(&answer, &Rules::default()).unwrap();
    assert_eq!(header.words.xid, 0x99);
    assert!(header.words.credits >= 1);
    let expected = Optional {
        direction: MessageType::Reply,
        kind: 8,
        opaque: &[5, 4, 3, 2, 1],
        payload: &[],
    };
    assert_eq!(header.body, Body::Optional(expected));
    assert_eq!(answer.len(), 28 + 8);
    // With a payload, too, if it says the same of its direction.
    let call = rpc(0x9a, PROGRAM, &[]);
    let message = optional(0x9a, false, 8, &[6], &call);
    world.send(0, &message);
    assert!(world.received(0).is_empty());
    let seen = extension.seen.take();
    assert_eq!(seen[1], (0x9a, false, 8, vec![6], call.clone()));
    let wrong = optional(0x9a, true, 8, &[6], &call);
    world.send(0, &wrong);
    assert!(world.received(0).is_empty());
    assert!(extension.seen.take().is_empty());
    check_served(&mut world);
    world.check_clean();
}

#[test]
fn rr2_opt_05_xids_and_credits_are_those_of_the_direction() {
    let (mut world, script, extension) = extended();
    let granted = word(&world.exchange(0, &plain(&rpc(4, PROGRAM, &[]))), 2);
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    world.send(0, &plain(&rpc(5, PROGRAM, &[])));
    // A reply of equal XID, with a credit word that would be another wish.
    let mut message = optional(5, true, 8, &[1], &[]);
    message[8..12].copy_from_slice(&[0, 0, 0, 1]);
    world.send(0, &message);
    assert!(world.received(0).is_empty());
    assert_eq!(extension.seen.take(), [(5, true, 8, vec![1], vec![])]);
    script.release(1);
    world.settle();
    let reply = world.received(0).remove(0);
    assert_eq!((parse(&reply).xid, word(&reply, 2)), (5, granted));
    world.check_clean();
}

#[test]
fn rr2_opt_06_only_calls_are_answered() {
    let (mut world, _, _) = extended();
    for kind in [0, 77, 0x8000_0000] {
        let before = world.shared.counters.dropped.get();
        world.send(0, &optional(3, true, kind, &[1, 2], &[]));
        assert!(world.received(0).is_empty());
        assert_eq!(world.shared.counters.dropped.get(), before + 1);
        let error = world.exchange(0, &optional(3, false, kind, &[1, 2], &[]));
        check_error(&error, 3, INVALID_OPTION);
    }
    // Nor is a reply answered that an extension knows.
    for kind in [7, 9, 10] {
        world.send(0, &optional(3, true, kind, &[1, 2], &[]));
        assert!(world.received(0).is_empty());
    }
    check_served(&mut world);
    world.check_clean();
}

#[test]
fn rr2_opt_07_an_extension_has_all_of_its_types_or_none() {
    struct Partial;
    impl Extension for Partial {
        fn kinds(&self) -> &[u32] {
            &[20, 21, 8]
        }

        fn take(&self, _: Peer, _: u32, _: &Optional<'_>, _: &mut Vec<u8>) -> OptionOutcome {
            OptionOutcome::Unanswered
        }
    }
    let (mut world, _, extension) = extended();
    let refused = world.shared.options.register(Rc::new(Partial));
    assert_eq!(refused, Err(RegisterError::Taken(8)));
    for kind in [20, 21] {
        let error = world.exchange(0, &optional(3, false, kind, &[], &[]));
        check_error(&error, 3, INVALID_OPTION);
    }
    for kind in [7, 8, 9] {
        world.send(0, &optional(3, false, kind, &[], &[]));
    }
    assert_eq!(extension.seen.take().len(), 3);
}

#[test]
fn what_an_extension_cannot_decode_or_send_is_told() {
    let (mut world, _, _) = extended();
    let error = world.exchange(0, &optional(3, false, 9, &[1], &[]));
    check_error(&error, 3, BAD_XDR);
    let error = world.exchange(0, &optional(3, false, 10, &[1], &[]));
    check_error(&error, 3, &[3, 1, 0, 0]);
    check_served(&mut world);
    world.check_clean();
}
