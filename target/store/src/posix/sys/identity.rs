//! Acting on a caller's behalf: identity, capabilities and file mode mask of the calling thread
//! alone. The C library's functions would change all threads of the process.

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

/// The identifier that the kernel takes for none.
const NOBODY: u32 = u32::MAX;

/// What a caller other than user 0 must not have: the capabilities that pass permission checks of
/// file systems, and the one that passes quotas and reserved blocks. The same that Linux's own
/// server takes away. `setfsuid` does that for the former only, and only coming from user 0.
const SUPERUSERS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);

/// What it takes to be somebody else.
const NEEDED: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// What `setfsuid` itself takes away from whoever stops being user 0, and gives back.
const FOLLOWING: CapabilitySet = SUPERUSERS.difference(CapabilitySet::SYS_RESOURCE);

thread_local! {
    static HOME: OnceCell<Rights> = const { OnceCell::new() };
    static PLACE: Cell<ThreadIdentity> = const { Cell::new(ThreadIdentity::Home) };
    /// The other groups that this thread has now.
    static GROUPS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Whose rights a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadIdentity {
    /// Its own.
    Home,
    /// A caller's.
    Away,
    /// Whatever was left when putting its own back failed.
    Lost,
}

/// What the kernel judges a thread's access to files by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rights {
    uid: u32,
    gid: u32,
    capabilities: CapabilitySets,
    /// Where other groups decide about access to files in these rights: what they have to be.
    groups: Option<Vec<u32>>,
    /// Whether capabilities follow the user.
    following: bool,
}

/// Runs `job` with a caller's rights on this thread, which afterwards has its own again, also after
/// a panic. Where the process cannot do so ([`privileged`]), `job` runs with the process's rights.
///
/// Other groups stay as the last caller had them where they mean nothing, that is with the
/// superuser's capabilities: they are what costs most to change, and callers come in runs.
///
/// # Errors
/// The kernel does not let this thread be that user: [`io::ErrorKind::PermissionDenied`] for one
/// that it does not know (of another user namespace), or it has no memory. `job` did not run then.
///
/// # Panics
/// If `job` calls this again. If the thread's own rights cannot be put back: then `lost` is true,
/// and the thread must end.
pub fn assume<T>(identity: &Identity, job: impl FnOnce() -> T) -> io::Result<T> {
    if !privileged() {
        return Ok(job());
    }
    HOME.with(|home| {
        let home = match home.get() {
            Some(home) => home,
            None => {
                let own = Rights::current()?;
                home.get_or_init(|| own)
            }
        };
        let place = PLACE.replace(ThreadIdentity::Away);
        assert!(
            place == ThreadIdentity::Home,
            "rights of another are taken on from {place:?}"
        );
        let outcome = home.become_caller(identity).map(|()| {
            // What the job left behind is the business of whoever goes on after its panic.
            catch_unwind(AssertUnwindSafe(job))
        });
        if let Err(error) = home.put_back(identity) {
            PLACE.set(ThreadIdentity::Lost);
            tracing::error!(%error, "a thread cannot put its own rights back; it ends");
            panic!("a thread cannot put its own rights back: {error}");
        }
        PLACE.set(ThreadIdentity::Home);
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(error) => Err(error),
        }
    })
}

/// Whether this thread has somebody's rights and no way back: it must do nothing more.
#[must_use]
pub fn lost() -> bool {
    PLACE.get() == ThreadIdentity::Lost
}

/// Whether this process can act on behalf of others, as it was when this was asked first: when it
/// has given away what rights it does not need.
#[must_use]
pub fn privileged() -> bool {
    static PRIVILEGED: OnceLock<bool> = OnceLock::new();
    *PRIVILEGED.get_or_init(can_act_as_others)
}

/// Whether this thread can act on behalf of others now. That takes CAP_SETUID and CAP_SETGID, and a
/// user namespace that knows more than one user.
#[must_use]
pub fn can_act_as_others() -> bool {
    let capable = capabilities(None).is_ok_and(|own| own.effective.contains(NEEDED));
    // A namespace may forbid to set groups even to what they are.
    capable && knows_others() && groups().and_then(|own| set_groups(&own)).is_ok()
}

/// Gives this thread a file mode mask of its own that takes no permission away: what clients ask
/// for is what files get. Once per thread, before it makes files.
///
/// # Errors
/// What the kernel says; some containers forbid it. Then the mask is shared, and as it was.
pub fn own_umask() -> io::Result<()> {
    // SAFETY: only the descriptors' table must not be unshared behind the backs of those who use
    // it; this takes nothing but root, working directory and mask.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

impl Rights {
    /// This thread's.
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

    /// Has this thread, which has these rights, take on a caller's.
    fn become_caller(&self, identity: &Identity) -> io::Result<()> {
        change_groups(identity.groups())?;
        change(identity.gid(), set_fsgid)?;
        change(identity.uid(), set_fsuid)?;
        let own = self.capabilities.effective;
        let wanted = if identity.is_superuser() {
            own
        } else {
            own - SUPERUSERS
        };
        let left = if self.following && self.uid == 0 && !identity.is_superuser() {
            own - FOLLOWING
        } else {
            own
        };
        // Who becomes user 0 gets all that is permitted, which need not be what we have.
        if left != wanted || self.uid != 0 {
            self.set_effective(wanted)?;
        }
        Ok(())
    }

    /// Has this thread take on these rights again, wherever [`Self::become_caller`] ended.
    fn put_back(&self, identity: &Identity) -> io::Result<()> {
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
                own.difference(SUPERUSERS) | self.capabilities.permitted.intersection(FOLLOWING)
            }
            _ => own.difference(SUPERUSERS),
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

/// Calls one of the kernel's two setters that tell what was, never whether they did it.
fn change(id: u32, set: fn(u32) -> u32) -> io::Result<()> {
    set(id);
    if id != NOBODY && set(NOBODY) == id {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EACCES))
    }
}

/// The user for file systems before the call. It stays for [`NOBODY`].
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: the call takes numbers only, and changes the rights of this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    before as u32
}

/// The group for file systems before the call. It stays for [`NOBODY`].
fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: the call takes numbers only, and changes the rights of this thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    before as u32
}

/// Sets this thread's other groups.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the call reads so many numbers, which a slice has.
    let outcome = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets this thread's other groups, unless they are so already.
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

/// This thread's other groups.
fn groups() -> io::Result<Vec<u32>> {
    let groups = rustix::process::getgroups()?;
    Ok(groups.into_iter().map(rustix::fs::Gid::as_raw).collect())
}

/// Whether the user namespace maps more than one user.
fn knows_others() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map");
    // Without it there are no user namespaces.
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
