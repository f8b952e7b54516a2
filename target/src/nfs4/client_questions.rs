//! How operations ask the home of the state.

use std::time::Duration;

use super::client_state::ClientState;
use crate::state::{AnswerTicket, FileKey, StateError, StateHome};

/// How often an operation waits for records: when it has waited for one, it may find that it depends
/// on another.
const RECORD_WAITS: usize = 4;

impl ClientState {
    /// Asks the home what grants no use of a file. The client calls again if it cannot be asked.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut StateHome, Duration) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        let answer = self.link().ask(None, run).await;
        answer.unwrap_or(Err(StateError::Delay))
    }

    /// Asks the home, which may grant the use of a file; again when the records that the answer depends
    /// on are durable. The client calls again if that takes too long.
    pub(super) async fn ask_recorded<T: Send + 'static>(
        &self,
        granted: Option<FileKey>,
        run: impl FnOnce(&mut StateHome, Duration) -> Result<T, StateError> + Clone + Send + 'static,
    ) -> Result<T, StateError> {
        for _ in 0..RECORD_WAITS {
            let answer = self.link().ask(granted, run.clone()).await;
            match answer.unwrap_or(Err(StateError::Delay)) {
                Err(StateError::Unrecorded(serial)) => {
                    if !self.record_waits().wait(serial, self.link().now()).await {
                        return Err(StateError::Delay);
                    }
                }
                answer => return answer,
            }
        }
        Err(StateError::Delay)
    }

    /// The same for a question that the home may answer later.
    pub(super) async fn ask_recorded_for_later<T: Send + 'static>(
        &self,
        granted: Option<FileKey>,
        run: impl FnOnce(&mut StateHome, Duration, AnswerTicket) -> Option<Result<T, StateError>>
        + Clone
        + Send
        + 'static,
    ) -> Result<T, StateError> {
        for _ in 0..RECORD_WAITS {
            let answer = self.link().ask_for_later(granted, run.clone()).await;
            match answer.unwrap_or(Err(StateError::Delay)) {
                Err(StateError::Unrecorded(serial)) => {
                    if !self.record_waits().wait(serial, self.link().now()).await {
                        return Err(StateError::Delay);
                    }
                }
                answer => return answer,
            }
        }
        Err(StateError::Delay)
    }
}
