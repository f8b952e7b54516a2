//! The layout of a volume's handles: a byte for the kind, eight for the file system, eight for the
//! inode number, twelve for the time when the object was made. They have the same meaning on every
//! server, and after restarts of servers and of the cluster's daemons.

use super::sys::Statx;
use crate::{Handle, Result, StoreError};

/// Distinguishes these handles from those of folders.
const KIND: u8 = 4;

const LENGTH: usize = 1 + 8 + 8 + 8 + 4;

/// The object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectKey {
    pub inode: u64,
    /// When it was made: another object never has both.
    pub born: (i64, u32),
}

impl ObjectKey {
    pub fn of(found: &Statx) -> Self {
        let nanoseconds = u32::try_from(found.born.tv_nsec).unwrap_or(0);
        Self {
            inode: found.inode,
            born: (found.born.tv_sec, nanoseconds),
        }
    }

    /// The handle on a file system.
    pub fn handle(self, file_system: u64) -> Handle {
        let mut bytes = arrayvec::ArrayVec::<u8, LENGTH>::new();
        bytes.push(KIND);
        bytes.extend(file_system.to_be_bytes());
        bytes.extend(self.inode.to_be_bytes());
        bytes.extend(self.born.0.to_be_bytes());
        bytes.extend(self.born.1.to_be_bytes());
        Handle::new(&bytes).expect("shorter than the longest")
    }

    /// Decodes a handle.
    ///
    /// # Errors
    /// [`StoreError::Stale`]: it is not of this file system.
    pub fn from_handle(handle: &Handle, file_system: u64) -> Result<Self> {
        let bytes: &[u8; LENGTH] = handle
            .as_bytes()
            .try_into()
            .map_err(|_| StoreError::Stale)?;
        let number = |from: usize| {
            let part = bytes[from..from + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(part)
        };
        if bytes[0] != KIND || number(1) != file_system {
            return Err(StoreError::Stale);
        }
        let nanoseconds = bytes[25..].try_into().expect("four bytes");
        Ok(Self {
            inode: number(9),
            born: (number(17).cast_signed(), u32::from_be_bytes(nanoseconds)),
        })
    }
}

/// The identity of a file system: its number in the cluster, and the root's inode number and time
/// of creation. FNV-1a; handles are protected by a tag above.
pub(super) fn file_system(number: i64, root: &Statx) -> u64 {
    let key = ObjectKey::of(root);
    let parts = [
        number.cast_unsigned(),
        key.inode,
        key.born.0.cast_unsigned(),
        u64::from(key.born.1),
    ];
    let bytes = parts.into_iter().flat_map(u64::to_be_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_and_others_are_stale() {
        let key = ObjectKey {
            inode: 0x0102_0304_0506_0708,
            born: (-5, 999_999_999),
        };
        let handle = key.handle(77);
        assert_eq!(ObjectKey::from_handle(&handle, 77), Ok(key));
        let stale = Err(StoreError::Stale);
        assert_eq!(ObjectKey::from_handle(&handle, 78), stale);
        let mut bytes = handle.as_bytes().to_vec();
        bytes[0] = 1;
        let other = Handle::new(&bytes).unwrap();
        assert_eq!(ObjectKey::from_handle(&other, 77), stale);
        for length in 0..LENGTH {
            let part = Handle::new(&handle.as_bytes()[..length]).unwrap();
            assert_eq!(ObjectKey::from_handle(&part, 77), stale);
        }
    }
}
