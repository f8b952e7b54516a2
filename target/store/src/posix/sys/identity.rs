//! Acting as a caller: identity, capabilities and file mode mask of the calling thread alone. The C
//! library's functions would change all threads of the process.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags, capabilities,
    capabilities_secure_bits, set_capabilities,
};

use crate::posix::identity::Identity;

/// The identifier that the kernel does not accept.
const NOBODY: u32 = u32::MAX;

/// Capabilities that a caller other than user 0 must not have: those that bypass permission checks
/// of file systems, and the one that bypasses quotas and reserved blocks. Linux's own server drops
/// the same. `setfsuid` does that for the former only, and only when leaving user 0.
const SUPERUSERS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);

/// Capabilities needed to change identity.
const NEEDED: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Capabilities that `setfsuid` itself drops when leaving user 0, and restores.
const FOLLOWING: CapabilitySet = SUPERUSERS.difference(CapabilitySet::SYS_RESOURCE);

thread_local! {
    static HOME: OnceCell<Rights> = const { OnceCell::new() };
    static PLACE: Cell<ThreadIdentity> = const { Cell::new(ThreadIdentity::Home) };
    /// The current supplementary groups of this thread.
    static GROUPS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
thread_local! {
    static HAS_ACTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has ever acted as another user.
#[cfg(test)]
pub fn has_acted() -> bool {
    HAS_ACTED.get()
}

/// The identity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadIdentity {
    /// Its own.
    Home,
    /// A caller's.
    Away,
    /// Unknown, after restoring its own failed.
    Lost,
}

/// The credentials by which the kernel checks a thread's access to files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rights {
    uid: u32,
    gid: u32,
    capabilities: CapabilitySets,
    /// The required supplementary groups, if they affect access to files with these credentials.
    groups: Option<Vec<u32>>,
    /// Whether capabilities follow the user.
    following: bool,
}

/// Runs `job` with a caller's rights on this thread, which afterwards has its own again, also after
/// a panic. If the process cannot do so ([`privileged`]), `job` runs with the process's rights.
///
/// Supplementary groups stay as the last caller had them where they have no effect, that is with
/// the superuser's capabilities: changing them is the most expensive part, and jobs of one caller
/// are often consecutive.
///
/// # Errors
/// The kernel does not let this thread be that user: [`io::ErrorKind::PermissionDenied`] for an
/// unknown one (of another user namespace), or it has no memory. `job` did not run then.
///
/// # Panics
/// If `job` calls this again. If the thread's own rights cannot be restored: then `lost` is true,
/// and the thread must end.
pub fn assume<T>(identity: &Identity, job: impl FnOnce() -> T) -> io::Result<T> {
    assume_without(SUPERUSERS, identity, job)
}

/// As [`assume`]; `dropped` are the capabilities that users do not have.
fn assume_without<T>(
    dropped: CapabilitySet,
    identity: &Identity,
    job: impl FnOnce() -> T,
) -> io::Result<T> {
    if !privileged() {
        return Ok(job());
    }
    with_home(|home| {
        let place = PLACE.replace(ThreadIdentity::Away);
        assert!(
            place == ThreadIdentity::Home,
            "rights of another are taken on from {place:?}"
        );
        // The code that catches the panic is responsible for the state the job left behind.
        let job = || catch_unwind(AssertUnwindSafe(job));
        let outcome = if home.is(identity) {
            Ok(job())
        } else {
            let outcome = home.become_caller(identity, dropped).map(|()| job());
            home.restore(identity, dropped);
            outcome
        };
        PLACE.set(ThreadIdentity::Home);
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(error) => Err(error),
        }
    })?
}

/// Passes the rights that this thread had at first to `act`.
///
/// # Errors
/// The kernel does not tell them.
fn with_home<T>(act: impl FnOnce(&Rights) -> T) -> io::Result<T> {
    HOME.with(|home| {
        let home = match home.get() {
            Some(home) => home,
            None => {
                let own = Rights::current()?;
                home.get_or_init(|| own)
            }
        };
        Ok(act(home))
    })
}

