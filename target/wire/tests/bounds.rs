//! Budgets, bounds and small formats: directories, record marks, private data, addresses, RPC.

mod common;

use std::net::SocketAddr;

use common::{Source, encode, hex, pool};
use millrace_wire::nfs3::{
    DirectoryWriter, Failure, Name, NamePlus, PostAttributes, ReadResults, Status,
};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::*;
use millrace_wire::rpcbind::{Netid, parse_address, universal_address};
use millrace_wire::rpcrdma::Version;
use millrace_wire::xdr::{Decoder, Encode, Encoder, Error, from_bytes, to_bytes};
use proptest::prelude::*;

#[test]
fn words_and_booleans_are_strict() {
    assert_eq!(Decoder::new(&hex("00000002")).bool(), Err(Error::Value));
    assert_eq!(Decoder::new(&hex("fffffffe")).i32(), Ok(-2));
    assert_eq!(Decoder::new(&hex("fffffffffffffffe")).i64(), Ok(-2));
    assert_eq!(
        Decoder::new(&hex("00000005")).opaque(4),
        Err(Error::TooLong)
    );
    assert_eq!(
        Decoder::new(&hex("ffffffff")).opaque(usize::MAX),
        Err(Error::Truncated)
    );
}

#[test]
fn patch_reaches_only_what_was_written() {
    let mut bytes = [0; 8];
    let mut out = Encoder::new(&mut bytes);
    out.u32(1).unwrap();
    assert_eq!(out.patch_u32(0, 2), Ok(()));
    for position in [1, 4, usize::MAX] {
        assert_eq!(out.patch_u32(position, 2), Err(Error::Full));
    }
    assert_eq!(out.written(), hex("00000002"));
}

#[test]
fn failure_with_status_ok_does_not_encode() {
    let results: ReadResults<'_> = Err(Failure {
        status: Status::Ok,
        detail: None,
    });
    assert_eq!(to_bytes(&results, &mut [0; 64]), Err(Error::Value));
    assert_eq!(from_bytes::<Status>(&hex("00000003")), Err(Error::Value));
}

