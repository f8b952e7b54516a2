//! Attributes of objects: which are served, and their values (RFC 8881 section 5).

use std::rc::Rc;

use millrace_store::{Attributes, Kind, Properties, SpecialKind, Statistics, Time};
use millrace_wire::nfs3::{Device, FileHandle};
use millrace_wire::nfs4::{
    AccessControlList, Attribute, AttributeNumber, AttributeSource, Bitmap, FileSystemId,
    ObjectType, OpenArguments, OperationStatus, Timestamp, acl_support, change_type, handle_expiry,
    open_wishes, share,
};
use millrace_wire::xdr::{BoundedBytes, Decode, Decoder, Encoder, Result as XdrResult};

use super::decimal::DecimalText;

use AttributeNumber as Number;

/// Attributes that can be read in minor version 1.
const READABLE: Bitmap = Bitmap::of(&[
    Number::SupportedAttributes,
    Number::Type,
    Number::HandleExpiry,
    Number::Change,
    Number::Size,
    Number::LinkSupport,
    Number::SymlinkSupport,
    Number::NamedAttributes,
    Number::FileSystem,
    Number::UniqueHandles,
    Number::LeaseTime,
    Number::ReadError,
    Number::AclSupport,
    Number::CanSetTime,
    Number::CaseInsensitive,
    Number::CasePreserving,
    Number::ChownRestricted,
    Number::Handle,
    Number::FileId,
    Number::FilesAvailable,
    Number::FilesFree,
    Number::FilesTotal,
    Number::Homogeneous,
    Number::MaxFileSize,
    Number::MaxLinks,
    Number::MaxName,
    Number::MaxRead,
    Number::MaxWrite,
    Number::Mode,
    Number::NoTruncation,
    Number::Links,
    Number::Owner,
    Number::OwnerGroup,
    Number::RawDevice,
    Number::SpaceAvailable,
    Number::SpaceFree,
    Number::SpaceTotal,
    Number::SpaceUsed,
    Number::TimeAccess,
    Number::TimeDelta,
    Number::TimeMetadata,
    Number::TimeModify,
    Number::MountedOnFileId,
    Number::ExclusiveCreateAttributes,
    Number::CharacterSets,
]);

/// Those that minor version 2 has beside.
const READABLE_2: Bitmap = Bitmap::of(&[
    Number::ChangeType,
    Number::XattrSupport,
    Number::OpenArguments,
]);

/// What OPEN accepts. Wishes for READ and WRITE delegations have no numbers; delegations of the past
/// and times of holders are not claimed.
const OPEN_ARGUMENTS: OpenArguments = OpenArguments {
    access: Bitmap::from_words([
        1 << share::READ | 1 << share::WRITE | 1 << share::BOTH,
        0,
        0,
    ]),
    deny: Bitmap::from_words([
        1 | 1 << share::READ | 1 << share::WRITE | 1 << share::BOTH,
        0,
        0,
    ]),
    wishes: Bitmap::from_words([
        1 << open_wishes::ANY | 1 << open_wishes::NONE | 1 << open_wishes::CANCEL,
        0,
        0,
    ]),
    // CLAIM_NULL, _PREVIOUS, _DELEGATE_CUR, _FH and _DELEG_CUR_FH.
    claims: Bitmap::from_words([1 << 0 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5, 0, 0]),
    // UNCHECKED4, GUARDED4, EXCLUSIVE4 and EXCLUSIVE4_1.
    creation: Bitmap::from_words([0b1111, 0, 0]),
};

/// Attributes that can be set.
pub(super) const SETTABLE: Bitmap = Bitmap::of(&[
    Number::Size,
    Number::Mode,
    Number::Owner,
    Number::OwnerGroup,
    Number::TimeAccessSet,
    Number::TimeModifySet,
    Number::ModeSetMasked,
]);

/// Attributes that an exclusive create can set: not those that may hold its verifier.
pub(super) const EXCLUSIVE: Bitmap = Bitmap::of(&[
    Number::Size,
    Number::Mode,
    Number::Owner,
    Number::OwnerGroup,
    Number::ModeSetMasked,
]);

/// Attributes that need the space statistics of a store.
pub(super) const OF_SPACE: Bitmap = Bitmap::of(&[
    Number::FilesAvailable,
    Number::FilesFree,
    Number::FilesTotal,
    Number::SpaceAvailable,
    Number::SpaceFree,
    Number::SpaceTotal,
]);

