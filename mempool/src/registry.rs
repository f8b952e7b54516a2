//! The registry: all arenas of the process, and the fabrics that they are registered with.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::arena::{Arena, ArenaError, RegionId, RegisterError, Registrar, UnusedArena};
use crate::hugepages::{self, HugepagePolicy, PageSize, Pages};
use crate::memory::Mapping;
use crate::populate::Population;

/// The size of an arena is a multiple of this, so that size classes divide it without remainder.
const ARENA_UNIT: usize = 2 << 20;

/// All arenas of the process. Clones share them.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    policy: HugepagePolicy,
    page_size: Option<PageSize>,
    warned: AtomicBool,
    population: Population,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    next: u32,
    arenas: Vec<Weak<Arena>>,
    registrars: Vec<Arc<dyn Registrar>>,
}

/// Memory mapped now, by kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mapped {
    /// Bytes in hugepages.
    pub huge: usize,
    /// Bytes in small pages. With [`HugepagePolicy::Auto`], those for which hugepages were missing.
    pub small: usize,
}

impl Registry {
    /// A registry whose arenas follow `policy`, in hugepages of the system's default size.
    pub fn new(policy: HugepagePolicy) -> Self {
        Self::with_page_size(policy, None)
    }

    /// As [`Registry::new`], in hugepages of a chosen size.
    pub fn with_page_size(policy: HugepagePolicy, page_size: Option<PageSize>) -> Self {
        Self::with_population(policy, page_size, Population::default())
    }

    /// As [`Registry::new`]. Once `interrupt` is set, no more memory is faulted in: arenas in the
    /// making, and all later ones, fail with [`ArenaError::Interrupted`].
    pub fn interruptible(policy: HugepagePolicy, interrupt: Arc<AtomicBool>) -> Self {
        Self::with_population(policy, None, Population::interrupted_by(interrupt))
    }

    fn with_population(
        policy: HugepagePolicy,
        page_size: Option<PageSize>,
        population: Population,
    ) -> Self {
        let state = Mutex::default();
        Self {
            shared: Arc::new(Shared {
                policy,
                page_size,
                warned: AtomicBool::new(false),
                population,
                state,
            }),
        }
    }

    /// Bytes that were faulted in so far, also for arenas in the making.
    pub fn populated(&self) -> u64 {
        self.shared.population.populated()
    }

    /// Registers each arena with `registrar` once: those that exist now, and later ones when they
    /// are made.
    ///
    /// # Errors
    /// The first refusal. The registrar then gets no later arenas, and those that it registered are
    /// unregistered when they are dropped.
    pub fn attach(&self, registrar: Arc<dyn Registrar>) -> Result<(), RegisterError> {
        let mut state = self.lock();
        for arena in state.arenas.iter().filter_map(Weak::upgrade) {
            arena.register_with(&registrar)?;
        }
        state.registrars.push(registrar);
        Ok(())
    }

    /// Maps, faults in and registers an arena of at least `bytes` bytes (rounded up to whole pages
    /// and to 2 MiB). Takes 0.1 s per GiB or more, so a serving reactor must not call it.
    ///
    /// # Errors
    /// [`ArenaError`]. Nothing stays mapped then.
    pub fn arena(&self, bytes: usize) -> Result<UnusedArena, ArenaError> {
        let mapping = self.map(bytes)?;
        let mut state = self.lock();
        let arena = UnusedArena::new(Arena::new(RegionId(state.next), mapping));
        for registrar in &state.registrars {
            arena.arena().register_with(registrar)?;
        }
        state.next += 1;
        state.arenas.retain(|arena| arena.strong_count() > 0);
        state.arenas.push(Arc::downgrade(arena.arena()));
        Ok(arena)
    }

    /// The arenas that exist now. Code that registers them later than [`Registry::attach`] does
    /// (with a device that was plugged in) holds these references meanwhile.
    pub fn arenas(&self) -> Vec<Arc<Arena>> {
        let state = self.lock();
        state.arenas.iter().filter_map(Weak::upgrade).collect()
    }

    /// Memory mapped now.
    pub fn mapped(&self) -> Mapped {
        let default = hugepages::default_size();
        let mut mapped = Mapped::default();
        for arena in self.lock().arenas.iter().filter_map(Weak::upgrade) {
            let page_size = arena.page_size();
            if Some(page_size) == default || page_size >= PageSize::Mebibytes2.bytes() {
                mapped.huge += arena.len();
            } else {
                mapped.small += arena.len();
            }
        }
        mapped
    }

    fn map(&self, bytes: usize) -> Result<Mapping, ArenaError> {
        let policy = self.shared.policy;
        if policy == HugepagePolicy::Off {
            return self.map_small(bytes, false);
        }
        match self.map_huge(bytes) {
            Err(ArenaError::Interrupted) => Err(ArenaError::Interrupted),
            Err(error) if policy == HugepagePolicy::Auto => {
                if !self.shared.warned.swap(true, Relaxed) {
                    tracing::warn!(%error, "falling back to small pages");
                }
                self.map_small(bytes, true)
            }
            outcome => outcome,
        }
    }

    fn map_huge(&self, bytes: usize) -> Result<Mapping, ArenaError> {
        let chosen = self.shared.page_size;
        let page_size = match chosen {
            Some(page_size) => page_size.bytes(),
            None => hugepages::default_size().ok_or(ArenaError::NoHugepages)?,
        };
        let len = round_up(bytes, page_size.max(ARENA_UNIT))?;
        let mapping = match chosen {
            Some(page_size) => Mapping::chosen_hugepages(len, page_size, &self.shared.population),
            None => Mapping::default_hugepages(len, page_size, &self.shared.population),
        };
        mapping.map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => ArenaError::Interrupted,
            _ => hugepages_missing(len / page_size, page_size, source),
        })
    }

    fn map_small(&self, bytes: usize, transparent: bool) -> Result<Mapping, ArenaError> {
        let bytes = round_up(bytes, ARENA_UNIT)?;
        let mapping = Mapping::small_pages(bytes, transparent, &self.shared.population);
        mapping.map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => ArenaError::Interrupted,
            _ => ArenaError::Map { bytes, source },
        })
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Registry")
            .field("policy", &self.shared.policy)
            .finish_non_exhaustive()
    }
}

fn round_up(bytes: usize, unit: usize) -> Result<usize, ArenaError> {
    let rounded = bytes.max(1).checked_next_multiple_of(unit);
    rounded
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or(ArenaError::Size(bytes))
}

fn hugepages_missing(wanted: usize, page_size: usize, source: io::Error) -> ArenaError {
    let pages = Pages::of_size(page_size);
    let command = hugepages::command(page_size, pages.total_for(wanted));
    ArenaError::Hugepages {
        page_size,
        wanted,
        free: pages.free,
        command,
        source,
    }
}
