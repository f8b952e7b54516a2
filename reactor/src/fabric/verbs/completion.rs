//! Interpretation of completions: their connections and statuses.

use super::sys::Status;
use crate::fabric::{Ended, Terminate, WorkError};

/// The queue of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// A connection's send queue.
    Send,
    /// A connection's own receive queue.
    Receive,
    /// The shared receive queue; the number is its index there.
    Shared,
}

/// The identifier of a request for the device, so that its completion finds its owner by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestName {
    pub(super) queue: Queue,
    /// Slot of the connection.
    pub(super) slot: u32,
    /// The slot's generation: the lowest bits of it.
    pub(super) generation: u32,
    /// Number of the request in its queue: the lowest bits of it.
    pub(super) number: u64,
}

impl RequestName {
    /// Bits of the number.
    const NUMBER_BITS: u32 = 30;
    /// Bits of the generation.
    const GENERATION_BITS: u32 = 12;
    /// Bits of the slot.
    const SLOT_BITS: u32 = 20;
    /// The bits of a number that are kept.
    pub(super) const NUMBER_MASK: u64 = (1 << Self::NUMBER_BITS) - 1;
    /// The bits of a generation that are kept.
    pub(super) const GENERATION_MASK: u32 = (1 << Self::GENERATION_BITS) - 1;
    /// The most slots.
    pub(super) const SLOTS_MAX: usize = 1 << Self::SLOT_BITS;

    pub(super) fn encode(self) -> u64 {
        let queue = match self.queue {
            Queue::Send => 0,
            Queue::Receive => 1,
            Queue::Shared => 2,
        };
        let slot = u64::from(self.slot) & (Self::SLOTS_MAX as u64 - 1);
        let generation = u64::from(self.generation & Self::GENERATION_MASK);
        let upper = ((queue << Self::SLOT_BITS) | slot) << Self::GENERATION_BITS | generation;
        (upper << Self::NUMBER_BITS) | (self.number & Self::NUMBER_MASK)
    }

    pub(super) fn decode(id: u64) -> Self {
        let upper = id >> Self::NUMBER_BITS;
        let slot = (upper >> Self::GENERATION_BITS) & (Self::SLOTS_MAX as u64 - 1);
        let queue = match upper >> (Self::GENERATION_BITS + Self::SLOT_BITS) {
            0 => Queue::Send,
            1 => Queue::Receive,
            _ => Queue::Shared,
        };
        Self {
            queue,
            slot: slot as u32,
            generation: upper as u32 & Self::GENERATION_MASK,
            number: id & Self::NUMBER_MASK,
        }
    }
}

/// The result of a request with this status, and of its connection: no queue pair survives a failed
/// request. Without a cause the connection was broken by another request.
pub(super) fn failure(status: Status) -> Option<(WorkError, Option<Ended>)> {
    Some(match status {
        Status::Success => return None,
        Status::Flushed => (WorkError::Flushed, None),
        // The peer refused: its memory, bounds or rights.
        Status::RemoteAccess => (
            WorkError::RemoteAccess,
            Some(Ended::TerminateReceived(REMOTE_PROTECTION)),
        ),
        // The peer refused the request itself, such as an invalidation or a Send too long for its
        // receive.
        Status::RemoteInvalidRequest | Status::RemoteOperation => (
            WorkError::RemoteAccess,
            Some(Ended::TerminateReceived(REMOTE_OPERATION)),
        ),
        // In the send queue: its memory cannot be used. In the receive queue: the message is too
        // long.
        Status::LocalLength => (
            WorkError::LocalLength,
            Some(Ended::TerminateSent(MESSAGE_TOO_LONG)),
        ),
        Status::LocalProtection | Status::WindowBind | Status::LocalQueuePair => (
            WorkError::LocalLength,
            Some(Ended::TerminateSent(LOCAL_CATASTROPHE)),
        ),
        // The peer's message accessed memory without a right, or was malformed.
        Status::LocalAccess => (
            WorkError::Flushed,
            Some(Ended::TerminateSent(REMOTE_PROTECTION)),
        ),
        Status::BadResponse => (
            WorkError::Flushed,
            Some(Ended::TerminateSent(REMOTE_OPERATION)),
        ),
        Status::RetryExceeded => (
            WorkError::Flushed,
            Some(Ended::TimedOut("the peer stopped answering")),
        ),
        Status::ReceiverNotReady => (
            WorkError::Flushed,
            Some(Ended::TerminateReceived(NO_BUFFER)),
        ),
        Status::Other(_) => (
            WorkError::Flushed,
            Some(Ended::Network(std::io::ErrorKind::Other)),
        ),
    })
}

