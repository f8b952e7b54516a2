//! The kernel's file handles, identities of file systems, and permission checks through a
//! descriptor.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Access, OFlags};
use rustix::io::Errno;

/// The longest kernel handle that fits into a [`crate::Handle`].
pub const MAX: usize = 34;

/// The longest kernel handle (MAX_HANDLE_SZ).
const KERNELS_MAX: usize = 128;

/// A reference to a file in its file system, valid after a reboot of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelHandle {
    kind: u8,
    length: u8,
    bytes: [u8; MAX],
}

/// `struct file_handle` with space for the longest one.
#[repr(C)]
struct Raw {
    length: u32,
    kind: i32,
    bytes: [u8; KERNELS_MAX],
}

impl KernelHandle {
    /// A handle of this type and these bytes; `None` for zero or too many bytes.
    #[must_use]
    pub fn new(kind: u8, bytes: &[u8]) -> Option<Self> {
        let mut handle = Self {
            kind,
            length: u8::try_from(bytes.len())
                .ok()
                .filter(|length| *length > 0)?,
            bytes: [0; MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The type assigned by its file system.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The handle of an open file (name_to_handle_at(2)).
///
/// # Errors
/// [`Errno::OPNOTSUPP`] if the file system has none, [`Errno::OVERFLOW`] if it is longer than
/// [`MAX`], and other errors of the kernel.
pub fn handle_of(file: BorrowedFd<'_>) -> Result<KernelHandle, Errno> {
    let mut raw = Raw {
        length: KERNELS_MAX as u32,
        kind: 0,
        bytes: [0; KERNELS_MAX],
    };
    let mut mount: c_int = 0;
    // SAFETY: the path is a C string, `raw` is laid out as the kernel's structure and has as much
    // space behind it as it says, and both places outlive the call.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if outcome != 0 {
        return Err(last_error());
    }
    u8::try_from(raw.kind)
        .ok()
        .zip(raw.bytes.get(..raw.length as usize))
        .and_then(|(kind, bytes)| KernelHandle::new(kind, bytes))
        .ok_or(Errno::OVERFLOW)
}

/// Opens a file by its handle on the file system of `mount` (open_by_handle_at(2)). Needs
/// CAP_DAC_READ_SEARCH.
///
/// # Errors
/// [`Errno::STALE`] if there is no such file, [`Errno::PERM`] without that capability.
pub fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &KernelHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut raw = Raw {
        length: u32::from(handle.length),
        kind: i32::from(handle.kind),
        bytes: [0; KERNELS_MAX],
    };
    raw.bytes[..handle.as_bytes().len()].copy_from_slice(handle.as_bytes());
    // SAFETY: `raw` is laid out as the kernel's structure, holds as many bytes as it says and
    // outlives the call.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut raw,
            flags.bits() as c_int,
        )
    };
    let descriptor = c_int::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Checks access of this thread to an open file, judged by its effective rights and not by how the
/// descriptor was opened (faccessat2(2)).
///
/// # Errors
/// [`Errno::ACCESS`], [`Errno::PERM`] or [`Errno::ROFS`] if not, and other errors of the kernel.
pub fn may(file: BorrowedFd<'_>, wanted: Access) -> Result<(), Errno> {
    // SAFETY: the path is a C string, and the other arguments are numbers.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            file.as_raw_fd(),
            c"".as_ptr(),
            wanted.bits() as c_int,
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// `FS_IOC_GETFSUUID`: a length, and up to 16 bytes.
const GET_UUID: libc::c_ulong = 0x8011_1500;

/// `XFS_IOC_FSGEOMETRY_V1`, and the offset of the UUID in its answer of 112 bytes.
const XFS_GEOMETRY: libc::c_ulong = 0x8070_5864;
const XFS_UUID: usize = 64;

/// The UUID of the file system of a directory, opened for reading; `None` if it has none or does
/// not report it.
#[must_use]
pub fn uuid_of(directory: BorrowedFd<'_>) -> Option<[u8; 16]> {
    let mut answer = [0u8; 17];
    // SAFETY: the kernel writes at most 17 bytes, which `answer` has, and keeps no pointer.
    let outcome = unsafe { libc::ioctl(directory.as_raw_fd(), GET_UUID, answer.as_mut_ptr()) };
    if outcome == 0 && answer[0] == 16 {
        return answer.last_chunk().copied().filter(is_set);
    }
    // Kernels before 6.9 support this query under XFS's own name only.
    if rustix::fs::fstatfs(directory).ok()?.f_type != XFS {
        return None;
    }
    let mut answer = [0u64; 14];
    // SAFETY: the kernel writes at most 112 bytes, which `answer` has, and keeps no pointer.
    let outcome = unsafe { libc::ioctl(directory.as_raw_fd(), XFS_GEOMETRY, answer.as_mut_ptr()) };
    let [first, second] = [answer[XFS_UUID / 8], answer[XFS_UUID / 8 + 1]].map(u64::to_ne_bytes);
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&first);
    uuid[8..].copy_from_slice(&second);
    Some(uuid).filter(|uuid| outcome == 0 && is_set(uuid))
}

/// The number of XFS in statfs(2).
const XFS: rustix::fs::FsWord = 0x5846_5342;

fn is_set(uuid: &[u8; 16]) -> bool {
    *uuid != [0; 16]
}

/// The error of the last call of the C library.
pub(super) fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
