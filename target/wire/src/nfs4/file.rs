//! Handles, attributes and data of files (RFC 8881 section 18).

use super::OperationStatus;
use super::attributes::{Attributes, Bitmap};
use super::types::{HasStatus, StateId, Verifier};
use crate::nfs3::Stability;
use crate::xdr::{Bulk, xdr_struct};

/// Rights of ACCESS (RFC 8881 section 18.1, RFC 8276 section 8.4.1).
pub mod access_bits {
    /// Read data, list a directory.
    pub const READ: u32 = 0x1;
    /// Look up names.
    pub const LOOKUP: u32 = 0x2;
    /// Change data, entries.
    pub const MODIFY: u32 = 0x4;
    /// Extend data, add entries.
    pub const EXTEND: u32 = 0x8;
    /// Remove entries.
    pub const DELETE: u32 = 0x10;
    /// Execute.
    pub const EXECUTE: u32 = 0x20;
    /// Read extended attributes.
    pub const XATTR_READ: u32 = 0x40;
    /// Change extended attributes.
    pub const XATTR_WRITE: u32 = 0x80;
    /// List extended attributes.
    pub const XATTR_LIST: u32 = 0x100;
}

xdr_struct! {
    /// Results of ACCESS, both masks of [`access_bits`].
    pub struct AccessReply {
        /// Rights that the server can determine.
        pub supported: u32,
        /// Rights granted.
        pub access: u32,
    }
}

xdr_struct! {
    /// Arguments of COMMIT.
    pub struct CommitOperation {
        /// First byte.
        pub offset: u64,
        /// Bytes to commit; zero for all from the offset on.
        pub count: u32,
    }
}

xdr_struct! {
    /// Arguments of READ and READ_PLUS.
    pub struct ReadOperation {
        /// The state that allows it.
        pub state: StateId,
        /// First byte.
        pub offset: u64,
        /// Bytes wanted.
        pub count: u32,
    }
}

xdr_struct! {
    /// Results of READ.
    pub struct ReadReply<'a> {
        /// Whether the file ends behind the last byte read.
        pub eof: bool,
        /// The data; may travel in a write chunk (RFC 8267 section 6.1).
        pub data: Bulk<'a>,
    }
}

xdr_struct! {
    /// Arguments of WRITE.
    pub struct WriteOperation<'a> {
        /// The state that allows it.
        pub state: StateId,
        /// First byte.
        pub offset: u64,
        /// How stable the data must be before the reply.
        pub stable: Stability,
        /// The data; may travel in a read chunk (RFC 8267 section 6.1).
        pub data: Bulk<'a>,
    }
}

xdr_struct! {
    /// Results of WRITE.
    pub struct WriteReply {
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: Stability,
        /// Changes when unstable data may be lost.
        pub verifier: Verifier,
    }
}

xdr_struct! {
    /// Arguments of SETATTR.
    pub struct SetattrOperation<'a> {
        /// The state that allows a change of the size.
        pub state: StateId,
        /// What to set.
        pub attributes: Attributes<'a>,
    }
}

xdr_struct! {
    /// Results of SETATTR, also where it failed.
    pub struct SetattrReply {
        /// Status.
        pub status: OperationStatus,
        /// Attributes that were set.
        pub set: Bitmap,
    }
}

impl HasStatus for SetattrReply {
    fn status(&self) -> OperationStatus {
        self.status
    }
}
