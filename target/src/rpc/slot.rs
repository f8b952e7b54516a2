//! Where a task takes its calls from: those that may have to wait.
//!
//! The future that serves a call is some kilobytes long. Making and moving one for each call would
//! cost a good part of a small call, so tasks stay: each serves the calls that are put into its
//! slot, one after the other.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use millrace_reactor::task::TaskId;

use super::connection::ConnectionRef;
use super::scheduler::ScheduledCall;

/// Counts the calls in service that have no task.
#[derive(Clone, Default)]
pub struct TasklessCalls {
    count: Rc<Cell<usize>>,
}

impl TasklessCalls {
    /// Counts a call of a connection, of its client too, while the result lives.
    pub fn enter(&self, connection: &ConnectionRef) -> TasklessCall {
        self.count.set(self.count.get() + 1);
        connection.share().begin(connection.transport());
        TasklessCall {
            connection: connection.clone(),
            calls: self.clone(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.get()
    }
}

/// A call in service that has no task.
pub struct TasklessCall {
    connection: ConnectionRef,
    calls: TasklessCalls,
}

impl Drop for TasklessCall {
    fn drop(&mut self) {
        self.calls.count.set(self.calls.count.get() - 1);
        let connection = &self.connection;
        connection.share().end(connection.transport());
    }
}

/// The slots of tasks that have no call, by index.
pub(super) type IdleSlots = Rc<RefCell<Vec<u32>>>;

/// The slot of one task.
pub struct RequestSlot<C> {
    call: RefCell<Option<C>>,
    /// The connection of the call that is being served.
    serving: RefCell<Option<ConnectionRef>>,
    /// Its task, once that is in the set.
    task: Cell<Option<TaskId>>,
    /// Whether its task waits for its client's turn to go on.
    is_queued: Cell<bool>,
    idle: IdleSlots,
}

impl<C: ScheduledCall> RequestSlot<C> {
    pub(super) fn new(idle: &IdleSlots) -> Self {
        Self {
            call: RefCell::new(None),
            serving: RefCell::new(None),
            task: Cell::new(None),
            is_queued: Cell::new(false),
            idle: Rc::clone(idle),
        }
    }

    pub(super) fn set_task(&self, task: TaskId) {
        self.task.set(Some(task));
    }

    pub(super) fn task(&self) -> Option<TaskId> {
        self.task.get()
    }

    /// Puts a call into the slot of a task that has none. The caller runs the task next.
    pub(super) fn put(&self, call: C) {
        let connection = call.connection();
        connection.share().begin(connection.transport());
        self.serving.replace(Some(connection.clone()));
        self.call.replace(Some(call));
    }

    /// Ends the service of a call. Returns its connection.
    pub(super) fn end_call(&self) -> Option<ConnectionRef> {
        let connection = self.serving.take()?;
        connection.share().end(connection.transport());
        Some(connection)
    }

    /// The connection of the call that is being served.
    pub(super) fn connection(&self) -> Option<ConnectionRef> {
        self.serving.borrow().clone()
    }

    /// Notes whether the task waits for its client's turn to go on. Returns whether it did.
    pub(super) fn set_queued(&self, is_queued: bool) -> bool {
        self.is_queued.replace(is_queued)
    }

    /// Whether a call of this connection is being served.
    pub(super) fn serves(&self, connection: &ConnectionRef) -> bool {
        self.serving.borrow().as_ref() == Some(connection)
    }

    /// The next call. While there is none, the slot is listed as idle.
    pub async fn next(&self) -> C {
        let mut listed = false;
        poll_fn(move |_| {
            if let Some(call) = self.call.take() {
                return Poll::Ready(call);
            }
            if !listed {
                listed = true;
                self.end_call();
                if let Some(task) = self.task.get() {
                    self.idle.borrow_mut().push(task.index);
                }
            }
            Poll::Pending
        })
        .await
    }
}
