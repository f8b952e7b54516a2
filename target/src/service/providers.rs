//! The counters of one reactor's providers, while listeners are added and removed.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_reactor::fabric::counters::FabricCounters;
use millrace_reactor::fabric::iwarp::IwarpCounters;
#[cfg(feature = "verbs")]
use millrace_reactor::fabric::verbs::VerbsCounters;

use super::plan::ProviderCounters;
use crate::rdma::FabricId;

/// The counters of one provider, or of several removed ones together.
#[derive(Clone, Debug)]
pub enum ProviderKindCounters {
    /// Of software iWARP.
    Iwarp(Arc<IwarpCounters>),
    /// Of RDMA devices.
    #[cfg(feature = "verbs")]
    Verbs(Arc<VerbsCounters>),
}

impl ProviderKindCounters {
    /// Counters common to all providers.
    pub fn fabric(&self) -> &FabricCounters {
        match self {
            Self::Iwarp(counters) => &counters.fabric,
            #[cfg(feature = "verbs")]
            Self::Verbs(counters) => &counters.fabric,
        }
    }

    /// Whether it has no other writer; all writes are then visible.
    fn is_final(&mut self) -> bool {
        match self {
            Self::Iwarp(counters) => Arc::get_mut(counters).is_some(),
            #[cfg(feature = "verbs")]
            Self::Verbs(counters) => Arc::get_mut(counters).is_some(),
        }
    }

    /// Zero counters of the same kind.
    fn fresh(&self) -> Self {
        match self {
            Self::Iwarp(_) => Self::Iwarp(Arc::default()),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => Self::Verbs(Arc::default()),
        }
    }

    /// Adds the counts of a removed provider of the same kind.
    fn absorb(&self, gone: &Self) {
        match (self, gone) {
            (Self::Iwarp(sum), Self::Iwarp(gone)) => sum.absorb(gone),
            #[cfg(feature = "verbs")]
            (Self::Verbs(sum), Self::Verbs(gone)) => sum.absorb(gone),
            #[cfg(feature = "verbs")]
            (Self::Iwarp(_), Self::Verbs(_)) | (Self::Verbs(_), Self::Iwarp(_)) => {}
        }
    }
}

/// The counters of one reactor's providers. Sums never decrease: the counts of removed providers
/// are kept. Used only by threads that may block.
#[derive(Debug, Default)]
pub struct Providers {
    state: Mutex<ProvidersState>,
}

#[derive(Debug, Default)]
struct ProvidersState {
    live: Vec<ProviderCounters>,
    /// The counts of removed ones, by provider name.
    gone: Vec<(&'static str, ProviderKindCounters)>,
}

impl Providers {
    /// The initial ones.
    pub fn new(live: Vec<ProviderCounters>) -> Self {
        let state = ProvidersState {
            live,
            gone: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Adds new ones.
    pub fn add(&self, new: Vec<ProviderCounters>) {
        self.with(|state| state.live.extend(new));
    }

    /// Each name of existing or removed providers, with the counters of one of them.
    pub fn each(&self, mut look: impl FnMut(&'static str, &ProviderKindCounters)) {
        self.with(|state| {
            for (_, name, counters) in &state.live {
                look(name, counters);
            }
            for (name, counters) in &state.gone {
                look(name, counters);
            }
        });
    }

    /// The counters of a listener's provider, if it exists.
    pub fn of(&self, id: FabricId) -> Option<ProviderKindCounters> {
        self.with(|state| {
            let found = state.live.iter().find(|(of, ..)| *of == id);
            found.map(|(.., counters)| counters.clone())
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut ProvidersState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        look(&mut state)
    }
}

impl ProvidersState {
    /// Merges the counters of removed providers.
    fn settle(&mut self) {
        let gone = &mut self.gone;
        self.live.retain_mut(|(_, name, counters)| {
            if !counters.is_final() {
                return true;
            }
            if !gone.iter().any(|(of, _)| of == name) {
                gone.push((name, counters.fresh()));
            }
            if let Some((_, sum)) = gone.iter().find(|(of, _)| of == name) {
                sum.absorb(counters);
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: u64, counters: &Arc<IwarpCounters>) -> ProviderCounters {
        (
            FabricId(id),
            "iwarp",
            ProviderKindCounters::Iwarp(Arc::clone(counters)),
        )
    }

    #[test]
    fn what_a_provider_did_is_counted_after_it_has_gone() {
        let counters = Arc::<IwarpCounters>::default();
        counters.fabric.established.add(3);
        counters.fabric.connections.set(1);
        let providers = Providers::new(vec![of(1, &counters)]);
        let sums = || {
            let (mut established, mut connections, mut blocks) = (0, 0, 0);
            providers.each(|_, counters| {
                established += counters.fabric().established.get();
                connections += counters.fabric().connections.get();
                blocks += 1;
            });
            (established, connections, blocks)
        };
        assert_eq!(sums(), (3, 1, 1));
        drop(counters);
        assert_eq!(sums(), (3, 0, 1));
        assert!(providers.of(FabricId(1)).is_none());
        for id in 2..5 {
            let counters = Arc::<IwarpCounters>::default();
            counters.fabric.established.add(1);
            providers.add(vec![of(id, &counters)]);
        }
        assert_eq!(sums(), (6, 0, 1), "however many come and go");
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn providers_of_two_kinds_that_have_gone_are_kept_apart() {
        let iwarp = Arc::<IwarpCounters>::default();
        iwarp.frames_in.add(5);
        let providers = Providers::new(vec![of(1, &iwarp)]);
        drop(iwarp);
        for id in 2..4 {
            let verbs = Arc::<VerbsCounters>::default();
            verbs.completions.add(7);
            providers.add(vec![(
                FabricId(id),
                "verbs",
                ProviderKindCounters::Verbs(verbs),
            )]);
        }
        let mut found = Vec::new();
        providers.each(|name, counters| {
            found.push(match counters {
                ProviderKindCounters::Iwarp(counters) => (name, counters.frames_in.get()),
                ProviderKindCounters::Verbs(counters) => (name, counters.completions.get()),
            });
        });
        assert_eq!(found, [("iwarp", 5), ("verbs", 14)]);
    }
}
