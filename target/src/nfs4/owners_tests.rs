//! Tests of questions to a directory that fails and blocks.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Condvar;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::*;

use AccountKind::{Group, User};

/// Opens once.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// Fails for groups, and blocks for users until the gate is open; all of them are unknown.
struct BlockedDirectory(Gate);

impl AccountDirectory for BlockedDirectory {
    fn account(&self, question: &AccountQuestion) -> io::Result<Option<Account>> {
        if let AccountQuestion::Name(Group, _) | AccountQuestion::Number(Group, _) = question {
            return Err(io::Error::other("the directory is down"));
        }
        let (is_open, opened) = &*self.0;
        let is_open = is_open.lock().unwrap();
        drop(opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        Ok(None)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits as a reactor would, but sleeping.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn client(number: u8) -> ClientKey {
    IpAddr::from([192, 0, 2, number]).into()
}

#[test]
fn v4_attr_15_only_names_of_the_domain_are_asked_for() {
    let domain = OwnerDomain::new("Example.org", BlockedDirectory(Gate::default()));
    let longest = "n".repeat(NAME_MAX);
    for (text, name) in [
        ("alice@example.org", Some("alice")),
        ("alice@EXAMPLE.ORG", Some("alice")),
        (
            "alice@other.example@example.org",
            Some("alice@other.example"),
        ),
        ("1000@example.org", Some("1000")),
        (&*format!("{longest}@example.org"), Some(&*longest)),
        (&*format!("n{longest}@example.org"), None),
        ("alice", None),
        ("1000", None),
        ("", None),
        ("@", None),
        ("@example.org", None),
        ("alice@", None),
        ("alice@example.org.", None),
        ("alice@sub.example.org", None),
        ("ali\0ce@example.org", None),
        ("OWNER@", None),
    ] {
        let expected = name.map(|name| AccountQuestion::Name(User, name.into()));
        assert_eq!(domain.question(User, text.as_bytes()), expected, "{text}");
    }
    assert_eq!(domain.question(User, b"\xff@example.org"), None);
}

#[test]
fn v4_attr_15_a_directory_that_fails_leaves_numbers_and_delays_names() {
    let domain = OwnerDomain::new("example.org", BlockedDirectory(Gate::default()));
    let clock = Clock::new(Instant::now());
    let ask = |question| {
        let deadline = clock.now() + PATIENCE;
        wait(domain.ask(question, client(1), &clock, deadline))
    };
    let named = AccountQuestion::Name(Group, "staff".into());
    assert_eq!(ask(named), Err(OperationStatus::Delay));
    assert_eq!(ask(AccountQuestion::Number(Group, 7)), Ok(None));
}

#[test]
fn v4_attr_15_a_directory_that_hangs_leaves_numbers_for_a_while() {
    let gate = Gate::default();
    let domain = OwnerDomain::new("example.org", BlockedDirectory(Arc::clone(&gate)));
    let clock = Clock::new(Instant::now());
    let question = || AccountQuestion::Number(User, 7);
    let ask = || Box::pin(domain.ask(question(), client(1), &clock, clock.now() + PATIENCE));
    let context = &mut Context::from_waker(Waker::noop());
    let mut asked = ask();
    assert!(asked.as_mut().poll(context).is_pending());
    clock.turn(clock.now() + PATIENCE + Duration::from_secs(1));
    assert_eq!(wait(asked), Ok(None));
    // The next one does not wait.
    assert_eq!(ask().as_mut().poll(context), Poll::Ready(Ok(None)));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

#[test]
fn v4_attr_15_questions_of_a_client_are_bounded_and_leave_room_for_others() {
    let gate = Gate::default();
    let domain = OwnerDomain::new("example.org", BlockedDirectory(Arc::clone(&gate)));
    let clock = Clock::new(Instant::now());
    let deadline = clock.now() + PATIENCE;
    let context = &mut Context::from_waker(Waker::noop());
    let ask = |who, number: u32| {
        let question = AccountQuestion::Name(User, number.to_string().into());
        Box::pin(domain.ask(question, client(who), &clock, deadline))
    };
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for number in 0..2 * LIMITS.queue as u32 {
        let mut asked = ask(1, number);
        match asked.as_mut().poll(context) {
            Poll::Pending => waiting.push(asked),
            Poll::Ready(answer) => {
                assert_eq!(answer, Err(OperationStatus::Delay));
                refused += 1;
            }
        }
    }
    assert!((LIMITS.queue..=LIMITS.queue + LIMITS.threads).contains(&waiting.len()));
    assert_eq!(waiting.len() + refused, 2 * LIMITS.queue);
    let mut other = ask(2, 1);
    assert!(other.as_mut().poll(context).is_pending(), "it has room");
    // After its deadline a question is given up, whoever is asked.
    clock.turn(deadline + Duration::from_secs(1));
    for asked in waiting.into_iter().chain([other]) {
        assert_eq!(wait(asked), Err(OperationStatus::Delay));
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}
