//! Access control lists (RFC 8881 section 6).

use crate::xdr::{Array, xdr_struct};

/// Types of entries (`acetype4`).
pub mod ace_type {
    /// The rights are granted.
    pub const ALLOW: u32 = 0;
    /// The rights are denied.
    pub const DENY: u32 = 1;
    /// Use of the rights is logged.
    pub const AUDIT: u32 = 2;
    /// Use of the rights raises an alarm.
    pub const ALARM: u32 = 3;
}

/// Flags of entries (`aceflag4`).
pub mod ace_flags {
    /// New files inherit it.
    pub const FILE_INHERIT: u32 = 0x1;
    /// New directories inherit it.
    pub const DIRECTORY_INHERIT: u32 = 0x2;
    /// Heirs do not pass it on.
    pub const NO_PROPAGATE_INHERIT: u32 = 0x4;
    /// It holds for heirs only.
    pub const INHERIT_ONLY: u32 = 0x8;
    /// Successful access is logged.
    pub const SUCCESSFUL_ACCESS: u32 = 0x10;
    /// Failed access is logged.
    pub const FAILED_ACCESS: u32 = 0x20;
    /// `who` is a group.
    pub const GROUP: u32 = 0x40;
    /// It was inherited.
    pub const INHERITED: u32 = 0x80;
}

/// Rights of entries (`acemask4`).
pub mod ace_mask {
    /// Read data, list a directory.
    pub const READ_DATA: u32 = 0x1;
    /// Write data, add a file.
    pub const WRITE_DATA: u32 = 0x2;
    /// Append data, add a directory.
    pub const APPEND_DATA: u32 = 0x4;
    /// Read named attributes.
    pub const READ_NAMED_ATTRIBUTES: u32 = 0x8;
    /// Write named attributes.
    pub const WRITE_NAMED_ATTRIBUTES: u32 = 0x10;
    /// Execute, look up names.
    pub const EXECUTE: u32 = 0x20;
    /// Remove entries of the directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Read attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// Write attributes.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// Change retention.
    pub const WRITE_RETENTION: u32 = 0x200;
    /// Change a hold of retention.
    pub const WRITE_RETENTION_HOLD: u32 = 0x400;
    /// Remove the object.
    pub const DELETE: u32 = 0x1_0000;
    /// Read the list.
    pub const READ_ACL: u32 = 0x2_0000;
    /// Write the list.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// Change owner and group.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// Synchronous local access.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

/// Bits of the attribute aclsupport: entry types that the server keeps.
pub mod acl_support {
    /// Entries that grant.
    pub const ALLOW: u32 = 1;
    /// Entries that deny.
    pub const DENY: u32 = 2;
    /// Entries that log.
    pub const AUDIT: u32 = 4;
    /// Entries that raise an alarm.
    pub const ALARM: u32 = 8;
}

xdr_struct! {
    /// An entry (`nfsace4`).
    pub struct AccessControlEntry<'a> {
        /// One of [`ace_type`].
        pub kind: u32,
        /// A mask of [`ace_flags`].
        pub flags: u32,
        /// A mask of [`ace_mask`].
        pub mask: u32,
        /// User or group, or one of the special names that end in `@`.
        pub who: &'a [u8],
    }
}

/// A list (`fattr4_acl`). The message bounds it: the server judges.
pub type AccessControlList<'a> = Array<'a, AccessControlEntry<'a>>;
