//! A mount of a file system.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io::Errno;

use super::bindings::{
    RECLAIM_RESET, RawMount, ceph_abort_conn, ceph_conf_get, ceph_conf_read_file, ceph_conf_set,
    ceph_create, ceph_finish_reclaim, ceph_get_fs_cid, ceph_init, ceph_mount, ceph_release,
    ceph_select_filesystem, ceph_set_mount_timeout, ceph_set_session_timeout, ceph_set_uuid,
    ceph_start_reclaim, ceph_umask, ceph_unmount,
};
use super::outcome;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The configuration file of the cluster.
    pub conf: PathBuf,
    /// The user, without `client.`.
    pub user: String,
    /// The file with the user's key, unless the configuration file names it.
    pub keyring: Option<PathBuf>,
    /// The file system, unless it is the cluster's default.
    pub file_system: Option<String>,
    /// The directory in it that becomes the root.
    pub root: PathBuf,
    /// Names the session, so that others can end it.
    pub uuid: Option<String>,
    /// A session to end before: that of this server's last run, or of a server whose place it takes.
    pub predecessor: Option<String>,
    /// The most seconds to wait for monitors and the MDS.
    pub timeout: u32,
    /// Other options of the library, by name.
    pub options: Vec<(String, String)>,
}

/// The option that bounds the names that the library caches.
const CACHED_NAMES: &CStr = c"client_cache_size";

/// Why a mount failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {error}")]
pub struct MountError {
    /// The step that failed.
    pub step: String,
    /// The error of the library.
    pub error: Errno,
}

/// A mounted file system. Dropping it unmounts, which waits for the cluster.
pub struct Mount {
    raw: NonNull<RawMount>,
    /// How many names the library may cache, as it writes that.
    cached_names: CString,
    is_mounted: bool,
    had_predecessor: bool,
}

// SAFETY: the library's mounts may be used by any threads at once.
unsafe impl Send for Mount {}
// SAFETY: as above.
unsafe impl Sync for Mount {}

impl Mount {
    /// Mounts. Waits for the cluster, at most about as long as configured.
    ///
    /// # Errors
    /// The step that failed.
    pub fn open(config: &MountConfig) -> Result<Arc<Self>, MountError> {
        // The library's threads inherit the mask: signals are for the threads of this process.
        let before = block_signals();
        let opened = Self::open_masked(config);
        restore_signals(&before);
        opened.map(Arc::new)
    }

    fn open_masked(config: &MountConfig) -> Result<Self, MountError> {
        let mut raw = ptr::null_mut();
        let user = text("user", &config.user)?;
        // SAFETY: the library stores a mount, and copies the text.
        let made = unsafe { ceph_create(&raw mut raw, user.as_ptr()) };
        step("creating a client", made)?;
        let raw = NonNull::new(raw).ok_or_else(|| failed("creating a client", Errno::NOMEM))?;
        let mut mount = Self {
            raw,
            cached_names: CString::default(),
            is_mounted: false,
            had_predecessor: false,
        };
        mount.configure(config)?;
        mount.cached_names = mount.get(CACHED_NAMES)?;
        mount.attach(config)?;
        Ok(mount)
    }

    fn configure(&self, config: &MountConfig) -> Result<(), MountError> {
        let conf = path("conf", &config.conf)?;
        // SAFETY: a mount of the library, and a text that it copies.
        let read = unsafe { ceph_conf_read_file(self.as_ptr(), conf.as_ptr()) };
        step(&format!("reading {}", config.conf.display()), read)?;
        if let Some(keyring) = &config.keyring {
            self.set(c"keyring", &path("keyring", keyring)?)?;
        }
        for (name, value) in &config.options {
            self.set(&text("option", name)?, &text(name, value)?)?;
        }
        Ok(())
    }

    /// Has the library forget all names that it caches when `request` ends, which must be a request
    /// to change names, also one that fails.
    ///
    /// # Errors
    /// The cache cannot be changed.
    pub fn forget_names<T>(&self, request: impl FnOnce() -> T) -> Result<T, MountError> {
        self.set(CACHED_NAMES, c"0")?;
        let done = request();
        self.set(CACHED_NAMES, &self.cached_names)?;
        Ok(done)
    }

