//! The initiator of contexts: the system's library, called as a client does.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

#[repr(C)]
struct Oid {
    length: u32,
    elements: *const u8,
}

#[repr(C)]
struct KeyValue {
    key: *const c_char,
    value: *const c_char,
}

#[repr(C)]
struct KeyValueSet {
    count: u32,
    elements: *const KeyValue,
}

type Opaque = *mut c_void;

const EMPTY: Buffer = Buffer {
    length: 0,
    value: ptr::null_mut(),
};

fn buffer(bytes: &[u8]) -> Buffer {
    Buffer {
        length: bytes.len(),
        value: bytes.as_ptr().cast_mut().cast(),
    }
}

fn oid(bytes: &'static [u8]) -> Oid {
    Oid {
        length: u32::try_from(bytes.len()).expect("short"),
        elements: bytes.as_ptr(),
    }
}

const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// `GSS_KRB5_NT_PRINCIPAL_NAME`: no name service is asked.
const PRINCIPAL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 1];

/// What a client asks for.
#[derive(Clone, Copy)]
pub struct Flags(pub u32);

impl Flags {
    /// `GSS_C_MUTUAL_FLAG`.
    pub const MUTUAL: Self = Self(2);
    /// All flags of a client: delegation, mutual, replay, sequence, confidentiality, integrity.
    pub const ALL: Self = Self(0x3f);
    /// None.
    pub const NONE: Self = Self(0);
}

/// A context from the side of its client.
pub struct Initiator {
    library: *mut c_void,
    credential: Opaque,
    target: Opaque,
    context: Opaque,
    flags: Flags,
}

/// A function of the library.
macro_rules! call {
    ($self:expr, $name:literal, ($($type:ty),*), ($($argument:expr),*)) => {{
        // SAFETY: the library is loaded, and has a function of this name and type; all pointers
        // are to variables that live during the call, or objects of the library.
        unsafe {
            let name = concat!($name, "\0");
            let found = libc::dlsym($self.library, name.as_ptr().cast());
            assert!(!found.is_null(), $name);
            let function: unsafe extern "C" fn($($type),*) -> u32 = std::mem::transmute(found);
            function($($argument),*)
        }
    }};
}

