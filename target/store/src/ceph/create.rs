//! Creation of objects.
//!
//! The cluster makes an object with its permission bits, owner and inherited lists in one step.
//! Other attributes are set by a second one right after it. If that fails, the object stays and the
//! operation answers the error. Changes known to fail are refused before.

use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::attributes::MODE_BITS;
use super::call::{CallContext, Changed, FoundObject};
use super::exclusive::{UNFINISHED, claim};
use super::names::visible;
use super::setattr::{check_times, time_to_set};
use super::sys::AttributeChange;
use super::view::ClientView;
use crate::name_check as check;
use crate::{
    Attributes, Caller, CreateHow, Handle, Kind, Modified, Result, SetAttributes, SetTime,
    SpecialKind, StoreError,
};

/// Permission bits if the client specifies none, as in folders of the host.
const FILE_MODE: u32 = 0o644;
pub(super) const EXCLUSIVE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o755;

const SPECIAL_BITS: u32 = 0o7000;
const SET_GROUP: u32 = 0o2000;

/// How often to retry a name that others make and remove in the meantime.
const ATTEMPTS: u32 = 8;

/// The longest text of a symbolic link.
const LINK_MAX: usize = 4095;

/// What a client sees of a new object.
pub(super) type Shown = (Handle, Attributes);

impl ClientView<'_> {
    pub(super) async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<Shown> {
        let (name, how) = (check::new(name).and_then(visible), *how);
        self.in_directory(caller, directory, move |context, place| {
            file(context, place, &name?, &how)
        })
        .await
    }

    pub(super) async fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<Shown> {
        let (name, set) = (check::new(name).and_then(visible), *set);
        self.in_directory(caller, directory, move |context, place| {
            let name = name?;
            authorize(context, place, &set)?;
            let mode = set.mode.unwrap_or(DIRECTORY_MODE);
            let made = place
                .inode
                .make_directory(&context.identity, &name, mode & 0o777);
            made.map_err(|error| creation_error(context, error))
                .and_then(|made| context.keep(made))
                .and_then(|made| finish(context, made, mode, &set))
        })
        .await
    }

    pub(super) async fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<Shown> {
        let (name, set) = (check::new(name).and_then(visible), *set);
        let text = check::link_text(text).and_then(|text: CString| {
            let fits = text.as_bytes().len() <= LINK_MAX;
            fits.then_some(text).ok_or(StoreError::NameTooLong)
        });
        self.in_directory(caller, directory, move |context, place| {
            let (name, text) = (name?, text?);
            authorize(context, place, &set)?;
            let made = place.inode.symlink(&context.identity, &name, &text);
            made.map_err(|error| creation_error(context, error))
                .and_then(|made| context.keep(made))
                .and_then(|made| finish(context, made, 0, &set))
        })
        .await
    }

    pub(super) async fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<Shown> {
        let (name, set) = (check::new(name).and_then(visible), *set);
        self.in_directory(caller, directory, move |context, place| {
            let name = name?;
            let (format, device) = match kind {
                SpecialKind::Block(major, minor) => (libc::S_IFBLK, libc::makedev(major, minor)),
                SpecialKind::Character(major, minor) => {
                    (libc::S_IFCHR, libc::makedev(major, minor))
                }
                SpecialKind::Fifo => (libc::S_IFIFO, 0),
                SpecialKind::Socket => (libc::S_IFSOCK, 0),
            };
            // The library lets everybody make them.
            if device != 0 && context.caller.uid != 0 {
                return Err(StoreError::NotOwner);
            }
            authorize(context, place, &set)?;
            let mode = set.mode.unwrap_or(FILE_MODE);
            let format = format | mode & 0o777;
            let made = place
                .inode
                .make_node(&context.identity, &name, format, device);
            made.map_err(|error| creation_error(context, error))
                .and_then(|made| context.keep(made))
                .and_then(|made| finish(context, made, mode, &set))
        })
        .await
    }
}

/// Makes a regular file, or opens an existing one.
fn file(
    context: &CallContext,
    place: &FoundObject,
    name: &CStr,
    how: &CreateHow,
) -> Result<Changed<Shown>> {
    let (set, mode, first) = match how {
        CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
            let mode = set.mode.unwrap_or(FILE_MODE);
            (set, mode, mode & 0o777)
        }
        CreateHow::Exclusive(_, set) => (set, EXCLUSIVE_MODE, UNFINISHED),
    };
    // Applied to new files only, so that an existing one is not refused for it.
    let allowed = authorize(context, place, set);
    for _ in 0..ATTEMPTS {
        let made = match allowed {
            Ok(()) => place.inode.create(&context.identity, name, first),
            Err(_) => Err(Errno::EXIST),
        };
        let refused = match made {
            Ok(made) => {
                let made = context.keep_made(made)?;
                return match how {
                    CreateHow::Exclusive(verifier, set) => {
                        claim(context, place, made, *verifier, set)
                    }
                    _ => finish(context, made, mode, set),
                };
            }
            Err(Errno::EXIST) => None,
            // The library asks for the right to make a file before it looks for the name.
            Err(Errno::ACCESS) => Some(StoreError::Denied),
            Err(error) => return Err(creation_error(context, error)),
        };
        match (existing(context, place, name, how), refused) {
            (Err(StoreError::NotFound), Some(refused)) => return Err(refused),
            (Err(StoreError::NotFound), None) => allowed?,
            (found, _) => return found,
        }
    }
    Err(StoreError::Delay)
}

