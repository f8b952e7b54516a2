//! Questions of one reactor to the home on another one.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace_reactor::Clock;

use crate::state::{HomeLink, HomeOutbox, StateConfig, StateHome};

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_question_travels_to_the_home_and_its_answer_back() {
    let epoch = Instant::now();
    let times = || (epoch, Clock::new(epoch));
    let home = Rc::new(RefCell::new(StateHome::new(StateConfig::default())));
    let here = HomeLink::here(home, 0, times());
    let outbox = HomeOutbox::default();
    let elsewhere = HomeLink::elsewhere(Rc::clone(&outbox), 3, times());
    let mut at_once = pin!(here.ask(|home, _| home.client_count()));
    assert_eq!(poll(at_once.as_mut()), Poll::Ready(Some(0)));

    let mut first = pin!(
        elsewhere.ask(|home, now| { home.exchange_id(b"a", [1; 8], b"", false, now).is_ok() })
    );
    let mut second = pin!(elsewhere.ask(|home, _| home.client_count()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    assert!(elsewhere.ask_here(|_, _| ()).is_none());
    let mut answers = Vec::new();
    for request in outbox.take() {
        assert_eq!(request.from, 3);
        answers.push(here.serve(request).unwrap());
    }
    // In any order.
    for answer in answers.into_iter().rev() {
        elsewhere.take(answer);
    }
    assert_eq!(poll(second.as_mut()), Poll::Ready(Some(1)));
    assert_eq!(poll(first.as_mut()), Poll::Ready(Some(true)));
}

#[test]
fn an_answer_that_nobody_waits_for_is_dropped() {
    let epoch = Instant::now();
    let times = || (epoch, Clock::new(epoch));
    let home = Rc::new(RefCell::new(StateHome::new(StateConfig::default())));
    let here = HomeLink::here(home, 0, times());
    let outbox = HomeOutbox::default();
    let elsewhere = HomeLink::elsewhere(Rc::clone(&outbox), 1, times());
    {
        let mut given_up = pin!(elsewhere.ask(|home, _| home.client_count()));
        assert!(poll(given_up.as_mut()).is_pending());
    }
    let late = here.serve(outbox.take().pop_front().unwrap()).unwrap();
    let mut next = pin!(elsewhere.ask(|_, _| 17));
    assert!(poll(next.as_mut()).is_pending());
    elsewhere.take(late);
    assert!(poll(next.as_mut()).is_pending());
}
