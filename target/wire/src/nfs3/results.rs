//! Results of the procedures (RFC 1813 section 3.3). NULL has none; READDIR and READDIRPLUS are in
//! the module of directories.

use super::types::{FileAttributes, PostAttributes, Stability, Time, WeakCacheData, WriteVerifier};
use super::{FileHandle, Outcome};
use crate::xdr::{Bulk, xdr_struct};

/// Results of GETATTR.
pub type GetattrResults = Outcome<FileAttributes, ()>;
/// Results of SETATTR: the object before and after.
pub type SetattrResults = Outcome<WeakCacheData, WeakCacheData>;
/// Results of LOOKUP; a failure has the directory's attributes.
pub type LookupResults = Outcome<LookupOk, PostAttributes>;
/// Results of ACCESS; a failure has the object's attributes.
pub type AccessResults = Outcome<AccessOk, PostAttributes>;
/// Results of READLINK; a failure has the link's attributes.
pub type ReadlinkResults<'a> = Outcome<ReadlinkOk<'a>, PostAttributes>;
/// Results of READ; a failure has the file's attributes.
pub type ReadResults<'a> = Outcome<ReadOk<'a>, PostAttributes>;
/// Results of WRITE; a failure has the file's attributes.
pub type WriteResults = Outcome<WriteOk, WeakCacheData>;
/// Results of CREATE, MKDIR, SYMLINK and MKNOD; a failure has the directory's attributes.
pub type CreateResults = Outcome<CreateOk, WeakCacheData>;
/// Results of REMOVE and RMDIR: the directory.
pub type RemoveResults = Outcome<WeakCacheData, WeakCacheData>;
/// Results of RENAME: the directories.
pub type RenameResults = Outcome<RenameDirectories, RenameDirectories>;
/// Results of LINK: object and directory.
pub type LinkResults = Outcome<LinkObjects, LinkObjects>;
/// Results of FSSTAT; a failure has the object's attributes.
pub type FsstatResults = Outcome<FsstatOk, PostAttributes>;
/// Results of FSINFO; a failure has the object's attributes.
pub type FsinfoResults = Outcome<FsinfoOk, PostAttributes>;
/// Results of PATHCONF; a failure has the object's attributes.
pub type PathconfResults = Outcome<PathconfOk, PostAttributes>;
/// Results of COMMIT; a failure has the file's attributes.
pub type CommitResults = Outcome<CommitOk, WeakCacheData>;

xdr_struct! {
    /// Results of LOOKUP.
    pub struct LookupOk {
        /// The object found.
        pub object: FileHandle,
        /// Its attributes.
        pub attributes: PostAttributes,
        /// Attributes of the directory.
        pub directory: PostAttributes,
    }
}

xdr_struct! {
    /// Results of ACCESS.
    pub struct AccessOk {
        /// Attributes of the object.
        pub attributes: PostAttributes,
        /// The rights granted, of those asked about.
        pub access: u32,
    }
}

xdr_struct! {
    /// Results of READLINK.
    pub struct ReadlinkOk<'a> {
        /// Attributes of the link.
        pub attributes: PostAttributes,
        /// The text; may travel in a write chunk.
        pub text: Bulk<'a>,
    }
}

xdr_struct! {
    /// Results of READ.
    pub struct ReadOk<'a> {
        /// Attributes of the file.
        pub attributes: PostAttributes,
        /// Bytes read; the length of the data.
        pub count: u32,
        /// Whether the file ends behind the last byte read.
        pub eof: bool,
        /// The data; may travel in a write chunk.
        pub data: Bulk<'a>,
    }
}

xdr_struct! {
    /// Results of WRITE.
    pub struct WriteOk {
        /// The file before and after.
        pub file: WeakCacheData,
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: Stability,
        /// Verifier of unstable data.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// Results of CREATE, MKDIR, SYMLINK and MKNOD.
    pub struct CreateOk {
        /// The new object.
        pub object: Option<FileHandle>,
        /// Its attributes.
        pub attributes: PostAttributes,
        /// The directory before and after.
        pub directory: WeakCacheData,
    }
}

xdr_struct! {
    /// Results of RENAME, in success and failure.
    pub struct RenameDirectories {
        /// The old entry's directory.
        pub from: WeakCacheData,
        /// The new entry's directory.
        pub to: WeakCacheData,
    }
}

xdr_struct! {
    /// Results of LINK, in success and failure.
    pub struct LinkObjects {
        /// Attributes of the object.
        pub attributes: PostAttributes,
        /// The directory before and after.
        pub directory: WeakCacheData,
    }
}

xdr_struct! {
    /// Results of FSSTAT.
    pub struct FsstatOk {
        /// Attributes of the object.
        pub attributes: PostAttributes,
        /// Bytes in the file system.
        pub total_bytes: u64,
        /// Bytes free.
        pub free_bytes: u64,
        /// Bytes free for the caller.
        pub available_bytes: u64,
        /// Files that the file system can hold.
        pub total_files: u64,
        /// Files that can still be made.
        pub free_files: u64,
        /// Files that the caller can still make.
        pub available_files: u64,
        /// Seconds for which these figures are expected to stay the same.
        pub invariant_seconds: u32,
    }
}

xdr_struct! {
    /// Results of FSINFO.
    pub struct FsinfoOk {
        /// Attributes of the object.
        pub attributes: PostAttributes,
        /// Most bytes of a READ.
        pub read_max: u32,
        /// Best size of a READ in bytes.
        pub read_preferred: u32,
        /// Best multiple of the size of a READ, in bytes.
        pub read_multiple: u32,
        /// Most bytes of a WRITE.
        pub write_max: u32,
        /// Best size of a WRITE in bytes.
        pub write_preferred: u32,
        /// Best multiple of the size of a WRITE, in bytes.
        pub write_multiple: u32,
        /// Best size of a READDIR in bytes.
        pub readdir_preferred: u32,
        /// Largest file in bytes.
        pub max_file_size: u64,
        /// Granularity of times.
        pub time_delta: Time,
        /// A mask of [`properties`](super::properties).
        pub properties: u32,
    }
}

xdr_struct! {
    /// Results of PATHCONF.
    pub struct PathconfOk {
        /// Attributes of the object.
        pub attributes: PostAttributes,
        /// Most hard links to an object.
        pub link_max: u32,
        /// Most bytes of a name.
        pub name_max: u32,
        /// Longer names are refused, not cut off.
        pub no_truncation: bool,
        /// Only the superuser may change the owner of files.
        pub chown_restricted: bool,
        /// Upper and lower case are the same in names.
        pub case_insensitive: bool,
        /// Names keep their case.
        pub case_preserving: bool,
    }
}

xdr_struct! {
    /// Results of COMMIT.
    pub struct CommitOk {
        /// The file before and after.
        pub file: WeakCacheData,
        /// Verifier of unstable data.
        pub verifier: WriteVerifier,
    }
}
