//! The table with given keys and a clock of the tests.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::*;
use crate::{ContextKeys, Enctype, Side};

const HOUR: Duration = Duration::from_hours(1);

struct Bench {
    table: ContextTable,
    counters: Arc<GssCounters>,
    start: Instant,
}

fn bench(contexts: usize, contexts_per_client: usize) -> Bench {
    let settings = Settings {
        contexts,
        contexts_per_client,
        ..Settings::default()
    };
    let counters = Arc::new(GssCounters::default());
    Bench {
        table: ContextTable::new(&settings, Arc::clone(&counters)),
        counters,
        start: Instant::now(),
    }
}

fn protection() -> Arc<Protection> {
    let keys = ContextKeys {
        enctype: Enctype::Aes128Sha1,
        key: Zeroizing::new(vec![7; 16]),
        acceptor_subkey: true,
        send_sequence: 0,
    };
    Protection::new(&keys, Side::Acceptor).expect("a key")
}

fn client(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

impl Bench {
    fn insert(&self, from: u8, at: Duration) -> Result<ContextRef, TableFull> {
        let identity = Identity {
            principal: "alice@MILLRACE.TEST".into(),
            user: None,
        };
        let now = self.start + at;
        let table = &self.table;
        table.insert(protection(), identity, 8 * HOUR, client(from), now)
    }

    fn find(&self, context: &ContextRef, at: Duration) -> Result<(), HandleError> {
        let handle = context.handle();
        let found = self.table.find(handle.as_bytes(), self.start + at);
        found.map(drop)
    }
}

#[test]
fn gss_hdl_01_only_the_whole_handle_of_a_context_names_it() {
    let bench = bench(8, 8);
    let context = bench.insert(1, Duration::ZERO).expect("space");
    let mut handle = *context.handle().as_bytes();
    let find = |handle: &[u8]| bench.table.find(handle, bench.start).map(drop);
    assert_eq!(find(&handle), Ok(()));
    for bit in 0..128 {
        handle[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(find(&handle), Err(HandleError::Unknown), "bit {bit}");
        handle[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..16 {
        assert_eq!(find(&handle[..length]), Err(HandleError::Unknown));
    }
    assert_eq!(find(&[handle, handle].concat()), Err(HandleError::Unknown));
    assert_eq!(find(&handle), Ok(()));
}

#[test]
fn gss_hdl_01_handles_of_evicted_contexts_stay_unknown_when_slots_are_used_again() {
    let bench = bench(4, 4);
    let mut seen = HashSet::new();
    let mut before: Vec<ContextHandle> = Vec::new();
    for round in 0..40 {
        let context = bench.insert(1, Duration::from_secs(round)).expect("space");
        // Slots and generations repeat after all; the random half does not.
        let random = context.handle().as_bytes()[8..].to_vec();
        assert!(seen.insert(random));
        before.push(context.handle());
        let known = before.iter().rev().map(|handle| {
            let found = bench.table.find(handle.as_bytes(), bench.start);
            found.is_ok()
        });
        let known: Vec<_> = known.collect();
        assert!(known.iter().take(4).all(|known| *known));
        assert!(!known.iter().skip(4).any(|known| *known));
    }
    assert_eq!(bench.counters.contexts.get(), 4);
    assert_eq!(bench.counters.ended(EndReason::Evicted).get(), 36);
}

#[test]
fn gss_hdl_02_expired_contexts_are_told_from_unknown_ones_until_their_slot_is_gone() {
    let bench = bench(8, 8);
    let context = bench.insert(1, Duration::ZERO).expect("space");
    assert_eq!(
        bench.find(&context, 8 * HOUR - Duration::from_nanos(1)),
        Ok(())
    );
    assert_eq!(bench.find(&context, 8 * HOUR), Err(HandleError::Expired));
    bench.table.sweep(bench.start + 8 * HOUR);
    assert_eq!(bench.find(&context, 8 * HOUR), Err(HandleError::Expired));
    let later = 8 * HOUR + EXPIRED_KEPT;
    bench.table.sweep(bench.start + later);
    assert_eq!(bench.find(&context, later), Err(HandleError::Unknown));
    assert_eq!(bench.counters.ended(EndReason::Expired).get(), 1);
}

#[test]
fn gss_hdl_03_no_context_lives_longer_than_the_setting() {
    let settings = Settings {
        lifetime: HOUR,
        ..Settings::default()
    };
    let bench = Bench {
        table: ContextTable::new(&settings, Arc::default()),
        counters: Arc::default(),
        start: Instant::now(),
    };
    let context = bench.insert(1, Duration::ZERO).expect("space");
    assert_eq!(bench.find(&context, HOUR - Duration::from_nanos(1)), Ok(()));
    assert_eq!(bench.find(&context, HOUR), Err(HandleError::Expired));
}

#[test]
fn gss_ctx_15_a_destroyed_context_is_unknown() {
    let bench = bench(1, 1);
    let context = bench.insert(1, Duration::ZERO).expect("space");
    assert!(bench.table.end(&context, EndReason::Destroyed));
    assert!(!bench.table.end(&context, EndReason::Destroyed));
    assert_eq!(
        bench.find(&context, Duration::ZERO),
        Err(HandleError::Unknown)
    );
    assert_eq!(bench.counters.ended(EndReason::Destroyed).get(), 1);
    assert_eq!(bench.counters.contexts.get(), 0);
    // Its slot is free, although calls still have the context.
    let other = bench.insert(2, Duration::ZERO).expect("space");
    assert_eq!(bench.find(&other, Duration::ZERO), Ok(()));
    // The end of a context that is gone leaves the one in its slot alone.
    assert!(!bench.table.end(&context, EndReason::Destroyed));
    assert_eq!(bench.find(&other, Duration::ZERO), Ok(()));
}

#[test]
fn gss_ctx_16_a_call_keeps_the_keys_of_a_context_that_has_ended() {
    let bench = bench(8, 8);
    let context = bench.insert(1, Duration::ZERO).expect("space");
    let call = bench.table.find(context.handle().as_bytes(), bench.start);
    let call = call.expect("known");
    bench.table.end(&context, EndReason::Destroyed);
    drop(context);
    let mut token = vec![0; call.mic_length()];
    assert_eq!(call.sign(b"reply", &mut token), token.len());
}

#[test]
fn gss_lim_01_a_client_at_its_limit_loses_its_longest_idle_context_without_calls() {
    let bench = bench(16, 3);
    let held = bench.insert(1, Duration::ZERO).expect("space");
    let handles: Vec<_> = (1..3)
        .map(|at| {
            bench
                .insert(1, Duration::from_secs(at))
                .expect("space")
                .handle()
        })
        .collect();
    let foreign = bench.insert(2, Duration::ZERO).expect("space").handle();
    // The second one is used, so the third is idle for longer.
    let find = |handle: &ContextHandle, at| {
        let now = bench.start + Duration::from_secs(at);
        bench.table.find(handle.as_bytes(), now).is_ok()
    };
    assert!(find(&handles[0], 20));
    bench.insert(1, Duration::from_secs(30)).expect("space");
    assert!(find(&held.handle(), 31), "it has a call");
    assert!(find(&handles[0], 31));
    assert!(!find(&handles[1], 31), "the longest idle one");
    assert!(find(&foreign, 31), "another client's");
    assert_eq!(bench.counters.contexts.get(), 4);
}

#[test]
fn gss_lim_01_contexts_with_calls_are_never_evicted() {
    let bench = bench(3, 2);
    let _calls: Vec<_> = (0..2).map(|_| bench.insert(1, Duration::ZERO)).collect();
    assert_eq!(bench.insert(1, HOUR).err(), Some(TableFull));
    let _call = bench.insert(2, Duration::ZERO);
    assert_eq!(bench.insert(3, HOUR).err(), Some(TableFull));
}

#[test]
fn gss_lim_01_a_full_table_takes_from_the_client_itself_or_else_from_the_largest() {
    let bench = bench(4, 4);
    let insert = |from, at| {
        let context = bench.insert(from, Duration::from_secs(at));
        context.expect("space").handle()
    };
    let known = |handle: &ContextHandle| bench.table.find(handle.as_bytes(), bench.start).is_ok();
    let large: Vec<_> = (0..3).map(|at| insert(1, at)).collect();
    let own = insert(2, 3);
    let new = insert(2, 4);
    assert!(!known(&own) && known(&new) && large.iter().all(known));
    let third = insert(3, 5);
    assert!(known(&third) && known(&new));
    assert_eq!(large.iter().filter(|handle| known(handle)).count(), 2);
}

#[test]
fn gss_lim_01_destroyed_contexts_do_not_count() {
    let bench = bench(3, 2);
    for round in 0..50 {
        let context = bench.insert(1, Duration::from_secs(round)).expect("space");
        bench.table.end(&context, EndReason::Destroyed);
    }
    assert_eq!(bench.counters.ended(EndReason::Evicted).get(), 0);
    assert_eq!(bench.counters.contexts.get(), 0);
}

#[test]
fn gss_lim_02_contexts_age_unless_they_are_used() {
    let bench = bench(8, 8);
    let [used, idle, busy] = [0; 3].map(|_| bench.insert(1, Duration::ZERO).expect("space"));
    let [used, idle] = [used, idle].map(|context| context.handle());
    let find = |handle: &ContextHandle, at| {
        let found = bench.table.find(handle.as_bytes(), bench.start + at);
        found.is_ok()
    };
    assert!(find(&used, HOUR / 2));
    bench
        .table
        .sweep(bench.start + HOUR - Duration::from_secs(1));
    assert_eq!(bench.counters.contexts.get(), 3);
    bench.table.sweep(bench.start + HOUR);
    assert!(find(&used, HOUR) && !find(&idle, HOUR));
    assert!(find(&busy.handle(), HOUR), "it has a call");
    assert_eq!(bench.counters.ended(EndReason::Idle).get(), 1);
    bench.table.sweep(bench.start + 2 * HOUR);
    assert!(!find(&used, 2 * HOUR));
}

/// Readers on other threads see a context or none, whatever becomes of its slot.
#[test]
fn gss_hdl_01_readers_never_get_another_context_than_they_asked_for() {
    let bench = bench(2, 2);
    let published = Mutex::new(Vec::<ContextHandle>::new());
    std::thread::scope(|scope| {
        let (bench, published) = (&bench, &published);
        scope.spawn(move || {
            for round in 0..2000 {
                let context = bench.insert(1, Duration::from_millis(round));
                let Ok(context) = context else { continue };
                published.lock().expect("no panic").push(context.handle());
                if round % 3 == 0 {
                    bench.table.end(&context, EndReason::Destroyed);
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..2000 {
                    let handles = published.lock().expect("no panic").clone();
                    for handle in handles.iter().rev().take(8) {
                        if let Ok(found) = bench.table.find(handle.as_bytes(), bench.start) {
                            assert!(found.handle() == *handle);
                        }
                    }
                }
            });
        }
    });
    assert!(published.lock().expect("no panic").len() > 100);
}
