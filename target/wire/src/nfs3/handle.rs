//! File handles.

use core::fmt;
use core::hash::{Hash, Hasher};

use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result};

/// A file handle: up to 64 opaque bytes (RFC 1813 section 2.6, `nfs_fh3`).
#[derive(Clone, Copy)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; Self::MAX],
}

impl FileHandle {
    /// Most bytes of a handle (NFS3_FHSIZE).
    pub const MAX: usize = 64;

    /// A handle of these bytes, or `None` if they are more than 64.
    #[must_use]
    pub fn new(handle: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self {
            length: u8::try_from(handle.len()).ok()?,
            bytes,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for FileHandle {}

impl Hash for FileHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl Encode for FileHandle {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.opaque(self.as_bytes())
    }
}

impl Decode<'_> for FileHandle {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        Self::new(input.opaque(Self::MAX)?).ok_or(Error::TooLong)
    }
}
