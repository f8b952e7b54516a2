//! MPA, DDP and RDMAP as a state machine without I/O.

pub mod mpa;
