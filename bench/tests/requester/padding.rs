//! RDMA_MSGP as it is sent.

use millrace_bench::requester::{Alignment, Call, Ccp, Data, Identity, Part, Settings};
use millrace_wire::ccp::Limits;
use millrace_wire::nfs3::{Procedure, WriteArguments};
use millrace_wire::rpc::{CallHeader, RPCSEC_GSS};
use millrace_wire::rpcrdma::{Body, Header, Rules};
use millrace_wire::xdr::{Decode, Decoder, Encode, Taken};

use crate::chunk::{pattern, write_arguments};
use crate::support::{Peer, Raw, Seen, settings, stale, unbound};

fn fixed(align: u32, threshold: u32) -> Settings {
    Settings {
        alignment: Alignment::Fixed { align, threshold },
        ..settings()
    }
}

fn write(raw: &mut Raw, length: usize) -> Seen {
    let data = [raw.memory(length)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
    raw.submit(&call.with_data(&data));
    raw.next()
}

/// The two words of a padded WRITE; its data is the pattern, at a multiple of the alignment.
fn check(call: &Seen, length: usize) -> (u32, u32) {
    let header = Header::parse_call(&call.bytes, &Rules::default()).expect("parses");
    let Body::Message {
        message,
        padding: Some(padding),
        ..
    } = header.body
    else {
        panic!("no RDMA_MSGP");
    };
    let mut input = Decoder::new(message).padded(padding);
    CallHeader::decode(&mut input).expect("a call");
    let arguments = WriteArguments::decode(&mut input).expect("arguments");
    let data = arguments.data.as_inline().expect("inline");
    assert_eq!(data, pattern(length));
    let place = data.as_ptr() as usize - message.as_ptr() as usize;
    assert_eq!(place % padding.align as usize, 0);
    assert_eq!(input.remaining(), 0);
    assert_ne!(padding.threshold as usize, length);
    (padding.align, padding.threshold)
}

#[test]
fn rr1_pad_20_without_being_told_no_call_is_padded() {
    // By default, and where the alignment was to be learnt from a server that has none.
    let learn = Settings {
        alignment: Alignment::Learnt { threshold: 100 },
        ..settings()
    };
    for mine in [settings(), learn, fixed(0, 0), fixed(1, 0)] {
        let mut raw = Raw::open(mine, Peer::default(), 8);
        for length in (0..5000).step_by(100) {
            let call = write(&mut raw, length);
            assert_eq!(call.kind, 0);
            raw.answer(&call, 8, &stale());
        }
        assert_eq!(raw.connection.counters().padded, 0);
    }
}

#[test]
fn rr1_pad_20_a_write_has_the_alignment_that_the_server_told() {
    let learn = Settings {
        ccp: Some(Ccp::default()),
        alignment: Alignment::Learnt { threshold: 512 },
        ..settings()
    };
    for (alignment, kind) in [(512, 2), (0, 0)] {
        let mut raw = Raw::new(learn.clone(), Peer::default());
        let call = raw.next();
        let limits = Limits {
            call_size: 4096,
            alignment,
            reads: 16,
        };
        raw.answer(&call, 8, &limits);
        let call = write(&mut raw, 2048);
        assert_eq!(call.kind, kind);
        if kind == 2 {
            assert_eq!(check(&call, 2048), (512, 512));
        }
    }
}

#[test]
fn rr1_pad_20_only_calls_that_fit_inline_are_padded() {
    let mut raw = Raw::open(fixed(512, 256), Peer::default(), 8);
    let mut kinds = Vec::new();
    for length in (0..6000).step_by(50) {
        let call = write(&mut raw, length);
        assert!(call.bytes.len() <= 4096);
        if call.kind == 2 {
            assert!(call.reads.is_empty() && call.positions().is_empty());
            check(&call, length);
        }
        kinds.push((length, call.kind, call.reads.len()));
        raw.answer(&call, 8, &stale());
    }
    let padded: Vec<_> = kinds.iter().filter(|(_, kind, _)| *kind == 2).collect();
    // 36 bytes of header, and data that begins at 512 of the message and ends in the Send.
    assert_eq!(padded.first().map(|(length, ..)| *length), Some(300));
    assert_eq!(padded.last().map(|(length, ..)| *length), Some(3500));
    // Without their pads longer ones fit, and go as they did before.
    assert!(kinds.contains(&(3600, 0, 0)) && kinds.contains(&(4000, 0, 1)));
    assert_eq!(raw.connection.counters().padded, padded.len() as u64);
}

#[test]
fn rr1_pad_20_no_item_is_as_long_as_the_threshold() {
    let mut raw = Raw::open(fixed(64, 1024), Peer::default(), 8);
    for (length, kind) in [(1000, 0), (1023, 0), (1024, 0), (1025, 2), (1028, 2)] {
        let call = write(&mut raw, length);
        assert_eq!(call.kind, kind, "{length} bytes");
        if kind == 2 {
            check(&call, length);
        }
        raw.answer(&call, 8, &stale());
    }
    // A threshold below the rest of the message would reach other items than data.
    let mut raw = Raw::open(fixed(64, 0), Peer::default(), 8);
    let call = write(&mut raw, 2000);
    let (_, threshold) = check(&call, 2000);
    assert_eq!(threshold, 72 + 56);
    let call = write(&mut raw, 100);
    assert_eq!(call.kind, 0);
}

#[test]
fn rr1_pad_20_two_items_are_aligned_each_at_its_place() {
    struct Words([u32; 3]);
    impl Encode for Words {
        fn encode(
            &self,
            out: &mut millrace_wire::xdr::Encoder<'_>,
        ) -> millrace_wire::xdr::Result<()> {
            self.0.iter().try_for_each(|&word| out.u32(word))
        }
    }
    let mut raw = Raw::open(fixed(256, 300), Peer::default(), 8);
    let (first, second) = ([raw.memory(401)], [raw.memory(602)]);
    let part = |position, length, slices| Part {
        taken: Taken { position, length },
        slices,
    };
    let parts = [
        part(4, 401, &first[..]),
        part(4 + 404 + 8, 602, &second[..]),
    ];
    let call = Call {
        data: Data::Parts(&parts),
        ..unbound(Words([401, 99, 602]), 32)
    };
    raw.submit(&call);
    let call = raw.next();
    assert_eq!(call.kind, 2);
    let header = Header::parse_call(&call.bytes, &Rules::default()).expect("parses");
    let Body::Message {
        message,
        padding: Some(padding),
        ..
    } = header.body
    else {
        panic!("no RDMA_MSGP");
    };
    let mut input = Decoder::new(message).padded(padding);
    CallHeader::decode(&mut input).expect("a call");
    let items = [401, 602].map(|length| {
        let item = input.opaque(4096).expect("an item");
        assert_eq!(item, pattern(length));
        assert_eq!(
            (item.as_ptr() as usize - message.as_ptr() as usize) % 256,
            0
        );
        if length == 401 {
            assert_eq!(input.u32(), Ok(99));
        }
        item.len()
    });
    assert_eq!((items, input.remaining()), ([401, 602], 0));
}

#[test]
fn rr1_pad_20_protected_calls_are_not_padded() {
    let gss = Settings {
        identity: Identity::opaque(RPCSEC_GSS, &[1; 32]).expect("short"),
        ..fixed(512, 0)
    };
    let mut raw = Raw::open(gss, Peer::default(), 8);
    assert_eq!(write(&mut raw, 2000).kind, 0);
}

#[test]
fn rr1_pad_21_a_padded_reply_is_dropped_also_by_who_pads() {
    let mut raw = Raw::open(fixed(512, 0), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    let mut reply = crate::support::bytes(&[call.xid, 1, 8, 2, 512, 0, 0, 0, 0]);
    reply.extend(crate::support::success(call.xid, &stale()));
    raw.send(&reply);
    assert!(raw.done.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}
