//! The acceptor of contexts: safe calls of the library. What it returns is copied and released.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::gss_library::{
    Buffer, GssLibrary, HOST_BASED_SERVICE, KERBEROS, KeyValue, KeyValueSet, LucidContext, OidSet,
    Opaque, RawKey,
};
use crate::status;

/// `GSS_C_ACCEPT`.
const ACCEPT: c_int = 2;
/// `GSS_C_GSS_CODE`, `GSS_C_MECH_CODE`.
const MAJOR: c_int = 1;
const MINOR: c_int = 2;
/// `GSS_C_INDEFINITE`.
const INDEFINITE: u32 = u32::MAX;
/// Most messages of one status.
const MESSAGES_MAX: usize = 8;

/// A call failed.
#[derive(Debug)]
pub struct LibraryFailure {
    pub major: u32,
    pub minor: u32,
    /// The library's messages.
    pub text: String,
}

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

/// The key of a context. One of RFC 1964 has its encryption type only.
#[derive(Default)]
pub struct LucidKey {
    pub enctype: i32,
    pub key: Zeroizing<Vec<u8>>,
    pub acceptor_subkey: bool,
    pub send_sequence: u64,
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

/// An object of the library that is released at the end of its scope.
struct Released<'a> {
    library: &'a GssLibrary,
    object: ReleasedObject,
}

enum ReleasedObject {
    Name(Opaque),
    Buffer(Buffer),
    Context(Opaque),
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: each is null, empty, or an object of the library that nothing else releases; the
        // library knows empty ones.
        unsafe {
            match &mut self.object {
                ReleasedObject::Name(name) if !name.is_null() => {
                    (self.library.gss_release_name)(&raw mut minor, name);
                }
                ReleasedObject::Context(context) if !context.is_null() => {
                    (self.library.gss_delete_sec_context)(&raw mut minor, context, ptr::null_mut());
                }
                ReleasedObject::Buffer(buffer) if !buffer.value.is_null() => {
                    (self.library.gss_release_buffer)(&raw mut minor, buffer);
                }
                _ => {}
            }
        }
    }
}

impl GssLibrary {
    const fn release(&self, object: ReleasedObject) -> Released<'_> {
        Released {
            library: self,
            object,
        }
    }

    /// A buffer that the library filled, as bytes.
    fn take(&self, buffer: Buffer) -> Vec<u8> {
        let bytes = if buffer.value.is_null() {
            Vec::new()
        } else {
            // SAFETY: the library has set the buffer to so many bytes, and they live until it is
            // released below.
            unsafe { slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }.to_vec()
        };
        drop(self.release(ReleasedObject::Buffer(buffer)));
        bytes
    }

    fn check(&self, major: u32, minor: u32) -> Result<(), LibraryFailure> {
        // Errors are in the upper half; the lower one has information.
        if major >> 16 == 0 {
            return Ok(());
        }
        let mut messages = Vec::new();
        if minor == 0 {
            self.messages(major, MAJOR, &mut messages);
        } else {
            self.messages(minor, MINOR, &mut messages);
        }
        Err(LibraryFailure {
            major,
            minor,
            text: messages.join("; "),
        })
    }

    fn messages(&self, status: u32, kind: c_int, messages: &mut Vec<String>) {
        let mut more = 0;
        for _ in 0..MESSAGES_MAX {
            let (mut minor, mut text) = (0, Buffer::EMPTY);
            // SAFETY: all pointers are to variables of this function or to constants.
            let major = unsafe {
                (self.gss_display_status)(
                    &raw mut minor,
                    status,
                    kind,
                    &raw const KERBEROS,
                    &raw mut more,
                    &raw mut text,
                )
            };
            let text = self.take(text);
            if major != status::COMPLETE {
                return;
            }
            messages.push(String::from_utf8_lossy(&text).into_owned());
            if more == 0 {
                return;
            }
        }
    }
}

impl AcceptorCredential {
    /// The credential of a service (`nfs`: any of its keys) or of `nfs@HOST`, with the keys of a
    /// file. Without replay cache: neither environment nor configuration is needed.
    pub fn acquire(
        library: &Arc<GssLibrary>,
        service: &str,
        keytab: &str,
    ) -> Result<Self, LibraryFailure> {
        let (mut minor, mut name) = (0, ptr::null_mut());
        let service = Buffer::of(service.as_bytes());
        // SAFETY: the buffer is read during the call only; the name is written.
        let major = unsafe {
            (library.gss_import_name)(
                &raw mut minor,
                &raw const service,
                &raw const HOST_BASED_SERVICE,
                &raw mut name,
            )
        };
        let _name = library.release(ReleasedObject::Name(name));
        library.check(major, minor)?;
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
        let mut credential = ptr::null_mut();
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
        let principal = self.display(name)?;
        let key = self.export(&mut context)?;
        Ok(AcceptedToken::Complete {
            principal,
            lifetime: Duration::from_secs(seconds.into()),
            token,
            key,
        })
    }

    fn display(&self, name: Opaque) -> Result<String, LibraryFailure> {
        let (mut minor, mut text) = (0, Buffer::EMPTY);
        // SAFETY: the name is one of the library; the text is written.
        let major = unsafe {
            (self.library.gss_display_name)(&raw mut minor, name, &raw mut text, ptr::null_mut())
        };
        let text = self.library.take(text);
        self.library.check(major, minor)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The key of a complete context. The library's context ends.
    fn export(&self, context: &mut Released<'_>) -> Result<LucidKey, LibraryFailure> {
        let ReleasedObject::Context(context) = &mut context.object else {
            return Ok(LucidKey::default());
        };
        let (mut minor, mut exported) = (0, ptr::null_mut());
        // SAFETY: the context is a complete one of Kerberos; the call replaces it by null and
        // writes the export.
        let major = unsafe {
            (self.library.gss_krb5_export_lucid_sec_context)(
                &raw mut minor,
                context,
                1,
                &raw mut exported,
            )
        };
        self.library.check(major, minor)?;
        // SAFETY: the call succeeded for version 1: the export is of this type and lives until it
        // is freed below.
        let key = unsafe { exported.cast::<LucidContext>().as_ref() }.map(copy_key);
        // SAFETY: the export is the library's, and nothing uses it any more. The library zeroes
        // its keys.
        unsafe { (self.library.gss_krb5_free_lucid_sec_context)(&raw mut minor, exported) };
        Ok(key.unwrap_or_default())
    }
}

impl Drop for AcceptorCredential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's, and nothing uses it any more.
        unsafe { (self.library.gss_release_cred)(&raw mut minor, &raw mut self.credential) };
    }
}

fn copy_key(context: &LucidContext) -> LucidKey {
    let enctype = |key: &RawKey| i32::try_from(key.enctype).unwrap_or_default();
    if context.protocol != 1 {
        return LucidKey {
            enctype: enctype(&context.rfc1964.key),
            ..LucidKey::default()
        };
    }
    let keys = &context.rfc4121;
    let acceptor_subkey = keys.has_acceptor_subkey != 0;
    let key = if acceptor_subkey {
        &keys.acceptor_subkey
    } else {
        &keys.key
    };
    // SAFETY: the library has set the key to so many bytes, and they live as long as the context.
    let bytes = unsafe { slice::from_raw_parts(key.data, key.length as usize) };
    LucidKey {
        enctype: enctype(key),
        key: Zeroizing::new(bytes.to_vec()),
        acceptor_subkey,
        send_sequence: context.send_sequence,
    }
}