/// As [`assume`], on the thread of a reactor, which cannot end: if its own rights cannot be restored,
/// the process is aborted, as it would go on with the caller's rights for all clients.
///
/// # Errors
/// As [`assume`].
pub fn assume_on_reactor<T>(identity: &Identity, job: impl FnOnce() -> T) -> io::Result<T> {
    let _abort = AbortIfLost;
    assume(identity, job)
}

/// As [`assume_on_reactor`], for a job that makes and writes nothing: it keeps the capability that
/// bypasses quotas, which saves two system calls.
///
/// # Errors
/// As [`assume`].
pub fn query_as<T>(identity: &Identity, job: impl FnOnce() -> T) -> io::Result<T> {
    let _abort = AbortIfLost;
    assume_without(FOLLOWING, identity, job)
}

/// Aborts the process when it is dropped on a thread that is lost.
struct AbortIfLost;

impl Drop for AbortIfLost {
    fn drop(&mut self) {
        if lost() {
            std::process::abort();
        }
    }
}

/// Whether this thread has a caller's rights as it is.
#[must_use]
pub fn is_own(identity: &Identity) -> bool {
    !privileged() || with_home(|home| home.is(identity)).unwrap_or(false)
}

/// Whether this thread failed to restore its own rights: it must do nothing more.
#[must_use]
pub fn lost() -> bool {
    PLACE.get() == ThreadIdentity::Lost
}

/// Whether this process can act on behalf of others, as of the first call, which comes after rights
/// were dropped.
#[must_use]
pub fn privileged() -> bool {
    static PRIVILEGED: OnceLock<bool> = OnceLock::new();
    *PRIVILEGED.get_or_init(can_act_as_others)
}

/// Whether this thread can act on behalf of others now. That needs CAP_SETUID and CAP_SETGID, and a
/// user namespace with more than one user.
#[must_use]
pub fn can_act_as_others() -> bool {
    let capable = capabilities(None).is_ok_and(|own| own.effective.contains(NEEDED));
    // A namespace may forbid setting groups even to the current ones. A thread of its own does it,
    // as new credentials, although equal, would keep this one from using RDMA devices it has opened.
    let sets_groups = || groups().and_then(|own| set_groups(&own)).is_ok();
    let asked = || {
        let thread = std::thread::Builder::new().spawn(sets_groups).ok()?;
        thread.join().ok()
    };
    capable && knows_others() && asked() == Some(true)
}

