//! The executors of an engine's operations: a ring, and threads for what it cannot do.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use millrace_mempool::Arena;
use millrace_reactor::Alarm;

use super::Backend;
use super::personalities::Personalities;
use super::registrations::Registrations;
use super::threads::Threads;
use crate::ClientKey;
use crate::posix::helpers;
use crate::posix::identity::Identity;
use crate::posix::sys::identity::{assume_on_reactor, privileged};
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

/// What an operation is executed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    Ring,
    Threads,
}

pub struct Machine {
    /// None where rings are not available.
    ring: Option<PersonalRing>,
    threads: Threads,
}

/// A ring, and the identities that it knows.
struct PersonalRing {
    ring: Ring,
    personalities: Personalities,
    /// If this thread may not act as others.
    registrations: Option<Registrations>,
}

impl PersonalRing {
    /// The entry of an identity; `None` if it is being registered.
    fn acquire(&mut self, identity: &Identity) -> io::Result<Option<u32>> {
        if let Some(index) = self.personalities.acquire(identity) {
            return Ok(Some(index));
        }
        let Some(registrations) = &mut self.registrations else {
            let number = assume_on_reactor(identity, || self.ring.register_personality())??;
            self.add(identity.clone(), number);
            return Ok(self.personalities.acquire(identity));
        };
        for (identity, number) in registrations.take() {
            self.add(identity, number);
        }
        let known = self.personalities.acquire(identity);
        if let (None, Some(registrations)) = (known, &mut self.registrations) {
            registrations.request(identity);
        }
        Ok(known)
    }

    fn add(&mut self, identity: Identity, number: u16) {
        if let Some(evicted) = self.personalities.add(identity, number) {
            self.ring.unregister_personality(evicted);
        }
    }
}

impl Machine {
    /// A ring with this number of slots. This thread registers identities with it, if it may act as
    /// others.
    pub fn ring(places: u32, alarm: Option<Alarm>, acts: bool) -> io::Result<Self> {
        let ring = Ring::new(places, acts)?;
        let registrations = match acts {
            true => None,
            false => Some(Registrations::new(ring.registry()?)),
        };
        let most = PERSONALITIES.max(places as usize + 1);
        let personalities = Personalities::new(most);
        let machine = Self {
            ring: Some(PersonalRing {
                ring,
                personalities,
                registrations,
            }),
            threads: Threads::new(places, alarm),
        };
        if let Err(error) = machine.set_workers(places) {
            tracing::warn!(%error, "the kernel's threads for file data have its own bounds");
        }
        if let (Some(ring), Some(cores)) = (&machine.ring, helpers::cores())
            && let Err(error) = ring.ring.set_worker_cores(cores)
        {
            tracing::warn!(%error, "the kernel's threads for file data may run on the reactors' cores");
        }
        Ok(machine)
    }

    /// Threads with this number of slots.
    pub fn threads(places: u32, alarm: Option<Alarm>) -> Self {
        Self {
            ring: None,
            threads: Threads::new(places, alarm),
        }
    }

    /// Whether the ring can execute operations of this identity.
    pub fn has_ring_for(&self, who: &Who) -> bool {
        self.ring.is_some() && !matches!(who, Who::Person(_))
    }

    pub fn backend(&self) -> Backend {
        match self.ring {
            Some(_) => Backend::Ring,
            None => Backend::Threads,
        }
    }

