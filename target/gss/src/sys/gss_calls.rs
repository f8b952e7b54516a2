//! What both ends of a context do with the library: objects are released, texts copied, and
//! failures read.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::slice;

use zeroize::Zeroizing;

use super::gss_library::{Buffer, GssLibrary, KERBEROS, LucidContext, Oid, Opaque, RawKey};
use crate::status;

/// `GSS_C_GSS_CODE`, `GSS_C_MECH_CODE`.
const MAJOR: c_int = 1;
const MINOR: c_int = 2;
/// `GSS_C_INDEFINITE`.
pub(super) const INDEFINITE: u32 = u32::MAX;
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

/// The key of a context. One of RFC 1964 has its encryption type only.
#[derive(Default)]
pub struct LucidKey {
    pub enctype: i32,
    pub key: Zeroizing<Vec<u8>>,
    pub acceptor_subkey: bool,
    pub send_sequence: u64,
}

/// An object of the library that is released at the end of its scope.
pub(super) struct Released<'a> {
    library: &'a GssLibrary,
    pub(super) object: ReleasedObject,
}

pub(super) enum ReleasedObject {
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
    pub(super) const fn release(&self, object: ReleasedObject) -> Released<'_> {
        Released {
            library: self,
            object,
        }
    }

    /// A buffer that the library filled, as bytes.
    pub(super) fn take(&self, buffer: Buffer) -> Vec<u8> {
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

    pub(super) fn check(&self, major: u32, minor: u32) -> Result<(), LibraryFailure> {
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

    /// Reads a name, which the caller releases.
    pub(super) fn import(&self, text: &str, kind: &'static Oid) -> Result<Opaque, LibraryFailure> {
        let (mut minor, mut name) = (0, ptr::null_mut());
        let text = Buffer::of(text.as_bytes());
        // SAFETY: the buffer is read during the call only; the name is written, and stays null
        // where the call fails.
        let major =
            unsafe { (self.gss_import_name)(&raw mut minor, &raw const text, kind, &raw mut name) };
        self.check(major, minor).map(|()| name)
    }

    pub(super) fn display(&self, name: Opaque) -> Result<String, LibraryFailure> {
        let (mut minor, mut text) = (0, Buffer::EMPTY);
        // SAFETY: the name is one of the library; the text is written.
        let major = unsafe {
            (self.gss_display_name)(&raw mut minor, name, &raw mut text, ptr::null_mut())
        };
        let text = self.take(text);
        self.check(major, minor)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The key of a context, which has to be complete. The library's context ends.
    pub(super) fn export(&self, context: &mut Released<'_>) -> Result<LucidKey, LibraryFailure> {
        let ReleasedObject::Context(context) = &mut context.object else {
            return Ok(LucidKey::default());
        };
        let (mut minor, mut exported) = (0, ptr::null_mut());
        // SAFETY: the context is null or one of the library, which refuses what is not complete;
        // the call replaces it by null and writes the export.
        let major = unsafe {
            (self.gss_krb5_export_lucid_sec_context)(&raw mut minor, context, 1, &raw mut exported)
        };
        self.check(major, minor)?;
        // SAFETY: the call succeeded for version 1: the export is of this type and lives until it
        // is freed below.
        let key = unsafe { exported.cast::<LucidContext>().as_ref() }.map(copy_key);
        // SAFETY: the export is the library's, and nothing uses it any more. The library zeroes
        // its keys.
        unsafe { (self.gss_krb5_free_lucid_sec_context)(&raw mut minor, exported) };
        Ok(key.unwrap_or_default())
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
