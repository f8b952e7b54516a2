//! Agreement with another implementation of the same layouts, byte for byte and field for field.

mod common;

use common::{Source, encode, pool};
use millrace_wire::nfs3::*;
use millrace_wire::xdr::{Encoder, from_bytes};
use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::{List as TheirList, Opaque, Pack, Unpack, Void};
use proptest::prelude::*;

/// Our value as theirs, field by field.
trait Theirs {
    type Type;
    fn theirs(&self) -> Self::Type;
}

macro_rules! same_numbers {
    ($($ours:ty => $type:ty { $($variant:ident = $their:ident),* })*) => {$(
        impl Theirs for $ours {
            type Type = $type;
            fn theirs(&self) -> $type {
                match self { $(Self::$variant => <$type>::$their),* }
            }
        }
    )*};
}

same_numbers! {
    FileType => theirs::ftype3 {
        Regular = NF3REG, Directory = NF3DIR, Block = NF3BLK, Character = NF3CHR,
        Symlink = NF3LNK, Socket = NF3SOCK, Fifo = NF3FIFO
    }
    Stability => theirs::stable_how {
        Unstable = UNSTABLE, DataSync = DATA_SYNC, FileSync = FILE_SYNC
    }
    Status => theirs::nfsstat3 {
        Ok = NFS3_OK, NotOwner = NFS3ERR_PERM, NoEntry = NFS3ERR_NOENT, Io = NFS3ERR_IO,
        NoDeviceOrAddress = NFS3ERR_NXIO, AccessDenied = NFS3ERR_ACCES, Exists = NFS3ERR_EXIST,
        CrossDevice = NFS3ERR_XDEV, NoDevice = NFS3ERR_NODEV, NotDirectory = NFS3ERR_NOTDIR,
        IsDirectory = NFS3ERR_ISDIR, Invalid = NFS3ERR_INVAL, FileTooBig = NFS3ERR_FBIG,
        NoSpace = NFS3ERR_NOSPC, ReadOnly = NFS3ERR_ROFS, TooManyLinks = NFS3ERR_MLINK,
        NameTooLong = NFS3ERR_NAMETOOLONG, NotEmpty = NFS3ERR_NOTEMPTY, Quota = NFS3ERR_DQUOT,
        Stale = NFS3ERR_STALE, Remote = NFS3ERR_REMOTE, BadHandle = NFS3ERR_BADHANDLE,
        NotSync = NFS3ERR_NOT_SYNC, BadCookie = NFS3ERR_BAD_COOKIE,
        NotSupported = NFS3ERR_NOTSUPP, TooSmall = NFS3ERR_TOOSMALL,
        ServerFault = NFS3ERR_SERVERFAULT, BadType = NFS3ERR_BADTYPE, Jukebox = NFS3ERR_JUKEBOX
    }
}

macro_rules! same_fields {
    ($($ours:ident $(<$lt:lifetime>)? => $type:ident $(<$their_lt:lifetime>)? { $($field:ident = $their:ident),* })*) => {$(
        impl $(<$lt>)? Theirs for $ours $(<$lt>)? {
            type Type = theirs::$type $(<$their_lt>)?;
            fn theirs(&self) -> Self::Type {
                theirs::$type { $($their: self.$field.theirs()),* }
            }
        }
    )*};
}

macro_rules! themselves {
    ($($type:ty),*) => {$(
        impl Theirs for $type {
            type Type = $type;
            fn theirs(&self) -> $type {
                *self
            }
        }
    )*};
}

themselves!(u32, u64, bool);

impl<T: Theirs<Type: Pack + Unpack>> Theirs for Option<T> {
    type Type = theirs::Nfs3Option<T::Type>;
    fn theirs(&self) -> Self::Type {
        match self {
            Some(value) => theirs::Nfs3Option::Some(value.theirs()),
            None => theirs::Nfs3Option::None,
        }
    }
}

impl<T: Theirs, F: Theirs> Theirs for Outcome<T, F> {
    type Type = theirs::Nfs3Result<T::Type, F::Type>;
    fn theirs(&self) -> Self::Type {
        match self {
            Ok(value) => theirs::Nfs3Result::Ok(value.theirs()),
            Err(Failure { status, detail }) => {
                theirs::Nfs3Result::Err((status.theirs(), detail.theirs()))
            }
        }
    }
}

