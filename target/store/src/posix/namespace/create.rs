//! Creation of objects.
//!
//! Permission bits are set by the call that makes an object, so that it is never visible with
//! others, and default access control lists of its directory apply. Attributes that this call does
//! not set (owners, set-id bits of directories, sizes, times) are set right after it, with the
//! caller's rights. If that fails, the object stays and the operation answers the error, as Linux's
//! own server does: removing it could hit an object that another program of this host has put in
//! its place. Changes known to fail are refused before.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, makedev, openat, statat};
use rustix::io::Errno;

use super::job_context::{Changed, JobContext, OpenObject};
use crate::exclusive::{carries, verifier_times};
use crate::posix::errors::store_error;
use crate::posix::open_files::{Opened, attributes_of};
use crate::posix::setattr::{self, resize, steps};
use crate::posix::sys::{self, calls};
use crate::{Attributes, CreateHow, Kind, Result, SetAttributes, SetTime, SpecialKind, StoreError};

/// The result of a creation.
type Made = Result<Changed<Opened>>;

/// Mode bits that clients set, and those of them that are not permissions.
const MODE_BITS: u32 = 0o7777;
const SPECIAL_BITS: u32 = 0o7000;

/// Permission bits if the client specifies none: as with the commands of a shell, except for
/// exclusively created files, which are accessible by their owner alone until a second call sets
/// their attributes.
const FILE_MODE: u32 = 0o644;
const EXCLUSIVE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o755;

/// How often to retry a name that local programs make and remove in the meantime.
const ATTEMPTS: u32 = 8;

/// Makes a regular file, or opens an existing one.
pub(super) fn file(
    context: &JobContext,
    place: &OpenObject,
    parent: &Attributes,
    name: Result<CString>,
    how: &CreateHow,
) -> Made {
    let name = name?;
    let (set, mode) = match how {
        CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
            (*set, set.mode.unwrap_or(FILE_MODE))
        }
        CreateHow::Exclusive(verifier, set) => (
            verifier_times(*verifier, set),
            set.mode.unwrap_or(EXCLUSIVE_MODE),
        ),
    };
    // Applied to new files only, so that an existing one is not refused for it.
    let allowed = authorize(context, parent, &set);
    for _ in 0..ATTEMPTS {
        let made = match allowed {
            Ok(()) => context.act(|| {
                if matches!(how, CreateHow::Exclusive(..)) {
                    match named_last(place, &name, mode, &set) {
                        Err(error) if has_no_unnamed(error) => {}
                        made => return made.map(|file| (Ok(()), file)),
                    }
                }
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(mode & MODE_BITS);
                let file = calls::create(&place.path, &name, flags, mode)?;
                let finished = finish(&file, Kind::File, mode.as_raw_mode(), &set);
                Ok((finished, file))
            }),
            Err(_) => Err(Errno::EXIST),
        };
        match made {
            Ok((finished, file)) => {
                finished.map_err(store_error)?;
                return described(context, place, &name, Some(file), Kind::File);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(creation_error(error)),
        }
        match existing(context, place, &name, how) {
            Err(StoreError::NotFound) => allowed?,
            found => return found,
        }
    }
    Err(StoreError::Delay)
}

/// Makes a file that has its times before it has its name. If the server ends between the two,
/// there is no file, and the client's next attempt succeeds: a file with its name and without its
/// verifier would refuse it for ever.
fn named_last(
    place: &OpenObject,
    name: &CStr,
    mode: u32,
    set: &SetAttributes,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(
        &place.path,
        c".",
        flags,
        Mode::from_raw_mode(mode & MODE_BITS),
    )?;
    // It has no name that another program could have put another object under.
    let found = statat(&file, c"", AtFlags::EMPTY_PATH)?;
    complete(&file, &found, Kind::File, mode & MODE_BITS, set)?;
    calls::link(file.as_fd(), &place.path, name)?;
    Ok(file)
}

/// Whether the file system does not support files without a name (open(2), `O_TMPFILE`).
fn has_no_unnamed(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::ISDIR)
}

/// Makes a directory.
pub(super) fn directory(
    context: &JobContext,
    place: &OpenObject,
    parent: &Attributes,
    name: Result<CString>,
    set: &SetAttributes,
) -> Made {
    let (name, mode) = (name?, set.mode.unwrap_or(DIRECTORY_MODE) & MODE_BITS);
    made(
        context,
        place,
        parent,
        &name,
        Kind::Directory,
        mode,
        set,
        || calls::mkdirat(&place.path, &name, Mode::from_raw_mode(mode)),
    )
}

