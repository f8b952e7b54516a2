//! Listing directories.
//!
//! Cookies are the places that the kernel tells with each entry. They mean the same after a
//! restart and on every host that serves the same file system, so that the cookie verifier is
//! always zero: a listing that was begun before a restart goes on after it.
//!
//! What holds for each entry while others come and go (RFC 1813 section 3.3.16) is the file
//! system's to keep. Those of disks and tmpfs do. Overlays count entries anew with each call where
//! layers are merged, so that listings in parts may miss some when others are removed meanwhile.
//!
//! A helper reads a bounded batch of entries, each with its attributes where they are wanted; the
//! reactor hands them over, and asks for the next batch as long as there is room for more. Where
//! other clients wait for a helper, batches are small, and those of others come between.

mod batch;

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
            let client = self.client;
            let job = move || batch::read(client, volume, identity, &place, from, attributes);
            let batch = self.volume.helpers().run(self.client, job).await??;
            let taken = batch.entries().all(&mut *sink);
            let Some(next) = batch.next().filter(|_| taken) else {
                return Ok(DirectoryOutcome {
                    verifier: VERIFIER,
                    end: taken,
                    attributes: batch.directory,
                });
            };
            from = next;
        }
    }
}

#[cfg(test)]
mod tests;
