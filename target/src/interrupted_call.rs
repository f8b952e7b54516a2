//! Calls that were begun and abandoned: they may have been executed already, or not.
//!
//! The process was killed between the journal record of the call's beginning and its answer, or the
//! call's task panicked. The client repeats the call, and only the present state of the objects is
//! known. These are the rules; "since" means a time stamp of the object not before the call was
//! first begun, and "alone" that no other call of this server has used the same names meanwhile
//! ([`InterruptedCall::alone`]). Where servers share their journals, it means that no call of any of
//! them has, and that the object was not changed since this server took the call over.
//!
//! | call | what is found | what is done |
//! | --- | --- | --- |
//! | SETATTR, CREATE unchecked, CREATE exclusive | whatever | executed again: the effect is the same |
//! | SETATTR with a guard | changed since, and all that the call sets is as it sets it | success |
//! | REMOVE, RMDIR | no such name, the directory changed since, alone | success |
//! | | the object there was changed since, not alone | refused (NFS3ERR_IO): it may be a new one |
//! | RENAME | no old name, an object changed since at the new one, alone | success |
//! | | the object at the old name was changed since, not alone | refused (NFS3ERR_IO) |
//! | LINK | the name is a link to the same object, changed since | success |
//! | CREATE guarded, MKDIR, SYMLINK, MKNOD | an object as this call makes it, with its owner and still empty, changed since but not since the restart, alone | success, with this object |
//! | all | anything else | executed again, and answered with that result |
//!
//! These rules guarantee the following. A call that had been executed does not remove or rename an
//! object that another client made or changed through this server since. Success is answered only
//! if the requested state exists. If two clients compete for a name (a lock), at most one of them
//! is told that it made it. The rules do not guarantee more: where a rule for success does not
//! apply (the names were contested, or the new object was used before the repetition came), a call
//! that was executed can be answered NFS3ERR_EXIST or NFS3ERR_NOENT, as by a server without a
//! cache; a name that is removed or made on the host itself, not through this server, within the
//! gap can be attributed to this call; and CREATE unchecked or SETATTR of a size may take effect a
//! second time after another client's change, which was not ordered with the call, as the call was
//! not answered yet.
//!
//! All of this is rare and its futures are boxed where they are awaited, so that they make no task
//! larger.
//!
//! Time stamps and [`InterruptedCall`] are taken by the clock of one host. Where the clock is set
//! back, or a file system takes its stamps elsewhere, the rules for success may not apply, and the
//! rule that refuses may not either. The same goes for the clocks of servers that share journals.

use millrace_store::{
    Attributes, CreateHow, Handle, Kind, SetAttributes, SetTime, Store, StoreError, Time,
};

use crate::access::ExportedObject;
use crate::replay::InterruptedCall;

/// How far behind the clock time stamps of files may be, in nanoseconds: a tick of the kernel.
const TICK: u64 = 10_000_000;

/// The properties by which an object is recognised as made by a call.
pub(crate) struct Made<'a> {
    pub kind: Kind,
    pub set: &'a SetAttributes,
    /// The text of a symbolic link.
    pub text: Option<&'a [u8]>,
}

/// What to do with a call that may have been executed.
pub(crate) enum Verdict {
    /// It was not executed, or may be executed again.
    Execute,
    /// It was.
    Executed,
    /// Neither: it is answered with this error. `Io` means that it is unknown whether it was
    /// executed, and executing it might destroy another client's object.
    Refuse(StoreError),
}

impl InterruptedCall {
    /// Whether a time stamp is not from before the call was begun.
    pub(crate) fn since(&self, time: Time) -> bool {
        // Some file systems keep whole seconds, or two.
        let coarse = if time.nanoseconds == 0 {
            2_000_000_000
        } else {
            TICK
        };
        nanoseconds(time).saturating_add(coarse) >= self.began.wall
    }

    /// Whether an object with this time stamp may have been made or changed by other calls since.
    fn may_be_others(&self, changed: Time) -> bool {
        self.since(changed) && !(self.alone && (!self.is_shared || self.until_restart(changed)))
    }

    /// Whether a time stamp may be of the process before.
    fn until_restart(&self, time: Time) -> bool {
        nanoseconds(time) <= self.restarted.wall.saturating_add(TICK)
    }
}

fn nanoseconds(time: Time) -> u64 {
    let whole = time.seconds.saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(time.nanoseconds))
}

