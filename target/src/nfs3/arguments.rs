//! The arguments of a call, decoded once, and the subject of the call.

use millrace_wire::nfs3::{
    AccessArguments, CommitArguments, CreateArguments, EntryArguments, FileHandle, LinkArguments,
    MkdirArguments, MknodArguments, NameInDirectory, ObjectArguments, Procedure, ReadArguments,
    ReaddirArguments, ReaddirplusArguments, RenameArguments, SetattrArguments, SymlinkArguments,
    WriteArguments,
};

use super::TRANSFER_MAX;
use crate::call::Bulk;
use crate::rpc::NamedEntry;
use crate::rpc::program::{ProgramCall, Unserved};

macro_rules! arguments {
    ($($procedure:ident($arguments:ty), $it:ident => $first:expr;)*) => {
        /// The decoded arguments of a procedure; NULL has none.
        #[allow(clippy::large_enum_variant)] // It lives on the stack of one call.
        pub(super) enum Arguments<'a> {
            $($procedure($arguments),)*
        }

        impl<'a> Arguments<'a> {
            /// Decodes the arguments of a call.
            pub fn decode<B: Bulk>(
                procedure: Procedure,
                call: &ProgramCall<'a, B>,
            ) -> Result<Self, Unserved> {
                match procedure {
                    Procedure::Null => Err(Unserved::NoProcedure),
                    $(Procedure::$procedure => Ok(Self::$procedure(call.arguments()?)),)*
                }
            }

            /// The handle that the arguments begin with.
            pub fn handle(&self) -> &FileHandle {
                match self {
                    $(Self::$procedure($it) => &$first,)*
                }
            }
        }
    };
}

arguments! {
    Getattr(ObjectArguments), it => it;
    Setattr(SetattrArguments), it => it.object;
    Lookup(EntryArguments<'a>), it => it.directory;
    Access(AccessArguments), it => it.object;
    Readlink(ObjectArguments), it => it;
    Read(ReadArguments), it => it.file;
    Write(WriteArguments<'a>), it => it.file;
    Create(CreateArguments<'a>), it => it.entry.directory;
    Mkdir(MkdirArguments<'a>), it => it.entry.directory;
    Symlink(SymlinkArguments<'a>), it => it.entry.directory;
    Mknod(MknodArguments<'a>), it => it.entry.directory;
    Remove(EntryArguments<'a>), it => it.directory;
    Rmdir(EntryArguments<'a>), it => it.directory;
    Rename(RenameArguments<'a>), it => it.from.directory;
    Link(LinkArguments<'a>), it => it.object;
    Readdir(ReaddirArguments), it => it.directory;
    Readdirplus(ReaddirplusArguments), it => it.directory;
    Fsstat(ObjectArguments), it => it;
    Fsinfo(ObjectArguments), it => it;
    Pathconf(ObjectArguments), it => it;
    Commit(CommitArguments), it => it.file;
}

impl Arguments<'_> {
    /// Bytes of file data that the call asks for.
    pub fn bytes(&self) -> u64 {
        let count = match self {
            Self::Read(read) => read.count,
            Self::Write(write) => write.count,
            _ => 0,
        };
        u64::from(count.min(TRANSFER_MAX))
    }

    /// The names that the call changes.
    pub fn names(&self) -> [Option<NamedEntry<'_>>; 2] {
        fn named<'a>(entry: &'a NameInDirectory<'_>) -> Option<NamedEntry<'a>> {
            Some((entry.directory.as_bytes(), entry.name))
        }
        match self {
            Self::Create(create) => [named(&create.entry), None],
            Self::Mkdir(mkdir) => [named(&mkdir.entry), None],
            Self::Symlink(symlink) => [named(&symlink.entry), None],
            Self::Mknod(mknod) => [named(&mknod.entry), None],
            Self::Remove(entry) | Self::Rmdir(entry) => [named(entry), None],
            Self::Rename(rename) => [named(&rename.from), named(&rename.to)],
            Self::Link(link) => [named(&link.entry), None],
            _ => [None; 2],
        }
    }
}
