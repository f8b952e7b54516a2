//! The procedures of NFS version 3, one blocking call each (RFC 1813 section 3.3).
//!
//! A status that is not `NFS3_OK` is [`Error::Nfs`].

use millrace_mempool::Slice;
use millrace_wire::nfs3::{
    AccessArguments, AccessOk, CommitArguments, CommitOk, CookieVerifier, CreateArguments,
    CreateHow, CreateOk, FileAttributes, FileHandle, FsinfoOk, FsstatOk, LinkArguments, LookupOk,
    MkdirArguments, MknodArguments, NameInDirectory, NamePlus, Node, Outcome, PathconfOk,
    Procedure, ReadArguments, ReadOk, ReaddirArguments, ReaddirResults, ReaddirplusArguments,
    ReaddirplusResults, ReadlinkResults, RenameArguments, SetAttributes, SetattrArguments,
    Stability, SymlinkArguments, Time, WriteArguments, WriteOk,
};
use millrace_wire::xdr::{Bulk, Decode, Encode};

use super::{Error, Session};
use crate::requester::call::{Call, Reply};

/// Longest text of a symbolic link that is asked for.
const TEXT_MAX: usize = 4096;

/// An entry of a directory, with what READDIRPLUS told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The object's number.
    pub fileid: u64,
    /// The name.
    pub name: Vec<u8>,
    /// Where to go on behind it.
    pub cookie: u64,
    /// The object's attributes.
    pub attributes: Option<FileAttributes>,
    /// The object.
    pub handle: Option<FileHandle>,
}

impl From<NamePlus<'_>> for DirectoryEntry {
    fn from(entry: NamePlus<'_>) -> Self {
        Self {
            fileid: entry.fileid,
            name: entry.name.to_vec(),
            cookie: entry.cookie,
            attributes: entry.attributes,
            handle: entry.handle,
        }
    }
}

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPart {
    /// Entries in order.
    pub entries: Vec<DirectoryEntry>,
    /// Verifier to send with the cookies.
    pub verifier: CookieVerifier,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// The results of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Bytes read, from the start of the memory given.
    pub count: u32,
    /// Whether the file ends behind them.
    pub eof: bool,
    /// Whether they came in the reply instead of by RDMA Write.
    pub inline: bool,
    /// The file's attributes.
    pub attributes: Option<FileAttributes>,
}

/// Results that borrow nothing.
pub(crate) fn take_plain<'a, T: Decode<'a>, F: Decode<'a>>(
    procedure: Procedure,
    reply: &Reply<'a>,
) -> Result<T, Error> {
    reply
        .results::<Outcome<T, F>>()?
        .map_err(|failure| Error::Nfs(procedure, failure.status))
}

/// Takes the results of a READ: data that came inline is copied to where it would have been
/// written.
pub(crate) fn take_read(reply: &Reply<'_>, room: &[Slice]) -> Result<ReadDone, Error> {
    let results: ReadOk<'_> = take_plain::<_, Option<FileAttributes>>(Procedure::Read, reply)?;
    let length: usize = room.iter().map(Slice::len).sum();
    if results.count != results.data.length || results.count as usize > length {
        return Err(Error::Protocol {
            procedure: Procedure::Read,
            what: "a count that cannot be",
        });
    }
    let inline = results.data.as_inline();
    if let Some(mut data) = inline {
        for slice in room {
            let (here, rest) = data.split_at(data.len().min(slice.len()));
            slice.copy_from(0, here);
            data = rest;
        }
    }
    Ok(ReadDone {
        count: results.count,
        eof: results.eof,
        inline: inline.is_some(),
        attributes: results.attributes,
    })
}

impl Session {
    fn plain<A: Encode, T, F>(&mut self, procedure: Procedure, arguments: A) -> Result<T, Error>
    where
        T: for<'a> Decode<'a>,
        F: for<'a> Decode<'a>,
    {
        let call = Call::nfs3(0, procedure, arguments, 0);
        self.call(call, |reply| take_plain::<T, F>(procedure, reply))
    }
}

type Attributes = Option<FileAttributes>;
type Weak = millrace_wire::nfs3::WeakCacheData;

/// Each fails as [`Error`] tells.
#[allow(clippy::missing_errors_doc)]
impl Session {
    /// NULL: does nothing.
    pub fn null(&mut self) -> Result<(), Error> {
        let call = Call::nfs3(0, Procedure::Null, (), 0);
        self.call(call, |reply| Ok(reply.results::<()>()?))
    }

    /// GETATTR: the attributes of an object.
    pub fn getattr(&mut self, object: FileHandle) -> Result<FileAttributes, Error> {
        self.plain::<_, _, ()>(Procedure::Getattr, object)
    }

