//! Which version is spoken (version two draft section 6).

use std::time::Duration;

use millrace_bench::requester::{CallError, RequesterState, Settings, VersionMemory};
use millrace_wire::nfs3::Procedure;
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Version, Versions};

use crate::chunk::write_arguments;
use crate::support::{
    Peer, Raw, Seen, Step, bytes, message, settings, small_sizes, stale, success,
};

const PERIOD: Duration = Duration::from_secs(60);

fn both() -> Settings {
    Settings {
        versions: Versions::BOTH,
        version_memory: VersionMemory::new(PERIOD),
        ..settings()
    }
}

/// A peer that tells nothing of itself.
fn quiet() -> Peer {
    Peer {
        private_data: None,
        ..Peer::default()
    }
}

/// ERR_VERS with a version word and a range.
fn refuse(raw: &mut Raw, call: &Seen, word: u32, low: u32, high: u32) {
    raw.send(&bytes(&[call.xid, word, 50, 4, 1, low, high]));
}

/// The version of the first message that a call causes on a new connection.
fn first_version(raw: &mut Raw) -> u32 {
    raw.inbox.clear();
    raw.connection
        .reconnect(&mut raw.client, raw.now)
        .expect("connects");
    raw.settle();
    raw.getattr(99);
    raw.next().version
}

#[test]
fn rr2_neg_01_the_first_message_is_a_short_one_of_version_two() {
    for versions in [Versions::BOTH, Versions::TWO] {
        let mine = Settings { versions, ..both() };
        let mut raw = Raw::bare(mine, Peer::default());
        assert_eq!(raw.connection.state(), &RequesterState::Negotiating);
        let call = raw.next();
        assert_eq!((call.version, call.kind), (2, 0));
        assert_eq!(call.direction, Some(MessageType::Call));
        assert!(call.bytes.len() <= 1024);
        assert!(raw.inbox.is_empty());
        raw.answer(&call, 8, &());
        assert_eq!(raw.connection.version(), Some(Version::Two));
    }
}

#[test]
fn rr2_neg_02_one_message_alone_until_a_reply_tells_the_limit() {
    let mut raw = Raw::bare(both(), Peer::default());
    for token in 0..10 {
        raw.getattr(token);
    }
    assert_eq!(raw.inbox.len(), 1);
    let first = raw.next();
    raw.answer(&first, 5, &());
    assert_eq!(raw.inbox.len(), 5);
    raw.answer_all(5);
    assert_eq!(raw.tokens(), (0..10).collect::<Vec<_>>());
}

#[test]
fn rr2_neg_02_after_an_error_it_is_still_one_message() {
    let mut raw = Raw::bare(both(), Peer::default());
    for token in 0..10 {
        raw.getattr(token);
    }
    let first = raw.next();
    refuse(&mut raw, &first, 2, 1, 1);
    assert_eq!(raw.inbox.len(), 1);
    let second = raw.next();
    raw.answer(&second, 3, &stale());
    assert_eq!(raw.inbox.len(), 3);
}

#[test]
fn rr2_neg_05_a_version_inside_the_range_is_taken_on_the_same_connection() {
    for (low, high) in [(1, 1), (0, 1), (1, 2), (1, 7)] {
        let mut raw = Raw::bare(both(), Peer::default());
        let queue_pair = raw.queue_pair;
        raw.getattr(1);
        let first = raw.next();
        refuse(&mut raw, &first, 2, low, high);
        assert_eq!(raw.connection.version(), Some(Version::One));
        let call = raw.next();
        assert_eq!((call.version, call.header()), (1, 28));
        assert_ne!(call.xid, first.xid);
        raw.answer(&call, 8, &stale());
        assert_eq!(raw.tokens(), [1]);
        assert!(raw.done[0].result.is_ok());
        assert_eq!((raw.queue_pair, raw.disconnects), (queue_pair, 0));
    }
}

#[test]
fn rr2_neg_05_another_error_than_err_vers_also_leads_to_version_one() {
    for word in [1, 2] {
        let mut raw = Raw::bare(both(), Peer::default());
        raw.getattr(1);
        let first = raw.next();
        raw.send(&bytes(&[first.xid, word, 1, 4, 2]));
        assert_eq!(raw.next().version, 1);
    }
}