    /// Registers memory for operations.
    pub fn add_arena(&mut self, arena: &Arc<Arena>) {
        let Some(PersonalRing { ring, .. }) = &mut self.ring else {
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

    /// Limits the threads that wait for devices: those of the kernel, and of this process.
    pub fn set_workers(&self, most: u32) -> io::Result<()> {
        self.threads.set_workers(most as usize);
        match &self.ring {
            Some(PersonalRing { ring, .. }) => ring.set_workers(most),
            None => Ok(()),
        }
    }

    /// Prepares operations as this identity, until [`Machine::dismiss`].
    pub fn admit(&mut self, identity: &Identity) -> io::Result<Who> {
        if is_process(identity) {
            return Ok(Who::Own);
        }
        let index = match &mut self.ring {
            Some(of_ring) => of_ring.acquire(identity)?,
            None => None,
        };
        Ok(index.map_or_else(|| Who::Person(identity.clone()), Who::Personality))
    }

    pub fn dismiss(&mut self, who: &Who) {
        if let (Some(PersonalRing { personalities, .. }), Who::Personality(index)) =
            (&mut self.ring, who)
        {
            personalities.release(*index);
        }
    }

    /// Begins a client's operation in a free slot. Returns the number of bytes requested of the
    /// kernel.
    pub fn start(
        &mut self,
        executor: Executor,
        place: usize,
        held: HeldResources,
        entry: &WorkEntry,
        who: &Who,
        client: ClientKey,
    ) -> usize {
        match (&mut self.ring, executor) {
            (Some(of_ring), Executor::Ring) => {
                let personality = match who {
                    Who::Personality(index) => of_ring.personalities.number(*index),
                    Who::Own | Who::Person(_) => 0,
                };
                of_ring.ring.push(place, held, entry, personality)
            }
            (ring, _) => {
                let person = match (who, ring) {
                    (Who::Person(identity), _) => Some(identity.clone()),
                    (Who::Personality(index), Some(of_ring)) => {
                        Some(of_ring.personalities.identity(*index).clone())
                    }
                    (Who::Own | Who::Personality(_), _) => None,
                };
                self.threads.start(place, held, entry, person, client)
            }
        }
    }

    /// Submits operations and collects completions. Returns the number of both.
    pub fn turn(&mut self) -> usize {
        let by_ring = match &mut self.ring {
            Some(PersonalRing { ring, .. }) => ring.turn(),
            None => 0,
        };
        by_ring + self.threads.turn()
    }

    /// Returns one completion: slot, bytes or negative error number, and the resources held.
    pub fn take(&mut self) -> Option<(usize, i32, HeldResources)> {
        let by_ring = match &mut self.ring {
            Some(PersonalRing { ring, .. }) => ring.take(),
            None => None,
        };
        by_ring.or_else(|| self.threads.take())
    }

    /// Asks the kernel to cancel the operation in a slot of the ring. If the kernel has not begun
    /// it, it completes with `ECANCELED`.
    pub fn cancel(&mut self, place: usize) {
        if let Some(PersonalRing { ring, .. }) = &mut self.ring {
            ring.cancel(place);
        }
    }

    /// Asks the kernel to cancel all operations.
    pub fn cancel_all(&mut self) {
        if let Some(PersonalRing { ring, .. }) = &mut self.ring {
            ring.cancel_all();
        }
    }

    /// Waits for a completion, with a timeout.
    pub fn wait(&mut self, most: Duration) {
        match &mut self.ring {
            Some(PersonalRing { ring, .. }) if self.threads.running() == 0 => ring.wait(most),
            // One of both is waited for at a time.
            Some(_) => self.threads.wait(most.min(Duration::from_millis(10))),
            None => self.threads.wait(most),
        }
    }

    pub fn descriptor(&self) -> Option<RawFd> {
        let of_ring = self.ring.as_ref()?;
        Some(of_ring.ring.descriptor())
    }

    /// Whether [`Machine::arm`] has made the descriptor report work, and there was no turn since.
    pub fn is_armed(&self) -> bool {
        let of_ring = self.ring.as_ref();
        of_ring.is_some_and(|of_ring| of_ring.ring.is_armed())
    }

    /// Whether there is nothing to do until the descriptor or the alarm reports it.
    pub fn arm(&mut self) -> bool {
        let is_quiet = match &mut self.ring {
            Some(PersonalRing { ring, .. }) => ring.arm(),
            None => true,
        };
        is_quiet && self.threads.is_quiet()
    }
}

/// Whether an identity is the superuser as which the process runs, or the process cannot change
/// identities.
fn is_process(identity: &Identity) -> bool {
    let plain = identity.is_superuser() && identity.gid() == 0 && identity.groups().is_empty();
    plain || !privileged()
}

#[cfg(test)]
mod tests {
    use super::{Machine, Who};
    use crate::posix::identity::{Identity, privileged};
    use crate::posix::sys::identity::has_acted;

    /// None, recorded as skipped, if there are no rings or no other users here.
    fn machine(acts: bool) -> Option<Machine> {
        if !privileged() {
            millrace_testing::skip!("this process may not act on behalf of others");
            return None;
        }
        let machine = Machine::ring(128, None, acts);
        machine
            .inspect_err(|error| millrace_testing::skip!("no io_uring: {error}"))
            .ok()
    }

    fn user(uid: u32) -> Identity {
        Identity::with_groups(uid, uid, &[])
    }

    #[test]
    fn helpers_register_callers_where_the_thread_may_not() {
        let Some(mut machine) = machine(false) else {
            return;
        };
        let admitted = machine.admit(&Identity::with_groups(0, 0, &[]));
        assert!(matches!(admitted, Ok(Who::Own)));
        // More than are registered at a time.
        let users: Vec<_> = (1000..1100).map(user).collect();
        for user in &users {
            let admitted = machine.admit(user).unwrap();
            assert!(matches!(&admitted, Who::Person(person) if person == user));
            assert!(!machine.has_ring_for(&admitted));
        }
        for user in &users {
            loop {
                let admitted = machine.admit(user).unwrap();
                machine.dismiss(&admitted);
                if let Who::Personality(index) = admitted {
                    let ring = machine.ring.as_ref().unwrap();
                    assert_eq!(ring.personalities.identity(index), user);
                    assert!(machine.has_ring_for(&admitted));
                    break;
                }
                std::thread::yield_now();
            }
        }
        assert!(!has_acted());
    }

    #[test]
    fn a_caller_that_the_kernel_refuses_is_left_to_threads() {
        let Some(mut machine) = machine(false) else {
            return;
        };
        for _ in 0..3 {
            let admitted = machine.admit(&user(u32::MAX)).unwrap();
            assert!(matches!(admitted, Who::Person(_)));
            let registrations = machine.ring.as_mut().unwrap().registrations.as_mut();
            let registrations = registrations.unwrap();
            while registrations.is_busy() {
                assert!(registrations.take().is_empty());
                std::thread::yield_now();
            }
        }
        assert!(!has_acted());
    }

    #[test]
    fn a_thread_that_may_registers_callers_itself() {
        let Some(mut machine) = machine(true) else {
            return;
        };
        let admitted = machine.admit(&user(1000)).unwrap();
        assert!(machine.has_ring_for(&admitted));
        assert!(has_acted());
        assert!(machine.admit(&user(u32::MAX)).is_err());
    }
}