/// The result of creating a file under an existing name.
fn existing(
    context: &CallContext,
    place: &FoundObject,
    name: &CStr,
    how: &CreateHow,
) -> Result<Changed<Shown>> {
    let found = context.lookup(place, name)?;
    if found.attributes.kind != Kind::File {
        return Err(StoreError::Exists);
    }
    let shown = (found.handle, found.attributes);
    match how {
        CreateHow::Unchecked(SetAttributes {
            size: Some(size), ..
        }) => {
            let resize = SetAttributes {
                size: Some(*size),
                ..SetAttributes::default()
            };
            context.apply(&found, &resize)?;
            Ok(Changed {
                other: Some(found.inode.clone()),
                ..Changed::nothing((found.handle, context.attributes(&found)?))
            })
        }
        CreateHow::Unchecked(_) => Ok(Changed::nothing(shown)),
        // The creation may be repeated: its name was there before.
        CreateHow::Exclusive(verifier, set) => {
            let claimed = claim(context, place, found, *verifier, set)?;
            Ok(Changed {
                has_same_directories: false,
                ..claimed
            })
        }
        CreateHow::Guarded(_) => Err(StoreError::Exists),
    }
}

/// Sets the attributes of a new object that the creating call did not set.
///
/// # Errors
/// Errors of the cluster.
pub(super) fn finish(
    context: &CallContext,
    made: FoundObject,
    mode: u32,
    set: &SetAttributes,
) -> Result<Changed<Shown>> {
    let found = &made.attributes;
    let is_file = found.kind == Kind::File;
    let is_link = found.kind == Kind::Symlink;
    let uid = set.uid.filter(|uid| *uid != found.uid);
    let gid = set.gid.filter(|gid| *gid != found.gid);
    let is_unfinished = is_file && found.mode == UNFINISHED;
    let inherited = if is_unfinished { 0 } else { found.mode };
    let mut special = (mode | inherited) & SPECIAL_BITS;
    let group = gid.unwrap_or(found.gid);
    // Of a directory that its own directory gave it, it stays.
    let given = found.mode & SET_GROUP != 0 && found.kind == Kind::Directory;
    if context.caller.uid != 0 && !context.caller.in_group(group) && !given {
        special &= !SET_GROUP;
    }
    // An inherited list may have left less than was asked for.
    let rights = if is_unfinished { mode } else { found.mode };
    let wanted = rights & MODE_BITS & !SPECIAL_BITS | special;
    // The times of a new object are already the current time.
    let chosen = |time| match time {
        SetTime::To(time) => Some(time),
        SetTime::Keep | SetTime::Now => None,
    };
    let change = AttributeChange {
        mode: (!is_link
            && (wanted != found.mode || special != 0 && (uid.is_some() || gid.is_some())))
        .then_some(wanted),
        uid,
        gid,
        size: set.size.filter(|size| is_file && *size != found.size),
        accessed: chosen(set.accessed),
        modified: chosen(set.modified),
    };
    if change == AttributeChange::default() {
        return Ok(named(made.handle, made.attributes));
    }
    let changed = made
        .inode
        .set_attributes(&context.session.superuser, &change);
    changed.map_err(|error| context.error(error))?;
    let shown = (made.handle, context.attributes(&made)?);
    Ok(Changed {
        other: Some(made.inode),
        ..named(shown.0, shown.1)
    })
}

/// A new object has its name.
fn named(handle: Handle, attributes: Attributes) -> Changed<Shown> {
    match attributes.kind {
        Kind::Directory => Changed::place((handle, attributes)),
        _ => Changed::names((handle, attributes)),
    }
}

/// Refuses attributes that cannot be set, before the object is made.
fn authorize(context: &CallContext, parent: &FoundObject, set: &SetAttributes) -> Result<()> {
    check_times(set)?;
    time_to_set(set.accessed)?;
    time_to_set(set.modified)?;
    let caller = &context.caller;
    if caller.uid == 0 {
        return Ok(());
    }
    let inherited = (parent.attributes.mode & SET_GROUP != 0).then_some(parent.attributes.gid);
    let own_user = set.uid.is_none_or(|uid| uid == caller.uid);
    let own_group = set
        .gid
        .is_none_or(|gid| caller.in_group(gid) || inherited == Some(gid));
    if own_user && own_group {
        Ok(())
    } else {
        Err(StoreError::NotOwner)
    }
}

/// Where only the directory can be missing.
fn creation_error(context: &CallContext, error: Errno) -> StoreError {
    match error {
        Errno::NOENT => StoreError::Stale,
        error => context.error(error),
    }
}
