//! Extended attributes (RFC 8276 section 8). Names are those of the user namespace, without its
//! prefix. Bounds of names and values are the server's, as they have errors of their own.

use crate::xdr::{Array, xdr_struct};

/// How SETXATTR treats an attribute that exists (`setxattr_option4`). Others are no malformed
/// arguments: the server answers [`Invalid`](super::OperationStatus::Invalid).
pub mod xattr_option {
    /// Create or replace.
    pub const EITHER: u32 = 0;
    /// Fail if it exists.
    pub const CREATE: u32 = 1;
    /// Fail if it does not exist.
    pub const REPLACE: u32 = 2;
}

xdr_struct! {
    /// Arguments of SETXATTR.
    pub struct SetxattrOperation<'a> {
        /// One of [`xattr_option`].
        pub option: u32,
        /// Name.
        pub name: &'a [u8],
        /// Value.
        pub value: &'a [u8],
    }
}

xdr_struct! {
    /// Arguments of LISTXATTRS.
    pub struct ListxattrsOperation {
        /// Where to go on; zero for the beginning.
        pub cookie: u64,
        /// Most bytes of the results.
        pub maxcount: u32,
    }
}

xdr_struct! {
    /// Results of LISTXATTRS.
    pub struct ListxattrsReply<'a> {
        /// Where to go on.
        pub cookie: u64,
        /// Names.
        pub names: Array<'a, &'a [u8]>,
        /// Whether there are no more.
        pub eof: bool,
    }
}
