//! Registered, hugepage-backed memory: arenas, and per-reactor pools of buffers cut from them.
//!
//! * An [`Arena`] is one mapping (hugepages where it may), registered once with every RDMA
//!   provider through the [`Registry`]. It can be used from every thread.
//! * A [`Pool`] belongs to one reactor (it is not `Send`), cuts arenas into size classes and lends
//!   out [`Buffer`]s. Requests that find a class empty wait first in, first out; they do not fail.
//! * A [`Slice`] is what fabric and storage operations take: a registered address range together
//!   with what keeps it alive. Dropping the last slice of a buffer returns it to its pool, so
//!   memory that an operation may still touch cannot be reused.
