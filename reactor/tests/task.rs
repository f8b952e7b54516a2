//! What a task set promises.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use millrace_reactor::task::{TaskEnd, TaskSet, next_turn};

type Boxed = Pin<Box<dyn Future<Output = u32>>>;

fn run(tasks: &mut TaskSet<Boxed>) -> (usize, Vec<TaskEnd<u32>>) {
    let mut ended = Vec::new();
    (tasks.run(&mut ended), ended)
}

#[test]
fn tasks_run_when_woken_and_only_then() {
    let mut tasks = TaskSet::<Boxed>::new(100, None);
    let polls = Rc::new(Cell::new(0));
    let waker = Rc::new(RefCell::new(None::<Waker>));
    let future = {
        let (polls, waker) = (Rc::clone(&polls), Rc::clone(&waker));
        poll_fn(move |context| {
            polls.set(polls.get() + 1);
            *waker.borrow_mut() = Some(context.waker().clone());
            if polls.get() == 3 {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        })
    };
    let task = tasks.spawn(Box::pin(future)).ok().unwrap();
    assert_eq!(run(&mut tasks).0, 1);
    assert_eq!(run(&mut tasks).0, 0, "nobody woke it");
    let kept = waker.borrow().clone().unwrap();
    kept.wake_by_ref();
    kept.wake_by_ref();
    assert_eq!(run(&mut tasks).0, 1, "two wakes, one poll");
    std::thread::spawn(move || kept.wake()).join().unwrap();
    let (polls, ended) = run(&mut tasks);
    assert_eq!((polls, ended.len()), (1, 1));
    assert_eq!(ended[0].task, task);
    assert_eq!(*ended[0].outcome.as_ref().unwrap(), 7);
    assert!(tasks.is_empty());
    waker.borrow().as_ref().unwrap().wake_by_ref();
    assert_eq!(run(&mut tasks).0, 0, "a late wake finds nobody");
}

#[test]
fn woken_tasks_are_taken_by_who_runs_them_one_by_one() {
    let mut tasks = TaskSet::<Boxed>::new(100, None);
    let taken = |tasks: &mut TaskSet<Boxed>| {
        let mut all = Vec::new();
        tasks.take_woken(|task| all.push(task));
        all
    };
    let first = tasks.spawn(Box::pin(async { 1 })).ok().unwrap();
    let slow = async {
        next_turn().await;
        2
    };
    let second = tasks.spawn(Box::pin(slow)).ok().unwrap();
    let third = tasks.spawn(Box::pin(async { 3 })).ok().unwrap();
    assert!(tasks.cancel(third));
    assert_eq!(taken(&mut tasks), [first, second]);
    assert!(taken(&mut tasks).is_empty());
    assert_eq!(run(&mut tasks).0, 0, "they were taken");
    let mut ended = Vec::new();
    assert!(tasks.run_one(second, &mut ended));
    assert_eq!(taken(&mut tasks), [second], "it has more to do");
    assert!(tasks.run_one(second, &mut ended));
    assert!(tasks.run_one(first, &mut ended));
    let results = ended.into_iter().map(|end| end.outcome.unwrap());
    assert_eq!(results.collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_full_set_gives_the_future_back_and_reuses_places() {
    let mut tasks = TaskSet::<Boxed>::new(2, None);
    let first = tasks.spawn(Box::pin(async { 1 })).ok().unwrap();
    let second = tasks.spawn(Box::pin(std::future::pending())).ok().unwrap();
    assert!(tasks.spawn(Box::pin(async { 3 })).is_err());
    let (_, ended) = run(&mut tasks);
    assert_eq!(ended[0].task, first);
    let third = tasks.spawn(Box::pin(async { 3 })).ok().unwrap();
    assert_eq!(third.index, first.index);
    assert_ne!(third, first);
    assert!(!tasks.cancel(first), "its place has another user");
    assert!(tasks.cancel(second));
    assert!(!tasks.cancel(second));
    assert_eq!(tasks.len(), 1);
    assert_eq!(run(&mut tasks).1[0].task, third);
}

#[test]
fn a_panic_ends_its_task_alone() {
    struct Noisy(Rc<Cell<bool>>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let mut tasks = TaskSet::<Boxed>::new(8, None);
    let dropped = Rc::new(Cell::new(false));
    let noisy = Noisy(Rc::clone(&dropped));
    let guilty = tasks
        .spawn(Box::pin(async move {
            let _noisy = noisy;
            panic!("on purpose");
        }))
        .ok()
        .unwrap();
    let innocent = tasks.spawn(Box::pin(async { 5 })).ok().unwrap();
    let (polls, mut ended) = run(&mut tasks);
    assert_eq!(polls, 2);
    let end = ended.remove(0);
    assert_eq!(end.task, guilty);
    let payload = end.outcome.unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(dropped.get());
    assert_eq!(
        (ended[0].task, *ended[0].outcome.as_ref().unwrap()),
        (innocent, 5)
    );
    assert!(tasks.is_empty());
}

#[test]
fn a_task_that_wakes_itself_does_not_hold_the_run() {
    let mut tasks = TaskSet::<Boxed>::new(1, None);
    let future = poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let task = tasks.spawn(Box::pin(future)).ok().unwrap();
    for _ in 0..3 {
        assert_eq!(run(&mut tasks).0, 1);
    }
    assert!(tasks.cancel(task));
    assert_eq!(run(&mut tasks).0, 0);
}
