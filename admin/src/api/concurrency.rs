//! Bounds on concurrent calls into the service.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The most concurrent calls into the service, by kind.
#[derive(Debug)]
pub struct ConcurrencyLimits {
    pub questions: Arc<Semaphore>,
    pub health: Arc<Semaphore>,
    pub operator: Arc<Semaphore>,
    pub tokens: Arc<Semaphore>,
}

impl ConcurrencyLimits {
    /// Questions about the service's health.
    pub const HEALTH: u32 = 2;
    /// Questions of operators, in addition to the common ones.
    pub const OPERATOR: u32 = 2;
    /// Comparisons of tokens.
    pub const TOKENS: u32 = 2;

    /// Limits with this number of common questions.
    pub fn new(questions: u32) -> Self {
        let limit = |most: u32| Arc::new(Semaphore::new(most.max(1) as usize));
        Self {
            questions: limit(questions),
            health: limit(Self::HEALTH),
            operator: limit(Self::OPERATOR),
            tokens: limit(Self::TOKENS),
        }
    }
}
