//! Connections on their way from the reactor that they arrived at to the one that shall own them.

use std::any::Any;
use std::io;
use std::net::SocketAddr;

#[cfg(doc)]
use super::ControlPath;
use super::{ListenerId, QueuePairLimits};

/// A connection that has arrived and not been answered, on its way to the reactor that shall own
/// it. It may cross threads; a provider of the same kind adopts it there ([`ControlPath::adopt`]).
#[derive(Debug)]
pub struct Incoming {
    /// Who listened.
    pub listener: ListenerId,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The listener's limits.
    pub limits: QueuePairLimits,
    /// What carries it.
    pub carrier: Carrier,
}

/// What a connection that has arrived is to its kind of provider, in a type that only that kind
/// knows. Dropped, it ends the connection.
#[derive(Debug)]
pub struct Carrier {
    provider: &'static str,
    connection: Box<dyn Any + Send>,
}

impl Carrier {
    /// A connection that arrived at a provider of this name ([`ControlPath::name`]).
    pub fn new(provider: &'static str, connection: impl Any + Send) -> Self {
        Self {
            provider,
            connection: Box::new(connection),
        }
    }

    /// The connection, for a provider of this name.
    ///
    /// # Errors
    /// [`AdoptError::OtherProvider`] if it is not of this type. The connection is ended then.
    pub fn take<C: Any>(self, provider: &'static str) -> Result<C, AdoptError> {
        let connection = self.connection.downcast();
        let connection = connection.map_err(|_| AdoptError::OtherProvider {
            arrived: self.provider,
            adopting: provider,
        })?;
        Ok(*connection)
    }
}

/// Why a connection was not adopted. It is ended then.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It arrived at a provider of another kind.
    #[error("a connection that arrived at `{arrived}` cannot be adopted by `{adopting}`")]
    OtherProvider {
        /// The provider that it arrived at.
        arrived: &'static str,
        /// The provider that was to adopt it.
        adopting: &'static str,
    },
    /// There are too many connections, or the system refuses it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::fabric::ControlPath;
    use crate::fabric::iwarp::{Iwarp, IwarpConfig};

    #[test]
    fn a_connection_of_another_provider_is_not_adopted_and_ends() {
        let connection = Arc::new(());
        let ended = Arc::downgrade(&connection);
        let limits = QueuePairLimits {
            send_depth: 1,
            receive_depth: 1,
            ird: 1,
            ord: 1,
            exposures: 1,
            receive_size: 4096,
        };
        let incoming = Incoming {
            listener: ListenerId(0),
            peer: ([127, 0, 0, 1], 1).into(),
            limits,
            carrier: Carrier::new("other", connection),
        };
        let mut provider = Iwarp::new(IwarpConfig::default()).unwrap();
        let error = provider.adopt(incoming, Instant::now()).unwrap_err();
        assert!(
            matches!(
                error,
                AdoptError::OtherProvider {
                    arrived: "other",
                    adopting: "iwarp"
                }
            ),
            "{error}"
        );
        assert_eq!((ended.strong_count(), provider.connections()), (0, 0));
    }
}
