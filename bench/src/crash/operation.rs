//! The operations requested from the server, and its answers.

use millrace_mempool::Slice;
use millrace_wire::nfs3::{
    CommitArguments, CommitResults, CreateArguments, CreateHow, CreateResults, FileAttributes,
    FileHandle, LinkArguments, LinkResults, MkdirArguments, NameInDirectory, Procedure,
    ReadArguments, ReadResults, RemoveResults, RenameArguments, RenameResults, SetAttributes,
    SetattrArguments, SetattrResults, Stability, Status, WriteResults, WriteVerifier,
};
use millrace_wire::xdr::Encode;

use super::content::Stamp;
use crate::requester::Reply;

/// Names an object of the run.
pub type Id = u32;

/// A name in one of the directories.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamePlace {
    /// Which directory.
    pub directory: usize,
    /// The name there.
    pub name: Vec<u8>,
}

/// A call, in terms of the run's own objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashOperation {
    /// WRITE.
    Write {
        file: Id,
        start: u64,
        length: u32,
        stamp: Stamp,
        stable: Stability,
    },
    /// READ; the file was at least so long when it was sent.
    Read {
        file: Id,
        start: u64,
        length: u32,
        size: u64,
    },
    /// COMMIT; of all that was answered up to an event.
    Commit {
        file: Id,
        start: u64,
        length: u32,
        after: u64,
    },
    /// SETATTR of the size.
    Resize { file: Id, size: u64 },
    /// SETATTR of the mode.
    Mode { object: Id, mode: u32 },
    /// CREATE, GUARDED with a mode or EXCLUSIVE with a verifier.
    Create {
        object: Id,
        place: NamePlace,
        how: Result<u32, [u8; 8]>,
    },
    /// MKDIR.
    MakeDirectory {
        object: Id,
        place: NamePlace,
        mode: u32,
    },
    /// REMOVE.
    Remove { place: NamePlace },
    /// RMDIR.
    RemoveDirectory { place: NamePlace },
    /// RENAME.
    Rename { from: NamePlace, to: NamePlace },
    /// LINK.
    Link { object: Id, place: NamePlace },
}

/// Where things are on the server.
pub trait Handles {
    /// The handle of an object.
    fn object(&self, object: Id) -> FileHandle;
    /// The handle of a directory.
    fn directory(&self, directory: usize) -> FileHandle;
}

/// Somebody who sends calls.
pub trait Sender {
    /// Sends a call without data.
    fn call<A: Encode>(&mut self, procedure: Procedure, arguments: A) -> anyhow::Result<()>;
    /// Sends a READ.
    fn read(&mut self, arguments: ReadArguments) -> anyhow::Result<()>;
    /// Sends a WRITE of the bytes of a stamp.
    fn write(
        &mut self,
        file: FileHandle,
        start: u64,
        length: u32,
        stamp: Stamp,
        stable: Stability,
    ) -> anyhow::Result<()>;
}

/// Attributes with a mode only.
#[must_use]
pub fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

