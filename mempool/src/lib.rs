//! Registered, hugepage-backed memory: arenas, and per-reactor pools of buffers cut from them.
//!
//! * An [`Arena`] is one mapping (hugepages where it may), registered once with every RDMA
//!   provider through the [`Registry`]. It can be used from every thread.
//! * A [`Pool`] belongs to one reactor (it is not `Send`), cuts arenas into size classes and lends
//!   out [`Buffer`]s. Requests that find a class empty wait first in, first out; they do not fail.
//!   Buffers taken for a call are charged to a [`MemoryAccount`] until their last slice is dropped.
//! * A [`Slice`] is an argument of fabric and storage operations: a registered address range that
//!   keeps its memory alive. Dropping the last slice of a buffer returns the buffer to its pool, so
//!   memory that an operation may still access is not reused.
//!
//! Safe code reaches the bytes of a [`Buffer`] only through that buffer. An arena belongs to one
//! pool or is shared, never both, and [`Pool::arenas`] gives no access to bytes. Bytes that slices
//! share with other cores are copied by atomic accesses.
//!
//! Only these modules have `unsafe` code: `memory` (mapping), `window` and `copies` (copies to and
//! from shared memory), `buffer` (the exclusive view), and `slice` (the contract of lenders).

mod account;
mod acquire;
mod arena;
mod blocks;
mod buffer;
mod class;
mod copies;
mod gauges;
mod hugepages;
mod memory;
mod obtain;
mod plan;
mod pool;
mod populate;
mod registry;
mod slice;
mod window;

pub use account::{MemoryAccount, MemoryShare};
pub use acquire::Acquire;
pub use arena::{Arena, ArenaError, RegionId, RegisterError, Registrar, SharedArena, UnusedArena};
pub use buffer::Buffer;
pub use class::Class;
pub use gauges::{ClassGauges, PoolGauges};
pub use hugepages::{HugepagePolicy, PageSize};
pub use obtain::{Charging, MemoryWait, NoMemory, Obtain};
pub use pool::{Pool, PoolConfig};
pub use registry::{Mapped, Registry};
pub use slice::{Lender, Slice};