/// REMOVE and RMDIR.
pub(crate) async fn removed<S: Store>(
    again: &InterruptedCall,
    directory: &ExportedObject<'_, S>,
    name: &[u8],
) -> Verdict {
    match find(directory, name).await {
        Err(StoreError::NotFound) if again.alone && changed(again, directory).await => {
            Verdict::Executed
        }
        Ok((_, found)) if again.may_be_others(found.changed) => Verdict::Refuse(StoreError::Io),
        // The state of the objects cannot be seen now.
        Err(StoreError::Delay) => Verdict::Refuse(StoreError::Delay),
        _ => Verdict::Execute,
    }
}

/// RENAME.
pub(crate) async fn renamed<S: Store>(
    again: &InterruptedCall,
    from: (&ExportedObject<'_, S>, &[u8]),
    to: (&ExportedObject<'_, S>, &[u8]),
) -> Verdict {
    match find(from.0, from.1).await {
        Err(StoreError::NotFound) if again.alone => match find(to.0, to.1).await {
            Ok((_, found)) if again.since(found.changed) && !again.may_be_others(found.changed) => {
                Verdict::Executed
            }
            Err(StoreError::Delay) => Verdict::Refuse(StoreError::Delay),
            _ => Verdict::Execute,
        },
        Ok((_, found)) if again.may_be_others(found.changed) => Verdict::Refuse(StoreError::Io),
        // The state of the objects cannot be seen now.
        Err(StoreError::Delay) => Verdict::Refuse(StoreError::Delay),
        _ => Verdict::Execute,
    }
}

/// Whether a LINK that was answered "exists" had been executed before.
pub(crate) async fn linked<S: Store>(
    again: &InterruptedCall,
    object: &ExportedObject<'_, S>,
    directory: &ExportedObject<'_, S>,
    name: &[u8],
) -> bool {
    matches!(
        find(directory, name).await,
        Ok((handle, found)) if handle == object.handle && again.since(found.changed)
    )
}

/// The object that an interrupted call had made, if its repetition fails because the name exists.
pub(crate) async fn made<S: Store>(
    again: &InterruptedCall,
    directory: &ExportedObject<'_, S>,
    name: &[u8],
    made: &Made<'_>,
) -> Option<(Handle, Attributes)> {
    if !again.alone {
        return None;
    }
    let (handle, found) = find(directory, name).await.ok()?;
    let set = made.set;
    let owner = set.uid.unwrap_or(directory.caller.uid);
    let is_file = found.kind == Kind::File;
    let fits = found.kind == made.kind
        && found.uid == owner
        && set
            .mode
            .is_none_or(|mode| mode & 0o777 == found.mode & 0o777 || made.text.is_some())
        && (!is_file || found.size == set.size.unwrap_or(0))
        && (found.kind == Kind::Directory || found.links == 1)
        && again.since(found.changed)
        && again.until_restart(found.changed);
    if !fits {
        return None;
    }
    if let Some(text) = made.text {
        let mut there = Vec::new();
        let store = directory.view();
        let read = store.read_link(&directory.caller, handle, &mut there).await;
        if read.is_err() || there != text {
            return None;
        }
    }
    Some((handle, found))
}

/// The object that a guarded CREATE makes.
pub(crate) fn guarded(how: &CreateHow) -> Option<Made<'_>> {
    match how {
        CreateHow::Guarded(set) => Some(Made {
            kind: Kind::File,
            set,
            text: None,
        }),
        CreateHow::Unchecked(_) | CreateHow::Exclusive(..) => None,
    }
}

/// Whether a SETATTR whose guard did not hold had been executed before.
pub(crate) async fn set<S: Store>(
    again: &InterruptedCall,
    object: &ExportedObject<'_, S>,
    set: &SetAttributes,
) -> bool {
    let store = object.view();
    let Ok(found) = store.attributes(object.handle).await else {
        return false;
    };
    let time = |set: SetTime, found| match set {
        SetTime::Keep => true,
        SetTime::Now => again.since(found),
        SetTime::To(time) => time == found,
    };
    again.since(found.changed)
        && set.mode.is_none_or(|mode| mode & 0o7777 == found.mode)
        && set.uid.is_none_or(|uid| uid == found.uid)
        && set.gid.is_none_or(|gid| gid == found.gid)
        && set.size.is_none_or(|size| size == found.size)
        && time(set.accessed, found.accessed)
        && time(set.modified, found.modified)
}

async fn find<S: Store>(
    directory: &ExportedObject<'_, S>,
    name: &[u8],
) -> Result<(Handle, Attributes), StoreError> {
    let (store, caller) = (directory.view(), &directory.caller);
    store.lookup(caller, directory.handle, name).await
}

/// Whether entries of a directory were changed since.
async fn changed<S: Store>(again: &InterruptedCall, directory: &ExportedObject<'_, S>) -> bool {
    let store = directory.view();
    let found = store.attributes(directory.handle).await;
    found.is_ok_and(|found| again.since(found.modified))
}
