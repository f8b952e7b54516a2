//! Registered, hugepage-backed memory: arenas, and per-reactor pools of buffers cut from them.
//!
//! * An [`Arena`] is one mapping (hugepages where it may), registered once with every RDMA
//!   provider through the [`Registry`]. It can be used from every thread.
//! * A [`Pool`] belongs to one reactor (it is not `Send`), cuts arenas into size classes and lends
//!   out [`Buffer`]s. Requests that find a class empty wait first in, first out; they do not fail.
//!   What serves a call is charged to a [`MemoryAccount`] until the last slice of it is gone.
//! * A [`Slice`] is what fabric and storage operations take: a registered address range together
//!   with what keeps it alive. Dropping the last slice of a buffer returns it to its pool, so
//!   memory that an operation may still touch cannot be reused.
//!
//! No safe code reaches the bytes of a buffer in another way than through it: an arena is a pool's
//! or is shared, never both, and arenas that are handed out ([`Pool::arenas`]) give no access to
//! their bytes. What slices may share with other cores is copied by atomic accesses.
//!
//! `unsafe` stands in these modules only: `memory` (mapping), `window` and `copies` (copies to and
//! from shared memory), `buffer` (the exclusive view), and `slice` (what lenders promise).

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
