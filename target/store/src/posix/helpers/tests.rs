//! Tests of helpers. Jobs are blocked by channels, so that nothing depends on the speed of threads.

use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Wake;
use std::thread::{self, Thread, ThreadId};

use super::*;

/// A client.
const ANY: ClientKey = ClientKey::new(1);

fn helpers(threads: usize, queue: usize) -> Helpers {
    Helpers::new("test", HelperLimits { threads, queue })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a job as a reactor would, but sleeping.
fn wait<T>(job: Job<T>) -> Result<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut job = pin!(job);
    loop {
        match job.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}

/// Returns when the load is as expected: threads need a moment after a job.
fn until(helpers: &Helpers, so: impl Fn(HelperLoad) -> bool) -> HelperLoad {
    loop {
        let load = helpers.load();
        if so(load) {
            return load;
        }
        thread::yield_now();
    }
}

/// A job that has begun, and ends on request.
struct BlockedJob {
    job: Job<ThreadId>,
    go: Sender<()>,
}

impl BlockedJob {
    fn begin(helpers: &Helpers) -> Self {
        let (begun, has_begun) = channel();
        let held = Self::enter(helpers, begun);
        has_begun.recv().expect("a thread takes it");
        held
    }

    fn enter(helpers: &Helpers, begun: Sender<()>) -> Self {
        let (go, may_go): (_, Receiver<()>) = channel();
        let job = helpers.run(ANY, move || {
            let _ = begun.send(());
            let _ = may_go.recv();
            thread::current().id()
        });
        Self { job, go }
    }

    fn end(self) -> ThreadId {
        let _ = self.go.send(());
        wait(self.job).expect("it ran")
    }
}

#[test]
fn one_thread_runs_jobs_in_the_order_of_their_entry() {
    let helpers = helpers(1, 1000);
    let first = BlockedJob::begin(&helpers);
    let (sender, receiver) = channel();
    let jobs: Vec<_> = (0..500)
        .map(|number| {
            let sender = sender.clone();
            helpers.run(ANY, move || sender.send(number).expect("received below"))
        })
        .collect();
    assert_eq!(helpers.load().queued, 500);
    let thread = first.end();
    for job in jobs {
        wait(job).unwrap();
    }
    assert!(receiver.try_iter().eq(0..500));
    assert_eq!(
        BlockedJob::begin(&helpers).end(),
        thread,
        "no other thread was made"
    );
}

/// A helper that has the state may not be running: the reactor goes on.
#[test]
fn a_job_enters_while_another_thread_has_the_state() {
    let helpers = helpers(1, 10);
    let shared = Arc::clone(&helpers.shared);
    let state = shared.lock();
    let (entered, has_entered) = channel();
    let reactor = thread::spawn(move || entered.send(helpers.run(ANY, || 7)));
    let job = has_entered.recv_timeout(Duration::from_secs(60));
    assert_eq!((state.threads, state.queue.len()), (0, 0));
    drop(state);
    shared.queue_entered();
    assert_eq!(wait(job.expect("it does not wait")), Ok(7));
    reactor.join().unwrap().unwrap();
}

#[test]
fn jobs_are_run_however_often_others_look_at_the_load() {
    let (helpers, is_over) = (helpers(2, 1000), AtomicBool::new(false));
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let _ = helpers.load();
            }
        });
        for number in 0..20_000 {
            assert_eq!(wait(helpers.run(ANY, move || number)), Ok(number));
        }
        is_over.store(true, SeqCst);
        looker.join().unwrap();
    });
}

/// A burst wakes one thread. It must not keep the others' jobs while its own blocks.
#[test]
fn jobs_of_a_burst_that_block_are_run_by_as_many_threads() {
    let helpers = helpers(4, 1000);
    for _ in 0..100 {
        let (begun, has_begun) = channel();
        let burst: Vec<_> = (0..4)
            .map(|_| BlockedJob::enter(&helpers, begun.clone()))
            .collect();
        for _ in 0..4 {
            let limit = Duration::from_secs(60);
            has_begun.recv_timeout(limit).expect("a thread takes it");
        }
        for held in burst {
            held.end();
        }
        until(&helpers, |load| load.running == 0);
    }
}

