//! `top`: the server, live.
//!
//! One thread queries the server ([`fetch`]) and one draws and reads keys ([`run`]), so that the
//! user can leave while the server does not answer. The display is a function of the
//! [`state::TopState`], so it is tested without a terminal.

mod draw;
mod fetch;
mod grid;
mod grids;
mod keys;
mod sample;
mod screen;
mod state;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event};

use super::context::Context;
use super::failure::Failure;
use super::options::duration;
use fetch::Fetcher;
use screen::Screen;
use state::{TopState, View};

/// The interval of polling keys and answers.
const TICK: Duration = Duration::from_millis(50);

/// The keys, for the help of the command.
pub const HELP: &str = "\
Keys:
  1 to 5, Tab   overview, clients, connections, exports, operations
  s, S          sort by the next or the previous column
  r             reverse the order
  /             show only rows with a word; Esc shows all again
  arrows, PgUp, PgDn, Home, End   move
  space         pause
  +, -          refresh more or less often
  ?, h          these keys
  q, Ctrl-C     leave

Rates are differences between two answers of the server. THROTTLED is the
average number of calls that wait for a limit or a share. Colours
are disabled by NO_COLOR.";

/// Options of `top`.
#[derive(Args)]
pub struct Top {
    /// Time between two queries, with ms, s or m; at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// The first view.
    #[arg(long, value_enum, default_value = "overview")]
    view: View,
    /// Show only rows with this word.
    #[arg(long, value_name = "WORD", default_value = "")]
    filter: String,
}

/// Shows the server until the user leaves.
pub fn run(context: &Context<'_>, top: &Top) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "top needs a terminal; for files and programs use `millracectl status`, and --json of \
             the other commands",
        ));
    }
    let mut state = TopState::new(context.client.authority(), top.interval, top.view);
    state.filter.clone_from(&top.filter);
    state.colour = context.colour;
    let fetcher = Fetcher::start(context.client.clone(), state.wish())?;
    let mut screen = Screen::open()?;
    while !state.leaves && !screen.is_told_to_end() {
        while let Some(answer) = fetcher.answer()? {
            state.take(answer);
        }
        if state.is_stale() {
            screen.draw(|frame| draw::draw(frame, &mut state))?;
        }
        if event::poll(TICK)? {
            match event::read()? {
                Event::Key(key) => {
                    let before = state.wish();
                    keys::press(&mut state, key);
                    if state.wish() != before {
                        fetcher.wish(state.wish());
                    }
                }
                Event::Resize(..) => state.touch(),
                _ => {}
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
