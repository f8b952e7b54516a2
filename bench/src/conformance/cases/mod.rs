//! The cases, in the order of the matrix.

mod bulk;
mod chunk;
mod configuration;
mod credit;
mod done;
mod error_two;
mod header;
mod long;
mod malformed;
mod mpa;
mod mpa_depths;
mod pad;
mod second;
mod service;

use super::probe::Probe;
use super::verdict::Done;

/// One question to a server.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    /// The row of the matrix.
    pub row: &'static str,
    pub title: &'static str,
    pub run: fn(&mut Probe) -> Done,
}

/// A case.
const fn case(row: &'static str, title: &'static str, run: fn(&mut Probe) -> Done) -> Question {
    Question { row, title, run }
}

/// All cases.
pub(crate) fn all() -> Vec<Question> {
    [
        header::CASES,
        malformed::CASES,
        chunk::CASES,
        bulk::CASES,
        pad::CASES,
        long::CASES,
        done::CASES,
        credit::CASES,
        configuration::CASES,
        service::CASES,
        second::CASES,
        error_two::CASES,
        mpa::CASES,
        mpa_depths::CASES,
        mpa::IDLE,
    ]
    .concat()
}
