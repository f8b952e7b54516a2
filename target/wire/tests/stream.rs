//! Items that travel apart from the stream, and alignment pads, row by row.

mod common;

use common::{Source, encode, hex, pool};
use millrace_wire::nfs3::{FileHandle, ReadOk, Stability, SymlinkArguments, WriteArguments};
use millrace_wire::xdr::{
    Bulk, Data, Decode, Decoder, Encode, Encoder, Error, ITEMS_MAX, Padding, Taken, from_bytes, pad,
};
use proptest::prelude::*;

fn write_of(data: Bulk<'_>) -> WriteArguments<'_> {
    WriteArguments {
        file: FileHandle::new(&[7; 32]).unwrap(),
        offset: 4096,
        count: data.length,
        stable: Stability::Unstable,
        data,
    }
}

/// Encodes as one stream what stands apart, and says where.
fn reduced(values: &[&dyn Encode]) -> (Vec<u8>, Vec<Taken>) {
    let mut bytes = vec![0; 8192];
    let mut out = Encoder::new(&mut bytes);
    for value in values {
        value.encode(&mut out).unwrap();
    }
    (out.written().to_vec(), out.taken().to_vec())
}

#[test]
fn rr1_chunk_06_position_counts_from_the_first_byte() {
    let header = [0u8; 40];
    let (bytes, taken) = reduced(&[&header, &write_of(Bulk::apart(5))]);
    let whole = encode(&write_of(Bulk::inline(b"12345")));
    // File handle, offset, count, stability and the length word stand before the data.
    assert_eq!(
        taken,
        [Taken {
            position: 40 + 36 + 8 + 4 + 4 + 4,
            length: 5
        }]
    );
    assert_eq!(bytes.len(), taken[0].position as usize);
    assert_eq!(bytes[40..], whole[..56]);
}

#[test]
fn rr1_chunk_10_length_word_stays_in_the_stream() {
    let (bytes, _) = reduced(&[&write_of(Bulk::apart(5))]);
    assert_eq!(bytes[bytes.len() - 4..], [0, 0, 0, 5]);
}

#[test]
fn rr1_chunk_11_length_word_and_chunk_agree() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(6))]);
    for (length, agrees) in [
        (6, true),
        (8, true),
        (2, false),
        (10, false),
        (7, false),
        (5, false),
    ] {
        let taken = [Taken { length, ..taken[0] }];
        let mut input = Decoder::with_taken(&bytes, &taken);
        let decoded = WriteArguments::decode(&mut input);
        assert_eq!(decoded.is_ok(), agrees, "chunk of {length} bytes");
        if !agrees {
            assert_eq!(decoded, Err(Error::Misplaced));
        }
    }
}

#[test]
fn rr1_chunk_12_several_chunks_in_one_stream() {
    let (first, second) = (write_of(Bulk::apart(5)), write_of(Bulk::apart(12)));
    let (bytes, taken) = reduced(&[&first, &second, &9u32]);
    let mut input = Decoder::with_taken(&bytes, &taken);
    for (length, taken) in [5, 12].into_iter().zip(&taken) {
        let data = WriteArguments::decode(&mut input).unwrap().data;
        assert_eq!(
            data,
            Bulk {
                length,
                data: Data::Apart(taken.position)
            }
        );
    }
    assert_eq!(input.u32(), Ok(9));
    assert_eq!(input.finish(), Ok(()));
}

#[test]
fn rr1_chunk_19_results_use_up_chunks_in_order() {
    let result = |data| ReadOk {
        attributes: None,
        count: 3,
        eof: true,
        data,
    };
    let (bytes, _) = reduced(&[
        &result(Bulk::apart(3)),
        &result(Bulk::inline(b"abc")),
        &result(Bulk::apart(3)),
        &result(Bulk::inline(b"xyz")),
    ]);
    // The second chunk has no segments, and there is none for the fourth result.
    let chunks = [Some(3), None, Some(3)];
    let mut input = Decoder::with_results(&bytes, &chunks);
    let mut next = || ReadOk::decode(&mut input).unwrap().data;
    assert!(matches!(
        next(),
        Bulk {
            length: 3,
            data: Data::Apart(_)
        }
    ));
    assert_eq!(next().as_inline(), Some(&b"abc"[..]));
    assert!(matches!(
        next(),
        Bulk {
            length: 3,
            data: Data::Apart(_)
        }
    ));
    assert_eq!(next().as_inline(), Some(&b"xyz"[..]));
    assert_eq!(input.remaining(), 0);
}

