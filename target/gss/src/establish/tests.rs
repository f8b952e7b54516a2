//! Creation with a mechanism and a directory of the tests.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use zeroize::Zeroizing;

use super::*;
use crate::{
    Accepted, ContextKeys, Directory, Enctype, EndReason, Established, Failure, GssService,
    HandleError, Mechanism, PartialContext, Settings, User,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Takes tokens by their text: `ok`, `two legs`, `fail`, `panic`, `hold` (waits for the test),
/// `short key`, `long name`.
struct FakeMechanism {
    /// Told when a token is held, and waited for then.
    held: Mutex<mpsc::Sender<mpsc::Sender<()>>>,
    /// Upgradable until the mechanism is dropped.
    _life: Arc<()>,
}

struct SecondLeg;

fn complete(key: usize) -> Accepted {
    complete_for(key, "alice@MILLRACE.TEST".to_owned())
}

fn complete_for(key: usize, principal: String) -> Accepted {
    Accepted::Complete(Box::new(Established {
        keys: ContextKeys {
            enctype: Enctype::Aes256Sha384,
            key: Zeroizing::new(vec![3; key]),
            acceptor_subkey: true,
            send_sequence: 0,
        },
        principal,
        lifetime: Duration::from_secs(600),
        token: b"reply".to_vec(),
    }))
}

fn failed() -> Accepted {
    Accepted::Failed(Failure {
        major: status::FAILURE,
        minor: 17,
        reason: FailureReason::Other,
        text: "as the test wishes".to_owned(),
    })
}

impl PartialContext for SecondLeg {
    fn proceed(self: Box<Self>, token: &[u8]) -> Accepted {
        match token {
            b"second" => complete(32),
            _ => failed(),
        }
    }
}

impl Mechanism for FakeMechanism {
    fn accept(&self, token: &[u8]) -> Accepted {
        match token {
            b"ok" => complete(32),
            b"short key" => complete(31),
            b"long name" => complete_for(32, "x".repeat(500) + "@MILLRACE.TEST"),
            b"two legs" => Accepted::Continue {
                context: Box::new(SecondLeg),
                token: b"go on".to_vec(),
            },
            b"panic" => panic!("as the test wishes"),
            b"hold" => {
                let (release, released) = mpsc::channel();
                let told = self.held.lock().expect("no panic").send(release);
                told.expect("the test waits");
                // Also when the test ends.
                let _ = released.recv();
                complete(32)
            }
            _ => failed(),
        }
    }

    fn realms(&self) -> Vec<String> {
        vec!["MILLRACE.TEST".to_owned()]
    }
}

/// Answers when the test says so, if it is to hang.
struct FakeDirectory(Option<Mutex<mpsc::Receiver<()>>>);

impl Directory for FakeDirectory {
    fn user(&self, _: &str, _: usize) -> io::Result<Option<User>> {
        if let Some(hanging) = &self.0 {
            let _ = hanging.lock().expect("no panic").recv();
        }
        Ok(Some(User {
            uid: 1000,
            gid: 100,
            groups: [7].into(),
        }))
    }
}

struct Bench {
    service: GssService,
    held: mpsc::Receiver<mpsc::Sender<()>>,
    mechanism_life: Weak<()>,
}

fn bench_with(settings: Settings, directory: FakeDirectory) -> Bench {
    let (held, receiver) = mpsc::channel();
    let life = Arc::new(());
    let mechanism_life = Arc::downgrade(&life);
    let held = Mutex::new(held);
    let mechanism = FakeMechanism { held, _life: life };
    Bench {
        service: GssService::with_directory(settings, mechanism, directory),
        held: receiver,
        mechanism_life,
    }
}

fn bench(helpers: usize, pending: usize) -> Bench {
    let settings = Settings {
        helpers,
        pending,
        ..Settings::default()
    };
    bench_with(settings, FakeDirectory(None))
}

fn client(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

impl Bench {
    fn establish(&self, token: &str, existing: Option<ContextHandle>) -> Establishment {
        let token = token.as_bytes().to_vec();
        block_on(self.service.establish(token, existing, client(1)))
    }

    /// Has a helper hold a token, on a thread of its own.
    fn hold(&self, from: u8) -> (thread::JoinHandle<Establishment>, mpsc::Sender<()>) {
        let service = self.service.clone();
        let wait = move || block_on(service.establish(b"hold".to_vec(), None, client(from)));
        let waiting = thread::spawn(wait);
        (waiting, self.held.recv().expect("held"))
    }
}

fn is_refused(established: &Establishment, major: u32) -> bool {
    established.major == major
        && established.handle.is_none()
        && established.token.is_empty()
        && established.context.is_none()
}

#[test]
fn gss_ctx_05_a_token_makes_a_context_of_its_user() {
    let bench = bench(2, 64);
    let established = bench.establish("ok", None);
    assert_eq!((established.major, established.minor), (0, 0));
    assert_eq!(
        (established.window, &established.token[..]),
        (2048, &b"reply"[..])
    );
    let handle = established.handle.expect("complete");
    let context = bench.service.context(handle.as_bytes(), Instant::now());
    let context = context.expect("known");
    assert_eq!(*context.identity().principal, *"alice@MILLRACE.TEST");
    let user = context.identity().user.as_ref().expect("known");
    assert_eq!((user.uid, user.gid, &*user.groups), (1000, 100, &[7][..]));
    bench.service.destroy(&context);
    let found = bench.service.context(handle.as_bytes(), Instant::now());
    assert_eq!(found.err(), Some(HandleError::Unknown));
}

#[test]
fn gss_ctx_06_a_context_of_two_legs_takes_the_second_one_once() {
    let bench = bench(2, 64);
    let first = bench.establish("two legs", None);
    assert_eq!(first.major, status::CONTINUE_NEEDED);
    assert_eq!(first.token, b"go on");
    assert!(first.context.is_none());
    let handle = first.handle.expect("to go on with");
    let found = bench.service.context(handle.as_bytes(), Instant::now());
    assert_eq!(found.err(), Some(HandleError::Unknown), "it takes no calls");
    let second = bench.establish("second", Some(handle));
    assert_eq!(second.major, status::COMPLETE);
    let complete = second.handle.expect("complete");
    let found = bench.service.context(complete.as_bytes(), Instant::now());
    assert!(found.is_ok());
    assert!(is_refused(
        &bench.establish("second", Some(handle)),
        status::NO_CONTEXT
    ));
    // A second leg that fails ends it, too.
    let other = bench.establish("two legs", None).handle;
    assert!(is_refused(
        &bench.establish("wrong", other),
        status::FAILURE
    ));
    assert!(is_refused(
        &bench.establish("second", other),
        status::NO_CONTEXT
    ));
}

#[test]
fn gss_ctx_06_a_context_waits_30_seconds_for_its_second_leg() {
    let partials = PartialContexts::new(8);
    let start = Instant::now();
    let put = |from| partials.put(Box::new(SecondLeg), client(from), start);
    let (first, second) = (put(1).expect("space"), put(1).expect("space"));
    assert!(put(1).is_none(), "a quarter for one client");
    let third = put(2).expect("space");
    let late = start + Duration::from_secs(30);
    assert!(
        partials
            .take(&first, late - Duration::from_nanos(1))
            .is_some()
    );
    assert!(partials.take(&second, late).is_none());
    partials.sweep(late);
    assert!(partials.take(&third, start).is_none());
}

#[test]
fn gss_ctx_07_failures_have_neither_handle_nor_token() {
    let bench = bench(1, 64);
    let failed = bench.establish("fail", None);
    assert!(is_refused(&failed, status::FAILURE));
    assert_eq!(failed.minor, 17);
    assert!(is_refused(
        &bench.establish("short key", None),
        status::FAILURE
    ));
    assert!(is_refused(
        &bench.establish("long name", None),
        status::FAILURE
    ));
    // A panic is one more, and the only helper goes on.
    assert!(is_refused(&bench.establish("panic", None), status::FAILURE));
    assert_eq!(bench.establish("ok", None).major, status::COMPLETE);
    let counters = bench.service.counters();
    assert_eq!(counters.failed(FailureReason::Other).get(), 3);
    assert_eq!(counters.failed(FailureReason::Enctype).get(), 1);
}

#[test]
fn gss_ctx_08_an_unknown_context_cannot_be_continued() {
    let bench = bench(1, 64);
    let unknown = ContextHandle::from_bytes(&[7; 16]);
    assert!(is_refused(
        &bench.establish("second", unknown),
        status::NO_CONTEXT
    ));
    let complete = bench.establish("ok", None).handle;
    assert!(is_refused(
        &bench.establish("second", complete),
        status::NO_CONTEXT
    ));
    let counters = bench.service.counters();
    assert_eq!(counters.failed(FailureReason::NoContext).get(), 2);
}

#[test]
fn gss_ctx_12_encryption_types_outside_the_settings_are_refused() {
    let settings = Settings {
        enctypes: vec![Enctype::Aes256Sha1],
        ..Settings::default()
    };
    let bench = bench_with(settings, FakeDirectory(None));
    assert!(is_refused(&bench.establish("ok", None), status::FAILURE));
    let counters = bench.service.counters();
    assert_eq!(counters.failed(FailureReason::Enctype).get(), 1);
    assert_eq!(counters.contexts.get(), 0);
}

#[test]
fn gss_lim_03_creations_that_wait_are_bounded_in_total_and_by_client() {
    let bench = bench(8, 8);
    let mut held: Vec<_> = [1, 1, 2, 2].map(|from| bench.hold(from)).into();
    // A quarter of them for one client.
    assert!(is_refused(
        &bench.establish("ok", None),
        status::UNAVAILABLE
    ));
    held.extend([3, 3, 4, 4].map(|from| bench.hold(from)));
    let other = block_on(bench.service.establish(b"ok".to_vec(), None, client(9)));
    assert!(is_refused(&other, status::UNAVAILABLE));
    let counters = bench.service.counters();
    assert_eq!(counters.pending.get(), 8);
    assert_eq!(counters.failed(FailureReason::Unavailable).get(), 2);
    for (waiting, release) in held {
        release.send(()).expect("held");
        assert_eq!(waiting.join().expect("no panic").major, status::COMPLETE);
    }
    assert_eq!(bench.establish("ok", None).major, status::COMPLETE);
}

/// The only helper is held: who waits behind gets an answer at the deadline, and so does the one
/// that is held. Established contexts go on.
#[test]
fn gss_lim_03_who_waits_for_too_long_gets_an_answer() {
    let bench = bench(1, 8);
    let before = bench.establish("ok", None).handle.expect("complete");
    let (waiting, release) = bench.hold(2);
    assert!(is_refused(
        &bench.establish("ok", None),
        status::UNAVAILABLE
    ));
    let held = waiting.join().expect("no panic");
    assert!(is_refused(&held, status::UNAVAILABLE));
    let found = bench.service.context(before.as_bytes(), Instant::now());
    assert!(found.is_ok());
    release.send(()).expect("held");
    assert_eq!(bench.establish("ok", None).major, status::COMPLETE);
    // The context that came too late is gone.
    let counters = bench.service.counters();
    assert_eq!(counters.ended(EndReason::Abandoned).get(), 1);
    assert_eq!(counters.contexts.get(), 2);
    assert_eq!(counters.failed(FailureReason::Unavailable).get(), 2);
}

#[test]
fn gss_sec_11_a_hanging_directory_stops_no_established_context() {
    let (answer, hanging) = mpsc::channel();
    let settings = Settings {
        helpers: 1,
        ..Settings::default()
    };
    let bench = bench_with(settings, FakeDirectory(Some(Mutex::new(hanging))));
    let service = bench.service.clone();
    let waiting =
        thread::spawn(move || block_on(service.establish(b"ok".to_vec(), None, client(1))));
    let keys = ContextKeys {
        enctype: Enctype::Aes128Sha1,
        key: Zeroizing::new(vec![1; 16]),
        acceptor_subkey: true,
        send_sequence: 0,
    };
    let identity = crate::Identity {
        principal: "bob@MILLRACE.TEST".into(),
        user: None,
    };
    let lifetime = Duration::from_secs(60);
    let handle = bench.service.insert(&keys, identity, lifetime, client(2));
    let handle = handle.expect("space");
    let context = bench.service.context(handle.as_bytes(), Instant::now());
    let mut token = [0; 28];
    assert_eq!(context.expect("known").sign(b"reply", &mut token), 28);
    assert!(!waiting.is_finished());
    answer.send(()).expect("asked");
    assert_eq!(waiting.join().expect("no panic").major, status::COMPLETE);
}

/// A call that ends while its creation runs leaves no context behind.
#[test]
fn a_creation_that_is_not_waited_for_leaves_no_context() {
    let bench = bench(1, 8);
    let mut future = Box::pin(bench.service.establish(b"hold".to_vec(), None, client(1)));
    let polled = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let release = bench.held.recv().expect("held");
    drop(future);
    release.send(()).expect("held");
    // The only helper takes this one after that.
    assert_eq!(bench.establish("ok", None).major, status::COMPLETE);
    let counters = bench.service.counters();
    assert_eq!(counters.ended(EndReason::Abandoned).get(), 1);
    assert_eq!(counters.contexts.get(), 1);
}

/// The process may exit then, and no thread is in the Kerberos library.
#[test]
fn the_end_of_the_service_waits_for_its_threads() {
    let bench = bench(2, 8);
    let mut future = Box::pin(bench.service.establish(b"hold".to_vec(), None, client(1)));
    let polled = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let release = bench.held.recv().expect("held");
    drop(future);
    let (ending, ends) = mpsc::channel::<()>();
    let helper = thread::spawn(move || {
        ends.recv().expect("told");
        (0..1000).for_each(|_| thread::yield_now());
        release.send(()).expect("held");
    });
    ending.send(()).expect("waited for");
    drop(bench.service);
    assert!(bench.mechanism_life.upgrade().is_none());
    helper.join().expect("no panic");
}

#[test]
fn gss_sec_13_a_flush_ends_contexts() {
    let bench = bench(1, 8);
    let handles = [0; 3].map(|_| bench.establish("ok", None).handle.expect("complete"));
    assert_eq!(bench.service.list().len(), 3);
    assert_eq!(bench.service.flush(Some("bob@MILLRACE.TEST")), 0);
    assert_eq!(bench.service.flush(Some("alice@MILLRACE.TEST")), 3);
    for handle in handles {
        let found = bench.service.context(handle.as_bytes(), Instant::now());
        assert_eq!(found.err(), Some(HandleError::Unknown));
    }
    bench.establish("ok", None);
    assert_eq!(bench.service.flush(None), 1);
    assert_eq!(bench.service.counters().ended(EndReason::Flushed).get(), 4);
}
