//! Tasks, completions and timers allocate nothing in their steady state.

use std::cell::Cell;
use std::time::{Duration, Instant};

use millrace_reactor::completion::Completions;
use millrace_reactor::task::{TaskEnd, TaskSet};
use millrace_reactor::timer::TimerWheel;
use millrace_testing::allocation::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

async fn request(completions: Completions<u64>, tokens: &Cell<[u64; 32]>, at: usize) -> u64 {
    let (token, wait) = completions.register();
    let mut all = tokens.get();
    all[at] = token;
    tokens.set(all);
    wait.await
}

#[test]
fn spawning_completing_and_timing_allocate_nothing() {
    let completions = Completions::new();
    let tokens = Cell::new([0; 32]);
    let start = Instant::now();
    let mut timers = TimerWheel::new(start);
    let mut tasks = TaskSet::new(32, None);
    let mut ended: Vec<TaskEnd<u64>> = Vec::with_capacity(32);
    let mut keys = Vec::with_capacity(64);
    let mut turn = |round: u32| {
        let now = start + Duration::from_millis(10) * round;
        for at in 0..32 {
            assert!(
                tasks
                    .spawn(request(completions.clone(), &tokens, at))
                    .is_ok()
            );
            let kept = timers.insert(now + Duration::from_micros(at as u64 * 300), at);
            let cancelled = timers.insert(now + Duration::from_secs(10), at);
            if at % 2 == 0 {
                timers.cancel(kept);
            }
            timers.cancel(cancelled);
        }
        assert_eq!(tasks.run(&mut ended), 32);
        for (value, token) in tokens.get().into_iter().enumerate() {
            completions.complete(token, value as u64).unwrap();
        }
        assert_eq!(tasks.run(&mut ended), 32);
        let values = ended.drain(..).map(|end| end.outcome.unwrap());
        assert_eq!(values.sum::<u64>(), (0..32).sum());
        timers.expired(now, &mut keys);
        keys.clear();
    };
    turn(0);
    turn(1);
    assert_eq!(allocations(|| (2..100).for_each(turn)), 0);
}
