//! How much the service is asked at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// How many questions may be put to the service at once.
#[derive(Debug)]
pub struct ConcurrencyLimits {
    pub questions: Arc<Semaphore>,
    pub health: Arc<Semaphore>,
    pub operator: Arc<Semaphore>,
    pub tokens: Arc<Semaphore>,
}

impl ConcurrencyLimits {
    /// Questions about the service's health at once.
    pub const HEALTH: u32 = 2;
    /// Questions of operators at once, beside those of everybody.
    pub const OPERATOR: u32 = 2;
    /// Tokens that are compared at once.
    pub const TOKENS: u32 = 2;

    /// With so many other questions at once.
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
