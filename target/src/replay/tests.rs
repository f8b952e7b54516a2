//! Tests of the cache.

mod journal;
mod layout;

use std::pin::pin;
use std::task::Context;

use super::*;

const PROGRAM: (u32, u32, u32) = (100_003, 3, 12);

fn cache(entries: usize, bytes: usize) -> ReplayCache {
    ReplayCache::new(ReplayLimits {
        entries,
        bytes,
        age: Duration::from_secs(120),
    })
}

fn enter(cache: &ReplayCache, key: CallKey, now: Instant) -> Poll<Entered> {
    pin!(cache.enter(key, now)).poll(&mut Context::from_waker(Waker::noop()))
}

fn execute(cache: &ReplayCache, key: CallKey, now: Instant) -> Ticket {
    match enter(cache, key, now) {
        Poll::Ready(Entered::Execute(ticket)) => ticket,
        other => panic!("expected to execute, got {other:?}"),
    }
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn rr1_hdr_25_known_by_peer_xid_program_procedure_and_checksum() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = cache.key(address(1), 7, PROGRAM, b"name");
    execute(&cache, key, now).finish(b"reply", now);
    match enter(&cache, key, now) {
        Poll::Ready(Entered::Replay(reply)) => assert_eq!(&*reply, b"reply"),
        other => panic!("expected a replay, got {other:?}"),
    }
    for other in [
        cache.key(address(2), 7, PROGRAM, b"name"),
        cache.key(address(1), 8, PROGRAM, b"name"),
        cache.key(address(1), 7, (100_003, 3, 13), b"name"),
        cache.key(address(1), 7, PROGRAM, b"other"),
    ] {
        drop(execute(&cache, other, now));
    }
}

#[test]
fn rr1_hdr_25_repetition_waits_for_the_running_call() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = cache.key(address(1), 7, PROGRAM, b"name");
    let ticket = execute(&cache, key, now);
    let mut context = Context::from_waker(Waker::noop());
    let mut repetition = pin!(cache.enter(key, now));
    assert!(repetition.as_mut().poll(&mut context).is_pending());
    ticket.finish(b"reply", now);
    match repetition.as_mut().poll(&mut context) {
        Poll::Ready(Entered::Replay(reply)) => assert_eq!(&*reply, b"reply"),
        other => panic!("expected a replay, got {other:?}"),
    }
}

#[test]
fn abandoned_call_may_be_executed() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = cache.key(address(1), 7, PROGRAM, b"name");
    drop(execute(&cache, key, now));
    assert_eq!(cache.usage(), (0, 0));
    assert_eq!((cache.totals().entries, cache.totals().new), (0, 1));
    drop(execute(&cache, key, now));
}

#[test]
fn bounded_in_entries_bytes_and_age() {
    let (cache, now) = (cache(32, 16 * 1000), Instant::now());
    for xid in 0..10_000 {
        let key = cache.key(address(1), xid, PROGRAM, b"");
        execute(&cache, key, now).finish(&[0; 100], now);
    }
    assert!(cache.usage().0 <= 32);
    for xid in 0..10_000 {
        let key = cache.key(address(2), xid, PROGRAM, b"");
        execute(&cache, key, now).finish(&[0; 900], now);
    }
    assert!(cache.usage().1 <= 16 * 1000);
    let key = cache.key(address(2), 9_999, PROGRAM, b"");
    assert!(matches!(
        enter(&cache, key, now),
        Poll::Ready(Entered::Replay(_))
    ));
    let totals = cache.totals();
    assert_eq!((totals.entries, totals.bytes), {
        let (entries, bytes) = cache.usage();
        (entries as u64, bytes as u64)
    });
    assert_eq!(totals.evicted_full, 20_000 - totals.entries);
    assert_eq!(
        (totals.new, totals.replayed, totals.evicted_age),
        (20_000, 1, 0)
    );
    drop(execute(&cache, key, now + Duration::from_secs(121)));
    assert!(cache.totals().evicted_age > 0);
}
