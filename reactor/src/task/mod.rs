//! Tasks of one core: a slab of pinned futures of one type, polled when they were woken.
//!
//! Places are made as they are needed, up to the set's capacity, and kept: spawning, waking,
//! polling and ending allocate nothing after that. Wakers work from any thread and ring the
//! reactor's [`crate::Alarm`].

mod ready;
mod set;

pub use set::{TaskEnd, TaskId, TaskSet};
