//! Handing over connections from the accepting reactor to the owning one.

use std::any::Any;
use std::io;
use std::net::SocketAddr;

#[cfg(doc)]
use super::ControlPath;
use super::{ListenerId, QueuePairLimits};

/// A connection that has arrived and not been answered, to be handed to its owning reactor. It may
/// cross threads; a provider of the same kind adopts it there ([`ControlPath::adopt`]).
#[derive(Debug)]
pub struct Incoming {
    /// Its listener.
    pub listener: ListenerId,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The listener's limits.
    pub limits: QueuePairLimits,
    /// The provider's part of it.
    pub carrier: Carrier,
}

/// The provider's part of an arrived connection, in a type private to that kind of provider.
/// Dropping it ends the connection.
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
    /// [`AdoptError::OtherProvider`] if it is not of this type. The connection is then ended.
    pub fn take<C: Any>(self, provider: &'static str) -> Result<C, AdoptError> {
        let connection = self.connection.downcast();
        let connection = connection.map_err(|_| AdoptError::OtherProvider {
            arrived: self.provider,
            adopting: provider,
        })?;
        Ok(*connection)
    }
}

/// Why a connection was not adopted. It is then ended.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It arrived at a provider of another kind.
    #[error("a connection that arrived at `{arrived}` cannot be adopted by `{adopting}`")]
    OtherProvider {
        /// The provider of its listener.
        arrived: &'static str,
        /// The provider asked to adopt it.
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