#[test]
fn rr1_chunk_29_positions_that_nothing_reaches() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(8)), &1u32]);
    let at = taken[0].position;
    // In the file handle, in a word, at a word, behind the end, and in another chunk.
    for taken in [
        vec![Taken {
            position: 8,
            length: 8,
        }],
        vec![Taken {
            position: at - 4,
            length: 8,
        }],
        vec![Taken {
            position: 0,
            length: 8,
        }],
        vec![
            taken[0],
            Taken {
                position: at + 400,
                length: 8,
            },
        ],
        vec![
            taken[0],
            Taken {
                position: at + 4,
                length: 8,
            },
        ],
        vec![
            taken[0],
            Taken {
                position: at + 8,
                length: 8,
            },
        ],
    ] {
        let mut input = Decoder::with_taken(&bytes, &taken);
        let decoded = WriteArguments::decode(&mut input).and_then(|_| input.u32());
        assert!(decoded.is_err() || input.finish().is_err(), "{taken:?}");
    }
}

#[test]
fn rr1_chunk_32_items_that_stay_are_not_taken_silently() {
    // A name in a chunk: the decoder refuses rather than lose bytes.
    let entry = hex("00000004 61626364 00000003");
    let taken = [Taken {
        position: 12,
        length: 3,
    }];
    let mut input = Decoder::with_taken(&entry, &taken);
    assert!(FileHandle::decode(&mut input).is_ok());
    assert_eq!(<&[u8]>::decode(&mut input), Err(Error::Truncated));
}

#[test]
fn rr1_pad_02_chunk_may_hold_its_pad() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(5)), &77u32]);
    for length in [5, 8] {
        let taken = [Taken { length, ..taken[0] }];
        let mut input = Decoder::with_taken(&bytes, &taken);
        assert_eq!(WriteArguments::decode(&mut input).unwrap().data.length, 5);
        assert_eq!(input.u32(), Ok(77));
        assert_eq!(input.finish(), Ok(()));
    }
}

#[test]
fn rr1_pad_03_decoding_goes_on_at_the_next_multiple_of_four() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(5)), &77u32]);
    let mut input = Decoder::with_taken(&bytes, &taken);
    WriteArguments::decode(&mut input).unwrap();
    assert_eq!(input.stream_position(), taken[0].position as usize + 8);
    assert_eq!(input.u32(), Ok(77));
}

#[test]
fn rr1_pad_04_no_pad_of_a_chunk_in_the_stream() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(5)), &77u32]);
    assert_eq!(bytes[taken[0].position as usize..], 77u32.to_be_bytes());
}

#[test]
fn rr1_pad_05_later_positions_count_the_pad() {
    let (_, taken) = reduced(&[
        &[0u8; 96],
        &Bulk::apart(5),
        &Bulk::apart(7),
        &Bulk::apart(1),
    ]);
    let positions: Vec<u32> = taken.iter().map(|taken| taken.position).collect();
    assert_eq!(positions, [100, 100 + 8 + 4, 112 + 8 + 4]);
}

#[test]
fn rr1_pad_06_missing_pad_at_the_end_of_the_inline_part() {
    // A name whose pad was left out as nothing follows it inline; a chunk came before.
    let bytes = hex("00000002 00000005 6162636465");
    let taken = [
        Taken {
            position: 4,
            length: 2,
        },
        Taken {
            position: 20,
            length: 2,
        },
    ];
    let mut input = Decoder::with_taken(&bytes, &taken);
    assert_eq!(
        input.bulk(2),
        Ok(Bulk {
            length: 2,
            data: Data::Apart(4)
        })
    );
    assert_eq!(<&[u8]>::decode(&mut input), Ok(&b"abcde"[..]));
    // The gap up to the next chunk's position is that pad.
    assert_eq!(input.stream_position(), 20);
    // Where nothing was taken out, a missing pad is an error.
    let mut input = Decoder::new(&bytes[4..]);
    assert_eq!(<&[u8]>::decode(&mut input), Err(Error::Truncated));
}

