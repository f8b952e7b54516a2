//! Slots (RFC 8881 section 2.10.6).

use super::*;

const FINGERPRINT: RequestFingerprint = RequestFingerprint {
    caller: 1,
    checksum: 2,
};

fn slot() -> SessionSlot {
    SessionSlot::new(100, 63)
}

fn begin(slot: &SessionSlot, sequence: u32) -> SlotBegin<'_> {
    slot.begin(sequence, FINGERPRINT)
}

fn execute(slot: &SessionSlot, sequence: u32) -> SlotClaim<'_> {
    match begin(slot, sequence) {
        SlotBegin::New(claim) => claim,
        other => panic!("expected a new request, got {other:?}"),
    }
}

fn replay(slot: &SessionSlot, sequence: u32) -> Option<CachedReply> {
    match begin(slot, sequence) {
        SlotBegin::Replay(reply) => reply,
        other => panic!("expected a replay, got {other:?}"),
    }
}

fn assert_misordered(slot: &SessionSlot, sequence: u32) {
    let begun = begin(slot, sequence);
    assert!(matches!(begun, SlotBegin::Misordered), "{begun:?}");
}

#[test]
fn v4_sess_43_sequence_numbers_begin_with_one_and_follow_each_other() {
    let slot = slot();
    for sequence in [0, 2, 3, u32::MAX] {
        assert_misordered(&slot, sequence);
    }
    for sequence in 1..5 {
        assert!(execute(&slot, sequence).finish(Some(&[b"reply"])));
        for other in [sequence - 1, sequence + 2, u32::MAX] {
            assert_misordered(&slot, other);
        }
    }
}

#[test]
fn v4_sess_43_sequence_numbers_wrap_to_zero() {
    let slot = slot();
    execute(&slot, 1).finish(None);
    slot.word.finish(u32::MAX - 1);
    execute(&slot, u32::MAX).finish(Some(&[b"last"]));
    assert_eq!(&*replay(&slot, u32::MAX).unwrap(), b"last");
    assert_misordered(&slot, 1);
    execute(&slot, 0).finish(Some(&[b"zero"]));
    assert_eq!(&*replay(&slot, 0).unwrap(), b"zero");
    execute(&slot, 1).finish(None);
}

#[test]
fn v4_sess_44_an_error_of_sequence_changes_nothing() {
    let slot = slot();
    execute(&slot, 1).abandon();
    assert_misordered(&slot, 0);
    execute(&slot, 1).finish(Some(&[b"first"]));
    let other = RequestFingerprint::default();
    match slot.begin(2, other) {
        SlotBegin::New(claim) => claim.abandon(),
        begun => panic!("{begun:?}"),
    }
    assert_eq!(&*replay(&slot, 1).unwrap(), b"first");
    execute(&slot, 2).finish(None);
}

#[test]
fn v4_sess_45_a_retry_gets_the_cached_reply() {
    let slot = slot();
    assert!(execute(&slot, 1).finish(Some(&[b"one ", b"", b"reply"])));
    for _ in 0..3 {
        assert_eq!(&*replay(&slot, 1).unwrap(), b"one reply");
    }
    execute(&slot, 2).finish(Some(&[b"x"]));
    assert_eq!(&*replay(&slot, 2).unwrap(), b"x");
    assert_misordered(&slot, 1);
}

#[test]
fn v4_sess_46_a_retry_of_an_uncached_request_is_told_so() {
    let slot = slot();
    execute(&slot, 1).finish(Some(&[b"cached"]));
    assert!(!execute(&slot, 2).finish(None));
    assert_eq!(replay(&slot, 2), None);
    assert!(!execute(&slot, 3).finish(Some(&[&[0; 60], &[0; 41]])));
    assert_eq!(replay(&slot, 3), None, "longer than the session allows");
    assert!(execute(&slot, 4).finish(Some(&[&[7; 60], &[7; 40]])));
    assert_eq!(&*replay(&slot, 4).unwrap(), [7; 100]);
}

#[test]
fn v4_sess_49_50_a_retry_that_differs_is_false() {
    let slot = slot();
    execute(&slot, 1).finish(Some(&[b"reply"]));
    for other in [
        RequestFingerprint {
            caller: 9,
            ..FINGERPRINT
        },
        RequestFingerprint {
            checksum: 9,
            ..FINGERPRINT
        },
    ] {
        let begun = slot.begin(1, other);
        assert!(matches!(begun, SlotBegin::FalseRetry), "{begun:?}");
    }
    assert_eq!(&*replay(&slot, 1).unwrap(), b"reply");
}

