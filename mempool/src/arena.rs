//! Arenas: one mapping each, registered with every fabric.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::Mapping;
use crate::window::Window;

/// Number of one arena of a registry. Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// One mapping of memory, for use by every thread. When the last buffer, slice and pool of it is
/// dropped, it is unregistered and unmapped. It has the address of the memory and gives no access.
pub struct Arena {
    id: RegionId,
    mapping: Mapping,
    /// The fabrics that registered this arena, in that order.
    registrars: Mutex<Vec<Arc<dyn Registrar>>>,
}

impl Arena {
    pub(crate) fn new(id: RegionId, mapping: Mapping) -> Self {
        Self {
            id,
            mapping,
            registrars: Mutex::new(Vec::new()),
        }
    }

    /// The number that slices of this arena carry ([`crate::Slice::region`]).
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Length in bytes, a multiple of [`Arena::page_size`].
    #[allow(clippy::len_without_is_empty)] // An arena is never empty.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Size in bytes of the pages that back the arena.
    pub fn page_size(&self) -> usize {
        self.mapping.page_size()
    }

    pub(crate) fn register_with(
        &self,
        registrar: &Arc<dyn Registrar>,
    ) -> Result<(), RegisterError> {
        registrar.register(self)?;
        let mut registrars = self
            .registrars
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        registrars.push(Arc::clone(registrar));
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let registrars = self
            .registrars
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for registrar in std::mem::take(registrars).iter().rev() {
            registrar.unregister(self);
        }
    }
}

/// An arena without buffers or slices. It becomes memory of one pool ([`crate::Pool::add`]) or
/// shared memory ([`UnusedArena::share`]), never both: a pool's buffers are exclusive because no
/// other code can make slices of their arena.
///
/// ```
/// # use millrace_mempool::{HugepagePolicy, Registry, Slice};
/// # let registry = Registry::new(HugepagePolicy::Off);
/// let arena = registry.arena(1)?.share();
/// let slice = Slice::shared(&arena, 0..4096);
/// # Ok::<(), millrace_mempool::ArenaError>(())
/// ```
///
/// The arenas of a pool cannot be sliced:
///
/// ```compile_fail,E0308
/// # use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry, Slice};
/// # let registry = Registry::new(HugepagePolicy::Off);
/// let pool = Pool::new(&registry, PoolConfig { bytes: 1 })?;
/// let slice = Slice::shared(&pool.arenas()[0], 0..4096);
/// # Ok::<(), millrace_mempool::ArenaError>(())
/// ```
///
/// Nor can an arena be shared and then given to a pool:
///
/// ```compile_fail,E0382
/// # use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
/// # let registry = Registry::new(HugepagePolicy::Off);
/// # let pool = Pool::new(&registry, PoolConfig { bytes: 1 })?;
/// let arena = registry.arena(1)?;
/// let shared = arena.share();
/// pool.add(arena);
/// # Ok::<(), millrace_mempool::ArenaError>(())
/// ```
#[derive(Debug)]
pub struct UnusedArena(Arc<Arena>);

impl UnusedArena {
    pub(crate) fn new(arena: Arena) -> Self {
        Self(Arc::new(arena))
    }

    /// The arena, to register or to account for.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.0
    }

    /// Makes it an arena of which every thread may make slices.
    pub fn share(self) -> SharedArena {
        SharedArena(self.0)
    }

    pub(crate) fn into_arena(self) -> Arc<Arena> {
        self.0
    }
}

impl Deref for UnusedArena {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.0
    }
}

/// An arena of which each holder may make slices ([`crate::Slice::shared`]). Clones share it.
#[derive(Clone, Debug)]
pub struct SharedArena(Arc<Arena>);

impl SharedArena {
    /// The arena, to register or to account for.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.0
    }

    /// Copies `bytes` into it from `offset` on, as [`crate::Slice::copy_from`] does.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) {
        let range = offset..offset.saturating_add(bytes.len());
        Window::new(&self.0, range).copy_from(0, bytes);
    }
}

impl Deref for SharedArena {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.0
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Arena")
            .field("id", &self.id)
            .field("len", &self.len())
            .field("page_size", &self.page_size())
            .finish_non_exhaustive()
    }
}

/// Registers memory with a fabric. It is called once for every arena, before the arena is used.
///
/// It is called on the thread that makes or drops the arena, and must not call the registry.
pub trait Registrar: Send + Sync {
    /// Registers the whole arena. After an error the arena is not used with this fabric.
    fn register(&self, arena: &Arena) -> Result<(), RegisterError>;

    /// Ends the registration before the memory is unmapped. Called once for each successful
    /// [`Registrar::register`].
    fn unregister(&self, arena: &Arena);
}

/// A fabric could not register an arena.
#[derive(Debug, thiserror::Error)]
#[error("the fabric cannot register memory: {0}")]
pub struct RegisterError(#[source] Box<dyn Error + Send + Sync>);

impl RegisterError {
    /// Wraps the fabric's own reason.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(reason.into())
    }
}

/// Why an arena could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The policy is [`crate::HugepagePolicy::Required`], and too few hugepages are free.
    #[error(
        "not enough hugepages of {} KiB: {wanted} wanted, {free} free; `{command}` reserves enough, and \
         with `mempool.hugepages: auto` small pages are used instead", page_size >> 10
    )]
    Hugepages {
        /// Page size in bytes.
        page_size: usize,
        /// Pages needed for the arena.
        wanted: usize,
        /// Pages that were free.
        free: usize,
        /// The command that reserves enough pages.
        command: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The system has no hugepages at all.
    #[error("this kernel has no hugepages; set mempool.hugepages to auto or off")]
    NoHugepages,
    /// The size overflows when rounded up to whole pages.
    #[error("an arena of {0} bytes is impossible")]
    Size(usize),
    /// Not even small pages could be mapped.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// The length of the mapping.
        bytes: usize,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The interrupt of [`crate::Registry::interruptible`] was set before all memory was mapped.
    #[error("allocating memory was interrupted")]
    Interrupted,
    /// A fabric refused the memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
