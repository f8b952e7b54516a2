//! Attributes of NFS version 4: bitmaps, values in order, what is set, and READDIR.

mod common;

use common::{encode, hex};
use millrace_wire::nfs4::*;
use millrace_wire::xdr::{Array, Encoder, Error, from_bytes};

const SERVED: [Attribute<'static>; 4] = [
    Attribute::Mode(0o644),
    Attribute::Size(0x1234),
    Attribute::Type(ObjectType::Regular),
    Attribute::MountedOnFileId(9),
];

fn encoded(wanted: Bitmap) -> Vec<u8> {
    let mut room = [0; 256];
    let mut out = Encoder::new(&mut room);
    encode_attributes(&mut out, wanted, &SERVED.as_slice()).unwrap();
    out.written().to_vec()
}

#[test]
fn v4_attr_02_bitmaps_of_any_length_decode() {
    for (bytes, numbers, has_unknown) in [
        ("00000000", &[][..], false),
        ("00000001 00000012", &[1, 4], false),
        ("00000003 80000000 00000001 80000000", &[31, 32, 95], false),
        (
            "00000005 00000001 00000000 00000000 00000000 00000000",
            &[0],
            false,
        ),
        (
            "00000005 00000001 00000000 00000000 00000000 00000001",
            &[0],
            true,
        ),
    ] {
        let bitmap: Bitmap = from_bytes(&hex(bytes)).unwrap();
        assert!(
            bitmap.iter().eq(numbers.iter().copied()),
            "{bytes}: {bitmap:?}"
        );
        assert_eq!(bitmap.has_unknown(), has_unknown, "{bytes}");
    }
    for short in [
        "00000001",
        "00000004 00000000 00000000 00000000",
        "ffffffff 00000000",
    ] {
        assert_eq!(from_bytes::<Bitmap>(&hex(short)), Err(Error::Truncated));
    }
}

#[test]
fn bitmaps_encode_without_words_that_are_zero_at_the_end() {
    let mut bitmap = Bitmap::EMPTY;
    assert_eq!(encode(&bitmap), hex("00000000"));
    assert!(bitmap.insert(33));
    assert_eq!(encode(&bitmap), hex("00000002 00000000 00000002"));
    assert!(!bitmap.insert(96));
    assert_eq!(encode(&bitmap.without(&bitmap)), hex("00000000"));
}

#[test]
fn v4_attr_02_what_is_served_is_encoded_in_order_and_the_rest_left_out() {
    let all = Bitmap::from_words([u32::MAX; 3]);
    let values = "00000001 00000000 00001234 000001a4 00000000 00000009";
    let expected = format!("00000003 00000012 00800002 00000000 00000018 {values}");
    assert_eq!(encoded(all), hex(&expected));
    let wanted = Bitmap::of(&[AttributeNumber::Size, AttributeNumber::FileId]);
    assert_eq!(
        encoded(wanted),
        hex("00000001 00000010 00000008 00000000 00001234")
    );
    assert_eq!(encoded(Bitmap::EMPTY), hex("00000000 00000000"));
}

#[test]
fn encoded_attributes_are_read_one_by_one() {
    let bytes = encoded(AttributeNumber::KNOWN);
    let attributes: Attributes<'_> = from_bytes(&bytes).unwrap();
    let found: Result<Vec<_>, _> = attributes.iter().collect();
    let mut served = SERVED;
    served.sort_by_key(|one| one.number().number());
    assert_eq!(found.unwrap(), served);
    assert_eq!(
        attributes.get(AttributeNumber::Mode),
        Ok(Some(Attribute::Mode(0o644)))
    );
    assert_eq!(attributes.get(AttributeNumber::FileId), Ok(None));
}

#[test]
fn values_that_are_cut_off_or_left_over_are_malformed() {
    let mask = Bitmap::of(&[AttributeNumber::Size, AttributeNumber::Mode]);
    let values = hex("00000000 00000007 000001ff 00000000");
    for end in 0..=values.len() {
        let values = &values[..end];
        let found = SettableAttributes::decode(&Attributes { mask, values });
        match end {
            12 => {
                let found = found.unwrap();
                assert_eq!((found.size, found.mode), (Some(7), Some(0o777)));
            }
            ..12 => assert_eq!(found, Err(Error::Truncated), "{end}"),
            _ => assert_eq!(found, Err(Error::Value), "{end}"),
        }
    }
}

