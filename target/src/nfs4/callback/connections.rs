//! The connections of a reactor that are bound to sessions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::rpc::ConnectionRef;

/// Connections by their identifiers, until they end.
#[derive(Default)]
pub(super) struct CallbackConnections {
    known: RefCell<HashMap<u64, ConnectionRef>>,
    /// Connections that have ended since they were taken last.
    ended: Rc<RefCell<Vec<u64>>>,
}

impl CallbackConnections {
    /// Remembers a connection until it ends.
    pub fn add(&self, connection: &ConnectionRef) {
        let id = connection.id();
        let mut known = self.known.borrow_mut();
        if known.insert(id, connection.clone()).is_none() {
            let ended = Rc::clone(&self.ended);
            connection.on_end(move || ended.borrow_mut().push(id));
        }
    }

    /// A connection that has not ended.
    pub fn find(&self, id: u64) -> Option<ConnectionRef> {
        let known = self.known.borrow();
        known.get(&id).filter(|one| !one.has_ended()).cloned()
    }

    /// The connections that have ended since the last time.
    pub fn take_ended(&self) -> Vec<u64> {
        let ended = self.ended.take();
        if !ended.is_empty() {
            let mut known = self.known.borrow_mut();
            for id in &ended {
                known.remove(id);
            }
        }
        ended
    }
}