/// Makes a symbolic link. It has no permissions of its own.
pub(super) fn symlink(
    context: &JobContext,
    place: &OpenObject,
    parent: &Attributes,
    name: Result<CString>,
    text: Result<CString>,
    set: &SetAttributes,
) -> Made {
    let (name, text) = (name?, text?);
    made(context, place, parent, &name, Kind::Symlink, 0, set, || {
        calls::symlinkat(&text, &place.path, &name)
    })
}

/// Makes a device node, FIFO or socket.
pub(super) fn node(
    context: &JobContext,
    place: &OpenObject,
    parent: &Attributes,
    name: Result<CString>,
    kind: SpecialKind,
    set: &SetAttributes,
) -> Made {
    let (name, mode) = (name?, set.mode.unwrap_or(FILE_MODE) & MODE_BITS);
    let device = match kind {
        SpecialKind::Block(major, minor) | SpecialKind::Character(major, minor) => {
            makedev(major, minor)
        }
        SpecialKind::Fifo | SpecialKind::Socket => 0,
    };
    made(
        context,
        place,
        parent,
        &name,
        Kind::Special(kind),
        mode,
        set,
        || {
            calls::mknodat(
                &place.path,
                &name,
                file_type(kind),
                Mode::from_raw_mode(mode),
                device,
            )
        },
    )
}

/// Makes an object by `call`, which does not open it.
#[allow(clippy::too_many_arguments)] // One place for three kinds.
fn made(
    context: &JobContext,
    place: &OpenObject,
    parent: &Attributes,
    name: &CStr,
    kind: Kind,
    mode: u32,
    set: &SetAttributes,
    call: impl FnOnce() -> rustix::io::Result<()>,
) -> Made {
    authorize(context, parent, set)?;
    let set = SetAttributes { size: None, ..*set };
    let finished = context
        .act(|| {
            call()?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let object = openat(&place.path, name, flags, Mode::empty())?;
            Ok(finish(&object, kind, mode, &set))
        })
        .map_err(creation_error)?;
    finished.map_err(store_error)?;
    described(context, place, name, None, kind)
}

/// As [`store_error`], where only the directory can be missing.
fn creation_error(error: Errno) -> StoreError {
    match error {
        Errno::NOENT => StoreError::Stale,
        error => store_error(error),
    }
}

/// Sets the attributes of a new object that the creating call did not set. Runs with the caller's
/// rights.
fn finish(object: &OwnedFd, kind: Kind, mode: u32, set: &SetAttributes) -> rustix::io::Result<()> {
    // The times of a new object are already the current time.
    let chosen = |time| matches!(time, SetTime::To(_));
    let times = chosen(set.accessed) || chosen(set.modified);
    let owned = set.uid.is_some() || set.gid.is_some();
    if !times && !owned && set.size.is_none() && mode & SPECIAL_BITS == 0 {
        return Ok(());
    }
    let found = statat(object, c"", AtFlags::EMPTY_PATH)?;
    if !is_new(kind, &found) {
        return Err(Errno::STALE);
    }
    complete(object, &found, kind, mode, set)
}

/// Gives a new object what was not given with its creation.
fn complete(
    object: &OwnedFd,
    found: &Stat,
    kind: Kind,
    mode: u32,
    set: &SetAttributes,
) -> rustix::io::Result<()> {
    let chosen = |time| matches!(time, SetTime::To(_));
    let times = chosen(set.accessed) || chosen(set.modified);
    let owned = set.uid.is_some() || set.gid.is_some();
    if owned || mode & SPECIAL_BITS != 0 {
        let uid = set.uid.filter(|uid| *uid != found.st_uid);
        let gid = set.gid.filter(|gid| *gid != found.st_gid);
        let given = uid.is_some() || gid.is_some();
        if given {
            steps::own(object.as_fd(), uid, gid)?;
        }
        // Not every call sets these bits, and a change of owner clears them. Inherited ones from a
        // directory stay, and so do permissions set by an access control list.
        let special = (mode | found.st_mode) & SPECIAL_BITS;
        if kind != Kind::Symlink && special != 0 && (given || special & !found.st_mode != 0) {
            steps::mode(object.as_fd(), found.st_mode & MODE_BITS | special)?;
        }
    }
    if let Some(size) = set.size {
        calls::ftruncate(object, size)?;
    }
    if times {
        steps::times(object.as_fd(), set.accessed, set.modified)?;
    }
    Ok(())
}

