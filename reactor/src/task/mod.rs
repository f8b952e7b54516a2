//! Tasks of one core: a slab of pinned futures of one type, polled after they were woken.
//!
//! Slots are created on demand, up to the set's capacity, and kept: spawning, waking, polling and
//! ending allocate nothing after that. Wakers work from any thread and ring the reactor's
//! [`crate::Alarm`].

mod next_turn;
mod ready;
mod set;

pub use next_turn::next_turn;
pub use set::{TaskEnd, TaskId, TaskSet};
