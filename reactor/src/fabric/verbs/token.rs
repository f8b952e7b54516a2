//! Tokens of connections and listeners for the connection manager and the control thread.

use crate::fabric::QueuePairId;

/// The recipient of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A connection, with only the lower 31 bits of its generation.
    Connection(QueuePairId),
    /// A listener.
    Listener(u32),
    /// A provider's part of a device.
    DeviceQueues(u32),
    /// None.
    Nobody,
}

impl Token {
    const OTHERS: u64 = 1 << 63;
    const DEVICE: u64 = 1 << 32;
    const GENERATION_MASK: u32 = u32::MAX >> 1;

    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Connection(id) => {
                u64::from(id.generation & Self::GENERATION_MASK) << 32 | u64::from(id.index)
            }
            Self::Listener(index) => Self::OTHERS | u64::from(index),
            Self::DeviceQueues(index) => Self::OTHERS | Self::DEVICE | u64::from(index),
            Self::Nobody => u64::MAX,
        }
    }

    pub(super) fn decode(token: u64) -> Self {
        if token == u64::MAX {
            return Self::Nobody;
        }
        let index = token as u32;
        if token & Self::OTHERS == 0 {
            return Self::Connection(QueuePairId {
                index,
                generation: (token >> 32) as u32,
            });
        }
        if token & Self::DEVICE == 0 {
            Self::Listener(index)
        } else {
            Self::DeviceQueues(index)
        }
    }

    /// Whether it names this connection.
    pub(super) fn is(self, id: QueuePairId) -> bool {
        self.encode() == Self::Connection(id).encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_name_whom_they_were_made_for(index: u32, generation in 0_u32..1 << 31) {
            let id = QueuePairId { index, generation };
            let others = [Token::Listener(index), Token::DeviceQueues(index), Token::Nobody];
            for token in [Token::Connection(id)].into_iter().chain(others) {
                prop_assert_eq!(Token::decode(token.encode()), token);
            }
            prop_assert!(Token::decode(Token::Connection(id).encode()).is(id));
            prop_assert!(!Token::DeviceQueues(index).is(id));
        }
    }
}
