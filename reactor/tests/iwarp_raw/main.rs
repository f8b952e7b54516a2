//! The software iWARP provider against a scripted peer over plain TCP, in one thread. The tests
//! hand over the time themselves, so that deadlines pass without waiting.

#[path = "../support/mod.rs"]
mod support;

mod depths;
mod errors;
mod hostile;
mod integrity;
mod ready;
mod setup;
mod stand;
