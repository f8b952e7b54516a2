//! Where a task takes its calls from.
//!
//! The future that serves a call is some kilobytes long. Making and moving one for each call would
//! cost a good part of a small call, so tasks stay: each serves the calls that are put on its desk,
//! one after the other.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use millrace_mempool::Buffer;
use millrace_reactor::task::TaskId;

use super::{Connection, Shared};

/// A message that arrived and is to be served.
pub struct Arrived {
    /// The connection it came by.
    pub connection: Rc<Connection>,
    /// The receive that holds it.
    pub receive: Buffer,
    /// Its bytes.
    pub length: usize,
    /// When it arrived: the time stamp of the reactor's turn.
    pub arrived: Instant,
}

/// The desk of one task.
#[derive(Default)]
pub struct Desk {
    call: RefCell<Option<Arrived>>,
    /// Whose call is being served.
    serving: RefCell<Option<Rc<Connection>>>,
    /// Who sits here, once the task has begun.
    pub(super) task: Cell<Option<TaskId>>,
}

impl Desk {
    /// Puts a call on the desk of a task that has none. Whoever does so runs the task next.
    pub(super) fn put(&self, call: Arrived) {
        self.serving.replace(Some(Rc::clone(&call.connection)));
        self.call.replace(Some(call));
    }

    /// Whose call is being served, taken off: the task that sat here is gone.
    pub(super) fn clear(&self) -> Option<Rc<Connection>> {
        self.call.take();
        self.serving.take()
    }

    /// Whether a call of this connection is being served.
    pub(super) fn serves(&self, connection: &Rc<Connection>) -> bool {
        let serving = self.serving.borrow();
        let serving = serving.as_ref();
        serving.is_some_and(|serving| Rc::ptr_eq(serving, connection))
    }

    /// The next call. While there is none, the desk is listed as idle.
    pub(super) async fn next<S>(self: &Rc<Self>, shared: &Shared<S>) -> Arrived {
        let mut listed = false;
        poll_fn(move |_| {
            if let Some(call) = self.call.take() {
                return Poll::Ready(call);
            }
            if !listed {
                listed = true;
                if let Some(connection) = self.serving.take() {
                    connection.tenant().end();
                }
                shared.idle.borrow_mut().push(Rc::clone(self));
            }
            Poll::Pending
        })
        .await
    }
}
