//! Leases of open files, which the library calls delegations.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;

use super::bindings::{
    DELEGATION_READ, RawFile, ceph_get_cap_return_timeout, ceph_ll_delegation,
    ceph_set_deleg_timeout,
};
use super::file::File;
use super::mount::Mount;
use super::outcome;

type Told = Box<dyn Fn() + Send + Sync>;

/// The process of the locks that leases have. No process of a host has this number.
const LEASE_PROCESS: i32 = i32::MAX;

/// The lock of a lease.
const ALL_BYTES: libc::flock = libc::flock {
    l_type: libc::F_RDLCK as libc::c_short,
    l_whence: libc::SEEK_SET as libc::c_short,
    l_start: 0,
    l_len: 0,
    l_pid: LEASE_PROCESS,
};

/// A file that others do not change before this is dropped, and of which they lock no bytes for
/// writing: whoever has the lease may lock bytes for reading without telling. Dropping it closes it.
pub struct LeasedFile {
    // Closed first: no call of `told` begins after that.
    file: File,
    _told: Box<Told>,
}

impl LeasedFile {
    /// Takes a lease for an open file. `told` is called when the lease has to end, on any thread that
    /// uses the mount, while the library's lock is held: it must neither block nor use the mount.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: others use the file. [`Errno::TIME`]: the mount has [no
    /// leases](Mount::begin_leases). Errors of the cluster.
    pub fn new(file: File, told: impl Fn() + Send + Sync + 'static) -> Result<Self, Errno> {
        let told: Box<Told> = Box::new(Box::new(told));
        let mount = file.inode().mount().as_ptr();
        let value = ptr::from_ref::<Told>(&told);
        // SAFETY: pointers of live values. `told` stays where it is until the file is closed, which
        // is the library's last use of it: see the order of the fields.
        outcome(unsafe {
            ceph_ll_delegation(
                mount,
                file.as_ptr(),
                DELEGATION_READ,
                recalled,
                value.cast_mut().cast(),
            )
        })?;
        // No other lease has the same address now.
        let owner = value.addr() as u64;
        let leased = Self { file, _told: told };
        leased.file.set_lock_of(owner, ALL_BYTES)?;
        Ok(leased)
    }
}

/// Whether a lock that was found is that of a lease.
pub fn is_of_lease(lock: &libc::flock) -> bool {
    lock.l_pid == LEASE_PROCESS
}

/// Tells the holder of a lease that it has to end.
unsafe extern "C" fn recalled(_: *mut RawFile, value: *mut c_void) {
    // SAFETY: what `LeasedFile::new` gave the library for a file that is open.
    let told = unsafe { &*value.cast_const().cast::<Told>() };
    told();
}

impl Mount {
    /// Permits leases. Returns how long one lasts at most when it has to end: then the library ends
    /// the session. `None`: the cluster has no time for them.
    pub fn begin_leases(&self) -> Option<Duration> {
        // SAFETY: a mounted file system.
        let seconds = unsafe { ceph_get_cap_return_timeout(self.as_ptr()) } / 2;
        // SAFETY: as above.
        let set = unsafe { ceph_set_deleg_timeout(self.as_ptr(), seconds) };
        (seconds > 0 && outcome(set).is_ok()).then(|| Duration::from_secs(seconds.into()))
    }
}
