//! What happened on a network, for those who check it.

use crate::fabric::{Ended, Key, QueuePairId, Terminate};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A listener was asked for a connection.
    Asked {
        /// The asking side.
        client: QueuePairId,
        /// The asked side.
        server: QueuePairId,
    },
    /// A Send went into a receive.
    Sent {
        /// Who received.
        to: QueuePairId,
        /// Bytes of the message.
        length: usize,
    },
    /// Bytes of a Write were placed.
    Placed {
        /// Whose memory it is.
        to: QueuePairId,
        /// Its key.
        key: Key,
        /// The offset of the first byte, counted from the beginning of the exposure.
        place: u64,
        /// Bytes.
        length: usize,
    },
    /// Bytes of a Read were fetched.
    Fetched {
        /// Whose memory it is.
        from: QueuePairId,
        /// Its key.
        key: Key,
        /// The offset of the first byte, counted from the beginning of the exposure.
        place: u64,
        /// Bytes.
        length: usize,
    },
    /// An end found the peer in error.
    Fault {
        /// Who found it.
        queue_pair: QueuePairId,
        /// What it was.
        terminate: Terminate,
        /// Whether it was the network's doing, and the peer did nothing wrong.
        injected: bool,
    },
    /// The network broke a connection.
    Reset {
        /// One of its ends.
        queue_pair: QueuePairId,
    },
    /// The network stopped to report completions.
    Withheld {
        /// Whose.
        queue_pair: QueuePairId,
    },
    /// An end has ended.
    Ended {
        /// Which.
        queue_pair: QueuePairId,
        /// Why.
        reason: Ended,
    },
}
