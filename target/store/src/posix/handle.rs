//! The layout of a volume's handles: a byte for the kind, eight for the file system, then the
//! object's identity there.

use super::sys::handles::KernelHandle;
use crate::Handle;

/// The object is found by the kernel's handle.
const KERNEL: u8 = 1;

/// The folder itself, on file systems without kernel handles.
const ROOT: u8 = 2;

/// The object is found by this process's name cache.
const REMEMBERED: u8 = 3;

// Kind, file system, type of the kernel's handle and its bytes.
const _: () = assert!(1 + 8 + 1 + super::sys::handles::MAX == Handle::MAX);

/// How an object is found on its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleLocation {
    /// The kernel's handle.
    Kernel(KernelHandle),
    /// It is the folder of the volume.
    Root,
    /// A key of the name cache.
    Remembered(Key),
}

/// Distinguishes an object from all others of a host, and from a later one with the same inode
/// number if the file system has birth times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Seconds and nanoseconds.
    pub born: (i64, u32),
}

/// Encodes a handle.
pub(super) fn pack(file_system: u64, place: &HandleLocation) -> Handle {
    let mut bytes = arrayvec::ArrayVec::<u8, { Handle::MAX }>::new();
    let kind = match place {
        HandleLocation::Kernel(_) => KERNEL,
        HandleLocation::Root => ROOT,
        HandleLocation::Remembered(_) => REMEMBERED,
    };
    bytes.push(kind);
    bytes.extend(file_system.to_be_bytes());
    match place {
        HandleLocation::Kernel(handle) => {
            bytes.push(handle.kind());
            bytes.extend(handle.as_bytes().iter().copied());
        }
        HandleLocation::Root => {}
        HandleLocation::Remembered(key) => {
            bytes.extend(key.device.to_be_bytes());
            bytes.extend(key.inode.to_be_bytes());
            bytes.extend(key.born.0.to_be_bytes());
            bytes.extend(key.born.1.to_be_bytes());
        }
    }
    Handle::new(&bytes).expect("the array has the length of the longest")
}

/// Decodes a handle; `None` if no volume made it.
pub(super) fn unpack(handle: &Handle) -> Option<(u64, HandleLocation)> {
    let (kind, rest) = handle.as_bytes().split_first()?;
    let (file_system, rest) = take(rest)?;
    let place = match *kind {
        KERNEL => {
            let (kind, bytes) = rest.split_first()?;
            HandleLocation::Kernel(KernelHandle::new(*kind, bytes)?)
        }
        ROOT if rest.is_empty() => HandleLocation::Root,
        REMEMBERED => {
            let (device, rest) = take(rest)?;
            let (inode, rest) = take(rest)?;
            let (seconds, rest) = take(rest)?;
            HandleLocation::Remembered(Key {
                device: u64::from_be_bytes(device),
                inode: u64::from_be_bytes(inode),
                born: (
                    i64::from_be_bytes(seconds),
                    u32::from_be_bytes(rest.try_into().ok()?),
                ),
            })
        }
        _ => return None,
    };
    Some((u64::from_be_bytes(file_system), place))
}

fn take(bytes: &[u8]) -> Option<([u8; 8], &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((*first, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<HandleLocation> {
        let kernel = |length| KernelHandle::new(7, &[9; 34][..length]).unwrap();
        vec![
            HandleLocation::Root,
            HandleLocation::Kernel(kernel(1)),
            HandleLocation::Kernel(kernel(34)),
            HandleLocation::Remembered(Key {
                device: 1,
                inode: u64::MAX,
                born: (-5, 999_999_999),
            }),
        ]
    }

    #[test]
    fn handles_are_read_as_they_were_made() {
        for place in places() {
            let handle = pack(0xfeed, &place);
            assert_eq!(unpack(&handle), Some((0xfeed, place)));
        }
    }

    #[test]
    fn what_was_cut_short_or_is_too_long_is_no_handle() {
        for place in places() {
            let whole = pack(1, &place);
            let bytes = whole.as_bytes();
            let shortest = match place {
                // The length of the kernel's handle follows from that of the whole.
                HandleLocation::Kernel(_) => 11,
                _ => bytes.len(),
            };
            for length in 0..shortest {
                assert_eq!(unpack(&Handle::new(&bytes[..length]).unwrap()), None);
            }
            if !matches!(place, HandleLocation::Kernel(_)) {
                let longer = [bytes, &[0]].concat();
                assert_eq!(unpack(&Handle::new(&longer).unwrap()), None);
            }
        }
        assert_eq!(unpack(&Handle::new(&[0; 20]).unwrap()), None);
        assert_eq!(unpack(&Handle::new(&[4; 20]).unwrap()), None);
    }
}
