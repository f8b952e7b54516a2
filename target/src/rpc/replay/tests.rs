//! Tests of the cache.

mod journal;
mod layout;
mod shared;

use std::pin::pin;
use std::task::Context;

use millrace_store::{Caller, CallerGroups};

use super::*;
use crate::access::Security;

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

/// The key of a call of the superuser.
fn key(
    cache: &ReplayCache,
    address: IpAddr,
    xid: u32,
    program: (u32, u32, u32),
    arguments: &[u8],
) -> CallKey {
    let caller = Some(&Caller::SUPERUSER);
    cache.key(address, xid, program, &caller.into(), [arguments, b""])
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn rr1_hdr_25_known_by_peer_xid_program_procedure_and_checksum() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let known = key(&cache, address(1), 7, PROGRAM, b"name");
    execute(&cache, known, now).finish(b"reply", now);
    match enter(&cache, known, now) {
        Poll::Ready(Entered::Replay(reply)) => assert_eq!(&*reply, b"reply"),
        other => panic!("expected a replay, got {other:?}"),
    }
    for other in [
        key(&cache, address(2), 7, PROGRAM, b"name"),
        key(&cache, address(1), 8, PROGRAM, b"name"),
        key(&cache, address(1), 7, (100_003, 3, 13), b"name"),
        key(&cache, address(1), 7, PROGRAM, b"other"),
    ] {
        drop(execute(&cache, other, now));
    }
}

#[test]
fn rr1_hdr_25_calls_of_other_callers_are_other_calls() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let caller = |uid, gid, groups: &[u32]| Caller {
        uid,
        gid,
        groups: groups.iter().copied().collect(),
    };
    let key =
        |caller: Option<&Caller>| cache.key(address(1), 7, PROGRAM, &caller.into(), [b"name", b""]);
    let known = caller(1, 2, &[3, 4]);
    execute(&cache, key(Some(&known)), now).finish(b"reply", now);
    assert!(matches!(
        enter(&cache, key(Some(&known.clone())), now),
        Poll::Ready(Entered::Replay(_))
    ));
    let others = [
        caller(9, 2, &[3, 4]),
        caller(1, 9, &[3, 4]),
        caller(1, 2, &[3]),
        caller(1, 2, &[3, 4, 0]),
        caller(1, 2, &[]),
    ];
    for other in others.iter().map(Some).chain([None]) {
        drop(execute(&cache, key(other), now));
    }
}

#[test]
fn gss_rep_04_a_principal_finds_its_reply_and_nobody_else_does() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let user = Caller {
        uid: 1,
        gid: 2,
        groups: CallerGroups::NONE,
    };
    let identity = |security, caller, principal: &'static [u8]| CallIdentity {
        security,
        caller,
        principal,
    };
    let key = |identity| cache.key(address(1), 7, PROGRAM, &identity, [b"name", b""]);
    let known = identity(Security::Krb5, Some(&user), b"alice@EXAMPLE.COM");
    execute(&cache, key(known), now).finish(b"reply", now);
    // With another service, and under a context made when alice was another user.
    for same in [
        identity(Security::Krb5p, Some(&user), b"alice@EXAMPLE.COM"),
        identity(Security::Krb5, None, b"alice@EXAMPLE.COM"),
    ] {
        let entered = enter(&cache, key(same), now);
        assert!(matches!(entered, Poll::Ready(Entered::Replay(_))));
    }
    for other in [
        identity(Security::Krb5, Some(&user), b"bob@EXAMPLE.COM"),
        identity(Security::Krb5, Some(&user), b"alicf@EXAMPLE.COM"),
        identity(Security::Krb5, Some(&user), b"alice@EXAMPLE.CO"),
        identity(Security::Sys, Some(&user), b""),
        identity(Security::None, None, b""),
    ] {
        drop(execute(&cache, key(other), now));
    }
}

#[test]
fn rr1_hdr_25_arguments_count_to_their_end_and_in_every_part() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = |arguments| cache.key(address(1), 7, PROGRAM, &None.into(), arguments);
    let known = [7; 5000];
    let mut late = known;
    late[4999] = 8;
    let (front, back) = known.split_at(2500);
    execute(&cache, key([&known, b""]), now).finish(b"reply", now);
    for other in [
        [&late[..], b""],
        [front, back],
        [b"", &known],
        [&known, b"7"],
    ] {
        drop(execute(&cache, key(other), now));
    }
    // Arguments of a MiB are never executed, so the checksum need not cover them.
    let long = vec![7; 1 << 20];
    let other = vec![7; (1 << 20) + 1];
    execute(&cache, key([&long, b""]), now).finish(b"reply", now);
    drop(execute(&cache, key([&other, b""]), now));
}

/// A call without a credential never matches one with a credential. These arguments are chosen so
/// that the bytes under the checksum are the same, except for the mark of a credential.
#[test]
fn rr1_hdr_25_a_credential_is_never_taken_for_arguments() {
    let cache = cache(1000, 100_000);
    let caller = Caller {
        uid: CHECKED_BYTES as u32,
        gid: 0,
        groups: [].into_iter().collect(),
    };
    let sevens = [7; CHECKED_BYTES - 8];
    let longer = (CHECKED_BYTES + 8).to_le_bytes();
    let without = [&longer[..], &sevens].concat();
    let with = [&sevens[..], &8_usize.to_le_bytes(), b"not read"].concat();
    assert_ne!(
        cache.key(address(1), 7, PROGRAM, &None.into(), [&without, &[0; 8]]),
        cache.key(address(1), 7, PROGRAM, &Some(&caller).into(), [&with, b""])
    );
}

