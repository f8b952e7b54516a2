//! The cases.

mod bulk;
mod chunk;
mod configuration;
mod credit;
mod done;
mod error_two;
mod exchange;
mod gss;
mod gss_context;
mod header;
mod long;
mod malformed;
mod mpa;
mod mpa_depths;
mod pad;
mod second;
mod service;

use super::exchanges::{EXCHANGES, ScriptedExchange};
use super::probe::Probe;
use super::verdict::Done;

/// One question to a server.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    /// The row of the matrix.
    pub row: &'static str,
    pub title: &'static str,
    steps: Steps,
}

/// The steps of a question.
#[derive(Clone, Copy)]
enum Steps {
    Function(fn(&mut Probe) -> Done),
    Exchange(&'static ScriptedExchange),
}

impl Question {
    /// Asks it.
    pub fn run(&self, probe: &mut Probe) -> Done {
        match self.steps {
            Steps::Function(run) => run(probe),
            Steps::Exchange(exchange) => exchange::run(exchange, probe),
        }
    }
}

/// A case.
const fn case(row: &'static str, title: &'static str, run: fn(&mut Probe) -> Done) -> Question {
    Question {
        row,
        title,
        steps: Steps::Function(run),
    }
}

/// All cases: those of the table of [`exchanges`](super::exchanges) at the end.
pub(crate) fn all() -> Vec<Question> {
    let exchanges = EXCHANGES.iter().map(|exchange| Question {
        row: exchange.row,
        title: exchange.title,
        steps: Steps::Exchange(exchange),
    });
    let mut all = [
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
        gss::CASES,
        gss_context::CASES,
        second::CASES,
        error_two::CASES,
        mpa::CASES,
        mpa_depths::CASES,
        mpa::IDLE,
    ]
    .concat();
    all.extend(exchanges);
    all
}
