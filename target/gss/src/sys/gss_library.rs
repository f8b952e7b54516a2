//! The GSS library of MIT Kerberos: its functions and their types, loaded when Kerberos is
//! configured.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// `gss_buffer_desc`.
#[repr(C)]
pub struct Buffer {
    pub length: usize,
    pub value: *mut c_void,
}

impl Buffer {
    pub const EMPTY: Self = Self {
        length: 0,
        value: ptr::null_mut(),
    };

    /// For the library to read.
    pub const fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

/// `gss_OID_desc`.
#[repr(C)]
pub struct Oid {
    length: u32,
    elements: *const c_void,
}

// SAFETY: it points to constants, and nothing writes to it.
unsafe impl Sync for Oid {}

impl Oid {
    const fn new(elements: &'static [u8]) -> Self {
        Self {
            length: elements.len() as u32,
            elements: elements.as_ptr().cast(),
        }
    }
}

/// Kerberos.
pub static KERBEROS: Oid = Oid::new(&crate::KERBEROS_OID);
/// `GSS_C_NT_HOSTBASED_SERVICE` (RFC 2744 4.1): 1.2.840.113554.1.2.1.4.
pub static HOST_BASED_SERVICE: Oid =
    Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04]);

/// `GSS_KRB5_NT_PRINCIPAL_NAME` (RFC 1964 2.1.1): 1.2.840.113554.1.2.2.1.
pub static PRINCIPAL_NAME: Oid =
    Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01]);

/// `gss_OID_set_desc`.
#[repr(C)]
pub struct OidSet {
    pub count: usize,
    pub elements: *const Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
pub struct KeyValue {
    pub key: *const c_char,
    pub value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
pub struct KeyValueSet {
    pub count: u32,
    pub elements: *const KeyValue,
}

/// `gss_krb5_lucid_key_t`.
#[repr(C)]
pub struct RawKey {
    pub enctype: u32,
    pub length: u32,
    pub data: *const u8,
}

/// `gss_krb5_lucid_context_v1_t`.
#[repr(C)]
pub struct LucidContext {
    pub version: u32,
    pub initiate: u32,
    pub end_time: u32,
    pub send_sequence: u64,
    pub receive_sequence: u64,
    /// 0: RFC 1964; 1: RFC 4121.
    pub protocol: u32,
    pub rfc1964: Rfc1964Keys,
    pub rfc4121: Rfc4121Keys,
}

/// `gss_krb5_rfc1964_keydata_t`.
#[repr(C)]
pub struct Rfc1964Keys {
    pub sign_algorithm: u32,
    pub seal_algorithm: u32,
    pub key: RawKey,
}

/// `gss_krb5_cfx_keydata_t`.
#[repr(C)]
pub struct Rfc4121Keys {
    pub has_acceptor_subkey: u32,
    pub key: RawKey,
    pub acceptor_subkey: RawKey,
}

/// Names, credentials and contexts of the library.
pub type Opaque = *mut c_void;

/// The functions of the library (RFC 2744, and MIT's own).
macro_rules! functions {
    ($($(#[$condition:meta])? $name:ident($($type:ty),*);)*) => {
        /// The library's functions. It stays loaded.
        pub struct GssLibrary {
            $($(#[$condition])? pub(super) $name: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl GssLibrary {
            fn find(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($(#[$condition])? $name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("ends once");
                        let found = symbol(handle, name)?;
                        // SAFETY: the library's function of this name has this type, which is
                        // part of the interface that its file name stands for.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> u32,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    gss_import_name(*mut u32, *const Buffer, *const Oid, *mut Opaque);
    gss_display_name(*mut u32, Opaque, *mut Buffer, *mut *const Oid);
    gss_display_status(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer);
    gss_acquire_cred_from(
        *mut u32, Opaque, u32, *const OidSet, c_int, *const KeyValueSet, *mut Opaque,
        *mut *mut OidSet, *mut u32
    );
    gss_accept_sec_context(
        *mut u32, *mut Opaque, Opaque, *const Buffer, *const c_void, *mut Opaque,
        *mut *const Oid, *mut Buffer, *mut u32, *mut u32, *mut Opaque
    );
    gss_init_sec_context(
        *mut u32, Opaque, *mut Opaque, Opaque, *const Oid, u32, u32, *const c_void,
        *const Buffer, *mut *const Oid, *mut Buffer, *mut u32, *mut u32
    );
    gss_krb5_export_lucid_sec_context(*mut u32, *mut Opaque, u32, *mut *mut c_void);
    gss_krb5_free_lucid_sec_context(*mut u32, *mut c_void);
    gss_delete_sec_context(*mut u32, *mut Opaque, *mut Buffer);
    gss_release_cred(*mut u32, *mut Opaque);
    gss_release_name(*mut u32, *mut Opaque);
    gss_release_buffer(*mut u32, *mut Buffer);
    #[cfg(feature = "testing")]
    gss_get_mic(*mut u32, Opaque, u32, *const Buffer, *mut Buffer);
    #[cfg(feature = "testing")]
    gss_verify_mic(*mut u32, Opaque, *const Buffer, *const Buffer, *mut u32);
    #[cfg(feature = "testing")]
    gss_wrap(*mut u32, Opaque, c_int, u32, *const Buffer, *mut c_int, *mut Buffer);
    #[cfg(feature = "testing")]
    gss_unwrap(*mut u32, Opaque, *const Buffer, *mut Buffer, *mut c_int, *mut u32);
}

impl GssLibrary {
    /// Loads the library.
    pub fn load() -> Result<Self, String> {
        // SAFETY: the name ends with a zero byte; the library's initialization has no conditions.
        let handle = unsafe { libc::dlopen(c"libgssapi_krb5.so.2".as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(error());
        }
        Self::find(handle)
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the handle is that of a loaded library, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(error());
    }
    Ok(found)
}

/// What the loader says of its last failure on this thread.
fn error() -> String {
    // SAFETY: the call has no conditions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: the text is a string of the loader, valid until its next call on this thread.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
