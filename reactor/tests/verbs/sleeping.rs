//! Waking a reactor that sleeps.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use millrace_reactor::fabric::verbs::Verbs;
use millrace_reactor::fabric::{ControlPath, DataPath};
use rustix::event::{PollFd, PollFlags, poll};

use crate::pair::{SEND, Side, disconnected, local, received, request};
use crate::{alone, plain};

/// Sleeps until there is work.
fn sleep(side: &mut Side<Verbs>) {
    while side.events.is_empty() {
        if side.provider.arm() {
            let descriptor = side.provider.wake_descriptor().expect("it has one");
            // SAFETY: the provider owns the descriptor until it is dropped, after the poll.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            poll(
                &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
                None,
            )
            .expect("a poll");
        }
        side.turn();
    }
}

#[test]
fn messages_and_endings_wake_a_sleeper() {
    let Some(_alone) = alone() else { return };
    let mut pair = plain();
    for token in 0..3 {
        let slice = pair.client.pattern(10, token);
        let send = request(token as u64, SEND, local([slice]));
        pair.client.post(pair.here, vec![send]);
        pair.client.provider.flush(Instant::now());
        sleep(&mut pair.server);
        assert!(pair.server.take(received).is_some());
    }
    pair.client.provider.abort(pair.here);
    pair.client.turn();
    sleep(&mut pair.server);
    assert!(pair.server.take(disconnected).is_some());
    pair.client.events.clear();
    sleep(&mut pair.client);
}
