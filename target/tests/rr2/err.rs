//! The responder and the errors of version two (version two draft section 5.2.4).

use millrace_wire::nfs3::{NameInDirectory, Procedure};
use millrace_wire::rpcrdma::{CallChunks, Segment, Version};

use crate::support;
use crate::support::message::{
    self, BAD_XDR, PROGRAM, SUCCESS, accepted, check_error, encoded, inline, nfs, optional, parse,
    plain, rpc, speak, word, words,
};
use crate::support::raw::{Options, Stated};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::{Nfs, status};

/// A CANT_REPLY: whether the procedure had run, segment, length.
#[track_caller]
fn cannot_reply(bytes: &[u8], xid: u32) -> (bool, u32, u32) {
    let words = [5, 6, 7].map(|at| word(bytes, at));
    check_error(bytes, xid, &[3, words[0], words[1], words[2]]);
    assert!(words[0] <= 1);
    (words[0] == 1, words[1], words[2])
}

fn chunks<'c>(writes: &'c [&'c [Segment]], reply: Option<&'c [Segment]>) -> CallChunks<'c> {
    CallChunks {
        reads: &[],
        writes,
        reply,
    }
}

#[test]
fn rr2_err_01_errors_copy_xid_and_version() {
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::default());
    for xid in [1, 0xa1a2_a3a4, u32::MAX] {
        let call = plain(&rpc(xid, PROGRAM, &[]));
        let mut kind = call.clone();
        kind[15] = 2;
        let mut presence = call.clone();
        presence[27] = 2;
        let option = optional(xid, false, 9, &[], &[]);
        for message in [&call, &kind, &presence, &option] {
            let error = world.exchange(0, message);
            assert_eq!([0, 1, 3].map(|at| word(&error, at)), [xid, 2, 4]);
        }
        let mut stranger = call;
        stranger[7] = 9;
        let error = world.exchange(0, &stranger);
        assert_eq!([0, 1, 3, 4].map(|at| word(&error, at)), [xid, 9, 4, 1]);
    }
    world.check_clean();
}

#[test]
fn rr2_err_02_the_version_error_is_that_of_version_one() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let mut errors = Vec::new();
    for spoken in [Version::One, Version::Two] {
        speak(spoken);
        let mut message = plain(&rpc(7, PROGRAM, &[]));
        message[7] = 5;
        errors.push(world.exchange(0, &message));
    }
    assert_eq!(errors[0], errors[1]);
    let words = [0, 1, 3, 4, 5, 6].map(|at| word(&errors[0], at));
    assert_eq!((errors[0].len(), words), (28, [7, 5, 4, 1, 1, 2]));
}

#[test]
fn rr2_err_04_what_cannot_be_parsed_is_told_before_anything_is_done() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let source = nfs.world.source(0, &[7; 100]);
    let sink = nfs.world.sink(0, 100);
    let (call, position) = nfs.write_message(file, 100);
    let lists = CallChunks {
        reads: &message::reads(position, &source.cut(&[50, 50])),
        writes: &[&sink.cut(&[20, 80])],
        reply: Some(&[sink.whole()]),
    };
    let whole = inline(&lists, &call);
    for length in 28..whole.len() - call.len() + 8 {
        check_error(
            &nfs.world.exchange(0, &whole[..length]),
            word(&call, 0),
            BAD_XDR,
        );
    }
    assert_eq!(nfs.content(file), b"before");
    assert_eq!(
        accepted(&parse(&nfs.world.exchange(0, &whole)).message),
        SUCCESS
    );
    assert_eq!(nfs.content(file), [7; 100]);
    nfs.world.check_clean();
}

#[test]
fn rr2_err_05_a_reply_without_room_is_told() {
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::default());
    // READDIR can be shorter; this reply cannot.
    let error = world.exchange(0, &plain(&rpc(5, PROGRAM, &[])));
    assert_eq!(cannot_reply(&error, 5), (true, 0, 5000));
    let sink = world.sink(0, 8000);
    let message = inline(
        &chunks(&[], Some(&sink.cut(&[4999]))),
        &rpc(5, PROGRAM, &[]),
    );
    assert_eq!(
        cannot_reply(&world.exchange(0, &message), 5),
        (true, 1, 5000)
    );
    assert_eq!(world.shared.counters.errors_cannot_reply.get(), 2);
    // In version one it is a chunk error.
    speak(Version::One);
    let error = world.exchange(0, &plain(&rpc(5, PROGRAM, &[])));
    assert_eq!((error.len(), word(&error, 1), word(&error, 4)), (20, 1, 2));
    world.check_clean();
}

