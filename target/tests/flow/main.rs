//! Credits, limits and memory of clients.

#[path = "../support/mod.rs"]
mod support;

mod credits;
mod limits;
mod memory;
mod shares;
