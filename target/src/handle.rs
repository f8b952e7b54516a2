//! NFS file handles: opaque to clients, stable over restarts, and impossible to make up.
//!
//! A handle names an export and an object of its store and carries a SipHash-2-4 tag under the
//! server's secret, so that a client cannot leave its export by guessing inode numbers.
//!
//! RFC 1813 section 2.6 tells `NFS3ERR_BADHANDLE` from `NFS3ERR_STALE`. Here the former is what is
//! no handle by its form. A handle whose tag is wrong may be one from before a restart with another
//! secret: it is stale, which clients know how to recover from.

use std::hash::Hasher;

use millrace_store::Handle;
use siphasher::sip::SipHasher24;

/// Length of every handle in bytes; RFC 1813 section 2.4 allows 64.
pub const HANDLE_LENGTH: usize = 36;

/// First byte of every handle: the version of its layout.
const VERSION: u8 = 1;

/// Where the tag begins: behind version (1), zeros (3), export (8), inode (8), generation (8).
const TAG: usize = 28;

/// A file handle as clients hold it.
pub type FileHandle = [u8; HANDLE_LENGTH];

/// Why a handle does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Its length or layout is not that of this server's handles.
    #[error("not a file handle of this server")]
    Malformed,
    /// It was made up, or made under another secret.
    #[error("a file handle that this server did not make")]
    Foreign,
}

/// Makes and checks file handles. The same secret has to be used after a restart, or clients
/// lose their mounts.
#[derive(Clone)]
pub struct HandleKey {
    hasher: SipHasher24,
}

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HandleKey")
    }
}

impl HandleKey {
    /// A key from the server's secret.
    #[must_use]
    pub fn new(secret: &[u8; 16]) -> Self {
        Self {
            hasher: SipHasher24::new_with_key(secret),
        }
    }

    /// The handle of an object of an export.
    #[must_use]
    pub fn seal(&self, export: u64, object: Handle) -> FileHandle {
        let mut handle = [0; HANDLE_LENGTH];
        handle[0] = VERSION;
        handle[4..12].copy_from_slice(&export.to_be_bytes());
        handle[12..20].copy_from_slice(&object.inode.to_be_bytes());
        handle[20..TAG].copy_from_slice(&object.generation.to_be_bytes());
        let tag = self.tag(&handle[..TAG]);
        handle[TAG..].copy_from_slice(&tag.to_be_bytes());
        handle
    }

    /// The export and the object that a handle names.
    ///
    /// # Errors
    /// [`HandleError`] if this server (or one with the same secret) did not make it.
    pub fn open(&self, handle: &[u8]) -> Result<(u64, Handle), HandleError> {
        let handle: &FileHandle = handle.try_into().map_err(|_| HandleError::Malformed)?;
        if handle[..4] != [VERSION, 0, 0, 0] {
            return Err(HandleError::Malformed);
        }
        let field = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&handle[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        // The tag covers every other byte, and both sides are compared as one word, in a time
        // that says nothing about where they differ.
        let difference = self.tag(&handle[..TAG]) ^ field(TAG);
        if difference != 0 {
            return Err(HandleError::Foreign);
        }
        Ok((
            field(4),
            Handle {
                inode: field(12),
                generation: field(20),
            },
        ))
    }

    fn tag(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(bytes);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Handle = Handle {
        inode: 0x0102_0304_0506_0708,
        generation: 9,
    };

    #[test]
    fn round_trip() {
        let key = HandleKey::new(&[7; 16]);
        let handle = key.seal(0xfeed, OBJECT);
        assert_eq!(key.open(&handle), Ok((0xfeed, OBJECT)));
        assert_eq!(handle, HandleKey::new(&[7; 16]).seal(0xfeed, OBJECT));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let key = HandleKey::new(&[7; 16]);
        let handle = key.seal(1, OBJECT);
        for bit in 0..HANDLE_LENGTH * 8 {
            let mut forged = handle;
            forged[bit / 8] ^= 1 << (bit % 8);
            let error = if bit < 32 {
                HandleError::Malformed
            } else {
                HandleError::Foreign
            };
            assert_eq!(key.open(&forged), Err(error), "bit {bit}");
        }
    }

    #[test]
    fn foreign_secrets_and_lengths_are_refused() {
        let handle = HandleKey::new(&[7; 16]).seal(1, OBJECT);
        let other = HandleKey::new(&[8; 16]);
        assert_eq!(other.open(&handle), Err(HandleError::Foreign));
        let key = HandleKey::new(&[7; 16]);
        assert_eq!(key.open(&handle[..35]), Err(HandleError::Malformed));
        assert_eq!(key.open(&[]), Err(HandleError::Malformed));
        assert_eq!(
            key.open(&[handle.as_slice(), &[0]].concat()),
            Err(HandleError::Malformed)
        );
    }

    /// Handles that clients hold must stay good from one release to the next.
    #[test]
    fn layout_is_stable() {
        let handle = HandleKey::new(&[0; 16]).seal(
            1,
            Handle {
                inode: 2,
                generation: 3,
            },
        );
        let expected: [u8; TAG] = [
            1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3,
        ];
        assert_eq!(handle[..TAG], expected);
    }
}
