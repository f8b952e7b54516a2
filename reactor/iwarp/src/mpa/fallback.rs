//! Whether to connect again without the enhancements (RFC 6581 section 10).

use super::config::InitiatorConfig;
use super::error::SetupError;

/// Decides, for one connect of the application's, whether a second attempt is made. There is
/// never a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    left: bool,
}

impl Fallback {
    /// `allowed`: the application can live without the exchange, since read depths and the first
    /// message are its own business then.
    #[must_use]
    pub fn new(allowed: bool) -> Self {
        Self { left: allowed }
    }

    /// The settings of a second attempt over a new TCP connection, if there is to be one: the
    /// request was enhanced, and the peer closed TCP without an answer, as responders do that
    /// do not know the enhancements.
    pub fn retry(&mut self, tried: &InitiatorConfig, error: SetupError) -> Option<InitiatorConfig> {
        let suspect = tried.asks_enhanced() && error == SetupError::ClosedUnanswered;
        if !(suspect && self.left) {
            return None;
        }
        self.left = false;
        Some(InitiatorConfig {
            exchange_depths: false,
            peer_to_peer: false,
            ..tried.clone()
        })
    }
}
