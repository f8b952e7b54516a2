//! The groups of a caller, from the call or from this host's user database.
//!
//! A call names sixteen groups at most (RFC 5531 appendix A). Where the volume uses the user
//! database instead, supplementary groups are those of the caller's user number there, and none for
//! an unknown user. The primary group is that of the call. Answers are cached for [`KEPT`].

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::config::Groups;
use super::identity::Identity;
use super::membership::Known;
use super::sys;
use super::view::ClientView;
use super::volume::Volume;
use crate::{Caller, Result};

/// Callers known to a reactor.
pub(super) struct Identities {
    known: RefCell<Known<Caller, Identity>>,
}

impl Identities {
    pub fn new() -> Self {
        Self {
            known: RefCell::new(Known::new()),
        }
    }
}

impl ClientView<'_> {
    /// The identity of a caller for the kernel. Immediate and without allocation for callers known
    /// to this reactor; a helper is awaited only if the user database must be queried.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: the user database does not answer.
    pub(super) async fn identity(&self, caller: &Caller) -> Result<Identity> {
        if let Some(identity) = self.known_identity(caller) {
            return Ok(identity);
        }
        let now = Instant::now();
        let (identity, until) = if self.asks_for_groups() {
            let (groups, until) = self.ask_groups(caller.uid, now).await?;
            let identity = Identity::with_groups(caller.uid, caller.gid, &groups);
            (identity, until)
        } else {
            (Identity::of(caller), now)
        };
        self.identities
            .known
            .borrow_mut()
            .put(caller.clone(), identity.clone(), until, now);
        Ok(identity)
    }

    /// The identity of a caller that this reactor knows.
    pub(super) fn known_identity(&self, caller: &Caller) -> Option<Identity> {
        let known = self.identities.known.borrow();
        let (identity, until) = known.get(caller)?;
        // Groups of the call do not expire.
        let is_valid = !self.asks_for_groups() || *until > Instant::now();
        is_valid.then(|| identity.clone())
    }

    fn asks_for_groups(&self) -> bool {
        self.volume.config().groups == Groups::Server
    }

    async fn ask_groups(&self, uid: u32, now: Instant) -> Result<(Arc<[u32]>, Instant)> {
        let volume: Volume = self.volume.clone();
        let job = move || volume.membership().of_user(uid, now, sys::groups::of_user);
        self.volume.helpers().run(self.client, job).await?
    }
}