#[test]
fn rr2_err_06_whether_the_procedure_had_run() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[7; 3000]);
    let link = nfs.link(b"link", &[b'x'; 150]);
    let sink = nfs.world.sink(0, 4000);
    // Seen before: READ asks for more than its chunk holds.
    let error = nfs.read_raw(file, 2000, &sink, &[1000, 500]);
    let xid = word(&error, 0);
    assert_eq!(cannot_reply(&error, xid), (false, 2, 1000));
    assert_eq!(sink.bytes(), [0xee; 4000]);
    // Known only when the text has been read.
    let call = nfs_message(nfs.xid(), Procedure::Readlink, &link);
    let message = inline(&chunks(&[&sink.cut(&[100])], None), &call);
    let error = nfs.world.exchange(0, &message);
    assert_eq!(cannot_reply(&error, word(&call, 0)), (true, 1, 150));
    // A header that leaves no room for a reply header is seen before, too.
    let narrow = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let many = nfs.world.sink(narrow, 4000).cut(&[1; 62]);
    let message = inline(&chunks(&[&many], None), &nfs.read_message(file, 10));
    let error = nfs.world.exchange(narrow, &message);
    assert_eq!(cannot_reply(&error, word(&message, 0)), (false, 0, 0));
    nfs.world.check_clean();
}

fn nfs_message(
    xid: u32,
    procedure: Procedure,
    object: &impl millrace_wire::xdr::Encode,
) -> Vec<u8> {
    nfs(xid, procedure, object)
}

#[test]
fn rr2_err_07_the_first_segment_too_short_is_counted_through_all_chunks() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[7; 3000]);
    let sink = nfs.world.sink(0, 4000);
    // One and two: in the first write chunk.
    for (cut, segment) in [([1000, 0], 1), ([600, 400], 2)] {
        let (first, second, reply) = (sink.cut(&cut), sink.cut(&[1, 1]), [sink.whole()]);
        let writes: [&[Segment]; 2] = [&first, &second];
        let lists = chunks(&writes, Some(&reply));
        let call = nfs.read_message(file, 1500);
        let error = nfs.world.exchange(0, &inline(&lists, &call));
        let needed = cut[segment as usize - 1] + 500;
        let expected = (false, segment, needed);
        assert_eq!(cannot_reply(&error, word(&call, 0)), expected);
    }
    // Five: the Reply chunk behind two write chunks of two.
    let (mut world, _) = scripted(CallScript::of_length(5000), Options::default());
    let sink = world.sink(0, 8000);
    let (write, reply) = (sink.cut(&[10, 10]), sink.cut(&[4000]));
    let message = inline(
        &chunks(&[&write, &write], Some(&reply)),
        &rpc(5, PROGRAM, &[]),
    );
    assert_eq!(
        cannot_reply(&world.exchange(0, &message), 5),
        (true, 5, 5000)
    );
    world.check_clean();
    nfs.world.check_clean();
}

#[test]
fn rr2_err_08_exactly_the_length_needed_is_enough() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[7; 3000]);
    let sink = nfs.world.sink(0, 8000);
    for cut in [&[1000, 500][..], &[1], &[2999], &[100, 100, 0]] {
        let error = nfs.read_raw(file, 3000, &sink, cut);
        let (_, segment, needed) = cannot_reply(&error, word(&error, 0));
        let mut longer = cut.to_vec();
        longer[segment as usize - 1] = needed;
        let reply = nfs.read_into(file, 3000, &sink, &longer);
        assert!(reply.inline);
        let mut less = longer;
        less[segment as usize - 1] -= 1;
        let error = nfs.read_raw(file, 3000, &sink, &less);
        assert_eq!(
            cannot_reply(&error, word(&error, 0)),
            (false, segment, needed)
        );
    }
    let (mut world, _) = scripted(CallScript::of_length(5001), Options::default());
    let sink = world.sink(0, 8000);
    for cut in [&[1000, 500][..], &[5000]] {
        let mut call = |cut: &[u32]| {
            let reply = sink.cut(cut);
            world.exchange(
                0,
                &inline(&chunks(&[], Some(&reply)), &rpc(5, PROGRAM, &[])),
            )
        };
        let (_, segment, needed) = cannot_reply(&call(cut), 5);
        let mut longer = cut.to_vec();
        longer[segment as usize - 1] = needed;
        assert!(!parse(&call(&longer)).inline);
    }
    // Where there was no Reply chunk, one of that length.
    let (_, segment, needed) = cannot_reply(&world.exchange(0, &plain(&rpc(5, PROGRAM, &[]))), 5);
    let reply = sink.cut(&[needed]);
    let message = inline(&chunks(&[], Some(&reply)), &rpc(5, PROGRAM, &[]));
    assert_eq!(
        (segment, parse(&world.exchange(0, &message)).inline),
        (0, false)
    );
    world.check_clean();
    nfs.world.check_clean();
}