    /// SETATTR: sets attributes, if the object's change time is that of the guard.
    pub fn setattr(
        &mut self,
        object: FileHandle,
        attributes: SetAttributes,
        guard: Option<Time>,
    ) -> Result<Weak, Error> {
        let arguments = SetattrArguments {
            object,
            attributes,
            guard,
        };
        self.plain::<_, _, Weak>(Procedure::Setattr, arguments)
    }

    /// LOOKUP: the object of a name.
    pub fn lookup(&mut self, directory: FileHandle, name: &[u8]) -> Result<LookupOk, Error> {
        self.plain::<_, _, Attributes>(Procedure::Lookup, NameInDirectory { directory, name })
    }

    /// ACCESS: which of the rights asked about are granted.
    pub fn access(&mut self, object: FileHandle, access: u32) -> Result<AccessOk, Error> {
        self.plain::<_, _, Attributes>(Procedure::Access, AccessArguments { object, access })
    }

    /// READLINK: the text of a symbolic link, at most 4096 bytes.
    pub fn readlink(&mut self, link: FileHandle) -> Result<Vec<u8>, Error> {
        let room = self.buffer(TEXT_MAX)?.into_slice(0..TEXT_MAX);
        let sink = [room.clone()];
        let call = Call::nfs3(0, Procedure::Readlink, link, 0);
        let text = self.call(call.with_sinks(&[&sink]), |reply| {
            let results = reply.results::<ReadlinkResults<'_>>()?;
            let text = results
                .map_err(|failure| Error::Nfs(Procedure::Readlink, failure.status))?
                .text;
            Ok(text
                .as_inline()
                .map_or(Err(text.length as usize), |text| Ok(text.to_vec())))
        })?;
        text.or_else(|length| {
            let mut text = vec![0; length.min(TEXT_MAX)];
            room.copy_to(0, &mut text);
            Ok(text)
        })
    }

    /// READ: fills the memory from its front, as far as the server gives. Asks for no more than
    /// the server's largest READ, if [`transfer`](Self::transfer) has asked for that.
    pub fn read(
        &mut self,
        file: FileHandle,
        offset: u64,
        room: &[Slice],
    ) -> Result<ReadDone, Error> {
        let room = &*self.readable(room);
        let length: usize = room.iter().map(Slice::len).sum();
        let arguments = ReadArguments {
            file,
            offset,
            count: u32::try_from(length).unwrap_or(u32::MAX),
        };
        let call = Call::nfs3(0, Procedure::Read, arguments, 0);
        self.call(call.with_sinks(&[room]), |reply| take_read(reply, room))
    }

