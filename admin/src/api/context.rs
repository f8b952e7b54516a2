//! State shared by handlers.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::concurrency::ConcurrencyLimits;
use super::events::EventStreams;
use super::limits::ApiLimits;
use super::tls::Certificates;
use super::token_check::TokenCheck;
use crate::change::ConfigStore;
use crate::control::Control;
use crate::figures::FigureHistory;
use crate::metrics::Metrics;

/// The most captures at once.
pub const CAPTURES: usize = 4;

/// The state of the API.
#[derive(Clone)]
pub struct AdminState {
    pub(super) control: Arc<dyn Control>,
    pub(super) metrics: Metrics,
    pub(super) config_store: Arc<ConfigStore>,
    pub(super) limits: ApiLimits,
    pub(super) tokens: Arc<TokenCheck>,
    /// Held while a change is made.
    pub(super) turn: Arc<Semaphore>,
    /// Permits for captures.
    pub(super) captures: Arc<Semaphore>,
    pub(super) event_streams: Arc<EventStreams>,
    pub(super) figures: Arc<FigureHistory>,
    pub(super) concurrency: Arc<ConcurrencyLimits>,
    pub(super) certificates: Option<Arc<Certificates>>,
}

impl AdminState {
    /// An API with the default limits.
    pub fn new(
        control: Arc<dyn Control>,
        metrics: Metrics,
        config_store: Arc<ConfigStore>,
    ) -> Self {
        Self {
            control,
            metrics,
            config_store,
            limits: ApiLimits::default(),
            tokens: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
            captures: Arc::new(Semaphore::new(CAPTURES)),
            event_streams: Arc::default(),
            figures: Arc::default(),
            concurrency: Arc::new(ConcurrencyLimits::new(ApiLimits::default().questions)),
            certificates: None,
        }
    }

    /// The same API with other limits.
    #[must_use]
    pub fn with_limits(self, limits: ApiLimits) -> Self {
        Self {
            concurrency: Arc::new(ConcurrencyLimits::new(limits.questions)),
            limits,
            ..self
        }
    }

    /// The same API with HTTPS in place of HTTP.
    #[must_use]
    pub fn with_certificates(self, certificates: Arc<Certificates>) -> Self {
        Self {
            certificates: Some(certificates),
            ..self
        }
    }
}