/// Attributes that a store does not tell with the others of an object, beside those of its space. Nor
/// does it tell `mounted_on_fileid` of the root of an export.
pub(super) const NOT_STORED: Bitmap = Bitmap::of(&[Number::Acl, Number::Handle]);

/// Attributes that a client which holds a delegation for writing may have changed.
pub(super) const OF_CONTENTS: Bitmap = Bitmap::of(&[
    Number::Change,
    Number::Size,
    Number::TimeMetadata,
    Number::TimeModify,
]);

/// Attributes that can only be set (RFC 8881 section 5.5).
const SET_ONLY: Bitmap = Bitmap::of(&[Number::TimeAccessSet, Number::TimeModifySet]);

/// Names may hold bytes that are no UTF-8 (FSCHARSET_CAP4_CONTAINS_NON_UTF8).
const ANY_BYTES: u32 = 1;

/// What all attributes of an object of one file system have in common.
#[derive(Clone, Debug)]
pub(super) struct FileSystemAttributes {
    pub minor_version: u32,
    pub file_system: FileSystemId,
    pub properties: Properties,
    /// Apart, as they are large and seldom wanted.
    pub statistics: Option<Rc<Statistics>>,
    pub lease: u32,
    pub read_max: u64,
    pub write_max: u64,
}

/// Attributes of an object.
pub(super) struct ObjectAttributes {
    pub common: FileSystemAttributes,
    pub stored: Attributes,
    pub handle: Option<FileHandle>,
    /// The access control list, encoded, if it is wanted.
    pub acl: Option<Vec<u8>>,
    pub mounted_on: u64,
    /// Names of owner and group, in the place of their numbers.
    pub owner_name: Option<Rc<[u8]>>,
    pub group_name: Option<Rc<[u8]>>,
}

impl ObjectAttributes {
    pub fn new(common: FileSystemAttributes, stored: Attributes) -> Self {
        Self {
            common,
            stored,
            handle: None,
            acl: None,
            mounted_on: stored.inode,
            owner_name: None,
            group_name: None,
        }
    }

    /// Bytes of the list and of names.
    pub fn list_and_names(&self) -> usize {
        let names = [&self.owner_name, &self.group_name].into_iter().flatten();
        self.acl.as_ref().map_or(0, Vec::len) + names.map(|name| name.len()).sum::<usize>()
    }
}

/// Attributes that can be read in a minor version.
pub(super) fn readable(minor_version: u32) -> Bitmap {
    if minor_version < Number::ChangeType.minor_version() {
        return READABLE;
    }
    union(&READABLE, &READABLE_2)
}

/// All that a client may ask for or set.
fn supported(minor_version: u32) -> Bitmap {
    union(&readable(minor_version), &SETTABLE)
}

/// What of [`readable`] and of minor version 2 only some file systems have.
fn of_file_system(minor_version: u32, properties: &Properties) -> Bitmap {
    let mut own = settable_of(properties).intersection(&OF_LISTS);
    if properties.clone_block.is_some() && minor_version >= 2 {
        own.insert(Number::CloneBlockSize.number());
    }
    own
}

/// Attributes of access control lists.
pub(super) const OF_LISTS: Bitmap = Bitmap::of(&[Number::Acl]);

/// Attributes that can be set on a file system.
pub(super) fn settable_of(properties: &Properties) -> Bitmap {
    match properties.access_lists {
        true => union(&SETTABLE, &OF_LISTS),
        false => SETTABLE,
    }
}

/// Those that an exclusive create can set there.
pub(super) fn exclusive_of(properties: &Properties) -> Bitmap {
    settable_of(properties).intersection(&union(&EXCLUSIVE, &OF_LISTS))
}

fn union(one: &Bitmap, other: &Bitmap) -> Bitmap {
    let (one, other) = (one.words(), other.words());
    Bitmap::from_words(std::array::from_fn(|word| one[word] | other[word]))
}

/// Attributes that can be read in a minor version from a file system.
pub(super) fn readable_of(minor_version: u32, properties: &Properties) -> Bitmap {
    union(
        &readable(minor_version),
        &of_file_system(minor_version, properties),
    )
}

