//! `top`: the server, live.
//!
//! One thread asks the server ([`fetch`]) and one draws and listens to keys ([`run`]), so that a
//! server that does not answer keeps nobody from leaving. What is shown is a function of the
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

/// How often keys and answers are looked for.
const TICK: Duration = Duration::from_millis(50);

/// The keys, for the help of the command.
pub const HELP: &str = "\
Keys:
  1 to 5, Tab   overview, clients, connections, exports, operations
  s, S          order by the next or the previous column
  r             the other way round
  /             show only rows with a word; Esc shows all again
  arrows, PgUp, PgDn, Home, End   move
  space         pause
  +, -          look more or less often
  ?, h          these keys
  q, Ctrl-C     leave

Rates are differences between two answers of the server. THROTTLED is how
many calls waited for a limit or a share at a time, on average. Colours
are left out where NO_COLOR is set.";

/// How the server is watched.
#[derive(Args)]
pub struct Top {
    /// How long between two looks, with us, ms or s; 100ms at least.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// What to show first.
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
            "top is for terminals; `millracectl status` and --json of the other commands are for \
             files and programs",
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