    /// WRITE: writes all of the memory, or less if the server takes less. Sends no more than the
    /// server's largest WRITE, if [`transfer`](Self::transfer) has asked for that.
    pub fn write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[Slice],
        stable: Stability,
    ) -> Result<WriteOk, Error> {
        let data = &*self.writable(data);
        let length: usize = data.iter().map(Slice::len).sum();
        let count = u32::try_from(length).unwrap_or(u32::MAX);
        let arguments = WriteArguments {
            file,
            offset,
            count,
            stable,
            data: Bulk::apart(count),
        };
        let call = Call::nfs3(0, Procedure::Write, arguments, 0);
        self.call(call.with_data(data), |reply| {
            take_plain::<_, Weak>(Procedure::Write, reply)
        })
    }

    /// CREATE: a regular file.
    pub fn create(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        how: CreateHow,
    ) -> Result<CreateOk, Error> {
        let entry = NameInDirectory { directory, name };
        self.plain::<_, _, Weak>(Procedure::Create, CreateArguments { entry, how })
    }

    /// MKDIR: a directory.
    pub fn mkdir(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
    ) -> Result<CreateOk, Error> {
        let entry = NameInDirectory { directory, name };
        self.plain::<_, _, Weak>(Procedure::Mkdir, MkdirArguments { entry, attributes })
    }

    /// SYMLINK: a symbolic link of at most 1 MiB.
    pub fn symlink(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        attributes: SetAttributes,
        text: &[u8],
    ) -> Result<CreateOk, Error> {
        let mut buffer = self.buffer(text.len())?;
        buffer[..text.len()].copy_from_slice(text);
        let data = [buffer.into_slice(0..text.len())];
        let arguments = SymlinkArguments {
            entry: NameInDirectory { directory, name },
            attributes,
            text: Bulk::apart(text.len() as u32),
        };
        let call = Call::nfs3(0, Procedure::Symlink, arguments, 0);
        self.call(call.with_data(&data), |reply| {
            take_plain::<_, Weak>(Procedure::Symlink, reply)
        })
    }

    /// MKNOD: a special node.
    pub fn mknod(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        node: Node,
    ) -> Result<CreateOk, Error> {
        let entry = NameInDirectory { directory, name };
        self.plain::<_, _, Weak>(Procedure::Mknod, MknodArguments { entry, node })
    }

    /// REMOVE: a name that is no directory's.
    pub fn remove(&mut self, directory: FileHandle, name: &[u8]) -> Result<Weak, Error> {
        self.plain::<_, _, Weak>(Procedure::Remove, NameInDirectory { directory, name })
    }

    /// RMDIR: an empty directory.
    pub fn rmdir(&mut self, directory: FileHandle, name: &[u8]) -> Result<Weak, Error> {
        self.plain::<_, _, Weak>(Procedure::Rmdir, NameInDirectory { directory, name })
    }

    /// RENAME: from one directory and name to another.
    pub fn rename(
        &mut self,
        (from, name): (FileHandle, &[u8]),
        (to, new_name): (FileHandle, &[u8]),
    ) -> Result<(), Error> {
        let arguments = RenameArguments {
            from: NameInDirectory {
                directory: from,
                name,
            },
            to: NameInDirectory {
                directory: to,
                name: new_name,
            },
        };
        let call = Call::nfs3(0, Procedure::Rename, arguments, 0);
        self.call(call, |reply| {
            reply
                .results::<millrace_wire::nfs3::RenameResults>()?
                .map(|_| ())
                .map_err(|failure| Error::Nfs(Procedure::Rename, failure.status))
        })
    }

    /// LINK: one more name for an object.
    pub fn link(
        &mut self,
        object: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Error> {
        let arguments = LinkArguments {
            object,
            entry: NameInDirectory { directory, name },
        };
        let call = Call::nfs3(0, Procedure::Link, arguments, 0);
        self.call(call, |reply| {
            reply
                .results::<millrace_wire::nfs3::LinkResults>()?
                .map(|_| ())
                .map_err(|failure| Error::Nfs(Procedure::Link, failure.status))
        })
    }

    /// READDIR: a part of a directory, at most `count` bytes of results.
    pub fn readdir(
        &mut self,
        directory: FileHandle,
        cookie: u64,
        verifier: CookieVerifier,
        count: u32,
    ) -> Result<DirectoryPart, Error> {
        let arguments = ReaddirArguments {
            directory,
            cookie,
            verifier,
            count,
        };
        let call = Call::nfs3(0, Procedure::Readdir, arguments, count);
        self.call(call, |reply| {
            let results = reply
                .results::<ReaddirResults<'_>>()?
                .map_err(|failure| Error::Nfs(Procedure::Readdir, failure.status))?;
            let entries = results.entries.iter().map(|entry| DirectoryEntry {
                fileid: entry.fileid,
                name: entry.name.to_vec(),
                cookie: entry.cookie,
                attributes: None,
                handle: None,
            });
            Ok(DirectoryPart {
                entries: entries.collect(),
                verifier: results.verifier,
                eof: results.eof,
            })
        })
    }

    /// READDIRPLUS: a part of a directory with attributes and handles.
    pub fn readdirplus(
        &mut self,
        directory: FileHandle,
        cookie: u64,
        verifier: CookieVerifier,
        dircount: u32,
        maxcount: u32,
    ) -> Result<DirectoryPart, Error> {
        let arguments = ReaddirplusArguments {
            directory,
            cookie,
            verifier,
            dircount,
            maxcount,
        };
        let call = Call::nfs3(0, Procedure::Readdirplus, arguments, maxcount);
        self.call(call, |reply| {
            let results = reply
                .results::<ReaddirplusResults<'_>>()?
                .map_err(|failure| Error::Nfs(Procedure::Readdirplus, failure.status))?;
            Ok(DirectoryPart {
                entries: results.entries.iter().map(Into::into).collect(),
                verifier: results.verifier,
                eof: results.eof,
            })
        })
    }

    /// FSSTAT: changing figures of the file system.
    pub fn fsstat(&mut self, object: FileHandle) -> Result<FsstatOk, Error> {
        self.plain::<_, _, Attributes>(Procedure::Fsstat, object)
    }

    /// FSINFO: fixed figures of the file system.
    pub fn fsinfo(&mut self, object: FileHandle) -> Result<FsinfoOk, Error> {
        self.plain::<_, _, Attributes>(Procedure::Fsinfo, object)
    }

    /// PATHCONF: limits of names and links.
    pub fn pathconf(&mut self, object: FileHandle) -> Result<PathconfOk, Error> {
        self.plain::<_, _, Attributes>(Procedure::Pathconf, object)
    }

    /// COMMIT: makes unstable data stable; all of the file from the offset on if `count` is zero.
    pub fn commit(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<CommitOk, Error> {
        let arguments = CommitArguments {
            file,
            offset,
            count,
        };
        self.plain::<_, _, Weak>(Procedure::Commit, arguments)
    }
}