#[test]
fn rr1_hdr_25_repetition_waits_for_the_running_call() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = key(&cache, address(1), 7, PROGRAM, b"name");
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
fn names_are_told_apart_with_their_directories() {
    let cache = cache(1000, 100_000);
    let known = cache.target(b"directory", b"name");
    assert_eq!(known, cache.target(b"directory", b"name"));
    for (directory, name) in [
        ("directory", "other"),
        ("other", "name"),
        ("directoryn", "ame"),
    ] {
        let other = cache.target(directory.as_bytes(), name.as_bytes());
        assert_ne!(known, other, "{directory} {name}");
    }
}

/// A task that counts how often it is woken.
#[derive(Default)]
struct CountedTask(AtomicUsize);

impl std::task::Wake for CountedTask {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn eight_repetitions_wait_and_are_woken_once_and_further_ones_are_dropped() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = key(&cache, address(1), 7, PROGRAM, b"name");
    let ticket = execute(&cache, key, now);
    let enter = |task: &Arc<CountedTask>| {
        let waker = Waker::from(task.clone());
        pin!(cache.enter(key, now)).poll(&mut Context::from_waker(&waker))
    };
    let tasks: Vec<_> = (0..8).map(|_| Arc::<CountedTask>::default()).collect();
    // A task that looks twice waits once.
    for task in tasks.iter().chain(&tasks) {
        assert!(enter(task).is_pending());
    }
    let ninth = enter(&Arc::default());
    assert!(matches!(ninth, Poll::Ready(Entered::Crowded)), "{ninth:?}");
    assert_eq!(cache.totals().dropped, 1);
    ticket.finish(b"reply", now);
    let woken: Vec<_> = tasks.iter().map(|task| task.0.load(Relaxed)).collect();
    assert_eq!(woken, [1; 8]);
}

#[test]
fn each_part_keeps_all_that_its_bounds_allow_and_no_more() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let limits = |entries, bytes| ReplayLimits {
        entries: entries * SHARDS,
        bytes: bytes * SHARDS,
        age: Duration::from_secs(120),
    };
    let kept = |limits: ReplayLimits, replies: &[usize]| {
        let (mut shard, mut forgotten) = (Shard::default(), 0);
        for (xid, &length) in (0..).zip(replies) {
            let key = key(&cache, address(1), xid, PROGRAM, b"");
            shard.finish(key, vec![0; length].into(), now);
            forgotten += shard.trim(limits).all;
        }
        assert_eq!(shard.entries.len(), shard.order.len());
        (shard.entries.len(), shard.bytes, forgotten)
    };
    assert_eq!(kept(limits(3, 100), &[1, 2, 4]), (3, 7, 0));
    assert_eq!(kept(limits(3, 100), &[1, 2, 4, 8]), (3, 14, 1));
    assert_eq!(kept(limits(9, 20), &[5, 5, 10]), (3, 20, 0));
    assert_eq!(kept(limits(9, 20), &[5, 5, 11]), (2, 16, 1));
    // The latest stays, whatever it takes.
    assert_eq!(kept(limits(0, 20), &[5, 30]), (1, 30, 1));
    let mut shard = Shard::default();
    let key = key(&cache, address(1), 7, PROGRAM, b"");
    shard.finish(key, b"reply"[..].into(), now);
    let age = Duration::from_secs(120);
    assert_eq!(shard.expire(now + age, age).all, 0);
    let later = now + age + Duration::from_nanos(1);
    assert_eq!((shard.expire(later, age).all, shard.bytes), (1, 0));
}

#[test]
fn abandoned_call_may_be_executed() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = key(&cache, address(1), 7, PROGRAM, b"name");
    drop(execute(&cache, key, now));
    assert_eq!(cache.usage(), (0, 0));
    assert_eq!((cache.totals().entries, cache.totals().new), (0, 1));
    drop(execute(&cache, key, now));
}

#[test]
fn call_abandoned_while_it_is_executed_may_have_been() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = key(&cache, address(1), 7, PROGRAM, b"name");
    let mut ticket = execute(&cache, key, now);
    let began = ticket.begin();
    drop(ticket);
    assert_eq!(cache.usage(), (1, 0));
    for _ in 0..2 {
        let mut again = execute(&cache, key, now);
        let known = again.again().expect("it had begun");
        assert_eq!((known.began, known.alone), (began, false));
        assert_eq!(again.begin(), began, "when it was first begun");
    }
    // Forgotten for its age like any other.
    let later = Instant::now() + Duration::from_secs(1000);
    assert_eq!(execute(&cache, key, later).again(), None);
    assert_eq!(cache.usage(), (0, 0));
}

#[test]
fn call_that_was_begun_and_not_executed_leaves_nothing() {
    let (cache, now) = (cache(1000, 100_000), Instant::now());
    let key = key(&cache, address(1), 7, PROGRAM, b"name");
    let mut ticket = execute(&cache, key, now);
    ticket.begin();
    ticket.void();
    assert_eq!(cache.usage(), (0, 0));
    assert_eq!(execute(&cache, key, now).again(), None);
}

#[test]
fn bounded_in_entries_bytes_and_age() {
    let (cache, now) = (cache(32, 16 * 1000), Instant::now());
    for xid in 0..10_000 {
        let key = key(&cache, address(1), xid, PROGRAM, b"");
        execute(&cache, key, now).finish(&[0; 100], now);
    }
    assert!(cache.usage().0 <= 32);
    for xid in 0..10_000 {
        let key = key(&cache, address(2), xid, PROGRAM, b"");
        execute(&cache, key, now).finish(&[0; 900], now);
    }
    assert!(cache.usage().1 <= 16 * 1000);
    let key = key(&cache, address(2), 9_999, PROGRAM, b"");
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
