//! Registration of identities with a ring by a helper, for a reactor that may not act as others.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::ClientKey;
use crate::posix::helpers::{HelperLimits, Helpers};
use crate::posix::identity::Identity;
use crate::posix::sys::identity::assume;
use crate::posix::sys::ring::RingRegistry;

/// The most at a time. The operations of other callers go on by threads meanwhile.
const MOST: usize = 64;

/// The registrations in progress.
pub struct Registrations {
    ring: Arc<RingRegistry>,
    /// One thread, while there is something to register.
    helper: Helpers,
    pending: Vec<Identity>,
    done: Arc<Mutex<Vec<Registration>>>,
}

/// What a registration has come to.
struct Registration {
    identity: Identity,
    /// None if it was refused, or there was no thread for it.
    number: Option<u16>,
}

/// Tells its result in every case.
struct RegistrationJob {
    identity: Identity,
    number: Option<u16>,
    done: Arc<Mutex<Vec<Registration>>>,
}

impl RegistrationJob {
    fn run(&mut self, ring: &RingRegistry) {
        let registered = assume(&self.identity, || ring.register_personality());
        match registered.and_then(|registered| registered) {
            Ok(number) => self.number = Some(number),
            // The kernel does not know this user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                static WARNED: Once = Once::new();
                WARNED.call_once(|| {
                    tracing::warn!(
                        %error,
                        "io_uring does not take users: their data is read and written by threads, \
                         which is slower"
                    );
                });
            }
        }
    }
}

impl Drop for RegistrationJob {
    fn drop(&mut self) {
        lock(&self.done).push(Registration {
            identity: self.identity.clone(),
            number: self.number,
        });
    }
}

impl Registrations {
    pub fn new(ring: RingRegistry) -> Self {
        Self {
            ring: Arc::new(ring),
            helper: Helpers::new(
                "identities",
                HelperLimits {
                    threads: 1,
                    queue: MOST,
                },
            ),
            pending: Vec::new(),
            done: Arc::default(),
        }
    }

    /// Has an identity registered, unless that is in progress.
    pub fn request(&mut self, identity: &Identity) {
        if self.pending.len() >= MOST || self.pending.contains(identity) {
            return;
        }
        self.pending.push(identity.clone());
        let ring = Arc::clone(&self.ring);
        let mut job = RegistrationJob {
            identity: identity.clone(),
            number: None,
            done: Arc::clone(&self.done),
        };
        // The future is not needed: the result arrives in `done`.
        drop(self.helper.run(ClientKey::OWN, move || job.run(&ring)));
    }

    /// Whether some are in progress.
    #[cfg(test)]
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The identities that have been registered since the last time, and their numbers.
    pub fn take(&mut self) -> Vec<(Identity, u16)> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let done = std::mem::take(&mut *lock(&self.done));
        let registered = done.into_iter().filter_map(|registration| {
            let Registration { identity, number } = registration;
            self.pending.retain(|pending| *pending != identity);
            Some((identity, number?))
        });
        registered.collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
