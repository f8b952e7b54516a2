//! Classes of clients, for latency by class: the entries of the clients' limits.
//!
//! A client's share of a reactor has the histograms of its class, so that a call looks nothing up.
//! They are found again when limits change; counts of a class that stays go on.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_primitives::CoreBlock;

use super::ClientLimit;
use crate::call_histograms::CallHistograms;

/// Entries that are classes of their own. Clients of those behind count as others.
const CLASSES_MAX: usize = 64;

/// Networks that the name of a class has.
const NETWORKS_MAX: usize = 8;

/// Classes whose counts are kept on a reactor, with those that are gone.
const KEPT_MAX: usize = 4 * CLASSES_MAX;

/// The class of clients without an entry.
const OTHER: &str = "other";

/// The names of the classes, by the position of their entry in the limits.
#[derive(Debug)]
pub(super) struct ClassNames {
    names: Vec<Arc<str>>,
    other: Arc<str>,
}

impl Default for ClassNames {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            other: OTHER.into(),
        }
    }
}

impl ClassNames {
    /// The classes of these limits.
    pub fn set(&mut self, limits: &[ClientLimit]) {
        self.names = limits.iter().take(CLASSES_MAX).map(name).collect();
    }

    /// The class of clients to which the entry at a position applies.
    pub fn at(&self, position: Option<usize>) -> Arc<str> {
        let named = position.and_then(|position| self.names.get(position));
        Arc::clone(named.unwrap_or(&self.other))
    }

    /// All of them, each once.
    pub fn all(&self) -> Vec<Arc<str>> {
        let mut all = self.names.clone();
        all.push(Arc::clone(&self.other));
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The networks of an entry, joined by commas; of many the first, and how many more.
fn name(entry: &ClientLimit) -> Arc<str> {
    let first: Vec<_> = entry.networks.iter().take(NETWORKS_MAX).collect();
    let mut name = first
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",");
    if entry.networks.len() > first.len() {
        // Writing to a string does not fail.
        let _ = write!(name, ",+{}", entry.networks.len() - first.len());
    }
    name.into()
}

/// Latencies by class on one reactor. Clones share them; other threads read.
#[derive(Clone, Debug, Default)]
pub struct ClassesHistograms {
    known: Arc<Mutex<KnownClasses>>,
}

type KnownClasses = HashMap<Arc<str>, Arc<CoreBlock<CallHistograms>>>;

impl ClassesHistograms {
    /// Those of a class; none if no client of it was on this reactor.
    #[must_use]
    pub fn get(&self, class: &str) -> Option<Arc<CoreBlock<CallHistograms>>> {
        self.lock().get(class).map(Arc::clone)
    }

    /// Those of a class, which are kept from here on.
    pub(super) fn keep(&self, class: Arc<str>) -> Arc<CoreBlock<CallHistograms>> {
        Arc::clone(self.lock().entry(class).or_default())
    }

    /// Drops those of classes that are gone, if there are too many.
    pub(super) fn sweep(&self, in_force: &[Arc<str>]) {
        let mut known = self.lock();
        if known.len() > KEPT_MAX {
            known.retain(|class, _| in_force.contains(class));
        }
    }

    /// Held for a few lines when a client comes or limits change, and by scrapes.
    fn lock(&self) -> MutexGuard<'_, KnownClasses> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rate::Rates;

    fn entry(networks: &[&str]) -> ClientLimit {
        ClientLimit {
            networks: networks.iter().map(|one| one.parse().unwrap()).collect(),
            rates: Rates::default(),
        }
    }

    #[test]
    fn a_class_is_named_by_its_networks_and_names_and_classes_are_bounded() {
        let mut names = ClassNames::default();
        let many: Vec<String> = (0..11)
            .map(|number| format!("10.{number}.0.0/16"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut limits = vec![entry(&["192.0.2.0/24", "fd00::/8"]), entry(&many)];
        limits.resize(200, entry(&["192.0.2.0/24"]));
        names.set(&limits);
        let named = |position| names.at(position).to_string();
        assert_eq!(named(Some(0)), "192.0.2.0/24,fd00::/8");
        let first = "10.0.0.0/16,10.1.0.0/16,10.2.0.0/16,10.3.0.0/16,10.4.0.0/16,10.5.0.0/16,\
                     10.6.0.0/16,10.7.0.0/16,+3";
        assert_eq!(named(Some(1)), first);
        assert_eq!(named(Some(CLASSES_MAX - 1)), "192.0.2.0/24");
        assert_eq!([named(Some(CLASSES_MAX)), named(None)], [OTHER; 2]);
        let all = [
            "10.0.0.0/16",
            "192.0.2.0/24",
            "192.0.2.0/24,fd00::/8",
            OTHER,
        ];
        let told = names.all();
        assert_eq!(told.len(), all.len());
        assert!(
            told.iter()
                .zip(all)
                .all(|(name, start)| name.starts_with(start))
        );
    }

    #[test]
    fn counts_of_classes_that_are_gone_are_kept_in_a_bounded_number() {
        let classes = ClassesHistograms::default();
        let in_force: Arc<str> = "192.0.2.0/24".into();
        for number in 0..KEPT_MAX + 1 {
            classes.sweep(&[Arc::clone(&in_force)]);
            classes.keep(number.to_string().into());
            assert!(classes.get("0").is_some());
        }
        classes.keep(Arc::clone(&in_force));
        classes.sweep(&[Arc::clone(&in_force)]);
        assert!(classes.get("0").is_none());
        assert!(classes.get(&in_force).is_some());
    }
}
