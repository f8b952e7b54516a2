//! What the providers of one reactor count, while listeners come and go.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_reactor::fabric::iwarp::IwarpCounters;

use super::plan::ProviderCounters;
use crate::rdma::FabricId;

/// The counters of one reactor's providers. Sums never fall: what a provider has done is kept when
/// it goes. Only threads that may block come here.
#[derive(Debug, Default)]
pub struct Providers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<ProviderCounters>,
    /// What those that are gone have done, by the word for them.
    gone: Vec<(&'static str, IwarpCounters)>,
}

impl Providers {
    /// Those that the reactor began with.
    pub fn new(live: Vec<ProviderCounters>) -> Self {
        let state = State {
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

    /// Each word for providers there are or were, with the counters of one of them.
    pub fn each(&self, mut look: impl FnMut(&'static str, &IwarpCounters)) {
        self.with(|state| {
            for (_, name, counters) in &state.live {
                look(name, counters);
            }
            for (name, counters) in &state.gone {
                look(name, counters);
            }
        });
    }

    /// The counters of a listener's provider, if it lives.
    pub fn of(&self, id: FabricId) -> Option<Arc<IwarpCounters>> {
        self.with(|state| {
            let found = state.live.iter().find(|(of, ..)| *of == id);
            found.map(|(.., counters)| Arc::clone(counters))
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        look(&mut state)
    }
}

impl State {
    /// Puts those together whose providers have gone.
    fn settle(&mut self) {
        let gone = &mut self.gone;
        self.live.retain_mut(|(_, name, counters)| {
            // Nobody writes to it any more, and all that was written is seen here.
            let Some(counters) = Arc::get_mut(counters) else {
                return true;
            };
            if !gone.iter().any(|(of, _)| of == name) {
                gone.push((name, IwarpCounters::default()));
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
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_a_provider_did_is_counted_after_it_has_gone() {
        let counters = Arc::<IwarpCounters>::default();
        counters.frames_in.store(3, Relaxed);
        counters.fabric.connections.store(1, Relaxed);
        let providers = Providers::new(vec![(FabricId(1), "iwarp", Arc::clone(&counters))]);
        let sums = || {
            let (mut frames, mut connections, mut blocks) = (0, 0, 0);
            providers.each(|_, counters| {
                frames += counters.frames_in.load(Relaxed);
                connections += counters.fabric.connections.load(Relaxed);
                blocks += 1;
            });
            (frames, connections, blocks)
        };
        assert_eq!(sums(), (3, 1, 1));
        drop(counters);
        assert_eq!(sums(), (3, 0, 1));
        assert!(providers.of(FabricId(1)).is_none());
        for id in 2..5 {
            let counters = Arc::<IwarpCounters>::default();
            counters.frames_in.store(1, Relaxed);
            providers.add(vec![(FabricId(id), "iwarp", counters)]);
        }
        assert_eq!(sums(), (6, 0, 1), "however many come and go");
    }
}
