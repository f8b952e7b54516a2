//! The attributes that are known here (RFC 8881 section 5, RFC 7862 section 12, RFC 8275,
//! RFC 8276, RFC 9754).

use super::Bitmap;
use crate::nfs3::Device;
use crate::nfs4::OperationStatus;
use crate::nfs4::acl::AccessControlList;
use crate::nfs4::types::{FileSystemId, HandleBytes, ObjectType, TimeToSet, Timestamp};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Result, xdr_enum, xdr_struct};

/// Bits of the attribute fh_expire_type.
pub mod handle_expiry {
    /// Never.
    pub const PERSISTENT: u32 = 0;
    /// Not while the file is open.
    pub const NOT_WHILE_OPEN: u32 = 1;
    /// At any time.
    pub const ANY: u32 = 2;
    /// With a migration.
    pub const MIGRATION: u32 = 4;
    /// With a renaming.
    pub const RENAME: u32 = 8;
}

/// Values of the attribute change_attr_type (RFC 7862 section 12.2.3).
pub mod change_type {
    /// Grows.
    pub const MONOTONIC: u32 = 0;
    /// Grows by one with each change.
    pub const VERSION_COUNTER: u32 = 1;
    /// The same, except for pNFS.
    pub const VERSION_COUNTER_NO_PNFS: u32 = 2;
    /// Is time_metadata.
    pub const TIME_METADATA: u32 = 3;
    /// Differs after a change, no more.
    pub const UNDEFINED: u32 = 4;
}

xdr_struct! {
    /// Some permission bits (`mode_masked4`).
    pub fixed struct MaskedMode {
        /// Values.
        pub value: u32,
        /// The bits that are set.
        pub mask: u32,
    }
}

xdr_struct! {
    /// Permission bits of a new object, and the mask of the process that creates it
    /// (`mode_umask4`, RFC 8275).
    pub fixed struct ModeWithUmask {
        /// Permission bits.
        pub mode: u32,
        /// Bits that are cleared where no list is inherited.
        pub umask: u32,
    }
}

xdr_struct! {
    /// What OPEN accepts (`open_arguments4`, RFC 9754): the sets of values of its arguments.
    pub struct OpenArguments {
        /// Of `share_access`: READ, WRITE and BOTH.
        pub access: Bitmap,
        /// Of `share_deny`.
        pub deny: Bitmap,
        /// Wishes for a delegation and beside: see [`open_wishes`].
        pub wishes: Bitmap,
        /// Kinds of claims.
        pub claims: Bitmap,
        /// Ways to create.
        pub creation: Bitmap,
    }
}

/// Numbers of [`OpenArguments::wishes`] (`open_args_share_access_want4`).
pub mod open_wishes {
    /// Any delegation.
    pub const ANY: u32 = 3;
    /// None.
    pub const NONE: u32 = 4;
    /// An earlier wish is taken back.
    pub const CANCEL: u32 = 5;
}

macro_rules! attributes {
    ($($variant:ident($type:ty) = $number:literal, $name:literal, $text:literal;)*) => {
        xdr_enum! {
            /// Numbers of attributes.
            pub enum AttributeNumber {
                $($variant = $number, $name, $text;)*
            }
        }

        /// An attribute with its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Attribute<'a> {
            $(#[doc = concat!($name, ": ", $text, ".")] $variant($type),)*
        }

        impl<'a> Attribute<'a> {
            /// Its number.
            #[must_use]
            pub const fn number(&self) -> AttributeNumber {
                match self {
                    $(Self::$variant(_) => AttributeNumber::$variant,)*
                }
            }

            /// Appends its value.
            ///
            /// # Errors
            /// As [`Encode::encode`].
            #[inline(always)] // Of an attribute that is written out in a program, it is one value.
            pub fn encode_value(&self, out: &mut Encoder<'_>) -> Result<()> {
                match self {
                    $(Self::$variant(value) => value.encode(out),)*
                }
            }

            /// Reads the value of an attribute.
            ///
            /// # Errors
            /// As [`Decode::decode`].
            pub fn decode_value(number: AttributeNumber, input: &mut Decoder<'a>) -> Result<Self> {
                Ok(match number {
                    $(AttributeNumber::$variant => Self::$variant(Decode::decode(input)?),)*
                })
            }
        }
    };
}