#[test]
fn clients_have_turns_however_much_one_of_them_asks_for() {
    let helpers = helpers(1, 1000);
    let first = BlockedJob::begin(&helpers);
    let (sender, receiver) = channel();
    let enter = |client: u128, number: u32| {
        let sender = sender.clone();
        helpers.run(ClientKey::new(client), move || {
            sender.send((client, number)).expect("received below");
        })
    };
    let mut jobs: Vec<_> = (0..100).map(|number| enter(1, number)).collect();
    jobs.extend([enter(2, 0), enter(3, 0), enter(2, 1)]);
    let load = helpers.load();
    assert_eq!((load.queued, load.queued_clients), (103, 3));
    assert!(helpers.is_wanted_by_others(ClientKey::new(1)));
    assert!(helpers.is_wanted_by_others(ClientKey::OWN));
    first.end();
    for job in jobs {
        wait(job).unwrap();
    }
    let order: Vec<_> = receiver.try_iter().collect();
    assert_eq!(order[..5], [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)]);
    let last = order[5..].iter().copied();
    assert!(last.eq((2..100).map(|number| (1, number))));
    assert!(!helpers.is_wanted_by_others(ClientKey::OWN));
}

#[test]
fn in_a_full_queue_whoever_has_the_most_gives_way() {
    let helpers = helpers(1, 4);
    let first = BlockedJob::begin(&helpers);
    let [many, few] = [1, 2].map(ClientKey::new);
    let mut waiting: Vec<_> = (0..4)
        .map(|number| helpers.run(many, move || number))
        .collect();
    let refused = helpers.run(many, || -> i32 { panic!("it must not run") });
    assert!(refused.is_refused());
    assert_eq!(wait(refused), Err(StoreError::Delay));
    let come = helpers.run(few, || 10);
    assert!(!come.is_refused(), "it has the least");
    let last = waiting.pop().expect("four");
    assert!(last.is_refused(), "the last one of whoever has the most");
    assert_eq!(wait(last), Err(StoreError::Delay));
    assert_eq!(helpers.load().queued, 4);
    first.end();
    assert_eq!(wait(come), Ok(10));
    let outcomes: Vec<_> = waiting.into_iter().map(wait).collect();
    assert_eq!(outcomes, [Ok(0), Ok(1), Ok(2)]);
}

#[test]
fn threads_come_as_they_are_needed_and_never_more_than_the_bound() {
    let helpers = helpers(3, 10);
    assert_eq!(helpers.load(), HelperLoad::default());
    let held: Vec<_> = (1..=3)
        .map(|threads| {
            let held = BlockedJob::begin(&helpers);
            assert_eq!(helpers.load().threads, threads);
            held
        })
        .collect();
    let (begun, has_begun) = channel();
    let more: Vec<_> = (0..10)
        .map(|_| BlockedJob::enter(&helpers, begun.clone()))
        .collect();
    let load = helpers.load();
    assert_eq!((load.threads, load.running, load.queued), (3, 3, 10));
    assert!(has_begun.try_recv().is_err(), "they wait");
    let mut threads: Vec<_> = held.into_iter().map(BlockedJob::end).collect();
    threads.extend(more.into_iter().map(BlockedJob::end));
    threads.sort_unstable_by_key(|thread| format!("{thread:?}"));
    threads.dedup();
    assert_eq!(threads.len(), 3);
    // Idle threads are used before new ones are started.
    until(&helpers, |load| load.running == 0);
    BlockedJob::begin(&helpers).end();
    assert_eq!(helpers.load().threads, 3);
}

#[test]
fn one_job_more_than_the_queue_takes_is_delayed_and_never_runs() {
    let helpers = helpers(1, 2);
    let first = BlockedJob::begin(&helpers);
    let waiting = [helpers.run(ANY, || 1), helpers.run(ANY, || 2)];
    let refused = helpers.run(ANY, || -> i32 { panic!("it must not run") });
    assert_eq!(wait(refused), Err(StoreError::Delay));
    assert_eq!(helpers.load().queued, 2);
    first.end();
    assert_eq!(waiting.map(wait), [Ok(1), Ok(2)]);
    assert_eq!(wait(helpers.run(ANY, || 3)), Ok(3), "there is room again");
}

#[test]
fn no_bound_is_below_one() {
    let helpers = helpers(0, 0);
    assert_eq!(wait(helpers.run(ANY, || 7)), Ok(7));
    assert_eq!(helpers.load().threads, 1);
}

