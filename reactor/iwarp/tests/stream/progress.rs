//! Whose turn it is to send, and what an endpoint tells of its progress.

use millrace_iwarp::mpa::{Negotiated, Role, RtrKind};
use millrace_iwarp::{
    Access, Endpoint, Fault, Limits, Memory, Operation, Parameters, Request, Revocation, Staging,
    Stop, Tally, WorkFault,
};

use crate::support::{
    End, LIMITS, Shared, completions, end, negotiated, pattern, peer_to_peer, raw, send_all,
    send_some, shared,
};

const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

fn request<L>(token: u64, operation: Operation, local: L) -> Request<L> {
    Request {
        token,
        operation,
        local,
        signalled: true,
    }
}

fn post(end: &mut End, token: u64, operation: Operation, local: Shared) {
    end.post(request(token, operation, local)).unwrap();
}

fn initiator() -> End {
    end(&negotiated(Role::Initiator), 65_000)
}

/// The peer asks for so many Reads of `length` bytes of an exposure each.
fn asked(reads: u32, ulpdu: usize, length: usize) -> End {
    let agreed = Negotiated {
        ird: 16,
        ..negotiated(Role::Initiator)
    };
    let mut end = end(&agreed, ulpdu);
    let source = shared(pattern(length, 1));
    let exposed = end.expose(source, Access::RemoteRead, 7).unwrap();
    for sequence in 1..=reads {
        let read = raw::read(sequence, (sequence, 0), length as u32, (exposed.key, 0));
        end.receive(&raw::fpdu(&read, false)).unwrap();
    }
    end
}

#[test]
fn four_answers_are_sent_before_each_own_message() {
    let mut end = asked(10, 65_000, 8);
    for token in 0..3 {
        post(&mut end, token, SEND, shared(vec![0; 8]));
    }
    let sent = raw::ulpdus(&send_all(&mut end));
    let order: String = sent
        .iter()
        .map(|ulpdu| if ulpdu[1] & 0xf == 2 { 'r' } else { 's' })
        .collect();
    assert_eq!(order, "rrrrsrrrrsrrs");
}

#[test]
fn answers_fill_segments() {
    let mut end = asked(1, 128, 300);
    let sent = raw::ulpdus(&send_all(&mut end));
    let lengths: Vec<_> = sent.iter().map(Vec::len).collect();
    assert_eq!(lengths, [128, 128, 14 + 300 - 2 * 114]);
}

#[test]
fn an_end_with_nothing_to_send_wants_no_storage() {
    let mut end = initiator();
    assert!(!end.wants_staging());
    post(&mut end, 1, SEND, shared(vec![0; 8]));
    assert!(end.wants_staging());
    send_all(&mut end);
    assert!(!end.wants_staging());
}

#[test]
fn nothing_is_staged_without_storage() {
    let mut end = end(&peer_to_peer(Role::Initiator, RtrKind::Send), 65_000);
    end.stage();
    assert_eq!(end.bytes_staged(), 0);
    assert_eq!(raw::ulpdus(&send_all(&mut end)), [raw::send(1, &[])]);
}

#[test]
fn staging_stops_when_there_is_enough_for_any_socket_buffer() {
    let mut end = initiator();
    let target = Operation::Write { key: 1, offset: 0 };
    for token in 0..8 {
        post(&mut end, token, target, shared(vec![0; 1 << 20]));
    }
    end.lend(Staging::new());
    end.stage();
    let (staged, most) = (end.bytes_staged(), 4 << 20);
    assert!((most..most + 70_000).contains(&staged), "{staged}");
    end.accepted(staged as usize);
    assert_eq!(end.bytes_staged(), 0);
}