impl Theirs for () {
    type Type = Void;
    fn theirs(&self) -> Void {
        Void
    }
}

impl Theirs for FileHandle {
    type Type = theirs::nfs_fh3;
    fn theirs(&self) -> theirs::nfs_fh3 {
        theirs::nfs_fh3 {
            data: Opaque::owned(self.as_bytes().to_vec()),
        }
    }
}

impl<'a> Theirs for &'a [u8] {
    type Type = theirs::filename3<'a>;
    fn theirs(&self) -> theirs::filename3<'a> {
        (*self).into()
    }
}

impl<'a> Theirs for millrace_wire::xdr::Bulk<'a> {
    type Type = Opaque<'a>;
    fn theirs(&self) -> Opaque<'a> {
        Opaque::borrowed(self.as_inline().unwrap())
    }
}

impl Theirs for SetTime {
    type Type = (theirs::set_atime, theirs::set_mtime);
    fn theirs(&self) -> Self::Type {
        use theirs::{set_atime, set_mtime};
        match self {
            Self::Keep => (set_atime::DONT_CHANGE, set_mtime::DONT_CHANGE),
            Self::ServerTime => (set_atime::SET_TO_SERVER_TIME, set_mtime::SET_TO_SERVER_TIME),
            Self::To(time) => (
                set_atime::SET_TO_CLIENT_TIME(time.theirs()),
                set_mtime::SET_TO_CLIENT_TIME(time.theirs()),
            ),
        }
    }
}

impl Theirs for SetAttributes {
    type Type = theirs::sattr3;
    fn theirs(&self) -> theirs::sattr3 {
        theirs::sattr3 {
            mode: self.mode.theirs(),
            uid: self.uid.theirs(),
            gid: self.gid.theirs(),
            size: self.size.theirs(),
            atime: self.accessed.theirs().0,
            mtime: self.modified.theirs().1,
        }
    }
}

impl Theirs for CreateHow {
    type Type = theirs::createhow3;
    fn theirs(&self) -> theirs::createhow3 {
        match self {
            Self::Unchecked(attributes) => theirs::createhow3::UNCHECKED(attributes.theirs()),
            Self::Guarded(attributes) => theirs::createhow3::GUARDED(attributes.theirs()),
            Self::Exclusive(verifier) => {
                theirs::createhow3::EXCLUSIVE(theirs::createverf3(*verifier))
            }
        }
    }
}

impl Theirs for Node {
    type Type = theirs::mknoddata3;
    fn theirs(&self) -> theirs::mknoddata3 {
        let device = |attributes: &SetAttributes, device: &Device| theirs::devicedata3 {
            dev_attributes: attributes.theirs(),
            spec: device.theirs(),
        };
        match self {
            Self::Character(attributes, numbers) => {
                theirs::mknoddata3::NF3CHR(device(attributes, numbers))
            }
            Self::Block(attributes, numbers) => {
                theirs::mknoddata3::NF3BLK(device(attributes, numbers))
            }
            Self::Socket(attributes) => theirs::mknoddata3::NF3SOCK(attributes.theirs()),
            Self::Fifo(attributes) => theirs::mknoddata3::NF3FIFO(attributes.theirs()),
            Self::Other(_) => theirs::mknoddata3::default,
        }
    }
}

impl<'a> Theirs for SymlinkArguments<'a> {
    type Type = theirs::SYMLINK3args<'a>;
    fn theirs(&self) -> Self::Type {
        theirs::SYMLINK3args {
            where_: self.entry.theirs(),
            symlink: theirs::symlinkdata3 {
                symlink_attributes: self.attributes.theirs(),
                symlink_data: theirs::nfspath3(self.text.theirs()),
            },
        }
    }
}

impl<'a> Theirs for RenameArguments<'a> {
    type Type = theirs::RENAME3args<'a, 'a>;
    fn theirs(&self) -> Self::Type {
        theirs::RENAME3args {
            from: self.from.theirs(),
            to: self.to.theirs(),
        }
    }
}

macro_rules! verifiers {
    ($($field:ident: $ours:ty => $type:ident { $($name:ident = $their:ident),* } $verf:ident: $wrap:ident;)*) => {$(
        impl Theirs for $ours {
            type Type = theirs::$type;
            fn theirs(&self) -> theirs::$type {
                theirs::$type { $verf: theirs::$wrap(self.$field), $($their: self.$name.theirs()),* }
            }
        }
    )*};
}

