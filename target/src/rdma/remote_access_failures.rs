//! Calls whose chunks broke a connection (RFC 8166 section 4.5.3).
//!
//! Clients repeat a call on their next connection. A call with inaccessible memory would break that
//! one too, and so on; such a call is answered with an error instead.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The most calls remembered; the oldest is evicted first.
const REMEMBERED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailureEntry {
    client: IpAddr,
    xid: u32,
}

/// The latest calls that broke a connection.
#[derive(Debug)]
pub struct RemoteAccessFailures {
    entries: RefCell<VecDeque<FailureEntry>>,
}

impl RemoteAccessFailures {
    /// None yet.
    pub fn new() -> Self {
        Self {
            entries: RefCell::new(VecDeque::with_capacity(REMEMBERED)),
        }
    }

    /// Adds a call.
    pub fn remember(&self, client: IpAddr, xid: u32) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() == REMEMBERED {
            entries.pop_front();
        }
        entries.push_back(FailureEntry { client, xid });
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// Removes a call, and returns whether it was there: it is answered once, and the XID may be
    /// used for another call afterwards.
    pub fn take(&self, client: IpAddr, xid: u32) -> bool {
        let mut entries = self.entries.borrow_mut();
        if entries.is_empty() {
            return false;
        }
        let found = entries
            .iter()
            .position(|entry| *entry == FailureEntry { client, xid });
        found.map(|at| entries.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_once_and_memory_is_bounded() {
        let calls = RemoteAccessFailures::new();
        let client = IpAddr::from([10, 0, 0, 1]);
        for xid in 0..1000 {
            calls.remember(client, xid);
        }
        assert!(!calls.take(client, 3));
        assert!(calls.take(client, 999));
        assert!(!calls.take(client, 999));
        assert!(!calls.take(IpAddr::from([10, 0, 0, 2]), 998));
        assert!(calls.entries.borrow().len() < REMEMBERED);
    }
}
