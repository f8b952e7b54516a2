//! What is encoded decodes to the same; cut off, it decodes to nothing; changed anywhere, it
//! decodes to something or to an error, and to no panic.

mod common;

use common::{Source, encode, pool};
use millrace_wire::nfs3::*;
use millrace_wire::xdr::{Decode, Encoder, Error, List, encode_list, from_bytes, to_bytes};
use millrace_wire::{mount, rpc, rpcbind, rpcrdma};
use proptest::prelude::*;

macro_rules! round_trips {
    ($($test:ident: $type:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test(pool in pool(), at in any::<prop::sample::Index>(), with in 1u8..) {
                    let value: $type = Source::new(&pool).draw();
                    let mut bytes = encode(&value);
                    {
                        let decoded = from_bytes::<$type>(&bytes);
                        prop_assert_eq!(decoded.as_ref(), Ok(&value));
                    }
                    let mut room = vec![0; bytes.len()];
                    for end in 0..bytes.len() {
                        let cut = from_bytes::<$type>(&bytes[..end]);
                        prop_assert!(cut.is_err(), "{value:?} from its first {end} bytes");
                        prop_assert_eq!(to_bytes(&value, &mut room[..end]), Err(Error::Full));
                    }
                    if !bytes.is_empty() {
                        let at = at.index(bytes.len());
                        bytes[at] ^= with;
                        let _ = from_bytes::<$type>(&bytes);
                    }
                }
            )*
        }
    };
}

round_trips! {
    object_arguments: ObjectArguments;
    entry_arguments: EntryArguments<'_>;
    setattr_arguments: SetattrArguments;
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
    readlink_results: ReadlinkResults<'_>;
    read_results: ReadResults<'_>;
    write_results: WriteResults;
    create_results: CreateResults;
    remove_results: RemoveResults;
    rename_results: RenameResults;
    link_results: LinkResults;
    fsstat_results: FsstatResults;
    fsinfo_results: FsinfoResults;
    pathconf_results: PathconfResults;
    commit_results: CommitResults;
    credential: rpc::Credential<'_>;
    reply_header: rpc::ReplyHeader<'_>;
    segment: rpcrdma::Segment;
    mount_path: mount::Path<'_>;
    mount_results: mount::MountResults;
    mapping: rpcbind::Mapping;
    registration: rpcbind::Registration<'_>;
    transport_address: rpcbind::TransportAddress<'_>;
}

proptest! {
    #[test]
    fn call_header(pool in pool(), at in any::<prop::sample::Index>(), with in 1u8..) {
        use millrace_wire::xdr::Decoder;
        let value: rpc::CallHeader<'_> = Source::new(&pool).draw();
        let mut bytes = encode(&value);
        {
            let decoded = rpc::CallHeader::decode(&mut Decoder::new(&bytes));
            prop_assert_eq!(decoded.as_ref(), Ok(&value));
        }
        for end in 0..bytes.len() {
            let cut = rpc::CallHeader::decode(&mut Decoder::new(&bytes[..end]));
            let error = cut.unwrap_err();
            prop_assert_eq!(error.answer().is_some(), end >= 8, "{} bytes: {:?}", end, error);
        }
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        let _ = rpc::CallHeader::decode(&mut Decoder::new(&bytes));
    }

    #[test]
    fn lists(pool in pool(), count in 0usize..20, at in any::<prop::sample::Index>(), with in 1u8..) {
        let mut source = Source::new(&pool);
        let items: Vec<rpcbind::AddressEntry<'_>> = (0..count).map(|_| source.draw()).collect();
        let mut bytes = vec![0; 65536];
        let mut out = Encoder::new(&mut bytes);
        encode_list(&items, &mut out).unwrap();
        let length = out.position();
        bytes.truncate(length);
        {
            let list = from_bytes::<rpcbind::AddressList<'_>>(&bytes).unwrap();
            prop_assert_eq!(list.len(), items.len());
            prop_assert!(list.iter().eq(items.iter().copied()));
            let mut again = vec![0; length];
            prop_assert_eq!(to_bytes(&list, &mut again), Ok(length));
            prop_assert_eq!(&again, &bytes);
        }
        for end in 0..length {
            prop_assert!(from_bytes::<rpcbind::AddressList<'_>>(&bytes[..end]).is_err());
        }
        let at = at.index(length);
        bytes[at] ^= with;
        if let Ok(list) = from_bytes::<rpcbind::AddressList<'_>>(&bytes) {
            prop_assert_eq!(list.iter().count(), list.len());
        }
    }

    #[test]
    fn exports(pool in pool(), counts in prop::collection::vec(0usize..4, 0..5)) {
        let mut source = Source::new(&pool);
        let entries: Vec<(mount::Path<'_>, Vec<mount::Name<'_>>)> = counts
            .into_iter()
            .map(|count| (source.draw(), (0..count).map(|_| source.draw()).collect()))
            .collect();
        let mut bytes = vec![0; 65536];
        let mut out = Encoder::new(&mut bytes);
        let sent = entries
            .iter()
            .map(|(path, groups)| mount::ExportEntry { path: *path, groups: groups.iter().copied() });
        encode_list(sent, &mut out).unwrap();
        let received = from_bytes::<mount::ExportResults<'_>>(out.written()).unwrap();
        let received: Vec<_> =
            received.iter().map(|export| (export.path, export.groups.iter().collect())).collect();
        prop_assert_eq!(received, entries);
    }

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fn walk<'a, T: Decode<'a>>(bytes: &'a [u8]) -> usize {
            from_bytes::<List<'_, T>>(bytes).map_or(0, |list| list.iter().count())
        }
        walk::<Name<'_>>(&bytes);
        walk::<NamePlus<'_>>(&bytes);
        walk::<mount::Export<'_>>(&bytes);
        walk::<()>(&bytes);
        let _ = from_bytes::<ReaddirResults<'_>>(&bytes);
        let _ = from_bytes::<ReaddirplusResults<'_>>(&bytes);
        let _ = rpc::peek(&bytes);
        let _ = rpcbind::parse_address(&bytes);
    }
}
