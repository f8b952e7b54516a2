//! The timer wheel against a sorted list.

use std::time::{Duration, Instant};

use millrace_reactor::timer::{TimerId, TimerWheel};
use proptest::prelude::*;

const TICK: Duration = Duration::from_nanos(1 << 16);

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64),
    Cancel(usize),
    Advance(u64),
    AdvanceToDeadline,
}

/// Nanoseconds of every magnitude up to a hundred years.
fn nanoseconds() -> impl Strategy<Value = u64> {
    (0..62_u32, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => nanoseconds().prop_map(Step::Insert),
        2 => (0..64_usize).prop_map(Step::Cancel),
        2 => nanoseconds().prop_map(|by| Step::Advance(by % (1 << 60))),
        2 => Just(Step::AdvanceToDeadline),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn timers_expire_in_time_and_in_order(steps in prop::collection::vec(step(), 1..300)) {
        let origin = Instant::now();
        let mut now = origin;
        let mut wheel = TimerWheel::new(now);
        let mut set: Vec<(Instant, u32, TimerId)> = Vec::new();
        let mut gone: Vec<TimerId> = Vec::new();
        let mut keys = Vec::new();
        for (key, step) in (0_u32..).zip(steps) {
            match step {
                Step::Insert(after) => {
                    let deadline = now + Duration::from_nanos(after);
                    set.push((deadline, key, wheel.insert(deadline, key)));
                }
                Step::Cancel(index) if index < set.len() => {
                    let (_, key, timer) = set.swap_remove(index);
                    prop_assert_eq!(wheel.cancel(timer), Some(key));
                    gone.push(timer);
                }
                Step::Cancel(_) => {}
                Step::Advance(by) => now += Duration::from_nanos(by),
                Step::AdvanceToDeadline => now = wheel.next_deadline().unwrap_or(now).max(now),
            }
            wheel.expired(now, &mut keys);
            let mut latest = origin;
            for key in keys.drain(..) {
                let at = set.iter().position(|&(_, other, _)| other == key).unwrap();
                let (deadline, _, timer) = set.swap_remove(at);
                prop_assert!(deadline <= now, "not early");
                prop_assert!(deadline + TICK >= latest, "in order");
                latest = latest.max(deadline);
                gone.push(timer);
            }
            let first = set.iter().map(|&(deadline, ..)| deadline).min();
            prop_assert!(first.is_none_or(|first| first + TICK * 2 > now), "not late");
            prop_assert_eq!(wheel.next_deadline().is_some(), first.is_some());
            if let (Some(next), Some(first)) = (wheel.next_deadline(), first) {
                prop_assert!(next <= first + TICK * 2);
                prop_assert!(next > now, "whoever sleeps until then gets on");
            }
            prop_assert_eq!(wheel.len(), set.len());
            for &timer in &gone {
                prop_assert_eq!(wheel.cancel(timer), None);
            }
        }
    }
}

#[test]
fn timers_of_one_tick_expire_in_order_of_insertion() {
    let now = Instant::now();
    let mut wheel = TimerWheel::new(now);
    for key in 0..10 {
        wheel.insert(now + Duration::from_secs(3), key);
    }
    let mut keys = Vec::new();
    wheel.expired(now + Duration::from_secs(2), &mut keys);
    assert!(keys.is_empty());
    wheel.expired(now + Duration::from_secs(3) + TICK, &mut keys);
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
    assert!(wheel.is_empty());
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_deadline_in_the_past_expires_with_the_next_tick() {
    let origin = Instant::now();
    let now = origin + Duration::from_secs(1);
    let mut wheel = TimerWheel::new(origin);
    let mut keys = Vec::new();
    wheel.expired(now, &mut keys);
    wheel.insert(origin, "late");
    wheel.expired(now, &mut keys);
    assert!(keys.is_empty());
    wheel.expired(now + TICK, &mut keys);
    assert_eq!(keys, ["late"]);
}
