//! Messages of extensions (version two draft section 4).

use std::cell::RefCell;
use std::rc::Rc;

use millrace_bench::requester::{CallError, Extension, OptionError, RequesterState, Settings};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Optional, RegisterError, Versions};
use millrace_wire::xdr::Encoder;

use crate::support::{Peer, Raw, bytes, settings, stale};

const ASK: u32 = 0x100;
const TELL: u32 = 0x101;

/// What an extension was told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Received(u32, MessageType, u32, Vec<u8>, Vec<u8>),
    Refused(u32, CallError),
}

/// Answers ASK by TELL with the bytes turned round.
struct Mirror {
    kinds: Vec<u32>,
    told: Rc<RefCell<Vec<Told>>>,
}

impl Extension for Mirror {
    fn kinds(&self) -> &[u32] {
        &self.kinds
    }

    fn received(
        &mut self,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Encoder<'_>,
    ) -> Option<u32> {
        let Optional {
            direction,
            kind,
            opaque,
            payload,
        } = *message;
        let told = Told::Received(xid, direction, kind, opaque.to_vec(), payload.to_vec());
        self.told.borrow_mut().push(told);
        let turned: Vec<u8> = opaque.iter().rev().copied().collect();
        answer.raw(&turned).expect("room");
        (kind == ASK).then_some(TELL)
    }

    fn refused(&mut self, xid: u32, error: CallError) {
        self.told.borrow_mut().push(Told::Refused(xid, error));
    }
}

fn mirror(kinds: &[u32]) -> (Box<Mirror>, Rc<RefCell<Vec<Told>>>) {
    let told = Rc::default();
    let mirror = Mirror {
        kinds: kinds.to_vec(),
        told: Rc::clone(&told),
    };
    (Box::new(mirror), told)
}

/// An RDMA2_OPTIONAL from the server.
fn optional(xid: u32, credits: u32, direction: u32, kind: u32, opaque: &[u8]) -> Vec<u8> {
    let mut message = bytes(&[xid, 2, credits, 5, direction, kind, opaque.len() as u32]);
    message.extend_from_slice(opaque);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

#[test]
fn rr2_opt_02_an_unknown_type_is_answered_and_changes_nothing_else() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    let receives = raw.connection.receives();
    let window = *raw.connection.window();
    for kind in [0, 1, u32::MAX] {
        raw.send(&optional(call.xid, 100, 0, kind, b"what"));
        let answer = raw.next().words();
        assert_eq!(answer, [call.xid, 2, 1, 4, 5], "INVAL_OPTION");
    }
    assert_eq!(raw.connection.receives(), receives);
    assert_eq!(*raw.connection.window(), window);
    assert!(raw.done.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}

#[test]
fn rr2_err_11_inval_option_has_the_xid_of_the_message() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for xid in [0, 7, u32::MAX] {
        raw.send(&optional(xid, 1, 0, 9, &[]));
        assert_eq!(raw.next().words(), [xid, 2, 1, 4, 5]);
    }
    assert_eq!(raw.connection.counters().refused, 3);
}

#[test]
fn rr2_opt_03_a_payload_with_the_other_direction_is_bad_xdr() {
    let mine = Settings {
        reverse_credits: 2,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    let (extension, told) = mirror(&[ASK, TELL]);
    raw.connection.register(extension).expect("free");
    let with = |direction, payload| {
        [
            optional(5, 1, direction, TELL, &[]),
            bytes(&[5, payload, 2]),
        ]
        .concat()
    };
    raw.send(&with(0, 1));
    assert_eq!(raw.next().words(), [5, 2, 1, 4, 2]);
    raw.send(&with(1, 0));
    assert!(raw.inbox.is_empty(), "a faulty reply is dropped");
    assert!(told.borrow().is_empty());
    raw.send(&with(0, 0));
    let whole = bytes(&[5, 0, 2]);
    let expected = Told::Received(5, MessageType::Call, TELL, Vec::new(), whole);
    assert_eq!(*told.borrow(), [expected]);
}

#[test]
fn rr2_opt_04_a_requester_says_call_and_answers_say_reply() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (extension, told) = mirror(&[ASK, TELL]);
    raw.connection.register(extension).expect("free");
    let xid = raw
        .connection
        .send_option(&mut raw.client, ASK, b"abcde")
        .expect("sent");
    raw.settle();
    let sent = raw.next();
    assert_eq!(sent.words()[..7], [xid, 2, 16, 5, 0, ASK, 5]);
    assert_eq!(sent.bytes[28..], *b"abcde\0\0\0");
    assert_eq!(raw.connection.window().in_flight(), 1);
    raw.send(&optional(xid, 6, 1, TELL, b"yes"));
    let yes = Told::Received(xid, MessageType::Reply, TELL, b"yes".to_vec(), Vec::new());
    assert_eq!(told.borrow_mut().drain(..).collect::<Vec<_>>(), [yes]);
    assert_eq!(raw.connection.window().in_flight(), 0);
    assert_eq!(
        raw.connection.window().limit(),
        6,
        "a reply's word is a grant"
    );
    assert!(raw.inbox.is_empty(), "no answer to an answer");
    // The other way round.
    raw.send(&optional(77, 3, 0, ASK, b"abc"));
    let answer = raw.next();
    assert_eq!(answer.words()[..7], [77, 2, 1, 5, 1, TELL, 3]);
    assert_eq!(answer.bytes[28..31], *b"cba");
}