#[test]
fn rr2_neg_06_without_a_common_version_the_connection_closes_and_says_why() {
    for (versions, low, high) in [
        (Versions::BOTH, 3, 4),
        (Versions::TWO, 1, 1),
        (Versions::TWO, 1, 2),
        (Versions::BOTH, 2, 2),
        (Versions::BOTH, 4, 3),
    ] {
        let mine = Settings {
            versions,
            keep_calls: true,
            ..both()
        };
        let mut raw = Raw::bare(mine, Peer::default());
        raw.getattr(1);
        raw.getattr(2);
        let first = raw.next();
        refuse(&mut raw, &first, 2, low, high);
        let error = CallError::Version { low, high };
        assert_eq!(raw.connection.state(), &RequesterState::NoVersion(error));
        assert_eq!(raw.connection.version(), None);
        assert!(raw.inbox.is_empty(), "nothing more is sent");
        assert_eq!(raw.disconnects, 1);
        assert_eq!(raw.tokens(), [1, 2]);
        assert!(raw.done.iter().all(|done| done.result == Err(error)));
        assert!(!raw.connection.falls_back(), "nothing to be remembered");
    }
}

#[test]
fn rr2_neg_07_a_server_that_closes_after_err_vers_gets_version_one_for_a_while() {
    let mut raw = Raw::bare(both(), Peer::default());
    let first = raw.next();
    refuse(&mut raw, &first, 2, 1, 1);
    raw.break_off();
    assert!(raw.connection.falls_back());
    assert_eq!(first_version(&mut raw), 1);
    // Lost once more, without version two having been tried: the time goes on.
    raw.advance(PERIOD - Duration::from_secs(1));
    raw.break_off();
    assert_eq!(first_version(&mut raw), 1);
    raw.advance(Duration::from_secs(1));
    raw.break_off();
    assert_eq!(first_version(&mut raw), 2, "the memory has an end");
}

#[test]
fn rr2_neg_07_a_server_that_closes_without_an_answer_gets_version_one_for_a_while() {
    let mut raw = Raw::bare(both(), Peer::default());
    assert_eq!(raw.next().version, 2);
    raw.break_off();
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
    assert_eq!(first_version(&mut raw), 1);
    raw.break_off();
    raw.advance(PERIOD);
    assert_eq!(first_version(&mut raw), 2);
}

#[test]
fn rr2_neg_07_a_lost_first_message_ends_the_connection_and_the_next_has_version_one() {
    // Half the time for a call, if that is less.
    for (timeout, allowed) in [(60, 10), (8, 4)] {
        let mine = Settings {
            timeout: Duration::from_secs(timeout),
            ..both()
        };
        let allowed = mine.settle + Duration::from_secs(allowed);
        let mut raw = Raw::bare(mine, Peer::default());
        assert_eq!(raw.next().version, 2);
        raw.advance(allowed - Duration::from_millis(1));
        assert_eq!(raw.connection.state(), &RequesterState::Negotiating);
        raw.advance(Duration::from_millis(1));
        assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
        assert_eq!(first_version(&mut raw), 1);
    }
}

#[test]
fn rr2_neg_07_connections_with_clones_of_the_settings_share_the_memory() {
    let mine = both();
    let mut raw = Raw::bare(mine.clone(), Peer::default());
    let address = raw.connection.address();
    assert!(!mine.version_memory.holds(address, raw.now));
    raw.break_off();
    assert!(mine.version_memory.holds(address, raw.now));
    assert!(!mine.version_memory.holds(address, raw.now + PERIOD));
}

#[test]
fn rr2_neg_07_a_server_that_has_spoken_version_two_is_not_remembered() {
    let mut raw = Raw::open(both(), Peer::default(), 8);
    raw.break_off();
    assert!(!raw.connection.falls_back());
    assert_eq!(first_version(&mut raw), 2);
    // Nor one that has spoken version one after ERR_VERS, and is lost later.
    let mut raw = Raw::bare(both(), Peer::default());
    let first = raw.next();
    refuse(&mut raw, &first, 2, 1, 1);
    raw.getattr(1);
    raw.answer_all(8);
    raw.break_off();
    assert_eq!(first_version(&mut raw), 2);
}

#[test]
fn rr2_neg_07_who_offers_version_two_alone_never_falls_back() {
    let mine = Settings {
        versions: Versions::TWO,
        ..both()
    };
    let mut raw = Raw::bare(mine, Peer::default());
    raw.break_off();
    assert!(!raw.connection.falls_back());
    assert_eq!(first_version(&mut raw), 2);
}

#[test]
fn rr2_neg_08_receives_of_4096_bytes_are_posted_before_the_first_message() {
    // Even if less was told in private data, which old servers may not have read.
    let mine = Settings {
        private_data: small_sizes(),
        ..both()
    };
    let receives = (mine.credits + mine.spare_receives) as usize;
    let mut raw = Raw::bare(mine, Peer::default());
    let steps = raw.steps();
    let sent = steps
        .iter()
        .position(|step| matches!(step, Step::Send { .. }));
    let posted = steps[..sent.expect("sent")].iter();
    let posted = posted.filter(|step| matches!(step, Step::PostReceive));
    assert_eq!(posted.count(), receives);
    raw.send(&[0; 4096]);
    assert_eq!(
        raw.connection.state(),
        &RequesterState::Negotiating,
        "no harm done"
    );
    let first = raw.next();
    let long = success(first.xid, &[9_u8; 4096 - 36 - 24 - 4].as_slice());
    let reply = message(first.xid, 8, &[], None, Some(&long));
    assert_eq!(reply.len(), 4096);
    raw.send(&reply);
    assert_eq!(raw.connection.version(), Some(Version::Two));
}