/// A call whose reply finds no room on a connection that takes 1024 bytes: write chunks that nobody
/// uses fill its header.
fn cramped(nfs: &mut Nfs, client: usize, call: &[u8], reply: Option<u32>) -> Vec<u8> {
    let (filler, sink) = (nfs.world.sink(client, 100), nfs.world.sink(client, 4000));
    let filler = filler.cut(&[1; 56]);
    let reply = reply.map(|length| sink.cut(&[length]));
    let writes: [&[Segment]; 1] = [&filler];
    let lists = chunks(&writes, reply.as_deref());
    let answer = nfs.world.exchange(client, &inline(&lists, call));
    match word(&answer, 3) {
        1 => {
            let parsed = parse(&answer);
            let written = parsed.reply.unwrap()[0].length;
            sink.bytes()[..written as usize].to_vec()
        }
        _ => answer,
    }
}

#[test]
fn rr2_err_10_a_call_that_had_run_is_answered_from_the_cache() {
    let mut nfs = Nfs::new();
    for spoken in [Version::Two, Version::One] {
        speak(spoken);
        nfs.create(b"gone");
        let narrow = nfs.world.connect_with(Stated {
            inline: Some(1024),
            ..Stated::default()
        });
        let entry = NameInDirectory {
            directory: nfs.root,
            name: b"gone",
        };
        let xid = nfs.xid();
        let remove = message::nfs(xid, Procedure::Remove, &entry);
        let error = cramped(&mut nfs, narrow, &remove, None);
        let needed = if spoken == Version::Two {
            let (processed, segment, needed) = cannot_reply(&error, xid);
            assert_eq!((processed, segment), (true, 0));
            needed
        } else {
            message::check_chunk_error(&error, xid);
            2000
        };
        // It is gone, and was not removed twice: that would have failed.
        let message = cramped(&mut nfs, narrow, &remove, Some(needed));
        assert_eq!(status(support::results(&message)), 0, "{spoken:?}");
        let xid = nfs.xid();
        let again = message::nfs(xid, Procedure::Remove, &entry);
        let message = cramped(&mut nfs, narrow, &again, Some(2000));
        assert_eq!(status(support::results(&message)), 2);
    }
    nfs.world.check_clean();
}

#[test]
fn rr2_err_12_faults_in_replies_have_no_answer() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let reply = |xid: u32| {
        let words = words(&[xid, 2, 16, 0, 1, 0, 0, 0, 0]);
        [words, Script::reply(xid, 24)].concat()
    };
    let mut faults = vec![reply(5)];
    // Lists that end too early, presence words, another XID, a call behind it.
    faults.push(reply(5)[..32].to_vec());
    for (at, byte) in [(27, 2), (36 + 3, 6), (36 + 7, 0)] {
        let mut fault = reply(5);
        fault[at] = byte;
        faults.push(fault);
    }
    faults.push(words(&[5, 2, 16, 1, 1, 0, 0, 0, 0]));
    let count = faults.len() as u64;
    for fault in faults {
        world.send(0, &fault);
        assert!(world.received(0).is_empty(), "{fault:02x?}");
    }
    assert_eq!(world.shared.counters.dropped.get(), count);
    assert!(script.seen().is_empty());
    assert_eq!(
        parse(&world.exchange(0, &plain(&rpc(8, PROGRAM, &[])))).xid,
        8
    );
    // Errors have no direction word: the code follows the first words.
    let mut bad = plain(&rpc(9, PROGRAM, &[]));
    bad[27] = 2;
    assert_eq!(word(&world.exchange(0, &bad), 4), 2);
    world.check_clean();
}

#[test]
fn readdir_without_a_reply_chunk_is_short_and_not_refused() {
    let mut nfs = Nfs::new();
    for number in 0..200 {
        nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
    }
    let arguments = [encoded(&nfs.root), words(&[0, 0, 0, 0, 30_000])].concat();
    let call = rpc(5, (100_003, 3, Procedure::Readdir.number()), &arguments);
    let reply = parse(&nfs.world.exchange(0, &plain(&call)));
    assert_eq!(status(support::results(&reply.message)), 0);
}
