//! The queues against models.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::*;

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Join,
    Grant,
    Poll(usize),
    Leave(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Join),
        3 => Just(Action::Grant),
        3 => (0..8_usize).prop_map(Action::Poll),
        2 => (0..8_usize).prop_map(Action::Leave),
    ]
}

struct Modelled {
    waiter: Waiter,
    number: u32,
    wakes: Arc<Wakes>,
    granted: Option<u32>,
}

proptest! {
    /// Grants go by the order of arrival to those who still wait, each wakes the one it is for
    /// once and by its latest waker, and none is lost.
    #[test]
    fn grants_go_by_order_of_arrival(actions in prop::collection::vec(action(), 1..200)) {
        let mut queue = WaitQueue::<u32, u32>::default();
        let mut all: Vec<Modelled> = Vec::new();
        let mut waiting: VecDeque<u32> = VecDeque::new();
        let mut most = 0;
        for (step, action) in (0..).zip(actions) {
            match action {
                Action::Join => {
                    let wakes = Arc::new(Wakes::default());
                    let waiter = queue.join(step, Waker::from(Arc::clone(&wakes)));
                    all.push(Modelled { waiter, number: step, wakes, granted: None });
                    waiting.push_back(step);
                    most = most.max(all.len());
                }
                Action::Grant => match (queue.grant(step), waiting.pop_front()) {
                    (Ok(waker), Some(number)) => {
                        waker.wake();
                        let one = all.iter_mut().find(|one| one.number == number).unwrap();
                        one.granted = Some(step);
                        prop_assert_eq!(one.wakes.0.load(Relaxed), 1);
                    }
                    (outcome, expected) => {
                        prop_assert_eq!(outcome.err(), Some(step));
                        prop_assert_eq!(expected, None);
                    }
                },
                Action::Poll(index) if index < all.len() => {
                    let wakes = Arc::new(Wakes::default());
                    let one = &mut all[index];
                    let mut waker = Waker::from(Arc::clone(&wakes));
                    prop_assert_eq!(queue.poll(&one.waiter, &mut waker), one.granted);
                    match one.granted {
                        Some(_) => drop(all.remove(index)),
                        None => one.wakes = wakes,
                    }
                }
                Action::Leave(index) if index < all.len() => {
                    let one = all.remove(index);
                    waiting.retain(|&number| number != one.number);
                    match queue.leave(&one.waiter) {
                        Departure::Granted(grant) => prop_assert_eq!(Some(grant), one.granted),
                        Departure::Waiting(_) => prop_assert_eq!(one.granted, None),
                    }
                }
                Action::Poll(_) | Action::Leave(_) => {}
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert_eq!(queue.is_empty(), waiting.is_empty());
            prop_assert_eq!(queue.first(), waiting.front());
            for one in &all {
                prop_assert_eq!(queue.is_first(&one.waiter), waiting.front() == Some(&one.number));
                prop_assert_eq!(one.wakes.0.load(Relaxed), usize::from(one.granted.is_some()));
            }
            prop_assert_eq!(queue.wakers().count(), waiting.len());
            prop_assert!(queue.nodes() <= most, "nodes are used again");
        }
    }

    /// Whatever leaves when, the first of those who wait goes on after one wake, and in order.
    #[test]
    fn turns_go_by_order_of_arrival(
        came in 1..12_usize,
        actions in prop::collection::vec((0..3_u8, 0..12_usize), 0..60),
    ) {
        let queue = TurnQueue::default();
        let open = std::cell::Cell::new(false);
        type Task<'a> = (usize, Arc<Wakes>, Pin<Box<dyn Future<Output = ()> + 'a>>);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        let run = |task: &mut Task<'_>| {
            let waker = Waker::from(Arc::clone(&task.1));
            task.2.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        for number in 0..came {
            let turn = queue.join();
            let open = &open;
            let future = Box::pin(async move {
                let ready = |_: &mut Context<'_>| match open.replace(false) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                };
                turn.until(ready).await;
            });
            let mut task: Task<'_> = (number, Arc::default(), future);
            prop_assert!(!run(&mut task));
            tasks.push(task);
        }
        for (action, index) in actions {
            match action {
                0 => {
                    open.set(true);
                    queue.wake();
                    continue;
                }
                1 => {
                    if index < tasks.len() {
                        drop(tasks.remove(index));
                    }
                    continue;
                }
                _ => {}
            }
            // Only who was woken is polled.
            while let Some(at) = tasks.iter().position(|task| task.1.0.swap(0, Relaxed) > 0) {
                if run(&mut tasks[at]) {
                    prop_assert_eq!(at, 0, "the first goes on");
                    drop(tasks.remove(at));
                }
            }
            prop_assert!(tasks.is_empty() || !open.get(), "no wake is lost");
            prop_assert_eq!(queue.is_empty(), tasks.is_empty());
        }
        queue.end();
        for task in &tasks {
            prop_assert!(task.1.0.load(Relaxed) > 0, "all are woken at the end");
        }
    }
}

#[test]
fn at_the_end_all_look_at_once() {
    let queue = TurnQueue::default();
    let turns = [queue.join(), queue.join()];
    let mut context = Context::from_waker(Waker::noop());
    for (at, turn) in turns.iter().enumerate() {
        let looked = pin!(turn.until(|_| Poll::Ready(())));
        assert_eq!(looked.poll(&mut context).is_ready(), at == 0);
    }
    queue.end();
    for turn in &turns {
        let looked = pin!(turn.until(|_| Poll::Ready(())));
        assert!(looked.poll(&mut context).is_ready());
    }
}
