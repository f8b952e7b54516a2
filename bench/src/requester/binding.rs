//! The upper layer binding of NFS version 3: the largest reply of each procedure (RFC 8267
//! section 4, RFC 1813 section 3.3).
//!
//! Eligible for chunks are the data of READ and WRITE and the texts of READLINK and SYMLINK. They
//! are not counted here: the caller of READ or READLINK states the room for them.

use millrace_wire::nfs3::{FileAttributes, FileHandle, Procedure};

/// Bytes of a reply header that was accepted, with an empty verifier (RFC 5531 section 9).
pub const REPLY_HEADER: usize = 24;

/// Largest reply of a call that fails in RPC itself: a mismatch with its two versions.
pub const RPC_FAILURE: usize = REPLY_HEADER + 8;

const STATUS: usize = 4;
const ATTRIBUTES: usize = 4 + FileAttributes::LENGTH;
const WEAK: usize = 4 + 24 + ATTRIBUTES;
const HANDLE: usize = 4 + FileHandle::MAX;
const NEW_OBJECT: usize = 4 + HANDLE + ATTRIBUTES + WEAK;
/// Servers count the bytes of directory lists in more than one way.
const DIRECTORY_SLACK: usize = 128;

/// Bytes of the largest RPC reply that a procedure can have, without its eligible result.
/// `asked` is the `count` or `maxcount` of READDIR or READDIRPLUS, and without meaning elsewhere.
#[must_use]
pub const fn largest_reply(procedure: Procedure, asked: u32) -> usize {
    let results = match procedure {
        Procedure::Null => 0,
        Procedure::Getattr => STATUS + FileAttributes::LENGTH,
        Procedure::Setattr | Procedure::Remove | Procedure::Rmdir => STATUS + WEAK,
        Procedure::Lookup => STATUS + HANDLE + 2 * ATTRIBUTES,
        Procedure::Access | Procedure::Readlink => STATUS + ATTRIBUTES + 4,
        Procedure::Read => STATUS + ATTRIBUTES + 4 + 4 + 4,
        Procedure::Write => STATUS + WEAK + 4 + 4 + 8,
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
            STATUS + NEW_OBJECT
        }
        Procedure::Rename => STATUS + 2 * WEAK,
        Procedure::Link => STATUS + ATTRIBUTES + WEAK,
        Procedure::Readdir | Procedure::Readdirplus => STATUS + asked as usize + DIRECTORY_SLACK,
        Procedure::Fsstat => STATUS + ATTRIBUTES + 6 * 8 + 4,
        Procedure::Fsinfo => STATUS + ATTRIBUTES + 7 * 4 + 8 + 8 + 4,
        Procedure::Pathconf => STATUS + ATTRIBUTES + 6 * 4,
        Procedure::Commit => STATUS + WEAK + 8,
    };
    let reply = REPLY_HEADER + results;
    if reply < RPC_FAILURE {
        RPC_FAILURE
    } else {
        reply
    }
}