verifiers! {
    verifier: WriteOk => WRITE3resok { file = file_wcc, count = count, committed = committed }
        verf: writeverf3;
    verifier: CommitOk => COMMIT3resok { file = file_wcc } verf: writeverf3;
    verifier: ReaddirArguments => READDIR3args { directory = dir, cookie = cookie, count = count }
        cookieverf: cookieverf3;
    verifier: ReaddirplusArguments => READDIRPLUS3args {
        directory = dir, cookie = cookie, dircount = dircount, maxcount = maxcount
    } cookieverf: cookieverf3;
}

same_fields! {
    Time => nfstime3 { seconds = seconds, nanoseconds = nseconds }
    Device => specdata3 { major = specdata1, minor = specdata2 }
    FileAttributes => fattr3 {
        kind = type_, mode = mode, links = nlink, uid = uid, gid = gid, size = size, used = used,
        device = rdev, fsid = fsid, fileid = fileid, accessed = atime, modified = mtime,
        changed = ctime
    }
    BeforeAttributes => wcc_attr { size = size, modified = mtime, changed = ctime }
    WeakCacheData => wcc_data { before = before, after = after }
    NameInDirectory<'a> => diropargs3<'a> { directory = dir, name = name }
    SetattrArguments => SETATTR3args {
        object = object, attributes = new_attributes, guard = guard
    }
    AccessArguments => ACCESS3args { object = object, access = access }
    ReadArguments => READ3args { file = file, offset = offset, count = count }
    WriteArguments<'a> => WRITE3args<'a> {
        file = file, offset = offset, count = count, stable = stable, data = data
    }
    CreateArguments<'a> => CREATE3args<'a> { entry = where_, how = how }
    MkdirArguments<'a> => MKDIR3args<'a> { entry = where_, attributes = attributes }
    MknodArguments<'a> => MKNOD3args<'a> { entry = where_, node = what }
    LinkArguments<'a> => LINK3args<'a> { object = file, entry = link }
    CommitArguments => COMMIT3args { file = file, offset = offset, count = count }
    LookupOk => LOOKUP3resok {
        object = object, attributes = obj_attributes, directory = dir_attributes
    }
    AccessOk => ACCESS3resok { attributes = obj_attributes, access = access }
    ReadOk<'a> => READ3resok<'a> {
        attributes = file_attributes, count = count, eof = eof, data = data
    }
    CreateOk => CREATE3resok {
        object = obj, attributes = obj_attributes, directory = dir_wcc
    }
    RenameDirectories => RENAME3resok { from = fromdir_wcc, to = todir_wcc }
    LinkObjects => LINK3resok { attributes = file_attributes, directory = linkdir_wcc }
    FsstatOk => FSSTAT3resok {
        attributes = obj_attributes, total_bytes = tbytes, free_bytes = fbytes,
        available_bytes = abytes, total_files = tfiles, free_files = ffiles,
        available_files = afiles, invariant_seconds = invarsec
    }
    FsinfoOk => FSINFO3resok {
        attributes = obj_attributes, read_max = rtmax, read_preferred = rtpref,
        read_multiple = rtmult, write_max = wtmax, write_preferred = wtpref,
        write_multiple = wtmult, readdir_preferred = dtpref, max_file_size = maxfilesize,
        time_delta = time_delta, properties = properties
    }
    PathconfOk => PATHCONF3resok {
        attributes = obj_attributes, link_max = linkmax, name_max = name_max,
        no_truncation = no_trunc, chown_restricted = chown_restricted,
        case_insensitive = case_insensitive, case_preserving = case_preserving
    }
    Name<'a> => entry3<'a> { fileid = fileid, name = name, cookie = cookie }
    NamePlus<'a> => entryplus3<'a> {
        fileid = fileid, name = name, cookie = cookie, attributes = name_attributes,
        handle = name_handle
    }
}

fn pack(value: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = value.pack(&mut bytes).unwrap();
    assert_eq!(length, bytes.len());
    bytes
}

fn repack<T: Pack + Unpack>(_like: &T, mut bytes: &[u8]) -> Vec<u8> {
    let (value, _) = T::unpack(&mut bytes).unwrap();
    assert!(bytes.is_empty());
    pack(&value)
}