proptest! {
    #[test]
    fn directory_keeps_to_its_counts(
        pool in pool(), dircount in 0u32..3000, maxcount in 0u32..3000, room in 0usize..3000,
    ) {
        let mut source = Source::new(&pool);
        let attributes: PostAttributes = source.draw();
        let mut bytes = vec![0; room];
        let mut out = Encoder::new(&mut bytes);
        let list = DirectoryWriter::readdirplus(&mut out, dircount, maxcount, attributes, [0; 8]);
        let Ok(mut list) = list else {
            prop_assert!(room < 4 + 4 + 84 + 8 + 8);
            return Ok(());
        };
        let mut names = 0;
        let refused = loop {
            let entry: NamePlus<'_> = source.draw();
            let size = encode(&entry).len();
            if !list.push(&entry) {
                break size;
            }
            names += 20 + entry.name.len().next_multiple_of(4);
            if list.count() == 200 {
                break 0;
            }
        };
        let count = list.count();
        list.finish(false).unwrap();
        let length = out.position() - 4;
        prop_assert!(count == 0 || length <= maxcount as usize);
        prop_assert!(count <= 1 || names <= dircount as usize);
        // Stopped for a reason: the next one would have broken a budget or the room.
        let least = 20;
        prop_assert!(
            refused == 0
                || length + 4 + refused > maxcount as usize
                || out.remaining() < 4 + refused
                || names + least > dircount as usize
                || names + refused > dircount as usize
        );
    }

    #[test]
    fn records_in_pieces_of_any_size(
        records in prop::collection::vec(prop::collection::vec(0usize..40, 1..4), 0..6),
        pieces in prop::collection::vec(1usize..30, 1..20),
        direct: bool,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (number, fragments) in records.iter().enumerate() {
            let mut record = Vec::new();
            for (at, &length) in fragments.iter().enumerate() {
                let last = at + 1 == fragments.len();
                stream.extend(RecordMark { last, length: length as u32 }.to_bytes());
                stream.extend(vec![number as u8; length]);
                record.extend(vec![number as u8; length]);
            }
            expected.push(record);
        }
        let mut scanner = RecordScanner::new(200);
        let (mut found, mut current) = (Vec::new(), Vec::<u8>::new());
        let mut rest = &stream[..];
        for length in pieces.into_iter().cycle() {
            let (mut piece, later) = rest.split_at(length.min(rest.len()));
            rest = later;
            if direct {
                let (seen, later) = piece.split_at(scanner.left().min(piece.len()));
                current.extend(seen);
                scanner.skip(seen.len());
                piece = later;
            }
            while let Some(fragment) = scanner.next(&mut piece).unwrap() {
                match fragment {
                    Fragment::Bytes(bytes) => current.extend(bytes),
                    Fragment::End => found.push(std::mem::take(&mut current)),
                }
                prop_assert!(scanner.announced() >= current.len());
            }
            prop_assert!(piece.is_empty());
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(scanner.between_records());
    }

    #[test]
    fn addresses_round_trip(address: std::net::IpAddr, port: u16) {
        let address = SocketAddr::new(address, port);
        prop_assert_eq!(parse_address(universal_address(address).as_bytes()), Some(address));
    }

    #[test]
    fn private_data_is_found_behind_anything(
        before in prop::collection::vec(any::<u8>(), 0..40),
        invalidation: bool, send in 0usize..600_000, receive in 0usize..600_000,
    ) {
        let sent = PrivateData {
            remote_invalidation: invalidation, send_size: send, receive_size: receive,
        };
        let mut bytes = before;
        bytes.extend(sent.to_bytes());
        let found = PrivateData::find(&bytes).unwrap();
        prop_assert_eq!(found.remote_invalidation, invalidation);
        let rounded = |size: usize| (size / 1024 * 1024).clamp(1024, 262_144);
        prop_assert_eq!((found.send_size, found.receive_size), (rounded(send), rounded(receive)));
        prop_assert_eq!(PrivateData::find(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn a_side_that_says_nothing_has_the_sizes_that_all_take(
        send in 1024usize..300_000, receive in 1024usize..300_000, two: bool,
    ) {
        let (version, least) = if two { (Version::Two, 4096) } else { (Version::One, 1024) };
        let silent = PrivateData::unstated(version);
        prop_assert_eq!(silent.inline_to(&silent), least);
        let stated = PrivateData {
            remote_invalidation: true, send_size: send, receive_size: receive,
        };
        prop_assert_eq!(silent.inline_to(&stated), least.min(receive));
        prop_assert_eq!(stated.inline_to(&silent), least.min(send));
        prop_assert!(!silent.remote_invalidation);
    }
}

#[test]
fn mpa_interop_08_private_data_golden() {
    let ours = PrivateData {
        remote_invalidation: true,
        send_size: 4096,
        receive_size: 8192,
    };
    assert_eq!(ours.to_bytes()[..], hex("f6ab0e18 01 01 03 07"));
    let reserved_bits = hex("0080 f6ab0e18 01 fe 00 ff");
    let theirs = PrivateData::find(&reserved_bits).unwrap();
    assert_eq!(
        theirs,
        PrivateData {
            remote_invalidation: false,
            send_size: 1024,
            receive_size: 262_144
        }
    );
    assert_eq!(ours.inline_to(&theirs), 4096);
    assert_eq!(theirs.inline_to(&ours), 1024);
    assert_eq!(PrivateData::find(&hex("f6ab0e18 02 00 03 07")), None);
}

#[test]
fn record_bounds() {
    let mut scanner = RecordScanner::new(100);
    let mut bytes = &hex("00000040 ")[..];
    assert_eq!(scanner.next(&mut bytes), Ok(None));
    assert!(!scanner.between_records());
    let payload = [0; 64];
    assert_eq!(
        scanner.next(&mut &payload[..]),
        Ok(Some(Fragment::Bytes(&payload)))
    );
    let mut bytes = &hex("80000025")[..];
    assert_eq!(scanner.next(&mut bytes), Err(RecordError::TooLong(100)));
    assert_eq!(scanner.next(&mut bytes), Err(RecordError::TooLong(100)));

    let mut scanner = RecordScanner::new(100);
    let empty = [0; 400];
    assert_eq!(scanner.next(&mut &empty[..]), Err(RecordError::Empty));
    assert_eq!(RecordMark::whole(1 << 31), None);
    assert_eq!(
        RecordMark::whole(5).unwrap().to_bytes()[..],
        hex("80000005")
    );
}

#[test]
fn rr1_bind_01_netids_and_addresses() {
    let netids = Netid::ALL.map(Netid::name);
    assert_eq!(netids, ["tcp", "tcp6", "udp", "udp6", "rdma", "rdma6"]);
    for netid in Netid::ALL {
        assert_eq!(Netid::from_name(netid.name().as_bytes()), Some(netid));
        assert_eq!(netid.is_ipv6(), netid.name().ends_with('6'));
    }
    for (address, text) in [
        ("192.0.2.7:20049", "192.0.2.7.78.81"),
        ("[2001:db8::1]:111", "2001:db8::1.0.111"),
        ("0.0.0.0:2049", "0.0.0.0.8.1"),
    ] {
        let address: SocketAddr = address.parse().unwrap();
        assert_eq!(universal_address(address).as_str(), text);
        assert_eq!(parse_address(text.as_bytes()), Some(address));
    }
    for bad in [
        "",
        ".",
        "1.2.3.4.5",
        "1.2.3.4.256.1",
        "1.2.3.4.+1.1",
        "1.2.3.4..1",
        "::1.1.",
        "\u{e9}.1.1",
    ] {
        assert_eq!(parse_address(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn rr1_hdr_26_rpc_errors_are_ordinary_replies() {
    let mut room = [0; 64];
    for (status, tail) in [
        (Accepted::ProgramUnavailable, "00000001"),
        (
            Accepted::ProgramMismatch { low: 3, high: 4 },
            "00000002 00000003 00000004",
        ),
        (Accepted::ProcedureUnavailable, "00000003"),
        (Accepted::GarbageArguments, "00000004"),
        (Accepted::SystemError, "00000005"),
    ] {
        let length = to_bytes(&answer_to(9, status), &mut room).unwrap();
        let expected = hex(&format!(
            "00000009 00000001 00000000 00000000 00000000 {tail}"
        ));
        assert_eq!(room[..length], expected);
    }
}

#[test]
fn calls_that_deserve_an_error() {
    let decode = |text: &str| {
        let bytes = hex(text);
        let error = CallHeader::decode(&mut Decoder::new(&bytes)).unwrap_err();
        (error, error.answer().map(|answer| encode(&answer)))
    };
    let (error, answer) = decode("00000009 00000000 00000003");
    assert_eq!(error, CallError::Version { xid: 9, version: 3 });
    assert_eq!(
        answer,
        Some(hex("00000009 00000001 00000001 00000000 00000002 00000002"))
    );
    let (_, answer) = decode("00000009 00000000 00000002 00000001");
    assert_eq!(
        answer,
        Some(hex("00000009 00000001 00000001 00000001 00000001"))
    );
    assert_eq!(decode("00000009 00000001 00000002").1, None);
    assert_eq!(decode("00000009").1, None);
    // A credential of 404 bytes.
    let long = format!(
        "00000009 00000000 00000002 000186a3 00000003 00000000 00000001 00000194 {}",
        "00".repeat(404)
    );
    assert!(matches!(
        decode(&long).0,
        CallError::Malformed {
            error: Error::TooLong,
            ..
        }
    ));
}

#[test]
fn rpc_credentials_golden() {
    let bytes = hex("00000009 00000000 00000002 000186a3 00000003 00000006
         00000001 00000020 0000002a 00000003 61626300 000003e8 000003e9 00000002 00000001 00000002
         00000000 00000000");
    let header = CallHeader::decode(&mut Decoder::new(&bytes)).unwrap();
    let Credential::Sys(sys) = &header.credential else {
        panic!()
    };
    assert_eq!(
        (sys.stamp, sys.machine, sys.uid, sys.gid),
        (42, &b"abc"[..], 1000, 1001)
    );
    assert_eq!(sys.gids[..], [1, 2]);
    assert_eq!(encode(&header), bytes);

    // Seventeen groups, and a body longer than its content, are no good credentials.
    for count in [17, 1] {
        let mut bytes = bytes.clone();
        bytes[55] = count;
        let header = CallHeader::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(header.credential, Credential::Malformed);
    }
    assert_eq!(
        to_bytes(&Credential::Malformed, &mut [0; 8]),
        Err(Error::Value)
    );
}

#[test]
fn first_entry_passes_a_small_dircount() {
    let mut room = [0; 256];
    let mut out = Encoder::new(&mut room);
    let mut list = DirectoryWriter::readdirplus(&mut out, 1, 256, None, [0; 8]).unwrap();
    let entry = Name {
        fileid: 1,
        name: b"abc",
        cookie: 1,
    };
    assert!(list.push(&entry));
    assert!(!list.push(&entry));
    assert_eq!(list.count(), 1);
    let _: &dyn Encode = &entry;
}