#[test]
fn rr1_pad_07_pad_bytes_may_be_anything() {
    let bytes = hex("00000005 6162636465 ffffff 00000001");
    let mut input = Decoder::new(&bytes);
    assert_eq!(input.opaque(5), Ok(&b"abcde"[..]));
    assert_eq!(input.u32(), Ok(1));
}

#[test]
fn rr1_pad_09_returned_length_may_include_the_pad() {
    let (bytes, _) = reduced(&[&Bulk::apart(5)]);
    for (length, data) in [(5, true), (8, true), (4, false), (9, false)] {
        let chunks = [Some(length)];
        let decoded = Decoder::with_results(&bytes, &chunks).bulk(100);
        assert_eq!(decoded.is_ok(), data);
    }
}

#[test]
fn rr1_pad_14_alignment_is_counted_in_the_stream() {
    let (bytes, taken) = reduced(&[&write_of(Bulk::apart(5)), &77u32]);
    for shift in 0..8 {
        let mut shifted = vec![0xee; shift];
        shifted.extend(&bytes);
        let mut input = Decoder::with_taken(&shifted[shift..], &taken);
        WriteArguments::decode(&mut input).unwrap();
        assert_eq!(input.u32(), Ok(77));
    }
}

#[test]
fn rr1_pad_17_short_opaques_get_no_padding() {
    let padding = Padding {
        align: 512,
        threshold: 1024,
    };
    let data = [9; 2000];
    let mut bytes = vec![0; 4096];
    let mut out = Encoder::new(&mut bytes).padded(padding);
    write_of(Bulk::inline(&data)).encode(&mut out).unwrap();
    // 56 bytes and the data itself, which begins at 512.
    assert_eq!(out.position(), 512 + 2000);
    assert_eq!(
        out.written()[512 - 456 - 4..512 - 456],
        2000u32.to_be_bytes()
    );
    assert_eq!(out.written()[512], 9);
    let mut input = Decoder::new(out.written()).padded(padding);
    assert_eq!(
        WriteArguments::decode(&mut input).unwrap().data.as_inline(),
        Some(&data[..])
    );
}

#[test]
fn rr1_pad_18_any_alignment_is_safe() {
    let bytes = hex("00000004 61626364");
    for (align, threshold) in [(0, 0), (1, 0), (4, 0)] {
        let mut input = Decoder::new(&bytes).padded(Padding { align, threshold });
        assert_eq!(input.opaque(4), Ok(&b"abcd"[..]));
    }
    for align in [8, 7, 512, u32::MAX] {
        let mut input = Decoder::new(&bytes).padded(Padding {
            align,
            threshold: 0,
        });
        assert_eq!(input.opaque(4), Err(Error::Truncated));
    }
}

#[test]
fn rr1_pad_19_positions_do_not_count_the_padding() {
    let padding = Padding {
        align: 64,
        threshold: 3,
    };
    let mut bytes = vec![0; 512];
    let mut out = Encoder::new(&mut bytes).padded(padding);
    out.opaque(b"abcd").unwrap();
    out.bulk(&Bulk::apart(8)).unwrap();
    out.u32(1).unwrap();
    let taken = [out.taken()[0]];
    assert_eq!(taken[0].position, 12);
    let mut input = Decoder::with_taken(out.written(), &taken).padded(padding);
    assert_eq!(input.opaque(4), Ok(&b"abcd"[..]));
    assert_eq!(
        input.bulk(8),
        Ok(Bulk {
            length: 8,
            data: Data::Apart(12)
        })
    );
    assert_eq!(input.u32(), Ok(1));
    assert_eq!(input.stream_position(), 24);
}