#[test]
fn a_job_that_panics_is_answered_and_its_thread_goes_on() {
    let helpers = helpers(1, 10);
    let thread = BlockedJob::begin(&helpers).end();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let panicked = wait(helpers.run(ANY, || -> () { panic!("a fault of a job") }));
    std::panic::set_hook(hook);
    assert_eq!(panicked, Err(StoreError::Io));
    assert_eq!(BlockedJob::begin(&helpers).end(), thread);
    let load = until(&helpers, |load| load.running == 0);
    assert_eq!(
        (load.threads, load.queued, load.stuck),
        (1, 0, Duration::ZERO)
    );
}

#[test]
fn a_job_runs_to_its_end_without_its_future() {
    let helpers = helpers(1, 10);
    let first = BlockedJob::begin(&helpers);
    let (sender, receiver) = channel();
    // One dropped at once, one after it was polled.
    let at_once = sender.clone();
    drop(helpers.run(ANY, move || at_once.send(1)));
    let mut polled = Box::pin(helpers.run(ANY, move || sender.send(2)));
    let pending = polled
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(pending.is_pending());
    drop(polled);
    first.end();
    assert!(receiver.iter().eq([1, 2]));
}

#[test]
fn threads_end_with_the_last_clone_and_an_empty_queue() {
    let helpers = helpers(2, 10);
    let first = BlockedJob::begin(&helpers);
    let second = BlockedJob::begin(&helpers);
    let queued = helpers.run(ANY, || "served still");
    let clone = helpers.clone();
    let shared = Arc::downgrade(&helpers.shared);
    drop(helpers);
    assert!(!clone.shared.lock().closed, "there is a clone");
    drop(clone);
    let state = shared.upgrade().expect("threads hold it");
    assert!(state.lock().closed);
    drop(state);
    first.end();
    second.end();
    assert_eq!(wait(queued), Ok("served still"));
    // The threads were the last owners of the shared state.
    while shared.strong_count() > 0 {
        thread::yield_now();
    }
}

#[test]
fn work_that_nobody_gets_to_is_answered() {
    let helpers = helpers(1, 10);
    let first = BlockedJob::begin(&helpers);
    let queued = helpers.run(ANY, || ());
    let unserved = std::mem::take(&mut helpers.shared.lock().queue);
    drop(unserved);
    assert_eq!(wait(queued), Err(StoreError::Io));
    first.end();
}

#[test]
fn load_tells_what_is_run_waits_and_is_stuck() {
    let helpers = helpers(2, 10);
    let first = BlockedJob::begin(&helpers);
    let before = Instant::now();
    let load = helpers.load();
    assert_eq!((load.threads, load.running, load.queued), (1, 1, 0));
    let later = helpers.load().stuck;
    assert!(later >= load.stuck, "it grows while nothing ends");
    // The time counts from the last job that ended.
    let second = BlockedJob::begin(&helpers);
    second.end();
    until(&helpers, |load| load.running == 1);
    let ended = helpers.shared.lock().progressed.expect("one ended");
    assert!(ended >= before);
    first.end();
    let load = until(&helpers, |load| load.running == 0);
    assert_eq!(load.stuck, Duration::ZERO, "nothing is under way");
}

#[test]
fn fewer_threads_stay_when_the_bound_falls() {
    let helpers = helpers(3, 10);
    let held: Vec<_> = (0..3).map(|_| BlockedJob::begin(&helpers)).collect();
    helpers.set_limits(HelperLimits {
        threads: 1,
        queue: 10,
    });
    held.into_iter().for_each(|held| {
        held.end();
    });
    until(&helpers, |load| load.threads == 1);
    assert_eq!(wait(helpers.run(ANY, || 5)), Ok(5));
}

#[test]
fn many_callers_get_each_their_own() {
    let helpers = helpers(4, 10_000);
    let callers: Vec<_> = (0..8_u64)
        .map(|caller| {
            let helpers = helpers.clone();
            thread::spawn(move || {
                for number in 0..500 {
                    assert_eq!(
                        wait(helpers.run(ANY, move || caller * 1000 + number)),
                        Ok(caller * 1000 + number)
                    );
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    let load = until(&helpers, |load| load.running == 0);
    assert!(load.threads <= 4 && load.queued == 0, "{load:?}");
}