#[test]
fn v4_sess_51_a_retry_during_execution_is_told_to_wait() {
    let slot = slot();
    execute(&slot, 1).finish(Some(&[b"old"]));
    let claim = execute(&slot, 2);
    assert!(matches!(begin(&slot, 2), SlotBegin::InProgress));
    for other in [0, 1, 3] {
        assert_misordered(&slot, other);
    }
    claim.finish(Some(&[b"new"]));
    assert_eq!(&*replay(&slot, 2).unwrap(), b"new");
}

#[test]
fn v4_sess_55_a_dropped_request_leaves_its_slot_usable() {
    let slot = slot();
    drop(execute(&slot, 1));
    assert_eq!(replay(&slot, 1), None);
    execute(&slot, 2).finish(None);
}

#[test]
fn v4_sess_56_a_reply_being_sent_stays_as_it_is_when_the_slot_goes_on() {
    let slot = slot();
    execute(&slot, 1).finish(Some(&[b"first"]));
    let held = replay(&slot, 1).unwrap();
    execute(&slot, 2).finish(Some(&[b"second"]));
    assert_eq!(&*held, b"first");
    assert_eq!(&*replay(&slot, 2).unwrap(), b"second");
}

#[test]
fn v4_sess_56_a_long_cached_reply_does_not_outlive_its_request() {
    let slot = SessionSlot::new(10_000, 63);
    execute(&slot, 1).finish(Some(&[&[1; 8000]]));
    execute(&slot, 2).finish(None);
    let record = slot.record.take().unwrap();
    assert!(record.reply.capacity() <= 1024);
}

#[test]
fn v4_perf_01_replies_of_one_size_use_one_buffer() {
    let slot = slot();
    execute(&slot, 1).finish(Some(&[&[1; 80]]));
    let first = replay(&slot, 1).unwrap().as_ptr();
    for sequence in 2..10 {
        execute(&slot, sequence).finish((sequence % 2 == 0).then_some(&[&[2; 80]]));
    }
    execute(&slot, 10).finish(Some(&[&[3; 80]]));
    assert_eq!(replay(&slot, 10).unwrap().as_ptr(), first);
}

#[test]
fn v4_sess_45_each_request_is_executed_once_whoever_sends_it() {
    const THREADS: usize = 4;
    let slot = slot();
    let executed = std::sync::atomic::AtomicU32::new(0);
    let barrier = std::sync::Barrier::new(THREADS);
    let send = |sequence: u32| match begin(&slot, sequence) {
        SlotBegin::New(claim) => {
            executed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            claim.finish(Some(&[&sequence.to_be_bytes()]));
            true
        }
        SlotBegin::Replay(reply) => reply.is_some_and(|reply| *reply == sequence.to_be_bytes()),
        SlotBegin::InProgress => true,
        SlotBegin::Misordered | SlotBegin::FalseRetry => false,
    };
    let run = || {
        let rounds = (1..=300).map(|sequence| {
            barrier.wait();
            send(sequence)
        });
        let rounds: Vec<bool> = rounds.collect();
        rounds.into_iter().all(|is_right| is_right)
    };
    std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(run));
        for thread in threads {
            assert!(thread.join().unwrap());
        }
    });
    assert_eq!(executed.into_inner(), 300);
}

#[test]
fn v4_perf_07_a_reply_is_copied_only_if_it_is_cached() {
    let slot = SessionSlot::new(10_000, 63);
    let kept = |slot: &SessionSlot| {
        let record = slot.record.take().expect("there was a request");
        let length = record.reply.len();
        slot.record.store(Some(record));
        length
    };
    assert!(!execute(&slot, 1).finish(None));
    assert_eq!(kept(&slot), 0);
    assert!(execute(&slot, 2).finish(Some(&[b"head", b"data"])));
    assert_eq!(kept(&slot), 8);
    // One that is longer than the session caches is not copied either.
    let long = vec![7; 10_001];
    assert!(!execute(&slot, 3).finish(Some(&[&long])));
    assert_eq!(kept(&slot), 0);
}