    fn get(&self, name: &CStr) -> Result<CString, MountError> {
        let mut value = [0_u8; 64];
        let (option, out, room) = (name.as_ptr(), value.as_mut_ptr(), value.len());
        // SAFETY: a mount of the library, a text, and memory of this length that it fills.
        let got = unsafe { ceph_conf_get(self.as_ptr(), option, out.cast(), room) };
        step(&format!("reading the option {name:?}"), got)?;
        let value = CStr::from_bytes_until_nul(&value).map(CStr::to_owned);
        value.map_err(|_| failed(&format!("reading the option {name:?}"), Errno::RANGE))
    }

    fn set(&self, name: &CStr, value: &CStr) -> Result<(), MountError> {
        // SAFETY: a mount of the library, and texts that it copies.
        let set = unsafe { ceph_conf_set(self.as_ptr(), name.as_ptr(), value.as_ptr()) };
        step(&format!("setting the option {name:?}"), set)
    }

    fn attach(&mut self, config: &MountConfig) -> Result<(), MountError> {
        let raw = self.as_ptr();
        // SAFETY: a configured mount of the library.
        let started = unsafe {
            ceph_set_mount_timeout(raw, config.timeout);
            ceph_init(raw)
        };
        step("connecting as this user", started)?;
        if let Some(name) = &config.file_system {
            let name = text("file_system", name)?;
            // SAFETY: a mount that is not attached yet, and a text that it copies.
            let chosen = unsafe { ceph_select_filesystem(raw, name.as_ptr()) };
            step("choosing the file system", chosen)?;
        }
        if let Some(predecessor) = &config.predecessor {
            let predecessor = text("predecessor", predecessor)?;
            // SAFETY: as above.
            let ended = unsafe { ceph_start_reclaim(raw, predecessor.as_ptr(), RECLAIM_RESET) };
            self.had_predecessor = match outcome(ended) {
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                Err(error) => return Err(failed("ending an earlier session", error)),
            };
            if self.had_predecessor {
                // SAFETY: as above.
                unsafe { ceph_finish_reclaim(raw) };
            }
        }
        if let Some(uuid) = &config.uuid {
            let uuid = text("uuid", uuid)?;
            // SAFETY: as above.
            unsafe { ceph_set_uuid(raw, uuid.as_ptr()) };
        }
        let root = path("root", &config.root)?;
        // SAFETY: as above. New objects get the permissions that clients ask for.
        let mounted = unsafe {
            ceph_set_session_timeout(raw, 30);
            ceph_umask(raw, 0);
            ceph_mount(raw, root.as_ptr())
        };
        step(&format!("mounting {}", config.root.display()), mounted)?;
        self.is_mounted = true;
        Ok(())
    }

    /// Whether there was an earlier session to end.
    pub fn had_predecessor(&self) -> bool {
        self.had_predecessor
    }

    /// The number of the file system in its cluster.
    pub fn file_system_number(&self) -> i64 {
        // SAFETY: a mounted file system.
        unsafe { ceph_get_fs_cid(self.as_ptr()) }
    }

    /// Ends all calls and the session at once. Unwritten data is lost.
    pub fn abort(&self) {
        // SAFETY: a mounted file system; the library permits this beside other calls.
        unsafe { ceph_abort_conn(self.as_ptr()) };
    }

    pub(super) fn as_ptr(&self) -> *mut RawMount {
        self.raw.as_ptr()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: all other values hold the mount, so this is the last use of it.
        unsafe {
            if self.is_mounted {
                ceph_unmount(self.as_ptr());
            }
            ceph_release(self.as_ptr());
        }
    }
}

fn failed(step: &str, error: Errno) -> MountError {
    MountError {
        step: step.to_owned(),
        error,
    }
}

fn step(name: &str, code: i32) -> Result<(), MountError> {
    outcome(code)
        .map(|_| ())
        .map_err(|error| failed(name, error))
}

fn text(key: &str, value: &str) -> Result<CString, MountError> {
    CString::new(value).map_err(|_| failed(key, Errno::INVAL))
}

fn path(key: &str, value: &Path) -> Result<CString, MountError> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(value.as_os_str().as_bytes()).map_err(|_| failed(key, Errno::INVAL))
}

/// Blocks all signals in this thread. Returns the mask before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are this function's own, and filled by the calls before they are read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a mask that the system returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}