#[test]
fn unknown_attributes_end_the_values() {
    // 14 is archive, which is not in the table; 96 is beyond the words that are kept.
    let archive = hex("00000001 00004010 0000000c 00000000 00000007 00000001");
    let beyond = hex("00000004 00000010 00000000 00000000 00000001 00000008 00000000 00000007");
    for bytes in [archive, beyond] {
        let attributes: Attributes<'_> = from_bytes(&bytes).unwrap();
        let found: Vec<_> = attributes.iter().collect();
        assert_eq!(found, [Ok(Attribute::Size(7)), Err(Error::Value)]);
        assert!(
            !attributes
                .mask
                .without(&AttributeNumber::SETTABLE)
                .is_empty()
        );
    }
}

#[test]
fn what_can_be_set_and_not_read() {
    let numbers = |mask: Bitmap| mask.iter().collect::<Vec<_>>();
    assert_eq!(numbers(AttributeNumber::SET_ONLY), [48, 54, 74, 81]);
    assert_eq!(
        numbers(AttributeNumber::SETTABLE),
        [4, 12, 33, 36, 37, 48, 50, 54, 74, 81]
    );
    let versions = AttributeNumber::ALL
        .iter()
        .filter(|number| number.minor_version() == 2);
    assert!(
        versions
            .map(|number| number.number())
            .eq([77, 79, 81, 82, 86])
    );
}

#[test]
fn all_that_is_settable_is_read() {
    let entries = [AccessControlEntry {
        kind: 0,
        flags: 0,
        mask: ace_mask::READ_DATA,
        who: b"OWNER@",
    }];
    let time = Timestamp {
        seconds: -1,
        nanoseconds: 5,
    };
    let masked = MaskedMode { value: 1, mask: 3 };
    let with_umask = ModeWithUmask {
        mode: 0o666,
        umask: 0o22,
    };
    let given = [
        Attribute::TimeModifySet(TimeToSet::Client(time)),
        Attribute::TimeAccessSet(TimeToSet::Server),
        Attribute::TimeCreate(time),
        Attribute::Size(1),
        Attribute::Acl(Array::new(&entries)),
        Attribute::Mode(2),
        Attribute::ModeSetMasked(masked),
        Attribute::ModeUmask(with_umask),
        Attribute::Owner(b"1000"),
        Attribute::OwnerGroup(b"wheel@example"),
    ];
    let mut room = [0; 256];
    let attributes = Attributes::build(&given, &mut room).unwrap();
    assert_eq!(attributes.mask, AttributeNumber::SETTABLE);
    let expected = SettableAttributes {
        size: Some(1),
        acl: Some(Array::new(&entries)),
        mode: Some(2),
        masked_mode: Some(masked),
        mode_with_umask: Some(with_umask),
        owner: Some(b"1000"),
        group: Some(b"wheel@example"),
        accessed: Some(TimeToSet::Server),
        modified: Some(TimeToSet::Client(time)),
        created: Some(time),
    };
    assert_eq!(SettableAttributes::decode(&attributes), Ok(expected));
    let twice = [Attribute::Size(1), Attribute::Size(2)];
    assert_eq!(Attributes::build(&twice, &mut [0; 64]), Err(Error::Value));
}

#[test]
fn entries_stop_at_the_bounds_of_readdir() {
    let wanted = Bitmap::of(&[AttributeNumber::Size]);
    let listed = |dircount, maxcount| {
        let arguments = ReaddirOperation {
            cookie: 0,
            verifier: [0; 8],
            dircount,
            maxcount,
            attributes: wanted,
        };
        let mut room = [0; 1024];
        let mut out = Encoder::new(&mut room);
        let mut list = write_readdir(&mut out, &arguments, [7; 8]).unwrap();
        for cookie in 3..8 {
            let attributes = SERVED.as_slice();
            if !list.push(&NameToList {
                cookie,
                name: b"name",
                wanted,
                attributes,
            }) {
                break;
            }
        }
        let count = list.count();
        list.finish(false).unwrap();
        let reply: OperationOutcome<ReaddirReply<'_>> = from_bytes(out.written()).unwrap();
        let reply = reply.unwrap();
        assert_eq!(
            (reply.verifier, reply.eof, reply.entries.len()),
            ([7; 8], false, count)
        );
        for (entry, cookie) in reply.entries.iter().zip(3..) {
            assert_eq!((entry.cookie, entry.name), (cookie, b"name".as_slice()));
            assert_eq!(
                entry.attributes.get(AttributeNumber::Size),
                Ok(Some(Attribute::Size(0x1234)))
            );
        }
        count
    };
    // Verifier and end take 16 bytes, each entry 40, of which name and cookie take 16.
    assert_eq!(listed(0, 1024), 5);
    assert_eq!(listed(0, 16 + 40), 1);
    assert_eq!(listed(0, 16 + 2 * 40 - 1), 1);
    assert_eq!(listed(0, 16 + 39), 0);
    assert_eq!(listed(1, 1024), 1);
    assert_eq!(listed(60, 1024), 3);
}
