//! Counters of changes, for the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{ChangeError, ConfigStore};
use crate::metrics::{Families, MetricsSource, catalogue};

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied; keys that need a restart are pending.
    Applied,
    /// Nothing differed.
    Unchanged,
    /// Checked only (dry run).
    Tried,
    /// Another change came first.
    Stale,
    /// The configuration is invalid.
    Invalid,
    /// It takes away what is in use.
    InUse,
    /// The service failed to apply it.
    NotApplied,
    /// The file could not be written.
    NotWritten,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Applied,
        Self::Unchanged,
        Self::Tried,
        Self::Stale,
        Self::Invalid,
        Self::InUse,
        Self::NotApplied,
        Self::NotWritten,
    ];

    /// The result of a change that failed.
    pub fn of(error: &ChangeError) -> Self {
        match error {
            ChangeError::Stale(_) => Self::Stale,
            ChangeError::Invalid(_) | ChangeError::NoGeneration(_) | ChangeError::NoFile => {
                Self::Invalid
            }
            ChangeError::InUse(_) => Self::InUse,
            ChangeError::Persist { .. }
            | ChangeError::FileChanged(_)
            | ChangeError::FileDenied { .. } => Self::NotWritten,
            ChangeError::Apply(_) => Self::NotApplied,
        }
    }

    /// The label in metrics and audit records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Tried => "tried",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
            Self::InUse => "in_use",
            Self::NotApplied => "not_applied",
            Self::NotWritten => "not_written",
        }
    }
}

/// Counters since the start.
pub struct Counts {
    changes: [AtomicU64; Outcome::ALL.len()],
    reloads_done: AtomicU64,
    reloads_failed: AtomicU64,
    last_reload_failed: AtomicBool,
    /// In milliseconds since 1970.
    last_reload_success: AtomicU64,
}

impl Counts {
    /// Counters whose first successful reload is the start, at this time in seconds since 1970.
    pub fn new(start: f64) -> Self {
        Self {
            changes: Default::default(),
            reloads_done: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            last_reload_failed: AtomicBool::new(false),
            last_reload_success: AtomicU64::new(milliseconds(start)),
        }
    }

    /// Counts a change.
    pub fn change(&self, outcome: Outcome) {
        self.changes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reload.
    pub fn reload(&self, well: bool, now: f64) {
        if well {
            self.reloads_done.fetch_add(1, Ordering::Relaxed);
            self.last_reload_success
                .store(milliseconds(now), Ordering::Relaxed);
        } else {
            self.reloads_failed.fetch_add(1, Ordering::Relaxed);
        }
        self.last_reload_failed.store(!well, Ordering::Relaxed);
    }
}

impl MetricsSource for ConfigStore {
    fn collect(&self, out: &mut Families) {
        let current = self.current();
        out.number(&catalogue::CONFIG_GENERATION, &[], current.tag.generation);
        let waiting = current.restart_required.len() as u64;
        out.number(&catalogue::CONFIG_RESTART_REQUIRED, &[], waiting);
        let counts = &self.counts;
        for outcome in Outcome::ALL {
            let count = counts.changes[outcome as usize].load(Ordering::Relaxed);
            out.number(&catalogue::CONFIG_CHANGES, &[outcome.name()], count);
        }
        let reloads = [
            ("ok", &counts.reloads_done),
            ("failed", &counts.reloads_failed),
        ];
        for (outcome, count) in reloads {
            let count = count.load(Ordering::Relaxed);
            out.number(&catalogue::CONFIG_RELOADS, &[outcome], count);
        }
        let failed = counts.last_reload_failed.load(Ordering::Relaxed);
        out.number(&catalogue::CONFIG_LAST_RELOAD, &[], u64::from(!failed));
        let last = counts.last_reload_success.load(Ordering::Relaxed);
        let last = Duration::from_millis(last);
        out.seconds(&catalogue::CONFIG_LAST_RELOAD_SUCCESS, &[], last);
    }
}

fn milliseconds(seconds: f64) -> u64 {
    // Saturates, far beyond any current clock.
    (seconds * 1000.0) as u64
}