impl CrashOperation {
    /// The procedure called.
    #[must_use]
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Write { .. } => Procedure::Write,
            Self::Read { .. } => Procedure::Read,
            Self::Commit { .. } => Procedure::Commit,
            Self::Resize { .. } | Self::Mode { .. } => Procedure::Setattr,
            Self::Create { .. } => Procedure::Create,
            Self::MakeDirectory { .. } => Procedure::Mkdir,
            Self::Remove { .. } => Procedure::Remove,
            Self::RemoveDirectory { .. } => Procedure::Rmdir,
            Self::Rename { .. } => Procedure::Rename,
            Self::Link { .. } => Procedure::Link,
        }
    }

    /// The answer of a server that has executed the operation before and has forgotten it.
    #[must_use]
    pub const fn done_before(&self) -> Option<Status> {
        match self {
            Self::Create { how: Ok(_), .. } | Self::MakeDirectory { .. } | Self::Link { .. } => {
                Some(Status::Exists)
            }
            Self::Remove { .. } | Self::RemoveDirectory { .. } | Self::Rename { .. } => {
                Some(Status::NoEntry)
            }
            _ => None,
        }
    }

    /// Sends it.
    ///
    /// # Errors
    /// The sender's.
    pub fn send(&self, at: &impl Handles, sender: &mut impl Sender) -> anyhow::Result<()> {
        fn entry<'a>(at: &impl Handles, place: &'a NamePlace) -> NameInDirectory<'a> {
            NameInDirectory {
                directory: at.directory(place.directory),
                name: &place.name,
            }
        }
        let procedure = self.procedure();
        match self {
            &Self::Write {
                file,
                start,
                length,
                stamp,
                stable,
            } => sender.write(at.object(file), start, length, stamp, stable),
            &Self::Read {
                file,
                start,
                length,
                ..
            } => sender.read(ReadArguments {
                file: at.object(file),
                offset: start,
                count: length,
            }),
            &Self::Commit {
                file,
                start,
                length,
                ..
            } => {
                let arguments = CommitArguments {
                    file: at.object(file),
                    offset: start,
                    count: length,
                };
                sender.call(procedure, arguments)
            }
            &Self::Resize { file, size } => {
                let attributes = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                set(at.object(file), attributes, sender)
            }
            &Self::Mode { object, mode } => set(at.object(object), with_mode(mode), sender),
            Self::Create { place, how, .. } => {
                let how = match *how {
                    Ok(mode) => CreateHow::Guarded(with_mode(mode)),
                    Err(verifier) => CreateHow::Exclusive(verifier),
                };
                let entry = entry(at, place);
                sender.call(procedure, CreateArguments { entry, how })
            }
            Self::MakeDirectory { place, mode, .. } => {
                let arguments = MkdirArguments {
                    entry: entry(at, place),
                    attributes: with_mode(*mode),
                };
                sender.call(procedure, arguments)
            }
            Self::Remove { place } | Self::RemoveDirectory { place } => {
                sender.call(procedure, entry(at, place))
            }
            Self::Rename { from, to } => {
                let arguments = RenameArguments {
                    from: entry(at, from),
                    to: entry(at, to),
                };
                sender.call(procedure, arguments)
            }
            Self::Link { object, place } => {
                let arguments = LinkArguments {
                    object: at.object(*object),
                    entry: entry(at, place),
                };
                sender.call(procedure, arguments)
            }
        }
    }
}

fn set(
    object: FileHandle,
    attributes: SetAttributes,
    sender: &mut impl Sender,
) -> anyhow::Result<()> {
    let arguments = SetattrArguments {
        object,
        attributes,
        guard: None,
    };
    sender.call(Procedure::Setattr, arguments)
}

/// What came of a call.
#[derive(Clone, Debug)]
pub enum CrashAnswer {
    /// WRITE.
    Wrote {
        count: u32,
        committed: Stability,
        verifier: WriteVerifier,
    },
    /// READ.
    Data(Vec<u8>),
    /// COMMIT.
    Committed(WriteVerifier),
    /// CREATE or MKDIR.
    Made {
        handle: Option<FileHandle>,
        attributes: Option<FileAttributes>,
    },
    /// Success of all others.
    Done,
    /// The server's refusal.
    Failed(Status),
    /// The connection ended first.
    Lost,
    /// An answer that is not allowed.
    Bad(String),
}

/// Reads the results of a call. A READ's data is in `room` unless it came in the reply.
#[must_use]
pub fn answer(procedure: Procedure, reply: &Reply<'_>, room: Option<&Slice>) -> CrashAnswer {
    macro_rules! results {
        ($kind:ty, $value:pat => $answer:expr) => {
            match reply.results::<$kind>() {
                Ok(Ok($value)) => $answer,
                Ok(Err(failure)) => CrashAnswer::Failed(failure.status),
                Err(error) => CrashAnswer::Bad(error.to_string()),
            }
        };
    }
    match procedure {
        Procedure::Write => results!(WriteResults, done => CrashAnswer::Wrote {
            count: done.count,
            committed: done.committed,
            verifier: done.verifier,
        }),
        Procedure::Read => results!(ReadResults<'_>, done => {
            let mut data = vec![0; done.count as usize];
            match (done.data.as_inline(), room) {
                (Some(inline), _) if inline.len() == data.len() => data.copy_from_slice(inline),
                (None, Some(room)) if room.len() >= data.len() => room.copy_to(0, &mut data),
                _ => return CrashAnswer::Bad("a READ of another length than its data".to_owned()),
            }
            CrashAnswer::Data(data)
        }),
        Procedure::Commit => results!(CommitResults, done => CrashAnswer::Committed(done.verifier)),
        Procedure::Create | Procedure::Mkdir => results!(CreateResults, done => CrashAnswer::Made {
            handle: done.object,
            attributes: done.attributes,
        }),
        Procedure::Setattr => results!(SetattrResults, _ => CrashAnswer::Done),
        Procedure::Rename => results!(RenameResults, _ => CrashAnswer::Done),
        Procedure::Link => results!(LinkResults, _ => CrashAnswer::Done),
        _ => results!(RemoveResults, _ => CrashAnswer::Done),
    }
}