/// The longest Sends of WRITEs whose data may go inline.
fn longest(raw: &mut Raw) -> usize {
    let mut longest = 0;
    for length in (0..8192).step_by(64) {
        let data = [raw.memory(length)];
        let call = millrace_bench::requester::Call::nfs3(
            1,
            Procedure::Write,
            write_arguments(length as u32),
            0,
        );
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        longest = longest.max(call.bytes.len());
        raw.answer(&call, 8, &stale());
    }
    longest
}

#[test]
fn rr2_neg_09_the_threshold_of_the_chosen_version_holds() {
    let mine = || Settings {
        private_data: None,
        ..both()
    };
    let mut raw = Raw::bare(mine(), quiet());
    let first = raw.next();
    refuse(&mut raw, &first, 2, 1, 1);
    let limits = raw.connection.limits();
    assert_eq!((limits.send, limits.receive), (1024, 1024));
    let sent = longest(&mut raw);
    assert!((960..=1024).contains(&sent), "{sent} bytes in version one");

    let mut raw = Raw::open(mine(), quiet(), 8);
    let limits = raw.connection.limits();
    assert_eq!((limits.send, limits.receive), (4096, 4096));
    let sent = longest(&mut raw);
    assert!((4032..=4096).contains(&sent), "{sent} bytes in version two");
}

#[test]
fn rr2_neg_09_never_more_than_the_one_side_that_spoke_has_said() {
    let mine = Settings {
        private_data: None,
        ..both()
    };
    let peer = Peer {
        private_data: Some(PrivateData {
            remote_invalidation: false,
            send_size: 8192,
            receive_size: 2048,
        }),
        ..Peer::default()
    };
    let raw = Raw::open(mine, peer, 8);
    let limits = raw.connection.limits();
    assert_eq!((limits.send, limits.receive), (2048, 4096));
}

#[test]
fn rr2_neg_12_err_vers_is_accepted_with_version_word_1_or_2() {
    for word in [1, 2] {
        let mut raw = Raw::bare(both(), Peer::default());
        let first = raw.next();
        refuse(&mut raw, &first, word, 1, 1);
        assert_eq!(raw.connection.version(), Some(Version::One));
    }
}

#[test]
fn rr2_neg_13_the_first_message_is_a_null_call_and_may_come_again() {
    let mut raw = Raw::bare(both(), Peer::default());
    for _ in 0..3 {
        let call = raw.next();
        let words: Vec<u32> = [call.xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0].to_vec();
        assert_eq!(call.rpc, bytes(&words), "procedure 0 without credential");
        assert!(call.reads.is_empty() && call.writes.is_empty() && call.reply.is_none());
        raw.break_off();
        raw.advance(PERIOD);
        raw.connection
            .reconnect(&mut raw.client, raw.now)
            .expect("connects");
        raw.settle();
    }
}

#[test]
fn rr2_neg_14_without_version_two_nothing_is_sent_unasked() {
    let mine = Settings {
        versions: Versions::ONE,
        ..settings()
    };
    let mut raw = Raw::bare(mine, Peer::default());
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
    assert_eq!(raw.connection.version(), Some(Version::One));
    assert!(raw.inbox.is_empty());
    raw.getattr(1);
    let call = raw.next();
    assert_eq!((call.version, call.header()), (1, 28));
    assert_eq!(Settings::default().versions, Versions::ONE, "the default");
}

#[test]
fn faulty_answers_to_the_first_message_are_no_answers() {
    let mut raw = Raw::bare(both(), Peer::default());
    let first = raw.next();
    let rpc = success(first.xid, &());
    // Another XID, version one, an error cut short, a long reply.
    raw.send(&message(
        first.xid + 1,
        8,
        &[],
        None,
        Some(&success(first.xid + 1, &())),
    ));
    let old = crate::support::message_in(Version::One, first.xid, 8, &[], None, Some(&rpc));
    raw.send(&old);
    raw.send(&bytes(&[first.xid, 2, 8, 4, 1, 1]));
    raw.send(&message(first.xid, 8, &[], Some(&[]), None));
    assert_eq!(raw.connection.state(), &RequesterState::Negotiating);
    assert_eq!(raw.connection.counters().dropped, 4);
    raw.answer(&first, 8, &());
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
    // A second answer goes to nobody.
    raw.answer(&first, 1, &());
    assert_eq!(raw.connection.window().limit(), 8);
}