/// RDMAP: remote protection, invalid steering tag. Devices report no more detail.
const REMOTE_PROTECTION: Terminate = Terminate {
    layer: 0,
    kind: 1,
    code: 0,
};

/// RDMAP: remote operation, unspecified.
const REMOTE_OPERATION: Terminate = Terminate {
    layer: 0,
    kind: 2,
    code: 0xff,
};

/// RDMAP: local catastrophic error.
const LOCAL_CATASTROPHE: Terminate = Terminate {
    layer: 0,
    kind: 0,
    code: 0,
};

/// DDP: untagged buffer, no buffer available.
const NO_BUFFER: Terminate = Terminate {
    layer: 1,
    kind: 2,
    code: 2,
};

/// DDP: untagged buffer, message too long for it.
const MESSAGE_TOO_LONG: Terminate = Terminate {
    layer: 1,
    kind: 2,
    code: 5,
};

/// The end of a connection that consumed more receives of a shared queue than it had posted.
pub(super) const TOO_MANY_MESSAGES: Ended = Ended::TerminateSent(NO_BUFFER);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_keep_what_has_room(
            queue in prop::sample::select(vec![Queue::Send, Queue::Receive, Queue::Shared]),
            slot in 0_u32..1 << 20,
            generation: u32,
            number: u64,
        ) {
            let name = RequestName { queue, slot, generation, number };
            prop_assert_eq!(RequestName::decode(name.encode()), RequestName {
                generation: generation & RequestName::GENERATION_MASK,
                number: number & RequestName::NUMBER_MASK,
                ..name
            });
        }

        /// Any number from a device is a valid name.
        #[test]
        fn any_number_is_a_name(id: u64) {
            prop_assert!((RequestName::decode(id).slot as usize) < RequestName::SLOTS_MAX);
        }
    }

    #[test]
    fn every_status_has_its_meaning() {
        use std::io::ErrorKind;
        let terminate = |layer, kind, code| Terminate { layer, kind, code };
        let received = |layer, kind, code| Ended::TerminateReceived(terminate(layer, kind, code));
        let sent = |layer, kind, code| Ended::TerminateSent(terminate(layer, kind, code));
        let table = [
            (Status::Flushed, WorkError::Flushed, None),
            (
                Status::LocalLength,
                WorkError::LocalLength,
                Some(sent(1, 2, 5)),
            ),
            (
                Status::LocalProtection,
                WorkError::LocalLength,
                Some(sent(0, 0, 0)),
            ),
            (
                Status::LocalQueuePair,
                WorkError::LocalLength,
                Some(sent(0, 0, 0)),
            ),
            (
                Status::WindowBind,
                WorkError::LocalLength,
                Some(sent(0, 0, 0)),
            ),
            (
                Status::BadResponse,
                WorkError::Flushed,
                Some(sent(0, 2, 255)),
            ),
            (Status::LocalAccess, WorkError::Flushed, Some(sent(0, 1, 0))),
            (
                Status::RemoteInvalidRequest,
                WorkError::RemoteAccess,
                Some(received(0, 2, 255)),
            ),
            (
                Status::RemoteAccess,
                WorkError::RemoteAccess,
                Some(received(0, 1, 0)),
            ),
            (
                Status::RemoteOperation,
                WorkError::RemoteAccess,
                Some(received(0, 2, 255)),
            ),
            (
                Status::RetryExceeded,
                WorkError::Flushed,
                Some(Ended::TimedOut("the peer stopped answering")),
            ),
            (
                Status::ReceiverNotReady,
                WorkError::Flushed,
                Some(received(1, 2, 2)),
            ),
            (
                Status::Other(21),
                WorkError::Flushed,
                Some(Ended::Network(ErrorKind::Other)),
            ),
        ];
        assert_eq!(failure(Status::Success), None);
        for (status, error, reason) in table {
            assert_eq!(failure(status), Some((error, reason)), "{status:?}");
        }
    }
}
