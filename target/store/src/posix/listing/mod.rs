//! Listing directories.
//!
//! Cookies are the positions that the kernel reports with each entry. They have the same meaning
//! after a restart and on every host that serves the same file system, so the cookie verifier is
//! always zero: a listing begun before a restart continues after it.
//!
//! The guarantees for each entry while others are added and removed (RFC 1813 section 3.3.16) are
//! those of the file system. Those of disks and tmpfs keep them. Overlays number entries anew with
//! each call where layers are merged, so listings in parts may miss some when others are removed in
//! the meantime.
//!
//! A helper reads a bounded batch of entries, with attributes if requested; the reactor returns
//! them, and requests the next batch while there is space for more. While other clients wait for a
//! helper, batches are small, and jobs of other clients run between them.

mod batch;

use self::batch::BatchMemory;
use super::namespace::OpenObject;
use super::view::ClientView;
use crate::{
    Caller, CookieVerifier, DirectoryEntry, DirectoryOutcome, Handle, Kind, Result, StoreError,
};

const VERIFIER: CookieVerifier = CookieVerifier([0; 8]);

impl ClientView<'_> {
    pub(super) async fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        let object = self.objects.get(self.client, directory).await?;
        if object.kind != Kind::Directory {
            return Err(StoreError::NotDirectory);
        }
        if cookie != 0 && verifier != VERIFIER {
            return Err(StoreError::BadCookie);
        }
        let identity = self.identity(caller).await?;
        let place = OpenObject::of(&object);
        let mut from = cookie;
        loop {
            let (volume, identity, place) = (self.volume.clone(), identity.clone(), place.clone());
            let (client, memory) = (self.client, BatchMemory::take());
            let job =
                move || batch::read(client, volume, identity, &place, from, attributes, memory);
            let batch = self.volume.helpers().run(self.client, job).await??;
            let taken = batch.entries().all(&mut *sink);
            let (next, described) = (batch.next(), batch.directory);
            batch.recycle();
            let Some(next) = next.filter(|_| taken) else {
                return Ok(DirectoryOutcome {
                    verifier: VERIFIER,
                    end: taken,
                    attributes: described,
                });
            };
            from = next;
        }
    }
}

#[cfg(test)]
mod tests;