/// Checks what GETATTR, READDIR, VERIFY and NVERIFY ask for.
pub(super) fn check_wanted(wanted: &Bitmap) -> Result<(), OperationStatus> {
    if wanted.intersection(&SET_ONLY) == Bitmap::EMPTY {
        Ok(())
    } else {
        Err(OperationStatus::Invalid)
    }
}

/// Checks what VERIFY and NVERIFY compare.
pub(super) fn check_compared(mask: &Bitmap, readable: &Bitmap) -> Result<(), OperationStatus> {
    check_wanted(mask)?;
    if mask.has(Number::ReadError) {
        return Err(OperationStatus::Invalid);
    }
    if !mask.without(readable).is_empty() {
        return Err(OperationStatus::AttributeNotSupported);
    }
    Ok(())
}

/// Checks which attributes are to be set, where `allowed` may be.
pub(super) fn check_set(
    mask: &Bitmap,
    allowed: &Bitmap,
    minor_version: u32,
) -> Result<(), OperationStatus> {
    let others = mask.without(allowed);
    let mut known = supported(minor_version);
    if minor_version >= 2 {
        known.insert(Number::CloneBlockSize.number());
    }
    if others.is_empty() {
        Ok(())
    } else if others.without(&known).is_empty() {
        Err(OperationStatus::Invalid)
    } else {
        Err(OperationStatus::AttributeNotSupported)
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.seconds).unwrap_or(i64::MAX),
        nanoseconds: time.nanoseconds,
    }
}

fn object_type(kind: Kind) -> ObjectType {
    match kind {
        Kind::File => ObjectType::Regular,
        Kind::Directory => ObjectType::Directory,
        Kind::Symlink => ObjectType::Symlink,
        Kind::Special(SpecialKind::Block(..)) => ObjectType::Block,
        Kind::Special(SpecialKind::Character(..)) => ObjectType::Character,
        Kind::Special(SpecialKind::Fifo) => ObjectType::Fifo,
        Kind::Special(SpecialKind::Socket) => ObjectType::Socket,
    }
}

fn device(kind: Kind) -> Device {
    let (major, minor) = match kind {
        Kind::Special(SpecialKind::Block(major, minor) | SpecialKind::Character(major, minor)) => {
            (major, minor)
        }
        _ => (0, 0),
    };
    Device { major, minor }
}

