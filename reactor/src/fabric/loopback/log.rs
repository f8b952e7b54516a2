//! The events of a network, for checks.

use crate::fabric::{Ended, Key, QueuePairId, Terminate};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A connection was requested of a listener.
    Asked {
        /// The connecting side.
        client: QueuePairId,
        /// The listening side.
        server: QueuePairId,
    },
    /// A Send went into a receive.
    Sent {
        /// The receiver.
        to: QueuePairId,
        /// Bytes of the message.
        length: usize,
    },
    /// Bytes of a Write were placed.
    Placed {
        /// The owner of the memory.
        to: QueuePairId,
        /// Its key.
        key: Key,
        /// The offset of the first byte, from the beginning of the exposure.
        place: u64,
        /// Bytes.
        length: usize,
    },
    /// Bytes of a Read were fetched.
    Fetched {
        /// The owner of the memory.
        from: QueuePairId,
        /// Its key.
        key: Key,
        /// The offset of the first byte, from the beginning of the exposure.
        place: u64,
        /// Bytes.
        length: usize,
    },
    /// An end detected an error of the peer.
    Fault {
        /// The detecting end.
        queue_pair: QueuePairId,
        /// The error.
        terminate: Terminate,
        /// Whether it was injected, and the peer made no error.
        injected: bool,
    },
    /// The network broke a connection.
    Reset {
        /// One of its ends.
        queue_pair: QueuePairId,
    },
    /// The network stopped reporting completions.
    Withheld {
        /// Its queue pair.
        queue_pair: QueuePairId,
    },
    /// An end has ended.
    Ended {
        /// Its queue pair.
        queue_pair: QueuePairId,
        /// The reason.
        reason: Ended,
    },
}