#[test]
fn every_fpdu_that_is_sent_is_counted() {
    let mut end = end(&peer_to_peer(Role::Initiator, RtrKind::Write), 128);
    assert_eq!(end.counters().frames_out, 0);
    send_all(&mut end);
    assert_eq!(end.counters().frames_out, 1, "the indication");
    post(&mut end, 1, SEND, shared(vec![0; 300]));
    let sent = raw::ulpdus(&send_all(&mut end));
    assert_eq!(end.counters().frames_out, 1 + sent.len() as u64);
    assert!(!end.is_terminate_sent());
    end.fail(Fault::Stream);
    let last = send_all(&mut end);
    assert_eq!(raw::ulpdus(&last).len(), 1);
    assert_eq!(end.counters().frames_out, 2 + sent.len() as u64);
    assert!(end.is_terminate_sent());
}

#[test]
fn a_terminate_message_is_sent_when_its_last_byte_is_accepted() {
    let mut end = initiator();
    end.fail(Fault::Stream);
    loop {
        let was_sent = end.is_terminate_sent();
        if send_some(&mut end, 1).is_empty() {
            break;
        }
        assert!(!was_sent);
    }
    assert!(end.is_terminate_sent());
}

#[test]
fn work_and_receives_are_counted_by_kind() {
    let mut end = initiator();
    post(&mut end, 1, SEND, shared(vec![0; 10]));
    let target = Operation::Write { key: 1, offset: 0 };
    post(&mut end, 2, target, shared(vec![0; 20]));
    post(&mut end, 3, target, shared(vec![0; 20]));
    let (key, offset, sink) = (1, 0, 9);
    let source = Operation::Read { key, offset, sink };
    post(&mut end, 4, source, shared(vec![0; 10]));
    post(&mut end, 5, Operation::ReadMore, shared(vec![0; 20]));
    send_all(&mut end);
    end.receive(&raw::fpdu(&raw::response(sink, 0, &[7; 30]), false))
        .unwrap();
    for _ in 0..2 {
        end.post_receive(vec![0; 100]).unwrap();
    }
    end.receive(&raw::fpdu(&raw::send(1, &[1; 5]), false))
        .unwrap();
    end.take_delivery().unwrap();
    let tally = |posted, completed, bytes| Tally {
        posted,
        completed,
        bytes,
    };
    let counters = end.counters();
    assert_eq!(counters.sends, tally(1, 1, 10));
    assert_eq!(counters.writes, tally(2, 2, 40));
    assert_eq!(counters.reads, tally(1, 1, 30));
    assert_eq!(counters.receives, tally(2, 1, 5));
}

#[test]
fn an_end_tells_when_there_is_something_to_take() {
    let mut end = initiator();
    end.post_receive(vec![0; 100]).unwrap();
    assert!(!end.has_news());
    end.receive(&raw::fpdu(&raw::send(1, b"hello"), false))
        .unwrap();
    assert!(end.has_news(), "a message");
    end.take_delivery().unwrap();
    assert!(!end.has_news());
    post(&mut end, 1, SEND, shared(vec![0; 8]));
    assert!(!end.has_news());
    send_all(&mut end);
    assert!(end.has_news(), "a completion");
    assert_eq!(completions(&mut end).len(), 1);
    assert!(!end.has_news());
}

#[test]
fn a_revocation_waits_until_the_peer_has_what_it_reads() {
    let mut end = initiator();
    let source = shared(pattern(8, 1));
    let key = end
        .expose(source.clone(), Access::RemoteRead, 7)
        .unwrap()
        .key;
    let read = raw::read(1, (5, 0), 8, (key, 0));
    end.receive(&raw::fpdu(&read, false)).unwrap();
    assert_eq!(end.revoke(key), Revocation::Later);
    assert!(!end.has_news());
    assert_eq!(end.take_revoked(), None);
    let sent = raw::ulpdus(&send_all(&mut end));
    assert_eq!(sent, [raw::response(5, 0, &pattern(8, 1))]);
    assert!(end.has_news(), "a revocation");
    assert_eq!(end.take_revoked(), Some((key, source)));
    assert!(!end.has_news());
}

