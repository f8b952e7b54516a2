//! Listing directories.

use super::Inner;
use crate::{Caller, CookieVerifier, DirectoryEntry, DirectoryOutcome, Handle, Result, StoreError};

impl Inner {
    pub(super) async fn read_directory(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _cookie: u64,
        _verifier: CookieVerifier,
        _attributes: bool,
        _sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        Err(StoreError::NotSupported)
    }
}
