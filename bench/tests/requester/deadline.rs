//! Deadlines: whoever sleeps until then wakes up for something.

use std::time::Duration;

use millrace_bench::requester::{Ccp, RequesterState, Settings};

use crate::support::{Peer, Raw, settings};

/// Sleeps from deadline to deadline until none is left. Returns the time that took.
fn sleep(raw: &mut Raw) -> Duration {
    let start = raw.now;
    for _ in 0..100 {
        let Some(next) = raw.connection.next_deadline() else {
            return raw.now - start;
        };
        assert!(next > raw.now, "a deadline is over and nothing was done");
        raw.now = next;
        raw.settle();
    }
    panic!("deadlines without end");
}

#[test]
fn deadlines_of_calls_are_over_when_they_have_passed() {
    for grant in [1, 8] {
        let mut raw = Raw::open(settings(), Peer::default(), grant);
        for token in 0..4 {
            raw.getattr(token);
            raw.advance(Duration::from_millis(7));
        }
        assert_eq!(raw.inbox.len(), 4.min(grant as usize), "others are queued");
        let slept = sleep(&mut raw);
        assert_eq!(slept, settings().timeout - Duration::from_millis(7));
        assert_eq!(raw.tokens(), [0, 1, 2, 3], "all have timed out");
    }
}

#[test]
fn deadlines_of_calls_that_outlive_a_connection_are_over_when_they_have_passed() {
    let mut raw = Raw::open(
        Settings {
            keep_calls: true,
            ..settings()
        },
        Peer::default(),
        8,
    );
    raw.getattr(1);
    raw.break_off();
    assert_eq!(sleep(&mut raw), settings().timeout);
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn deadlines_of_first_messages_are_over_when_they_have_passed() {
    let settings = Settings {
        ccp: Some(Ccp::default()),
        ..settings()
    };
    let mut raw = Raw::bare(settings.clone(), Peer::default());
    assert_eq!(
        raw.inbox.len(),
        1,
        "the first message, which nobody answers"
    );
    let slept = sleep(&mut raw);
    assert!(slept >= settings.settle + settings.negotiation.min(settings.timeout / 2));
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
}

#[test]
fn a_connection_that_stands_is_not_made_anew() {
    let settings = Settings {
        ccp: Some(Ccp::default()),
        ..settings()
    };
    let mut raw = Raw::bare(settings, Peer::default());
    let (queue_pair, state) = (raw.connection.queue_pair(), raw.connection.state().clone());
    raw.now += Duration::from_millis(1);
    let (connection, provider) = (&mut raw.connection, &mut raw.client);
    connection
        .reconnect(provider, raw.now)
        .expect("nothing to do");
    assert_eq!(raw.connection.queue_pair(), queue_pair);
    assert_eq!(raw.connection.state(), &state);
    raw.settle();
    assert_eq!(raw.inbox.len(), 1, "nothing is sent twice");
}