/// Gives this thread a file mode mask of its own that removes no permissions: files get the
/// permissions that clients request. Once per thread, before it makes files.
///
/// # Errors
/// Errors of the kernel; some containers forbid it. Then the mask is shared and unchanged.
pub fn own_umask() -> io::Result<()> {
    // SAFETY: only unsharing the table of descriptors would affect other code; this unshares root,
    // working directory and mask only.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

impl Rights {
    /// The credentials of this thread.
    fn current() -> io::Result<Self> {
        let uid = set_fsuid(NOBODY);
        let capabilities = capabilities(None)?;
        let groups = groups()?;
        GROUPS.replace(groups.clone());
        let judged = !capabilities.effective.contains(CapabilitySet::DAC_OVERRIDE);
        Ok(Self {
            uid,
            gid: set_fsgid(NOBODY),
            capabilities,
            groups: judged.then_some(groups),
            following: !capabilities_secure_bits()?
                .contains(CapabilitiesSecureBits::NO_SETUID_FIXUP),
        })
    }

    /// Whether a caller's credentials are those of this thread, which has these.
    fn is(&self, identity: &Identity) -> bool {
        if !identity.is_superuser() || (self.uid, self.gid) != (0, identity.gid()) {
            return false;
        }
        // A user's primary group may be among the others too.
        let others = |group: &&u32| **group != self.gid;
        GROUPS.with_borrow(|now| {
            let (now, wanted) = (now.iter(), identity.groups().iter());
            now.filter(others).eq(wanted.filter(others))
        })
    }

    /// Gives this thread, which has these credentials, those of a caller; `dropped` are the capabilities
    /// that users do not have.
    fn become_caller(&self, identity: &Identity, dropped: CapabilitySet) -> io::Result<()> {
        #[cfg(test)]
        HAS_ACTED.set(true);
        change_groups(identity.groups())?;
        change(identity.gid(), set_fsgid)?;
        change(identity.uid(), set_fsuid)?;
        let own = self.capabilities.effective;
        let wanted = if identity.is_superuser() {
            own
        } else {
            own - dropped
        };
        let left = if self.following && self.uid == 0 && !identity.is_superuser() {
            own - FOLLOWING
        } else {
            own
        };
        // A thread that becomes user 0 gets all permitted capabilities, which may differ from its
        // own.
        if left != wanted || self.uid != 0 {
            self.set_effective(wanted)?;
        }
        Ok(())
    }

    /// Restores these credentials, or marks the thread as lost.
    fn restore(&self, identity: &Identity, dropped: CapabilitySet) {
        if let Err(error) = self.put_back(identity, dropped) {
            PLACE.set(ThreadIdentity::Lost);
            tracing::error!(%error, "a thread cannot restore its own rights; it ends");
            panic!("a thread cannot restore its own rights: {error}");
        }
    }

    /// Restores these credentials, wherever [`Self::become_caller`] ended.
    fn put_back(&self, identity: &Identity, dropped: CapabilitySet) -> io::Result<()> {
        change(self.uid, set_fsuid)?;
        change(self.gid, set_fsgid)?;
        if let Some(groups) = &self.groups {
            change_groups(groups)?;
        }
        // Last, since a change of user changes them too.
        let own = self.capabilities.effective;
        let back = match (self.uid, identity.is_superuser()) {
            (0, true) => own,
            (0, false) if self.following => {
                own.difference(dropped) | self.capabilities.permitted.intersection(FOLLOWING)
            }
            _ => own.difference(dropped),
        };
        if back != own {
            self.set_effective(own)?;
        }
        Ok(())
    }

    fn set_effective(&self, effective: CapabilitySet) -> io::Result<()> {
        let sets = CapabilitySets {
            effective,
            ..self.capabilities
        };
        Ok(set_capabilities(None, sets)?)
    }
}

/// Calls one of the kernel's two setters that return the previous value, and no success.
fn change(id: u32, set: fn(u32) -> u32) -> io::Result<()> {
    set(id);
    if id != NOBODY && set(NOBODY) == id {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EACCES))
    }
}

/// The previous user for file systems. Unchanged for [`NOBODY`].
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: the call uses numbers only, and changes the rights of this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    before as u32
}

/// The previous group for file systems. Unchanged for [`NOBODY`].
fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: the call uses numbers only, and changes the rights of this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    before as u32
}

/// Sets this thread's supplementary groups.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the call reads this many numbers, which the slice has.
    let outcome = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets this thread's supplementary groups, unless they are the same already.
fn change_groups(groups: &[u32]) -> io::Result<()> {
    GROUPS.with_borrow_mut(|now| {
        if now != groups {
            set_groups(groups)?;
            now.clear();
            now.extend_from_slice(groups);
        }
        Ok(())
    })
}

/// This thread's supplementary groups.
fn groups() -> io::Result<Vec<u32>> {
    let groups = rustix::process::getgroups()?;
    Ok(groups.into_iter().map(rustix::fs::Gid::as_raw).collect())
}

/// Whether the user namespace maps more than one user.
fn knows_others() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map");
    // Without this file there are no user namespaces.
    map.is_ok_and(|map| maps_others(&map)) || !std::path::Path::new("/proc/self/uid_map").exists()
}

fn maps_others(map: &str) -> bool {
    let counts = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    counts
        .filter_map(|count| count.parse::<u64>().ok())
        .sum::<u64>()
        > 1
}

#[cfg(test)]
mod tests;
