//! The executor of an engine's operations: a ring, or threads.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use millrace_mempool::Arena;
use millrace_reactor::Alarm;

use super::Backend;
use super::personalities::{Personalities, Registrar};
use super::threads::Threads;
use crate::ClientKey;
use crate::posix::identity::Identity;
use crate::posix::sys::identity::{assume, lost, privileged};
use crate::posix::sys::ring::Ring;
use crate::posix::sys::work::{HeldResources, WorkEntry};

/// The most identities of a ring at once, unless there are more operations.
const PERSONALITIES: usize = 1024;

/// The identity of an operation, as known to the machine.
pub enum Who {
    /// The process itself.
    Own,
    /// An entry of the ring's personalities.
    Personality(u32),
    /// An identity that a thread assumes.
    Person(Identity),
}

#[allow(clippy::large_enum_variant)] // There is one per engine.
pub enum Machine {
    Ring {
        ring: Ring,
        personalities: Personalities,
    },
    Threads(Threads),
}

impl Machine {
    /// A ring with this number of slots.
    pub fn ring(places: u32) -> io::Result<Self> {
        let ring = Ring::new(places)?;
        if let Err(error) = ring.set_workers(places) {
            tracing::warn!(%error, "the kernel's threads for file data have its own bounds");
        }
        let most = PERSONALITIES.max(places as usize + 1);
        Ok(Self::Ring {
            ring,
            personalities: Personalities::new(most),
        })
    }

    /// Threads with this number of slots.
    pub fn threads(places: u32, alarm: Option<Alarm>) -> Self {
        Self::Threads(Threads::new(places, alarm))
    }

    pub fn backend(&self) -> Backend {
        match self {
            Self::Ring { .. } => Backend::Ring,
            Self::Threads(_) => Backend::Threads,
        }
    }

    /// Registers memory for operations.
    pub fn add_arena(&mut self, arena: &Arc<Arena>) {
        let Self::Ring { ring, .. } = self else {
            return;
        };
        if let Err(error) = ring.register(arena) {
            tracing::warn!(
                %error,
                bytes = arena.len(),
                "memory cannot be registered for file data, which reduces performance; is \
                 LimitMEMLOCK large enough?"
            );
        }
    }

    pub fn set_workers(&self, most: u32) -> io::Result<()> {
        match self {
            Self::Ring { ring, .. } => ring.set_workers(most),
            Self::Threads(_) => Ok(()),
        }
    }

    /// Prepares operations as this identity, until [`Machine::dismiss`].
    pub fn admit(&mut self, identity: &Identity) -> io::Result<Who> {
        if is_process(identity) {
            return Ok(Who::Own);
        }
        match self {
            Self::Ring {
                ring,
                personalities,
            } => {
                let (index, _) = personalities.acquire(identity, ring)?;
                Ok(Who::Personality(index))
            }
            Self::Threads(_) => Ok(Who::Person(identity.clone())),
        }
    }

    pub fn dismiss(&mut self, who: &Who) {
        if let (Self::Ring { personalities, .. }, Who::Personality(index)) = (self, who) {
            personalities.release(*index);
        }
    }

    /// Begins a client's operation in a free slot. Returns the number of bytes requested of the
    /// kernel.
    pub fn start(
        &mut self,
        place: usize,
        held: HeldResources,
        entry: &WorkEntry,
        who: &Who,
        client: ClientKey,
    ) -> usize {
        match self {
            Self::Ring {
                ring,
                personalities,
            } => {
                let personality = match who {
                    Who::Personality(index) => personalities.number(*index),
                    Who::Own | Who::Person(_) => 0,
                };
                ring.push(place, held, entry, personality)
            }
            Self::Threads(threads) => {
                let person = match who {
                    Who::Person(identity) => Some(identity.clone()),
                    Who::Own | Who::Personality(_) => None,
                };
                threads.start(place, held, entry, person, client)
            }
        }
    }

    /// Submits operations and collects completions. Returns the number of both.
    pub fn turn(&mut self) -> usize {
        match self {
            Self::Ring { ring, .. } => ring.turn(),
            Self::Threads(threads) => threads.turn(),
        }
    }

    /// Returns one completion: slot, bytes or negative error number, and the resources held.
    pub fn take(&mut self) -> Option<(usize, i32, HeldResources)> {
        match self {
            Self::Ring { ring, .. } => ring.take(),
            Self::Threads(threads) => threads.take(),
        }
    }

    /// Asks the kernel to cancel operations.
    pub fn call_back(&mut self) {
        match self {
            Self::Ring { ring, .. } => ring.call_back(),
            Self::Threads(_) => {}
        }
    }

    /// Waits for a completion, with a timeout.
    pub fn wait(&mut self, most: Duration) {
        match self {
            Self::Ring { ring, .. } => ring.wait(most),
            Self::Threads(threads) => threads.wait(most),
        }
    }

    pub fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Ring { ring, .. } => Some(ring.descriptor()),
            Self::Threads(_) => None,
        }
    }

    /// Whether [`Machine::arm`] has made the descriptor report work, and there was no turn since.
    pub fn is_armed(&self) -> bool {
        match self {
            Self::Ring { ring, .. } => ring.is_armed(),
            Self::Threads(_) => false,
        }
    }

    /// Whether there is nothing to do until the descriptor or the alarm reports it.
    pub fn arm(&mut self) -> bool {
        match self {
            Self::Ring { ring, .. } => ring.arm(),
            Self::Threads(threads) => threads.is_quiet(),
        }
    }
}

/// Whether an identity is the superuser as which the process runs, or the process cannot change
/// identities.
fn is_process(identity: &Identity) -> bool {
    let plain = identity.is_superuser() && identity.gid() == 0 && identity.groups().is_empty();
    plain || !privileged()
}

impl Registrar for Ring {
    fn register(&mut self, identity: &Identity) -> io::Result<u16> {
        // A reactor that fails to restore its rights would continue with the caller's rights for
        // all clients.
        struct Return;
        impl Drop for Return {
            fn drop(&mut self) {
                if lost() {
                    std::process::abort();
                }
            }
        }
        let _return = Return;
        assume(identity, || self.register_personality())?
    }

    fn unregister(&mut self, number: u16) {
        self.unregister_personality(number);
    }
}