#[test]
fn rr2_opt_05_an_answer_does_not_touch_a_call_of_equal_xid() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (extension, told) = mirror(&[ASK, TELL]);
    raw.connection.register(extension).expect("free");
    raw.getattr(1);
    let call = raw.next();
    let window = *raw.connection.window();
    // Of a type that is known, and of one that is not; nobody has asked for either.
    raw.send(&optional(call.xid, 1, 1, TELL, &[]));
    raw.send(&optional(call.xid, 1, 1, 0x999, &[]));
    assert_eq!(told.borrow().len(), 1);
    assert_eq!(*raw.connection.window(), window);
    assert!(raw.done.is_empty() && raw.inbox.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_opt_06_unknown_types_are_refused_as_calls_and_dropped_as_replies() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.send(&optional(5, 1, 0, 9, &[]));
    assert_eq!(raw.next().words(), [5, 2, 1, 4, 5]);
    raw.send(&optional(5, 1, 1, 9, &[]));
    assert!(raw.inbox.is_empty());
    let counters = raw.connection.counters();
    assert_eq!((counters.refused, counters.dropped), (1, 1));
}

#[test]
fn rr2_opt_07_all_types_of_an_extension_are_registered_or_none() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (extension, _) = mirror(&[ASK, TELL]);
    raw.connection.register(extension).expect("free");
    for (kinds, error) in [
        (&[0x200, TELL][..], RegisterError::Taken(TELL)),
        (&[0x200, 0x201, 0x200], RegisterError::Taken(0x200)),
        (&[], RegisterError::Empty),
    ] {
        let (extension, _) = mirror(kinds);
        assert_eq!(raw.connection.register(extension), Err(error));
    }
    // Nothing of them is known.
    raw.send(&optional(5, 1, 0, 0x200, &[]));
    assert_eq!(raw.next().words(), [5, 2, 1, 4, 5]);
    let sent = raw.connection.send_option(&mut raw.client, 0x200, &[]);
    assert_eq!(sent, Err(OptionError::Unknown(0x200)));
    let (extension, _) = mirror(&[0x200]);
    raw.connection.register(extension).expect("still free");
}

#[test]
fn a_refused_message_is_told_to_its_extension_and_gives_its_credit_back() {
    let mut raw = Raw::open(settings(), Peer::default(), 1);
    let (extension, told) = mirror(&[ASK, TELL]);
    raw.connection.register(extension).expect("free");
    let xid = raw.connection.send_option(&mut raw.client, ASK, &[]);
    let xid = xid.expect("sent");
    raw.settle();
    raw.next();
    raw.getattr(1);
    assert!(raw.inbox.is_empty(), "the credit is used");
    let busy = raw.connection.send_option(&mut raw.client, ASK, &[]);
    assert_eq!(busy, Err(OptionError::Busy));
    raw.answer_error(xid, 1, &[5]);
    assert_eq!(
        *told.borrow(),
        [Told::Refused(xid, CallError::InvalidOption)]
    );
    raw.answer_all(1);
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn messages_that_do_not_fit_the_connection_are_not_sent() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (extension, _) = mirror(&[ASK]);
    raw.connection.register(extension).expect("free");
    let long = vec![0; 4096 - 28 + 1];
    let sent = raw.connection.send_option(&mut raw.client, ASK, &long);
    assert_eq!(sent, Err(OptionError::TooLong));
    let fits = &long[..4096 - 28];
    let sent = raw.connection.send_option(&mut raw.client, ASK, fits);
    assert!(sent.is_ok());
    raw.settle();
    assert_eq!(raw.next().bytes.len(), 4096);

    let mine = Settings {
        versions: Versions::ONE,
        ..settings()
    };
    let mut raw = Raw::bare(mine, Peer::default());
    let (extension, _) = mirror(&[ASK]);
    raw.connection.register(extension).expect("free");
    let sent = raw.connection.send_option(&mut raw.client, ASK, &[]);
    assert_eq!(sent, Err(OptionError::Version));
}

#[test]
fn answers_of_extensions_wait_until_they_can_be_sent() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let (extension, told) = mirror(&[ASK]);
    raw.connection.register(extension).expect("free types");
    raw.client.full = true;
    raw.send(&optional(5, 1, 0, ASK, b"1234"));
    assert!(raw.inbox.is_empty() && told.borrow().len() == 1);
    raw.client.full = false;
    raw.settle();
    assert_eq!(raw.next().bytes, optional(5, 1, 1, TELL, b"4321"));
    assert_eq!(told.borrow().len(), 1, "asked once");
    assert_eq!(raw.connection.counters().dropped, 0);
}