impl AttributeSource for ObjectAttributes {
    fn encode_attribute(&self, number: AttributeNumber, out: &mut Encoder<'_>) -> XdrResult<bool> {
        let (common, stored) = (&self.common, &self.stored);
        let count = |of: fn(&Statistics) -> u64| common.statistics.as_deref().map_or(0, of);
        // In each arm, so that only the one value is encoded that it knows.
        macro_rules! put {
            ($attribute:expr) => {
                $attribute.encode_value(out)?
            };
        }
        match number {
            Number::SupportedAttributes => {
                let mut own = of_file_system(common.minor_version, &common.properties);
                if stored.kind == Kind::Symlink {
                    own = own.without(&OF_LISTS);
                }
                let all = union(&supported(common.minor_version), &own);
                put!(Attribute::SupportedAttributes(all));
            }
            Number::Type => put!(Attribute::Type(object_type(stored.kind))),
            Number::HandleExpiry => put!(Attribute::HandleExpiry(handle_expiry::PERSISTENT)),
            Number::Change => put!(Attribute::Change(stored.change)),
            Number::Size => put!(Attribute::Size(stored.size)),
            Number::LinkSupport => put!(Attribute::LinkSupport(true)),
            Number::SymlinkSupport => put!(Attribute::SymlinkSupport(true)),
            Number::NamedAttributes => put!(Attribute::NamedAttributes(false)),
            Number::FileSystem => put!(Attribute::FileSystem(common.file_system)),
            // One object may be reached through two exports.
            Number::UniqueHandles => put!(Attribute::UniqueHandles(false)),
            Number::LeaseTime => put!(Attribute::LeaseTime(common.lease)),
            Number::ReadError => put!(Attribute::ReadError(OperationStatus::Ok)),
            Number::Acl => {
                let Some(list) = self.acl.as_deref() else {
                    return Ok(false);
                };
                let list = AccessControlList::decode(&mut Decoder::new(list))?;
                put!(Attribute::Acl(list));
            }
            Number::AclSupport => put!(Attribute::AclSupport(
                match common.properties.access_lists {
                    true => acl_support::ALLOW | acl_support::DENY,
                    false => 0,
                }
            )),
            Number::CanSetTime => put!(Attribute::CanSetTime(true)),
            Number::CaseInsensitive => put!(Attribute::CaseInsensitive(false)),
            Number::CasePreserving => put!(Attribute::CasePreserving(true)),
            Number::ChownRestricted => put!(Attribute::ChownRestricted(true)),
            Number::Handle => {
                let Some(handle) = &self.handle else {
                    return Ok(false);
                };
                put!(Attribute::Handle(BoundedBytes(handle.as_bytes())));
            }
            Number::FileId => put!(Attribute::FileId(stored.inode)),
            Number::FilesAvailable => {
                put!(Attribute::FilesAvailable(count(|now| now.available_inodes)));
            }
            Number::FilesFree => put!(Attribute::FilesFree(count(|now| now.free_inodes))),
            Number::FilesTotal => put!(Attribute::FilesTotal(count(|now| now.total_inodes))),
            Number::Homogeneous => put!(Attribute::Homogeneous(true)),
            Number::MaxFileSize => put!(Attribute::MaxFileSize(common.properties.size_max)),
            Number::MaxLinks => put!(Attribute::MaxLinks(common.properties.links_max)),
            Number::MaxName => put!(Attribute::MaxName(common.properties.name_max)),
            Number::MaxRead => put!(Attribute::MaxRead(common.read_max)),
            Number::MaxWrite => put!(Attribute::MaxWrite(common.write_max)),
            Number::Mode => put!(Attribute::Mode(stored.mode & 0o7777)),
            Number::NoTruncation => put!(Attribute::NoTruncation(true)),
            Number::Links => put!(Attribute::Links(stored.links)),
            Number::Owner => {
                let number = DecimalText::new(stored.uid);
                let name = self.owner_name.as_deref();
                put!(Attribute::Owner(name.unwrap_or(number.as_bytes())));
            }
            Number::OwnerGroup => {
                let number = DecimalText::new(stored.gid);
                let name = self.group_name.as_deref();
                put!(Attribute::OwnerGroup(name.unwrap_or(number.as_bytes())));
            }
            Number::RawDevice => put!(Attribute::RawDevice(device(stored.kind))),
            Number::SpaceAvailable => {
                put!(Attribute::SpaceAvailable(count(|now| now.available_bytes)));
            }
            Number::SpaceFree => put!(Attribute::SpaceFree(count(|now| now.free_bytes))),
            Number::SpaceTotal => put!(Attribute::SpaceTotal(count(|now| now.total_bytes))),
            Number::SpaceUsed => put!(Attribute::SpaceUsed(stored.used)),
            Number::TimeAccess => put!(Attribute::TimeAccess(timestamp(stored.accessed))),
            Number::TimeDelta => put!(Attribute::TimeDelta(Timestamp {
                seconds: 0,
                nanoseconds: 1,
            })),
            Number::TimeMetadata => put!(Attribute::TimeMetadata(timestamp(stored.changed))),
            Number::TimeModify => put!(Attribute::TimeModify(timestamp(stored.modified))),
            Number::MountedOnFileId => put!(Attribute::MountedOnFileId(self.mounted_on)),
            Number::ExclusiveCreateAttributes => {
                put!(Attribute::ExclusiveCreateAttributes(exclusive_of(
                    &common.properties
                )));
            }
            Number::CharacterSets => put!(Attribute::CharacterSets(ANY_BYTES)),
            Number::ChangeType if common.minor_version >= 2 => {
                // Others make it of the time of the last change.
                put!(Attribute::ChangeType(
                    match common.properties.counts_changes {
                        true => change_type::MONOTONIC,
                        false => change_type::TIME_METADATA,
                    }
                ));
            }
            Number::CloneBlockSize if common.minor_version >= 2 => {
                let Some(bytes) = common.properties.clone_block else {
                    return Ok(false);
                };
                put!(Attribute::CloneBlockSize(bytes));
            }
            Number::XattrSupport if common.minor_version >= 2 => {
                put!(Attribute::XattrSupport(common.properties.xattrs));
            }
            Number::OpenArguments if common.minor_version >= 2 => {
                put!(Attribute::OpenArguments(OPEN_ARGUMENTS));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
