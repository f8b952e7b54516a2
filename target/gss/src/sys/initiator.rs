//! The initiator of contexts: safe calls of the library with the tickets of a credential cache.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::gss_calls::{INDEFINITE, LibraryFailure, LucidKey, ReleasedObject};
use super::gss_library::{
    Buffer, GssLibrary, HOST_BASED_SERVICE, KERBEROS, KeyValue, KeyValueSet, OidSet, Opaque,
    PRINCIPAL_NAME,
};
use crate::status;

/// `GSS_C_INITIATE`.
const INITIATE: c_int = 1;

/// A context on its client's side, with all that the library needs to make it. Each of the
/// library's objects is null or owned by this value alone, and released when it is dropped.
pub struct InitiatorContext {
    pub(super) library: Arc<GssLibrary>,
    credential: Opaque,
    target: Opaque,
    pub(super) context: Opaque,
    flags: u32,
    seconds: u32,
}

impl InitiatorContext {
    /// Takes the tickets of a cache (without a name, that of the environment) and names the target:
    /// a principal, if there is a `/` in its name, or else `SERVICE@HOST`.
    pub fn new(
        library: &Arc<GssLibrary>,
        cache: Option<&str>,
        target: &str,
        flags: u32,
    ) -> Result<Self, LibraryFailure> {
        let mut context = Self {
            library: Arc::clone(library),
            credential: ptr::null_mut(),
            target: ptr::null_mut(),
            context: ptr::null_mut(),
            flags,
            seconds: 0,
        };
        let kind = if target.contains('/') {
            &PRINCIPAL_NAME
        } else {
            &HOST_BASED_SERVICE
        };
        context.target = library.import(target, kind)?;
        context.acquire(cache)?;
        Ok(context)
    }

    fn acquire(&mut self, cache: Option<&str>) -> Result<(), LibraryFailure> {
        let cache = cache.map(|cache| CString::new(cache).unwrap_or_default());
        let element = cache.as_ref().map(|cache| KeyValue {
            key: c"ccache".as_ptr(),
            value: cache.as_ptr(),
        });
        let store = element.as_ref().map(|element| KeyValueSet {
            count: 1,
            elements: element,
        });
        let mechanisms = OidSet {
            count: 1,
            elements: &raw const KERBEROS,
        };
        let mut minor = 0;
        // SAFETY: store and mechanisms live during the call, which copies what it keeps; an absent
        // store is null; the credential is written.
        let major = unsafe {
            (self.library.gss_acquire_cred_from)(
                &raw mut minor,
                ptr::null_mut(),
                INDEFINITE,
                &raw const mechanisms,
                INITIATE,
                store.as_ref().map_or(ptr::null(), ptr::from_ref),
                &raw mut self.credential,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.library.check(major, minor)
    }

    /// Takes the acceptor's token (none at first). Returns the next one for it, which may be empty,
    /// and whether the context is complete.
    pub fn step(&mut self, token: &[u8]) -> Result<(Vec<u8>, bool), LibraryFailure> {
        let input = Buffer::of(token);
        let (mut minor, mut output) = (0, Buffer::EMPTY);
        // SAFETY: the input is read during the call only; credential and target are the library's;
        // context, output and number are written; pointers that may be null are null.
        let major = unsafe {
            (self.library.gss_init_sec_context)(
                &raw mut minor,
                self.credential,
                &raw mut self.context,
                self.target,
                &raw const KERBEROS,
                self.flags,
                0,
                ptr::null(),
                &raw const input,
                ptr::null_mut(),
                &raw mut output,
                ptr::null_mut(),
                &raw mut self.seconds,
            )
        };
        let output = self.library.take(output);
        self.library.check(major, minor)?;
        Ok((output, major & status::CONTINUE_NEEDED == 0))
    }

    /// The key of a complete context, and the time until its ticket ends.
    pub fn export(mut self) -> Result<(LucidKey, Duration), LibraryFailure> {
        let context = std::mem::replace(&mut self.context, ptr::null_mut());
        let mut context = self.library.release(ReleasedObject::Context(context));
        let key = self.library.export(&mut context)?;
        Ok((key, Duration::from_secs(self.seconds.into())))
    }
}

impl Drop for InitiatorContext {
    fn drop(&mut self) {
        let (library, mut minor) = (&*self.library, 0);
        drop(library.release(ReleasedObject::Context(self.context)));
        drop(library.release(ReleasedObject::Name(self.target)));
        // SAFETY: the credential is null, which the library knows, or the library's, and nothing
        // uses it any more.
        unsafe { (library.gss_release_cred)(&raw mut minor, &raw mut self.credential) };
    }
}