attributes! {
    SupportedAttributes(Bitmap) = 0, "supported_attrs", "attributes served for the object";
    Type(ObjectType) = 1, "type", "type of the object";
    HandleExpiry(u32) = 2, "fh_expire_type", "when handles expire, a mask of `handle_expiry`";
    Change(u64) = 3, "change", "grows with each change";
    Size(u64) = 4, "size", "size in bytes";
    LinkSupport(bool) = 5, "link_support", "whether there are hard links";
    SymlinkSupport(bool) = 6, "symlink_support", "whether there are symbolic links";
    NamedAttributes(bool) = 7, "named_attr", "whether the object has named attributes";
    FileSystem(FileSystemId) = 8, "fsid", "file system";
    UniqueHandles(bool) = 9, "unique_handles", "whether different handles mean different objects";
    LeaseTime(u32) = 10, "lease_time", "lease in seconds";
    ReadError(OperationStatus) = 11, "rdattr_error", "why attributes of an entry are missing";
    Acl(AccessControlList<'a>) = 12, "acl", "access control list";
    AclSupport(u32) = 13, "aclsupport", "types of entries kept, a mask of `acl_support`";
    CanSetTime(bool) = 15, "cansettime", "whether times can be set";
    CaseInsensitive(bool) = 16, "case_insensitive", "whether names ignore case";
    CasePreserving(bool) = 17, "case_preserving", "whether names keep their case";
    ChownRestricted(bool) = 18, "chown_restricted", "whether owners may not give files away";
    Handle(HandleBytes<'a>) = 19, "filehandle", "the file handle";
    FileId(u64) = 20, "fileid", "number within the file system";
    FilesAvailable(u64) = 21, "files_avail", "objects that the caller may still create";
    FilesFree(u64) = 22, "files_free", "objects that can still be created";
    FilesTotal(u64) = 23, "files_total", "objects that the file system can hold";
    Homogeneous(bool) = 26, "homogeneous", "whether attributes are alike in the file system";
    MaxFileSize(u64) = 27, "maxfilesize", "largest file in bytes";
    MaxLinks(u32) = 28, "maxlink", "most hard links";
    MaxName(u32) = 29, "maxname", "longest name in bytes";
    MaxRead(u64) = 30, "maxread", "most bytes of a READ";
    MaxWrite(u64) = 31, "maxwrite", "most bytes of a WRITE";
    Mode(u32) = 33, "mode", "permission bits";
    NoTruncation(bool) = 34, "no_trunc", "whether names that are too long are refused";
    Links(u32) = 35, "numlinks", "hard links";
    Owner(&'a [u8]) = 36, "owner", "owner";
    OwnerGroup(&'a [u8]) = 37, "owner_group", "group";
    RawDevice(Device) = 41, "rawdev", "device numbers";
    SpaceAvailable(u64) = 42, "space_avail", "bytes that the caller may still use";
    SpaceFree(u64) = 43, "space_free", "bytes free";
    SpaceTotal(u64) = 44, "space_total", "bytes of the file system";
    SpaceUsed(u64) = 45, "space_used", "bytes of storage in use";
    TimeAccess(Timestamp) = 47, "time_access", "last read";
    TimeAccessSet(TimeToSet) = 48, "time_access_set", "last read, to be set";
    TimeCreate(Timestamp) = 50, "time_create", "creation";
    TimeDelta(Timestamp) = 51, "time_delta", "least difference of times";
    TimeMetadata(Timestamp) = 52, "time_metadata", "last change of data or attributes";
    TimeModify(Timestamp) = 53, "time_modify", "last change of the data";
    TimeModifySet(TimeToSet) = 54, "time_modify_set", "last change of the data, to be set";
    MountedOnFileId(u64) = 55, "mounted_on_fileid", "number of the directory that a file system covers";
    ModeSetMasked(MaskedMode) = 74, "mode_set_masked", "some permission bits, to be set";
    ExclusiveCreateAttributes(Bitmap) = 75, "suppattr_exclcreat", "attributes that an exclusive create may set";
    CharacterSets(u32) = 76, "fs_charset_cap", "character sets of names";
    CloneBlockSize(u32) = 77, "clone_blksize", "alignment of CLONE in bytes";
    ChangeType(u32) = 79, "change_attr_type", "what the change attribute tells, one of `change_type`";
    ModeUmask(ModeWithUmask) = 81, "mode_umask", "permission bits and the mask of the process (RFC 8275)";
    XattrSupport(bool) = 82, "xattr_support", "whether there are extended attributes (RFC 8276)";
    OpenArguments(OpenArguments) = 86, "open_arguments", "what OPEN accepts (RFC 9754)";
}

impl AttributeNumber {
    /// Attributes that can be set.
    pub const SETTABLE: Bitmap = Bitmap::of(&[
        Self::Size,
        Self::Acl,
        Self::Mode,
        Self::Owner,
        Self::OwnerGroup,
        Self::TimeAccessSet,
        Self::TimeCreate,
        Self::TimeModifySet,
        Self::ModeSetMasked,
        Self::ModeUmask,
    ]);

    /// Attributes that can be set and not be read.
    pub const SET_ONLY: Bitmap = Bitmap::of(&[
        Self::TimeAccessSet,
        Self::TimeModifySet,
        Self::ModeSetMasked,
        Self::ModeUmask,
    ]);

    /// All attributes known here.
    pub const KNOWN: Bitmap = Bitmap::of(Self::ALL);

    /// Least minor version that has it. Minor version 2 brought 77 and above.
    #[must_use]
    pub const fn minor_version(self) -> u32 {
        if self.number() >= Self::CloneBlockSize.number() {
            2
        } else {
            1
        }
    }
}