macro_rules! agree {
    ($($test:ident: $type:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test(pool in pool()) {
                    let ours: $type = Source::new(&pool).draw();
                    let their = ours.theirs();
                    let (our_bytes, their_bytes) = (encode(&ours), pack(&their));
                    prop_assert_eq!(&our_bytes, &their_bytes);
                    prop_assert_eq!(from_bytes::<$type>(&their_bytes), Ok(ours));
                    prop_assert_eq!(repack(&their, &our_bytes), their_bytes);
                }
            )*
        }
    };
}

agree! {
    setattr_arguments: SetattrArguments;
    lookup_arguments: EntryArguments<'_>;
    access_arguments: AccessArguments;
    read_arguments: ReadArguments;
    write_arguments: WriteArguments<'_>;
    create_arguments: CreateArguments<'_>;
    mkdir_arguments: MkdirArguments<'_>;
    symlink_arguments: SymlinkArguments<'_>;
    mknod_arguments: MknodArguments<'_>;
    rename_arguments: RenameArguments<'_>;
    link_arguments: LinkArguments<'_>;
    readdir_arguments: ReaddirArguments;
    readdirplus_arguments: ReaddirplusArguments;
    commit_arguments: CommitArguments;
    getattr_results: GetattrResults;
    setattr_results: SetattrResults;
    lookup_results: LookupResults;
    access_results: AccessResults;
    read_results: ReadResults<'_>;
    write_results: WriteResults;
    create_results: CreateResults;
    rename_results: RenameResults;
    link_results: LinkResults;
    fsstat_results: FsstatResults;
    fsinfo_results: FsinfoResults;
    pathconf_results: PathconfResults;
    commit_results: CommitResults;
}

proptest! {
    #[test]
    fn readdirplus_results(pool in pool(), count in 0usize..8, eof: bool, verifier: [u8; 8]) {
        let mut source = Source::new(&pool);
        let attributes: PostAttributes = source.draw();
        let entries: Vec<NamePlus<'_>> = (0..count).map(|_| source.draw()).collect();
        let their = theirs::READDIRPLUS3res::Ok(theirs::READDIRPLUS3resok {
            dir_attributes: attributes.theirs(),
            cookieverf: theirs::cookieverf3(verifier),
            reply: theirs::dirlistplus3 {
                entries: TheirList(entries.iter().map(Theirs::theirs).collect()),
                eof,
            },
        });
        let their_bytes = pack(&their);

        let mut room = vec![0; 16384];
        let mut out = Encoder::new(&mut room);
        let mut list =
            DirectoryWriter::readdirplus(&mut out, 8192, 16384, attributes, verifier).unwrap();
        for entry in &entries {
            prop_assert!(list.push(entry));
        }
        list.finish(eof).unwrap();
        prop_assert_eq!(out.written(), &their_bytes);

        let decoded = from_bytes::<ReaddirplusResults<'_>>(&their_bytes).unwrap().unwrap();
        prop_assert_eq!((decoded.attributes, decoded.verifier, decoded.eof), (attributes, verifier, eof));
        prop_assert!(decoded.entries.iter().eq(entries));
    }

    #[test]
    fn readdir_results(pool in pool(), count in 0usize..8, eof: bool, verifier: [u8; 8]) {
        let mut source = Source::new(&pool);
        let attributes: PostAttributes = source.draw();
        let entries: Vec<Name<'_>> = (0..count).map(|_| source.draw()).collect();
        let their = theirs::READDIR3res::Ok(theirs::READDIR3resok {
            dir_attributes: attributes.theirs(),
            cookieverf: theirs::cookieverf3(verifier),
            reply: theirs::dirlist3 {
                entries: TheirList(entries.iter().map(Theirs::theirs).collect()),
                eof,
            },
        });
        let their_bytes = pack(&their);

        let mut room = vec![0; 16384];
        let mut out = Encoder::new(&mut room);
        let mut list = DirectoryWriter::readdir(&mut out, 16384, attributes, verifier).unwrap();
        for entry in &entries {
            prop_assert!(list.push(entry));
        }
        list.finish(eof).unwrap();
        prop_assert_eq!(out.written(), &their_bytes);

        let decoded = from_bytes::<ReaddirResults<'_>>(&their_bytes).unwrap().unwrap();
        prop_assert!(decoded.entries.iter().eq(entries));
    }
}

#[test]
fn status_names_are_theirs() {
    for status in Status::ALL {
        assert_eq!(status.name(), status.theirs().to_string());
    }
}
