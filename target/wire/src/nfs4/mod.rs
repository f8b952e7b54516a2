//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 7862, RFC 8276).
//!
//! Arguments and results of all operations that are served, and of callbacks, for both roles. Of
//! operations that are not served only the numbers are known. Operations are decoded one by one
//! ([`OperationReader`]): a malformed or undefined one does not affect the results before it.
//! Invalid values with a status of their own, such as names, directions and unknown attributes, are
//! not malformed arguments here: the server checks them.
//!
//! Data of READ and WRITE and texts of symbolic links are [`Bulk`](crate::xdr::Bulk), several in one
//! COMPOUND; nothing else may travel in a chunk of its own (RFC 8267 section 6.1).
//!
//! | module | operations |
//! | --- | --- |
//! | `compound` | COMPOUND, CB_COMPOUND |
//! | `operations`, `callback` | the tables |
//! | `session` | client IDs, sessions, SECINFO |
//! | `open`, `lock` | opens, delegations, byte-range locks |
//! | `file`, `directory`, `xattr`, `version2` | objects and their data |
//! | `attributes`, `acl` | attributes and their values |

mod acl;
mod attributes;
mod callback;
mod compound;
mod directory;
mod file;
mod lock;
mod macros;
mod open;
mod operations;
mod session;
mod status;
mod types;
mod version2;
mod xattr;

pub use acl::*;
pub use attributes::*;
pub use callback::*;
pub use compound::*;
pub use directory::*;
pub use file::*;
pub use lock::*;
pub use open::*;
pub use operations::*;
pub use session::*;
pub use status::OperationStatus;
pub use types::*;
pub use version2::*;
pub use xattr::*;

/// Program version. The program's number is that of NFS version 3.
pub const VERSION: u32 = 4;
/// Procedure number of COMPOUND, and of CB_COMPOUND in the callback program. 0 is NULL.
pub const COMPOUND: u32 = 1;
/// Minor versions that are served.
pub const MINOR_VERSIONS: core::ops::RangeInclusive<u32> = 1..=2;
