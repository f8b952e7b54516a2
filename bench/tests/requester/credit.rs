//! Credits, receives, deadlines.

use std::time::Duration;

use millrace_bench::requester::{CallError, RequesterState, Settings, SubmitError};

use crate::support::{Peer, Raw, Step, settings, stale};

#[test]
fn rr1_cred_01_every_call_asks_for_the_same_number() {
    let mut raw = Raw::open(settings(), Peer::default(), 3);
    for token in 0..3 {
        raw.getattr(token);
        assert_eq!(raw.next().credits, 16);
    }
}

#[test]
fn rr1_cred_02_never_more_calls_than_granted() {
    let mut raw = Raw::open(settings(), Peer::default(), 3);
    for token in 0..10 {
        raw.getattr(token);
    }
    for left in (0..10_usize).rev() {
        assert_eq!(raw.inbox.len(), 3.min(left + 1));
        let call = raw.next();
        raw.answer(&call, 3, &stale());
    }
    assert_eq!(raw.tokens(), (0..10).collect::<Vec<_>>());
}

#[test]
fn rr1_cred_02_never_more_calls_than_wished() {
    let mut raw = Raw::open(settings(), Peer::default(), 1000);
    for token in 0..40 {
        raw.getattr(token);
    }
    assert_eq!(raw.inbox.len(), 16);
}

#[test]
fn rr1_cred_06_a_falling_grant_holds_new_calls_back() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for token in 0..12 {
        raw.getattr(token);
    }
    let calls: Vec<_> = raw.inbox.drain(..).collect();
    assert_eq!(calls.len(), 8);
    for call in &calls[..6] {
        raw.answer(call, 2, &stale());
        assert!(raw.inbox.is_empty(), "two or more are still out");
    }
    raw.answer(&calls[6], 2, &stale());
    assert_eq!(raw.inbox.len(), 1);
    assert!(raw.done.iter().all(|done| done.result.is_ok()));
}

#[test]
fn rr1_cred_07_a_grant_of_zero_never_locks_up() {
    let mut raw = Raw::open(settings(), Peer::default(), 2);
    for token in 0..4 {
        raw.getattr(token);
    }
    let (first, second) = (raw.next(), raw.next());
    raw.answer(&first, 0, &stale());
    assert!(raw.inbox.is_empty(), "one is out: wait");
    raw.answer(&second, 0, &stale());
    assert_eq!(raw.inbox.len(), 1, "none is out: one may go");
}

#[test]
fn rr1_cred_10_a_receive_is_posted_before_each_call() {
    let few = Settings {
        credits: 4,
        spare_receives: 0,
        ..settings()
    };
    let mut raw = Raw::new(few, Peer::default());
    raw.open_window(4);
    for token in 0..20 {
        raw.getattr(token);
    }
    while let Some(call) = raw.inbox.pop_front() {
        raw.answer(&call, 4, &stale());
    }
    assert_eq!(raw.done.len(), 20);
    let (mut posted, mut sent) = (0_usize, 0);
    for step in raw.steps() {
        match step {
            Step::PostReceive => posted += 1,
            Step::Send { .. } => {
                sent += 1;
                assert!(posted >= sent, "a reply could find no receive");
            }
            _ => {}
        }
    }
}

#[test]
fn rr1_cred_26_a_message_of_the_full_size_arrives_and_a_longer_one_ends_the_connection() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.send(&[0; 4096]);
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
    assert_eq!(raw.connection.counters().dropped, 1);
    raw.send(&[0; 4097]);
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
}

#[test]
fn rr1_cred_27_a_thousand_calls_complete_in_order_with_two_credits() {
    let many = Settings {
        calls: 1024,
        ..settings()
    };
    let mut raw = Raw::open(many, Peer::default(), 2);
    raw.pool.grow(16 << 20).expect("memory");
    let ids: Vec<_> = (0..1000).map(|token| raw.getattr(token)).collect();
    // Cancelled calls leave the queue.
    let mut cancelled = Vec::new();
    for id in &ids[500..510] {
        let mut sink = |completion: millrace_bench::requester::Completion<'_>| {
            cancelled.push((completion.token, completion.result.unwrap_err()));
        };
        assert!(raw.connection.cancel(&mut raw.client, *id, &mut sink));
    }
    let expected: Vec<_> = (500..510)
        .map(|token| (token, CallError::Cancelled))
        .collect();
    assert_eq!(cancelled, expected);
    while let Some(call) = raw.inbox.pop_front() {
        assert!(raw.inbox.len() < 2);
        raw.answer(&call, 2, &stale());
    }
    let expected: Vec<_> = (0..500).chain(510..1000).collect();
    assert_eq!(raw.tokens(), expected);
}

#[test]
fn old_07_a_silent_server_ends_in_a_timeout_and_its_credit_stays_used() {
    let hasty = Settings {
        timeout: Duration::from_secs(10),
        ..settings()
    };
    let mut raw = Raw::open(hasty, Peer::default(), 1);
    raw.getattr(1);
    let call = raw.next();
    raw.advance(Duration::from_secs(9));
    assert!(raw.done.is_empty());
    raw.getattr(2);
    raw.advance(Duration::from_secs(1));
    assert_eq!(raw.done[0].result, Err(CallError::TimedOut));
    assert!(raw.inbox.is_empty(), "the reply is still owed");
    // The late reply goes to nobody, but frees the credit.
    raw.answer(&call, 1, &stale());
    assert_eq!(raw.tokens(), [1]);
    let call = raw.next();
    raw.answer(&call, 1, &stale());
    assert_eq!(raw.tokens(), [1, 2]);
}

#[test]
fn a_full_connection_refuses_calls() {
    let small = Settings {
        calls: 2,
        ..settings()
    };
    let mut raw = Raw::open(small, Peer::default(), 1);
    raw.getattr(1);
    raw.getattr(2);
    let call =
        millrace_bench::requester::Call::nfs3(3, millrace_wire::nfs3::Procedure::Null, (), 0);
    assert_eq!(raw.try_submit(&call), Err(SubmitError::Full));
}
