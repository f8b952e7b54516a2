//! The end of I/O that relied on what was revoked.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::*;

/// Two reactors.
fn registers() -> (Arc<IoFences>, [Rc<IoRegister>; 2]) {
    let fences = Arc::new(IoFences::new(2));
    let of = |reactor| Rc::new(IoRegister::new(Arc::clone(&fences), reactor));
    (Arc::clone(&fences), [of(0), of(1)])
}

#[test]
fn v4_lock_24_a_fence_is_passed_when_no_reactor_has_earlier_io_of_its_client() {
    let (fences, [one, other]) = registers();
    let others = other.begin(ClientId(2), &file(1));
    let running = other.begin(ClientId(1), &file(1));
    let context = &mut Context::from_waker(Waker::noop());
    fences.raise(ClientId(1));
    let mut wait = pin!(one.wait(file(1), Duration::ZERO));
    assert!(wait.as_mut().poll(context).is_pending());
    other.poll(Duration::ZERO);
    one.poll(Duration::ZERO);
    assert!(wait.as_mut().poll(context).is_pending());
    assert!(!fences.is_clear());
    // The end of the I/O is enough; nobody else has to look.
    drop(running);
    assert!(fences.is_clear());
    one.poll(Duration::ZERO);
    assert_eq!(wait.as_mut().poll(context), Poll::Ready(true));
    drop(others);
}

#[test]
fn v4_lock_24_a_reactor_that_has_not_looked_is_waited_for() {
    let (fences, [one, other]) = registers();
    let context = &mut Context::from_waker(Waker::noop());
    fences.raise(ClientId(1));
    let mut wait = pin!(one.wait(file(1), Duration::ZERO));
    assert!(wait.as_mut().poll(context).is_pending());
    one.poll(Duration::ZERO);
    assert!(wait.as_mut().poll(context).is_pending());
    other.poll(Duration::ZERO);
    one.poll(Duration::ZERO);
    assert_eq!(wait.as_mut().poll(context), Poll::Ready(true));
}

#[test]
fn v4_lock_24_a_wait_for_io_that_is_stuck_ends() {
    let (fences, [one, other]) = registers();
    let context = &mut Context::from_waker(Waker::noop());
    let stuck = other.begin(ClientId(1), &file(1));
    fences.raise(ClientId(1));
    fences.raise(ClientId(2));
    other.poll(Duration::ZERO);
    let mut wait = pin!(one.wait(file(1), Duration::ZERO));
    assert!(wait.as_mut().poll(context).is_pending());
    let ends = one.next_deadline().unwrap();
    one.poll(ends);
    assert_eq!(wait.as_mut().poll(context), Poll::Ready(false));
    assert_eq!(one.next_deadline(), None);
    drop(stuck);
    assert!(fences.is_clear());
}

#[test]
fn v4_lock_24_io_with_one_file_holds_up_nobody_who_wants_another() {
    let (fences, [one, other]) = registers();
    let context = &mut Context::from_waker(Waker::noop());
    let stuck = [1, 3].map(|number| other.begin(ClientId(1), &file(number)));
    fences.raise(ClientId(1));
    other.poll(Duration::ZERO);
    let mut elsewhere = pin!(one.wait(file(2), Duration::ZERO));
    assert_eq!(elsewhere.as_mut().poll(context), Poll::Ready(true));
    let mut there = pin!(one.wait(file(1), Duration::ZERO));
    assert!(there.as_mut().poll(context).is_pending());
    let [first, second] = stuck;
    drop(second);
    one.poll(Duration::ZERO);
    assert!(there.as_mut().poll(context).is_pending());
    drop(first);
    // What is revoked later is not waited for.
    fences.raise(ClientId(2));
    one.poll(Duration::ZERO);
    assert_eq!(there.as_mut().poll(context), Poll::Ready(true));
    assert!(!fences.is_clear());
    other.poll(Duration::ZERO);
    assert!(fences.is_clear(), "both have looked");
}

#[test]
fn v4_lock_24_a_client_has_one_fence_however_often_its_state_is_revoked() {
    let (fences, [one, other]) = registers();
    let context = &mut Context::from_waker(Waker::noop());
    let first = other.begin(ClientId(1), &file(1));
    fences.raise(ClientId(1));
    other.poll(Duration::ZERO);
    let mut early = pin!(one.wait(file(1), Duration::ZERO));
    assert!(early.as_mut().poll(context).is_pending());
    // Begun between two revocations: the second one is about it.
    let second = other.begin(ClientId(1), &file(2));
    for _ in 0..100 {
        fences.raise(ClientId(1));
    }
    assert_eq!(fences.count(), 1);
    let mut late = pin!(one.wait(file(2), Duration::ZERO));
    assert!(
        late.as_mut().poll(context).is_pending(),
        "it has not looked"
    );
    other.poll(Duration::ZERO);
    one.poll(Duration::ZERO);
    assert!(early.as_mut().poll(context).is_pending());
    drop(first);
    one.poll(Duration::ZERO);
    assert_eq!(early.as_mut().poll(context), Poll::Ready(true));
    assert!(late.as_mut().poll(context).is_pending());
    drop(second);
    one.poll(Duration::ZERO);
    assert_eq!(late.as_mut().poll(context), Poll::Ready(true));
    assert!(fences.is_clear());
}

#[test]
fn v4_lock_24_each_revocation_raises_a_fence() {
    let mut bed = TestBed::new();
    let [one, two] = [b"a", b"b"].map(|owner| bed.client(owner));
    let opens = [&one, &two].map(|client| bed.open_both(client, b"o", file(1)));
    let holder = |open| LockHolder::New { open, owner: b"l" };
    bed.lock(&one, file(1), holder(opens[0]), (0, 4), LockMode::Write)
        .unwrap();
    let fences = bed.home.views().fences;
    let register = Rc::new(IoRegister::new(Arc::clone(&fences), 0));
    let running = register.begin(one.id, &file(1));
    bed.pass(LEASE * 2);
    bed.renew(&two);
    assert!(fences.is_clear());
    bed.lock(&two, file(1), holder(opens[1]), (0, 4), LockMode::Write)
        .unwrap();
    assert!(!fences.is_clear());
    drop(running);
    IoRegister::new(Arc::clone(&fences), 1).poll(bed.now);
    assert!(fences.is_clear());
}
