//! The state of the display, without drawing.

use std::collections::VecDeque;
use std::time::Duration;

use clap::ValueEnum;

use super::fetch::{INTERVAL_MAX, INTERVAL_MIN, Look};
use super::sample::{Sample, Span};

/// The most points of a history.
const HISTORY_MAX: usize = 512;

/// The views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Rates and reactors.
    Overview,
    /// Addresses, summed over their connections.
    Clients,
    /// Single connections.
    Connections,
    /// Exports.
    Exports,
    /// Procedures.
    Operations,
}

impl View {
    pub const ALL: [Self; 5] = [
        Self::Overview,
        Self::Clients,
        Self::Connections,
        Self::Exports,
        Self::Operations,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Clients => "clients",
            Self::Connections => "connections",
            Self::Exports => "exports",
            Self::Operations => "operations",
        }
    }

    pub fn place(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }
}

/// The request to the querying thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub view: View,
    pub interval: Duration,
    pub paused: bool,
}

/// The state that determines the display.
pub struct TopState {
    pub authority: String,
    pub view: View,
    pub interval: Duration,
    pub paused: bool,
    pub help: bool,
    pub colour: bool,
    /// Rows without it are hidden.
    pub filter: String,
    /// The filter is being edited.
    pub writes: bool,
    /// By view: the sort column, and whether it is reversed.
    pub order: [(usize, bool); View::ALL.len()],
    /// By view: the selected row.
    pub marked: [usize; View::ALL.len()],
    /// Rows on the screen, for moving by pages; set when drawing.
    pub page: usize,
    /// The number of rows; set when drawing.
    pub rows: usize,
    /// The number of columns; set when drawing.
    pub columns: usize,
    pub leaves: bool,
    /// The reason for missing answers.
    pub lost: Option<String>,
    now: Option<Sample>,
    before: Option<Sample>,
    /// Bytes read and written per second, the latest last.
    pub history: VecDeque<(u64, u64)>,
    stale: bool,
}

impl TopState {
    pub fn new(authority: &str, interval: Duration, view: View) -> Self {
        Self {
            authority: authority.to_owned(),
            view,
            interval: interval.clamp(INTERVAL_MIN, INTERVAL_MAX),
            paused: false,
            help: false,
            colour: false,
            filter: String::new(),
            writes: false,
            order: [(usize::MAX, false); View::ALL.len()],
            marked: [0; View::ALL.len()],
            page: 1,
            rows: 0,
            columns: 0,
            leaves: false,
            lost: None,
            now: None,
            before: None,
            history: VecDeque::new(),
            stale: true,
        }
    }

    pub fn wish(&self) -> Wish {
        Wish {
            view: self.view,
            interval: self.interval,
            paused: self.paused,
        }
    }

    /// Adds a sample, or the reason for a missing one.
    pub fn take(&mut self, look: Look) {
        self.touch();
        match look {
            Err(reason) => self.lost = Some(reason),
            Ok(sample) => {
                // Answers to queries sent before the pause are ignored.
                if self.paused {
                    return;
                }
                // The sample before a loss may be of another run of the server.
                self.before = match self.lost.take() {
                    None => self.now.take(),
                    Some(_) => None,
                };
                self.now = Some(sample);
                if let Some([_, Some(read), Some(written)]) = self.span().map(|span| span.totals())
                {
                    self.history.push_back((read as u64, written as u64));
                    if self.history.len() > HISTORY_MAX {
                        self.history.pop_front();
                    }
                }
            }
        }
    }

    /// The samples to show.
    pub fn span(&self) -> Option<Span<'_>> {
        Some(Span {
            now: self.now.as_ref()?,
            before: self.before.as_ref(),
        })
    }

    /// Whether the screen needs a redraw; resets the flag.
    pub fn is_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Requests a redraw.
    pub fn touch(&mut self) {
        self.stale = true;
    }

    pub fn marked(&mut self) -> &mut usize {
        &mut self.marked[self.view.place()]
    }

    pub fn order(&mut self) -> &mut (usize, bool) {
        &mut self.order[self.view.place()]
    }
}
