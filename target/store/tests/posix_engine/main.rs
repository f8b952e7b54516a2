//! The engine of the posix store, with a ring and with threads.

mod bounds;
mod contents;
mod holds;
mod identities;
mod ring;
mod stage;
