//! Tasks, completions and timers allocate nothing in their steady state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use millrace_reactor::completion::Completions;
use millrace_reactor::task::{TaskEnd, TaskSet};
use millrace_reactor::timer::TimerWheel;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let before = COUNT.get();
    for round in 2..100 {
        turn(round);
    }
    assert_eq!(COUNT.get(), before);
    let held = vec![0_u8; 10];
    assert_eq!(COUNT.get(), before + 1, "the count counts");
    drop(held);
}
