//! Much work is done in steps, between which other tasks of the reactor run.

use std::future::poll_fn;
use std::task::Poll;

/// Ends a step that reached `done` of `end`: what follows is done in the reactor's next turn.
pub(super) async fn end_step(done: u64, end: u64) {
    let mut has_waited = done >= end;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
