//! The acceptor of contexts: safe calls of the library. What it returns is copied and released.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::gss_calls::{INDEFINITE, LibraryFailure, LucidKey, ReleasedObject};
use super::gss_library::{
    Buffer, GssLibrary, HOST_BASED_SERVICE, KERBEROS, KeyValue, KeyValueSet, OidSet, Opaque,
};
use crate::status;

/// `GSS_C_ACCEPT`.
const ACCEPT: c_int = 2;

/// What a token gave.
pub enum AcceptedToken {
    Complete {
        principal: String,
        lifetime: Duration,
        token: Vec<u8>,
        key: LucidKey,
    },
    /// The library wants another token, as it does for DCE only.
    Unfinished,
}

/// A credential of the acceptor.
pub struct AcceptorCredential {
    library: Arc<GssLibrary>,
    credential: Opaque,
}

// SAFETY: the library locks the credential where a call changes it; several threads may accept on
// one. It has no tie to the thread that made it.
unsafe impl Send for AcceptorCredential {}
// SAFETY: as above.
unsafe impl Sync for AcceptorCredential {}

impl AcceptorCredential {
    /// The credential of a service (`nfs`: any of its keys) or of `nfs@HOST`, with the keys of a
    /// file. Without replay cache: neither environment nor configuration is needed.
    pub fn acquire(
        library: &Arc<GssLibrary>,
        service: &str,
        keytab: &str,
    ) -> Result<Self, LibraryFailure> {
        let name = library.import(service, &HOST_BASED_SERVICE)?;
        let _name = library.release(ReleasedObject::Name(name));
        let keytab = CString::new(format!("FILE:{keytab}")).unwrap_or_default();
        let elements = [
            KeyValue {
                key: c"keytab".as_ptr(),
                value: keytab.as_ptr(),
            },
            KeyValue {
                key: c"rcache".as_ptr(),
                value: c"none:".as_ptr(),
            },
        ];
        let store = KeyValueSet {
            count: 2,
            elements: elements.as_ptr(),
        };
        let mechanisms = OidSet {
            count: 1,
            elements: &raw const KERBEROS,
        };
        let (mut minor, mut credential) = (0, ptr::null_mut());
        // SAFETY: name, store and mechanisms live during the call, which copies what it keeps; the
        // credential is written.
        let major = unsafe {
            (library.gss_acquire_cred_from)(
                &raw mut minor,
                name,
                INDEFINITE,
                &raw const mechanisms,
                ACCEPT,
                &raw const store,
                &raw mut credential,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        library.check(major, minor)?;
        Ok(Self {
            library: Arc::clone(library),
            credential,
        })
    }

    /// Takes the first token of a context. Channel bindings and delegated credentials are ignored.
    pub fn accept(&self, token: &[u8]) -> Result<AcceptedToken, LibraryFailure> {
        let library = &*self.library;
        let input = Buffer::of(token);
        let (mut context, mut name) = (ptr::null_mut(), ptr::null_mut());
        let mut output = Buffer::EMPTY;
        let (mut minor, mut seconds) = (0, 0);
        // SAFETY: the input is read during the call only; context, name, output and numbers are
        // written; pointers that may be null are null.
        let major = unsafe {
            (library.gss_accept_sec_context)(
                &raw mut minor,
                &raw mut context,
                self.credential,
                &raw const input,
                ptr::null(),
                &raw mut name,
                ptr::null_mut(),
                &raw mut output,
                ptr::null_mut(),
                &raw mut seconds,
                ptr::null_mut(),
            )
        };
        let token = library.take(output);
        let _name = library.release(ReleasedObject::Name(name));
        let checked = library.check(major, minor);
        let mut context = library.release(ReleasedObject::Context(context));
        checked?;
        if major & status::CONTINUE_NEEDED != 0 {
            return Ok(AcceptedToken::Unfinished);
        }
        let principal = library.display(name)?;
        let key = library.export(&mut context)?;
        Ok(AcceptedToken::Complete {
            principal,
            lifetime: Duration::from_secs(seconds.into()),
            token,
            key,
        })
    }
}

impl Drop for AcceptorCredential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's, and nothing uses it any more.
        unsafe { (self.library.gss_release_cred)(&raw mut minor, &raw mut self.credential) };
    }
}
