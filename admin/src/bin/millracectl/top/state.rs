//! What is shown and how, apart from the drawing of it.

use std::collections::VecDeque;
use std::time::Duration;

use clap::ValueEnum;

use super::fetch::{INTERVAL_MAX, INTERVAL_MIN, Look};
use super::sample::{Sample, Span};

/// The most points of a history.
const HISTORY_MAX: usize = 512;

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Rates and reactors.
    Overview,
    /// Addresses, over all their connections.
    Clients,
    /// One by one.
    Connections,
    /// Trees.
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

/// What the thread that asks is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub view: View,
    pub interval: Duration,
    pub paused: bool,
}

/// Everything that decides what is on the screen.
pub struct TopState {
    pub authority: String,
    pub view: View,
    pub interval: Duration,
    pub paused: bool,
    pub help: bool,
    pub colour: bool,
    /// Rows without it are not shown.
    pub filter: String,
    /// The filter is being written.
    pub writes: bool,
    /// By view: the column of the order, and whether it is turned round.
    pub order: [(usize, bool); View::ALL.len()],
    /// By view: the row that is marked.
    pub marked: [usize; View::ALL.len()],
    /// Rows on the screen, for moving by pages; set by the drawing.
    pub page: usize,
    /// Rows there are; set by the drawing.
    pub rows: usize,
    /// Columns there are; set by the drawing.
    pub columns: usize,
    pub leaves: bool,
    /// Why there is no answer.
    pub lost: Option<String>,
    now: Option<Sample>,
    before: Option<Sample>,
    /// Bytes read and written each second, the latest last.
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

    /// Takes what the server said, or why it said nothing.
    pub fn take(&mut self, look: Look) {
        self.touch();
        match look {
            Err(reason) => self.lost = Some(reason),
            Ok(sample) => {
                // Answers that were under way when the user paused do not count.
                if self.paused {
                    return;
                }
                // What was before a loss may be of another run of the server.
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

    /// What there is to be shown.
    pub fn span(&self) -> Option<Span<'_>> {
        Some(Span {
            now: self.now.as_ref()?,
            before: self.before.as_ref(),
        })
    }

    /// Whether the screen shows something else than the state; asked once for each drawing.
    pub fn is_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Has the screen drawn anew.
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
