//! Changing attributes.
//!
//! The kernel has a call for each attribute, and RFC 1813 section 3.3.2 one for all. Changes that
//! the kernel would refuse are refused before the first call, so that all are made or none, unless
//! the storage fails. They run in an order in which none undoes another: the size and the owner,
//! which clear set-id bits, the mode, and the times.

pub(super) mod steps;

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::namespace::{Changed, JobContext, OpenObject};
use super::sys::{self, calls};
use super::view::ClientView;
use crate::{
    Attributes, Caller, Handle, Kind, Modified, Result, SetAttributes, SetTime, StoreError, Time,
};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const MODE_BITS: u32 = 0o7777;

impl ClientView<'_> {
    pub(super) async fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()> {
        let set = *set;
        let begin = async {
            let (context, place) = self.job_context(caller, object).await?;
            let job = move || {
                context.change(&place, |before| {
                    if guard.is_some_and(|guard| guard != before.changed) {
                        return Err(StoreError::NotSync);
                    }
                    apply(&context, &place, before, &set)
                })
            };
            self.volume.helpers().run(self.client, job).await
        };
        let done = begin.await.unwrap_or_else(Modified::failed);
        // File systems with slow queries are not queried with each use of the data.
        let permissions = set.mode.or(set.uid).or(set.gid);
        if permissions.is_some()
            && let Some(object) = self.objects.find(&object)
        {
            object.verdicts.take();
        }
        done
    }
}

/// Makes all changes, or none if one of them is refused.
fn apply(
    context: &JobContext,
    place: &OpenObject,
    before: &Attributes,
    set: &SetAttributes,
) -> Result<Changed<()>> {
    if *set == SetAttributes::default() {
        return Ok(Changed::nothing(()));
    }
    authorize(context, before, set)?;
    if let Some(size) = set.size {
        resize(context, &place.path, before, size)?;
    }
    let object = place.path.as_fd();
    // A user who may write a file but does not own it may set its times to the current time. The
    // kernel permits that for both times together only.
    let touches = [set.accessed, set.modified].contains(&SetTime::Now) && !owns(context, before);
    let wants_times = (set.accessed, set.modified) != (SetTime::Keep, SetTime::Keep);
    context
        .act(|| {
            if set.uid.is_some() || set.gid.is_some() {
                steps::own(object, set.uid, set.gid)?;
            }
            // Permissions of symbolic links have no effect, and clients that copy them do not
            // expect an error.
            if let Some(mode) = set.mode.filter(|_| before.kind != Kind::Symlink) {
                steps::mode(object, resulting_mode(context, before, set, mode))?;
            }
            if touches {
                let writable = Access::WRITE_OK;
                accessat(CWD, proc_path(object), writable, AtFlags::EACCESS)?;
            } else if wants_times {
                steps::times(object, set.accessed, set.modified)?;
            }
            Ok(())
        })
        .map_err(store_error)?;
    if touches {
        steps::times(object, set.accessed, set.modified).map_err(store_error)?;
    }
    Ok(Changed::place(()))
}

/// The mode to set. A set-id program of another owner would grant that owner's rights: only the
/// superuser may make one in the same step that changes the owner.
fn resulting_mode(
    context: &JobContext,
    before: &Attributes,
    set: &SetAttributes,
    mode: u32,
) -> u32 {
    let mut mode = mode & MODE_BITS;
    let given_away = set.uid.is_some() || set.gid.is_some();
    if given_away && before.kind != Kind::Directory && !context.identity.is_superuser() {
        mode &= !SET_USER;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GROUP;
        }
    }
    mode
}

/// Truncates a file or extends it with zeros. The owner may do so with any mode, as expected by
/// clients that have the file open (RFC 1813 section 4.4). Effects of a write in the kernel
/// (quotas, set-id bits) apply to the caller.
pub(super) fn resize(
    context: &JobContext,
    path: &OwnedFd,
    found: &Attributes,
    size: u64,
) -> Result<()> {
    check_size(context, found.kind, size)?;
    // Otherwise the call would wait for the holder of a lease.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = || open(proc_path(path.as_fd()), flags, Mode::empty());
    let file = if owns(context, found) {
        opened()
    } else {
        context.act(opened)
    };
    let file = file.map_err(|error| match error {
        // A program runs from it on this host, for an unknown time.
        Errno::TXTBSY => StoreError::Denied,
        error => store_error(error),
    })?;
    context
        .act(|| calls::ftruncate(&file, size))
        .map_err(store_error)
}

/// Refuses changes that the kernel would refuse, before any of them is made.
fn authorize(context: &JobContext, before: &Attributes, set: &SetAttributes) -> Result<()> {
    check_times(set)?;
    if let Some(size) = set.size {
        check_size(context, before.kind, size)?;
    }
    // Without privileges all calls are made as the process's own user, and only the kernel knows
    // its rights.
    if context.identity.is_superuser() || !sys::identity::privileged() {
        return Ok(());
    }
    let owner = owns(context, before);
    let may_own = set.uid.is_none_or(|uid| owner && uid == before.uid);
    let may_group = set
        .gid
        .is_none_or(|gid| owner && (gid == before.gid || context.identity.in_group(gid)));
    let chosen = [set.accessed, set.modified]
        .iter()
        .any(|time| matches!(time, SetTime::To(_)));
    if may_own && may_group && (owner || (set.mode.is_none() && !chosen)) {
        Ok(())
    } else {
        Err(StoreError::NotOwner)
    }
}

/// [`StoreError::Invalid`] for invalid times.
pub(super) fn check_times(set: &SetAttributes) -> Result<()> {
    let bad = |time| matches!(time, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
    if bad(set.accessed) || bad(set.modified) {
        Err(StoreError::Invalid)
    } else {
        Ok(())
    }
}

fn check_size(context: &JobContext, kind: Kind, size: u64) -> Result<()> {
    match kind {
        Kind::File if size > context.volume.properties().size_max => Err(StoreError::TooLarge),
        Kind::File => Ok(()),
        Kind::Directory => Err(StoreError::IsDirectory),
        Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
    }
}

fn owns(context: &JobContext, found: &Attributes) -> bool {
    context.identity.is_superuser() || context.identity.uid() == found.uid
}