impl Initiator {
    /// With the tickets of a cache.
    pub fn new(cache: &str, target: &str, flags: Flags) -> Self {
        // SAFETY: the name ends with a zero byte.
        let library = unsafe { libc::dlopen(c"libgssapi_krb5.so.2".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the library is installed");
        let mut initiator = Self {
            library,
            credential: ptr::null_mut(),
            target: ptr::null_mut(),
            context: ptr::null_mut(),
            flags,
        };
        let mut minor = 0;
        let name = buffer(target.as_bytes());
        let kind = oid(PRINCIPAL);
        let major = call!(
            initiator,
            "gss_import_name",
            (*mut u32, *const Buffer, *const Oid, *mut Opaque),
            (
                &raw mut minor,
                &raw const name,
                &raw const kind,
                &raw mut initiator.target
            )
        );
        assert_eq!(major, 0);
        let cache = CString::new(cache).expect("no zero");
        let element = KeyValue {
            key: c"ccache".as_ptr(),
            value: cache.as_ptr(),
        };
        let store = KeyValueSet {
            count: 1,
            elements: &raw const element,
        };
        let major = call!(
            initiator,
            "gss_acquire_cred_from",
            (
                *mut u32,
                Opaque,
                u32,
                *const c_void,
                c_int,
                *const KeyValueSet,
                *mut Opaque,
                *mut c_void,
                *mut u32
            ),
            (
                &raw mut minor,
                ptr::null_mut(),
                u32::MAX,
                ptr::null(),
                1,
                &raw const store,
                &raw mut initiator.credential,
                ptr::null_mut(),
                ptr::null_mut()
            )
        );
        assert_eq!(major, 0, "{}", initiator.message(minor));
        initiator
    }

    /// Takes the acceptor's token (empty at first) and gives the next one.
    ///
    /// # Errors
    ///
    /// The library's message.
    pub fn step(&mut self, token: &[u8]) -> Result<Vec<u8>, String> {
        let (mut minor, mut output) = (0, EMPTY);
        let input = buffer(token);
        let mechanism = oid(KERBEROS);
        let mut context = self.context;
        let major = call!(
            self,
            "gss_init_sec_context",
            (
                *mut u32,
                Opaque,
                *mut Opaque,
                Opaque,
                *const Oid,
                u32,
                u32,
                *const c_void,
                *const Buffer,
                *mut c_void,
                *mut Buffer,
                *mut u32,
                *mut u32
            ),
            (
                &raw mut minor,
                self.credential,
                &raw mut context,
                self.target,
                &raw const mechanism,
                self.flags.0,
                0,
                ptr::null(),
                &raw const input,
                ptr::null_mut(),
                &raw mut output,
                ptr::null_mut(),
                ptr::null_mut()
            )
        );
        self.context = context;
        let output = self.take(output);
        if major >> 16 != 0 {
            return Err(self.message(minor));
        }
        Ok(output)
    }

    /// A MIC token.
    pub fn mic(&self, message: &[u8]) -> Vec<u8> {
        let (mut minor, mut output) = (0, EMPTY);
        let message = buffer(message);
        let major = call!(
            self,
            "gss_get_mic",
            (*mut u32, Opaque, u32, *const Buffer, *mut Buffer),
            (
                &raw mut minor,
                self.context,
                0,
                &raw const message,
                &raw mut output
            )
        );
        assert_eq!(major, 0, "{}", self.message(minor));
        self.take(output)
    }

    /// Whether a MIC token of the acceptor is good.
    pub fn verify(&self, message: &[u8], token: &[u8]) -> bool {
        let mut minor = 0;
        let (message, token) = (buffer(message), buffer(token));
        let major = call!(
            self,
            "gss_verify_mic",
            (*mut u32, Opaque, *const Buffer, *const Buffer, *mut u32),
            (
                &raw mut minor,
                self.context,
                &raw const message,
                &raw const token,
                ptr::null_mut()
            )
        );
        // Tokens out of order are good, too.
        major >> 16 == 0
    }

    /// A Wrap token.
    pub fn wrap(&self, message: &[u8], sealed: bool) -> Vec<u8> {
        let (mut minor, mut output) = (0, EMPTY);
        let message = buffer(message);
        let major = call!(
            self,
            "gss_wrap",
            (
                *mut u32,
                Opaque,
                c_int,
                u32,
                *const Buffer,
                *mut c_int,
                *mut Buffer
            ),
            (
                &raw mut minor,
                self.context,
                sealed.into(),
                0,
                &raw const message,
                ptr::null_mut(),
                &raw mut output
            )
        );
        assert_eq!(major, 0, "{}", self.message(minor));
        self.take(output)
    }

    /// The message of a Wrap token of the acceptor, and whether it was sealed.
    pub fn unwrap(&self, token: &[u8]) -> Option<(Vec<u8>, bool)> {
        let (mut minor, mut output, mut sealed) = (0, EMPTY, 0);
        let token = buffer(token);
        let major = call!(
            self,
            "gss_unwrap",
            (
                *mut u32,
                Opaque,
                *const Buffer,
                *mut Buffer,
                *mut c_int,
                *mut u32
            ),
            (
                &raw mut minor,
                self.context,
                &raw const token,
                &raw mut output,
                &raw mut sealed,
                ptr::null_mut()
            )
        );
        let output = self.take(output);
        (major >> 16 == 0).then_some((output, sealed != 0))
    }

    fn message(&self, status: u32) -> String {
        let (mut minor, mut more, mut text) = (0, 0, EMPTY);
        let mechanism = oid(KERBEROS);
        call!(
            self,
            "gss_display_status",
            (*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer),
            (
                &raw mut minor,
                status,
                2,
                &raw const mechanism,
                &raw mut more,
                &raw mut text
            )
        );
        String::from_utf8_lossy(&self.take(text)).into_owned()
    }

    fn take(&self, mut output: Buffer) -> Vec<u8> {
        if output.value.is_null() {
            return Vec::new();
        }
        // SAFETY: the library has filled the buffer with so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(output.value.cast::<u8>(), output.length) };
        let bytes = bytes.to_vec();
        let mut minor = 0;
        call!(
            self,
            "gss_release_buffer",
            (*mut u32, *mut Buffer),
            (&raw mut minor, &raw mut output)
        );
        bytes
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        let mut minor = 0;
        call!(
            self,
            "gss_delete_sec_context",
            (*mut u32, *mut Opaque, *mut Buffer),
            (&raw mut minor, &raw mut self.context, ptr::null_mut())
        );
        call!(
            self,
            "gss_release_cred",
            (*mut u32, *mut Opaque),
            (&raw mut minor, &raw mut self.credential)
        );
        call!(
            self,
            "gss_release_name",
            (*mut u32, *mut Opaque),
            (&raw mut minor, &raw mut self.target)
        );
    }
}
