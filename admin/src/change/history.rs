//! The history of generations, for display and rollback.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::{Generation, HistoryEntry};
use crate::config::Config;

/// The most generations that are kept.
const ENTRIES_MAX: usize = 64;
/// The most bytes of their text. The latest is kept in any case.
const BYTES_MAX: usize = 16 << 20;

/// The latest generations.
#[derive(Default)]
pub struct History {
    kept: VecDeque<Kept>,
    bytes: usize,
}

struct Kept {
    entry: HistoryEntry,
    config: Arc<Config>,
    bytes: usize,
}

impl History {
    /// Adds a generation, and drops the oldest ones beyond the limits.
    pub fn push(&mut self, entry: HistoryEntry, config: Arc<Config>) {
        let bytes = text_bytes(&entry) + text_bytes(&*config);
        self.bytes += bytes;
        self.kept.push_back(Kept {
            entry,
            config,
            bytes,
        });
        while self.kept.len() > ENTRIES_MAX || self.bytes > BYTES_MAX && self.kept.len() > 1 {
            let oldest = self.kept.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.bytes);
        }
    }

    /// Notes that the latest generation is in the file now.
    pub fn latest_is_persisted(&mut self) {
        if let Some(latest) = self.kept.back_mut() {
            latest.entry.persisted = true;
        }
    }

    /// The changes, the latest first.
    pub fn latest_first(&self) -> Vec<HistoryEntry> {
        self.kept
            .iter()
            .rev()
            .map(|kept| kept.entry.clone())
            .collect()
    }

    /// The configuration of a generation.
    pub fn find(&self, generation: Generation) -> Option<Arc<Config>> {
        let mut kept = self.kept.iter();
        let found = kept.find(|kept| kept.entry.generation == generation)?;
        Some(Arc::clone(&found.config))
    }
}

/// The length of a value as text.
fn text_bytes(value: &impl serde::Serialize) -> usize {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    // A text that cannot be made uses no space either.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Author;

    fn entry(generation: Generation, summary: String) -> HistoryEntry {
        HistoryEntry {
            generation,
            time_seconds: 0.0,
            author: Author {
                name: "token".to_owned(),
                address: None,
            },
            summary,
            changes: Vec::new(),
            persisted: false,
        }
    }

    #[test]
    fn the_latest_64_are_kept() {
        let mut history = History::default();
        for generation in 1..=100 {
            let config = Config {
                log: format!("info,n{generation}=debug"),
                ..Config::default()
            };
            history.push(entry(generation, "put".to_owned()), Arc::new(config));
        }
        let told = history.latest_first();
        assert_eq!(told.len(), ENTRIES_MAX);
        assert_eq!(told[0].generation, 100);
        assert_eq!(told[63].generation, 37);
        assert!(history.find(36).is_none());
        assert_eq!(history.find(37).unwrap().log, "info,n37=debug");
    }

    #[test]
    fn their_bytes_are_bounded_and_the_latest_stays_whatever_it_takes() {
        let mut history = History::default();
        let config = Arc::new(Config::default());
        for generation in 1..=10 {
            let much = "x".repeat(BYTES_MAX / 4);
            history.push(entry(generation, much), Arc::clone(&config));
            assert!(history.bytes <= BYTES_MAX);
        }
        assert_eq!(history.latest_first().len(), 3);
        let mut full = History::default();
        full.push(entry(1, String::new()), Arc::clone(&config));
        let rest = "x".repeat(BYTES_MAX - 2 * full.bytes);
        full.push(entry(2, rest), Arc::clone(&config));
        assert_eq!((full.latest_first().len(), full.bytes), (2, BYTES_MAX));
        history.push(entry(11, "x".repeat(BYTES_MAX * 2)), Arc::clone(&config));
        assert_eq!(history.latest_first().len(), 1);
        history.push(entry(12, "put".to_owned()), config);
        assert_eq!(history.latest_first()[0].generation, 12);
        assert_eq!(history.latest_first().len(), 1);
    }
}