/// Whether the object found by the name of a new object can be it: another program of this host may
/// have replaced it, or made a hard link.
fn is_new(kind: Kind, found: &Stat) -> bool {
    let expected = match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Special(special) => file_type(special),
    };
    FileType::from_raw_mode(found.st_mode) == expected
        && (kind == Kind::Directory || found.st_nlink == 1)
}

fn file_type(kind: SpecialKind) -> FileType {
    match kind {
        SpecialKind::Block(..) => FileType::BlockDevice,
        SpecialKind::Character(..) => FileType::CharacterDevice,
        SpecialKind::Fifo => FileType::Fifo,
        SpecialKind::Socket => FileType::Socket,
    }
}

/// The result of creating a file under an existing name.
fn existing(context: &JobContext, place: &OpenObject, name: &CStr, how: &CreateHow) -> Made {
    // Checks that the caller may look names up here.
    context
        .act(|| statat(&place.path, name, AtFlags::SYMLINK_NOFOLLOW))
        .map_err(store_error)?;
    let found = context.find(place, name)?;
    if found.attributes.kind != Kind::File {
        return Err(StoreError::Exists);
    }
    match how {
        CreateHow::Unchecked(SetAttributes {
            size: Some(size), ..
        }) => {
            resize(context, &found.path, &found.attributes, *size)?;
            let attributes = attributes_of(context.volume.folder(), found.path.as_fd())?;
            Ok(Changed {
                object: Some(found.path.try_clone().map_err(no_descriptor)?),
                ..Changed::nothing(Opened {
                    attributes,
                    ..found
                })
            })
        }
        CreateHow::Unchecked(_) => Ok(Changed::nothing(found)),
        // The creation is repeated. The earlier server may have ended before the sync.
        CreateHow::Exclusive(verifier, set) if carries(&found.attributes, *verifier, set) => {
            Ok(Changed {
                object: Some(found.path.try_clone().map_err(no_descriptor)?),
                ..Changed::place(found)
            })
        }
        CreateHow::Guarded(_) | CreateHow::Exclusive(..) => Err(StoreError::Exists),
    }
}

/// The result for the client. `object` is open for data, else it is looked up by name.
fn described(
    context: &JobContext,
    place: &OpenObject,
    name: &CStr,
    object: Option<OwnedFd>,
    kind: Kind,
) -> Made {
    let found = context.find(place, name)?;
    let object = match (object, kind) {
        (None, Kind::Directory) => Some(found.path.try_clone().map_err(no_descriptor)?),
        (object, _) => object,
    };
    Ok(Changed {
        object,
        kind,
        ..Changed::place(found)
    })
}

fn no_descriptor(_: std::io::Error) -> StoreError {
    StoreError::Delay
}

/// Refuses attributes that cannot be set before the object is made.
fn authorize(context: &JobContext, parent: &Attributes, set: &SetAttributes) -> Result<()> {
    setattr::check_times(set)?;
    if set
        .size
        .is_some_and(|size| size > context.volume.properties().size_max)
    {
        return Err(StoreError::TooLarge);
    }
    let identity = &context.identity;
    if identity.is_superuser() || !sys::identity::privileged() {
        return Ok(());
    }
    let inherited = (parent.mode & 0o2000 != 0).then_some(parent.gid);
    let own_user = set.uid.is_none_or(|uid| uid == identity.uid());
    let own_group = set
        .gid
        .is_none_or(|gid| identity.in_group(gid) || inherited == Some(gid));
    if own_user && own_group {
        Ok(())
    } else {
        Err(StoreError::NotOwner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    #[test]
    fn another_object_in_the_place_of_a_new_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"somebody's").unwrap();
        let object = || -> OwnedFd { std::fs::File::open(&path).unwrap().into() };
        let set = SetAttributes {
            accessed: SetTime::To(Time::default()),
            ..SetAttributes::default()
        };
        for kind in [
            Kind::Directory,
            Kind::Symlink,
            Kind::Special(SpecialKind::Fifo),
        ] {
            assert_eq!(finish(&object(), kind, 0o4755, &set), Err(Errno::STALE));
        }
        assert_eq!(finish(&object(), Kind::File, 0o644, &set), Ok(()));
        std::fs::hard_link(&path, folder.path().join("second")).unwrap();
        assert_eq!(
            finish(&object(), Kind::File, 0o644, &set),
            Err(Errno::STALE)
        );
        // Nothing to set, nothing to check.
        let nothing = SetAttributes::default();
        assert_eq!(finish(&object(), Kind::Directory, 0o755, &nothing), Ok(()));
    }
}
