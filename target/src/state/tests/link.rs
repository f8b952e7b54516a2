//! Questions of one reactor to the home on another one.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_reactor::Clock;

use super::{caller, file};
use crate::state::{
    ClientId, ExchangeRequest, HomeAnswer, HomeLink, HomeOutbox, IoRegister, StateConfig, StateHome,
};

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
    let mut at_once = pin!(here.ask(None, |home, _| home.client_count()));
    assert_eq!(poll(at_once.as_mut()), Poll::Ready(Some(0)));

    let request = |home: &mut StateHome, now| {
        let request = ExchangeRequest {
            owner: b"a",
            verifier: [1; 8],
            caller: &caller(b""),
            guarded: None,
            update: false,
        };
        home.exchange_id(&request, now).is_ok()
    };
    let mut first = pin!(elsewhere.ask(None, request));
    let mut second = pin!(elsewhere.ask(None, |home, _| home.client_count()));
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
        let mut given_up = pin!(elsewhere.ask(None, |home, _| home.client_count()));
        assert!(poll(given_up.as_mut()).is_pending());
    }
    let late = here.serve(outbox.take().pop_front().unwrap()).unwrap();
    let mut next = pin!(elsewhere.ask(None, |_, _| 17));
    assert!(poll(next.as_mut()).is_pending());
    elsewhere.take(late);
    assert!(poll(next.as_mut()).is_pending());
}

#[test]
fn a_question_that_is_not_answered_in_time_ends_and_is_not_asked_later() {
    let epoch = Instant::now();
    let clock = Clock::new(epoch);
    let outbox = HomeOutbox::default();
    let elsewhere = HomeLink::elsewhere(Rc::clone(&outbox), 1, (epoch, clock.clone()));
    let mut waiting = pin!(elsewhere.ask(None, |home, _| home.client_count()));
    assert!(poll(waiting.as_mut()).is_pending());
    let ends = elsewhere.next_deadline().unwrap();
    clock.turn(epoch + ends - Duration::from_nanos(1));
    elsewhere.end_waits();
    assert!(poll(waiting.as_mut()).is_pending());
    clock.turn(epoch + ends);
    elsewhere.end_waits();
    assert_eq!(poll(waiting.as_mut()), Poll::Ready(None));
    assert!(outbox.borrow().is_empty());
    assert_eq!(elsewhere.next_deadline(), None);
}

#[test]
fn an_answer_that_is_given_later_finds_who_has_asked() {
    let epoch = Instant::now();
    let times = || (epoch, Clock::new(epoch));
    let home = Rc::new(RefCell::new(StateHome::new(StateConfig::default())));
    let here = HomeLink::here(home, 0, times());
    let outbox = HomeOutbox::default();
    let elsewhere = HomeLink::elsewhere(Rc::clone(&outbox), 1, times());
    for link in [&here, &elsewhere] {
        let asker = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&asker);
        let mut waiting = pin!(link.ask_for_later::<u32>(None, move |_, _, ticket| {
            *kept.lock().unwrap() = Some(ticket);
            None
        }));
        assert!(poll(waiting.as_mut()).is_pending());
        for request in outbox.take() {
            assert!(here.serve(request).is_none());
        }
        assert!(poll(waiting.as_mut()).is_pending());
        let ticket = asker.lock().unwrap().take().unwrap();
        assert_eq!(ticket.reactor, link.reactor());
        link.take(HomeAnswer::late(ticket, 7_u32));
        assert_eq!(poll(waiting.as_mut()), Poll::Ready(Some(7)));
        assert_eq!(link.next_deadline(), None);
    }
    let mut at_once = pin!(here.ask_for_later(None, |_, _, _| Some(8)));
    assert_eq!(poll(at_once.as_mut()), Poll::Ready(Some(8)));
}

#[test]
fn v4_lock_24_only_answers_about_a_file_wait_for_io_with_it() {
    let epoch = Instant::now();
    let home = Rc::new(RefCell::new(StateHome::new(StateConfig {
        reactors: 2,
        ..StateConfig::default()
    })));
    let fences = home.borrow().views().fences;
    let [io, other] = [0, 1].map(|at| Rc::new(IoRegister::new(Arc::clone(&fences), at)));
    let link = HomeLink::here(home, 0, (epoch, Clock::new(epoch))).behind(io);
    let running = other.begin(ClientId(1), &file(1));
    fences.raise(ClientId(1));
    other.poll(Duration::ZERO);
    for granted in [None, Some(file(2))] {
        let mut at_once = pin!(link.ask(granted, |_, _| 5));
        assert_eq!(poll(at_once.as_mut()), Poll::Ready(Some(5)));
        let mut at_once = pin!(link.ask_for_later(granted, |_, _, _| Some(6)));
        assert_eq!(poll(at_once.as_mut()), Poll::Ready(Some(6)));
    }
    let mut waiting = pin!(link.ask(Some(file(1)), |_, _| 7));
    let mut later = pin!(link.ask_for_later(Some(file(1)), |_, _, _| Some(8)));
    assert!(poll(waiting.as_mut()).is_pending());
    assert!(poll(later.as_mut()).is_pending());
    drop(running);
    link.end_waits();
    assert_eq!(poll(waiting.as_mut()), Poll::Ready(Some(7)));
    assert_eq!(poll(later.as_mut()), Poll::Ready(Some(8)));
}