#[test]
fn items_that_travel_apart_are_bounded() {
    let mut bytes = [0; 64];
    let mut out = Encoder::new(&mut bytes);
    for _ in 0..ITEMS_MAX {
        out.bulk(&Bulk::apart(8)).unwrap();
    }
    assert_eq!(out.bulk(&Bulk::apart(8)), Err(Error::TooLong));
    assert_eq!(out.taken().len(), ITEMS_MAX);
}

proptest! {
    #[test]
    fn rr1_pad_16_padded_messages_decode(
        pool in pool(), align in 1u32..4097, threshold in 0u32..2001,
    ) {
        let mut source = Source::new(&pool);
        let (first, second): (WriteArguments<'_>, SymlinkArguments<'_>) =
            (source.draw(), source.draw());
        let padding = Padding { align, threshold };
        let mut bytes = vec![0; 65536];
        let mut out = Encoder::new(&mut bytes).padded(padding);
        first.encode(&mut out).unwrap();
        second.encode(&mut out).unwrap();
        let unpadded = encode(&first).len() + encode(&second).len();
        prop_assert_eq!(out.stream_position(), unpadded);
        let mut input = Decoder::new(out.written()).padded(padding);
        prop_assert_eq!(WriteArguments::decode(&mut input), Ok(first));
        prop_assert_eq!(SymlinkArguments::decode(&mut input), Ok(second));
        prop_assert_eq!((input.remaining(), input.stream_position()), (0, unpadded));
    }

    #[test]
    fn taking_out_and_putting_back(pool in pool(), lengths in prop::collection::vec(0u32..50, 1..=ITEMS_MAX)) {
        let mut source = Source::new(&pool);
        let words: Vec<u64> = lengths.iter().map(|_| source.draw()).collect();
        let parts: Vec<(u64, Bulk<'_>)> =
            words.into_iter().zip(lengths.iter().map(|&length| Bulk::apart(length))).collect();
        let values: Vec<&dyn Encode> = parts
            .iter()
            .flat_map(|(word, bulk)| [word as &dyn Encode, bulk as &dyn Encode])
            .collect();
        let (bytes, taken) = reduced(&values);
        // Put the bytes back where the positions say.
        let mut whole = bytes.clone();
        for item in &taken {
            let room = vec![0x5a; item.length as usize + pad(item.length as usize)];
            let at = item.position as usize;
            whole.splice(at..at, room);
        }
        let mut apart = Decoder::with_taken(&bytes, &taken);
        let mut inline = Decoder::new(&whole);
        for (word, bulk) in &parts {
            prop_assert_eq!(apart.u64(), Ok(*word));
            prop_assert_eq!(inline.u64(), Ok(*word));
            prop_assert_eq!(apart.bulk(50).unwrap().length, bulk.length);
            let data = inline.bulk(50).unwrap();
            prop_assert_eq!(data.as_inline(), Some(&vec![0x5a; bulk.length as usize][..]));
            prop_assert_eq!(apart.stream_position(), inline.position());
        }
        prop_assert_eq!(apart.finish(), Ok(()));
        prop_assert_eq!((apart.remaining(), inline.remaining()), (0, 0));
    }

    #[test]
    fn any_positions_at_all(
        bytes in prop::collection::vec(0u8..9, 0..200),
        mut taken in prop::collection::vec((0u32..50, 0u32..9), 0..4),
        align in 0u32..40,
    ) {
        taken.sort_unstable();
        let taken: Vec<Taken> = taken
            .into_iter()
            .map(|(position, length)| Taken { position: 4 * position, length })
            .collect();
        let mut input = Decoder::with_taken(&bytes, &taken).padded(Padding { align, threshold: 3 });
        while input.remaining() > 0 {
            if input.bulk(usize::MAX).is_err() && input.u32().is_err() {
                break;
            }
        }
        let _ = input.finish();
        let _ = from_bytes::<WriteArguments<'_>>(&bytes);
    }
}
