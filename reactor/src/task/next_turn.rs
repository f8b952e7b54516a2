//! Work in several turns.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;

/// Ends the turn of a task that has more to do. The set runs the other tasks before it goes on.
pub async fn next_turn() {
    let mut is_next = false;
    poll_fn(|context| {
        if mem::replace(&mut is_next, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