#[test]
fn an_end_is_drained_when_nothing_is_to_be_sent_or_awaited() {
    let mut end = asked(1, 65_000, 8);
    assert!(!end.is_drained(), "an answer");
    send_all(&mut end);
    assert!(end.is_drained());
    let (key, offset, sink) = (1, 0, 9);
    let source = Operation::Read { key, offset, sink };
    post(&mut end, 1, source, shared(vec![0; 8]));
    send_all(&mut end);
    assert!(!end.is_drained(), "an open Read");
    end.receive(&raw::fpdu(&raw::response(sink, 0, &[0; 8]), false))
        .unwrap();
    assert!(end.is_drained());
    // Bytes of a Terminate message belong to no work.
    end.fail(Fault::Stream);
    send_some(&mut end, 5);
    assert!(!end.is_drained(), "bytes on their way");
    send_all(&mut end);
    assert!(end.is_drained());
}

#[test]
fn more_receives_are_posted_after_their_queue_was_deepened() {
    let mut end = initiator();
    for _ in 0..LIMITS.receive_depth {
        end.post_receive(vec![0; 10]).unwrap();
    }
    assert!(end.post_receive(vec![0; 10]).is_err());
    end.deepen_receives(LIMITS.receive_depth - 1);
    assert!(end.post_receive(vec![0; 10]).is_err());
    end.deepen_receives(LIMITS.receive_depth + 1);
    assert!(end.post_receive(vec![0; 10]).is_ok());
    assert!(end.post_receive(vec![0; 10]).is_err());
}

#[test]
fn where_there_are_to_be_no_reads_they_end_at_once() {
    let mut end = initiator();
    let source = |sink| Operation::Read {
        key: 1,
        offset: 0,
        sink,
    };
    post(&mut end, 1, source(1), shared(vec![0; 8]));
    send_all(&mut end);
    end.limit_reads(0);
    post(&mut end, 2, source(2), shared(vec![0; 8]));
    assert!(send_all(&mut end).is_empty());
    // The first one is open, and goes on.
    assert!(completions(&mut end).is_empty());
    end.receive(&raw::fpdu(&raw::response(1, 0, &[0; 8]), false))
        .unwrap();
    let ended: Vec<_> = completions(&mut end)
        .into_iter()
        .map(|done| (done.token, done.result))
        .collect();
    assert_eq!(ended, [(1, Ok(())), (2, Err(WorkFault::NoReads))]);
    assert_eq!(end.stop(), None::<Stop>);
}

/// Memory of which there is only the length.
struct Lengths;

impl Memory for Lengths {
    type Local = usize;
    type Receive = usize;

    fn length(local: &usize) -> usize {
        *local
    }

    fn place(_: &usize, _: usize, _: &[u8]) {}

    fn fetch(_: &usize, _: usize, _: &mut [u8]) {}

    fn capacity(receive: &usize) -> usize {
        *receive
    }

    fn fill(_: &mut usize, _: usize, _: &[u8]) {}
}

#[test]
fn a_read_of_4_gib_in_several_pieces_fails_by_itself() {
    let limits = Limits {
        send_depth: 8,
        ..LIMITS
    };
    let mut end = Endpoint::<Lengths>::new(limits, 1);
    end.start(Parameters::new(&negotiated(Role::Initiator)));
    let (key, offset, sink) = (1, 0, 9);
    let read = Operation::Read { key, offset, sink };
    let works = [
        (read, 2 << 30),
        (Operation::ReadMore, 2 << 30),
        // Nor is there a Send of that length.
        (SEND, 4 << 30),
        (SEND, 0),
        (read, 1 << 20),
    ];
    for (token, (operation, length)) in (0..).zip(works) {
        assert_eq!(end.send_room(), 8 - token as usize);
        assert!(end.post(request(token, operation, length)).is_ok());
    }
    end.lend(Staging::new());
    end.stage();
    end.accepted(end.bytes_staged() as usize);
    let ended: Vec<_> = std::iter::from_fn(|| end.take_completion())
        .map(|done| (done.token, done.result))
        .collect();
    let long = Err(WorkFault::Length);
    assert_eq!(ended, [(0, long), (1, long), (2, long), (3, Ok(()))]);
    assert_eq!(end.send_room(), 7);
    assert!(!end.is_drained(), "the second Read is open");
}
