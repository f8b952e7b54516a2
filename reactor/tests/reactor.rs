//! Whole reactors: pinning, messages, sleeping and stopping.

use std::error::Error;
use std::future::poll_fn;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use millrace_reactor::task::{TaskEnd, TaskSet};
use millrace_reactor::{
    Context, PollMode, ReactorConfig, ReactorHandle, SendError, SpawnError, Turn, Watchdog, Worker,
    spawn,
};

const SLEEPY: PollMode = PollMode::Adaptive {
    idle_after: Duration::ZERO,
};

/// Sleeps that end by this deadline mean a lost wake-up. It is never reached otherwise, so the
/// tests do not depend on the clock.
const LOST: Duration = Duration::from_secs(60);

fn config(poll: PollMode) -> ReactorConfig {
    ReactorConfig {
        core: None,
        name: "test".into(),
        poll,
    }
}

#[derive(Debug)]
enum Message {
    Echo(u64, Sender<u64>),
    Wait(Receiver<()>),
    Panic,
    Stop,
}

/// Echoes.
struct Echo {
    stopped: bool,
    /// Readable when there is a byte to be eaten.
    descriptor: Option<OwnedFd>,
    eaten: Option<Sender<()>>,
    since: Instant,
}

impl Echo {
    fn new(_: &Context) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self {
            stopped: false,
            descriptor: None,
            eaten: None,
            since: Instant::now(),
        })
    }
}

impl Worker for Echo {
    type Message = Message;

    fn turn(&mut self, turn: &Turn) -> usize {
        assert!(turn.now < self.since + LOST, "a wake-up was lost");
        let Some(descriptor) = &self.descriptor else {
            return 0;
        };
        let mut byte = [0];
        match rustix::io::read(descriptor, &mut byte) {
            Ok(1) => {
                let _ = self.eaten.as_ref().unwrap().send(());
                1
            }
            _ => 0,
        }
    }

    fn message(&mut self, message: Message, turn: &Turn) {
        self.since = turn.now;
        match message {
            Message::Echo(value, to) => to.send(value).unwrap(),
            Message::Wait(until) => drop(until.recv()),
            Message::Panic => panic!("on purpose"),
            Message::Stop => self.stopped = true,
        }
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        list.extend(self.descriptor.as_ref().map(AsRawFd::as_raw_fd));
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.since + LOST)
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}

fn stop(reactor: &ReactorHandle<Message>) {
    reactor.send(Message::Stop).unwrap();
    reactor.join().unwrap();
}

#[test]
fn messages_are_handled_in_order_in_both_modes() {
    for poll in [PollMode::Busy, SLEEPY] {
        let reactor = spawn(config(poll), Echo::new).unwrap();
        let (sender, echoes) = unbounded();
        for value in 0..100 {
            reactor.send(Message::Echo(value, sender.clone())).unwrap();
        }
        let values: Vec<u64> = echoes.iter().take(100).collect();
        assert_eq!(values, (0..100).collect::<Vec<_>>());
        stop(&reactor);
        assert_eq!(reactor.counters().messages(), 101);
        assert!(reactor.counters().loops() > 0 && reactor.counters().busy_ns() > 0);
        assert_eq!(reactor.activity().name(), "stopped");
        assert!(matches!(
            reactor.send(Message::Panic),
            Err(SendError::Stopped(Message::Panic))
        ));
    }
}

/// Each message is sent when the reactor is about to sleep or has just fallen asleep.
#[test]
fn no_message_is_lost_to_sleep() {
    let reactor = spawn(config(SLEEPY), Echo::new).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let reactor = reactor.clone();
            thread::spawn(move || {
                let (sender, echoes) = bounded(1);
                for value in 0..5_000 {
                    reactor.send(Message::Echo(value, sender.clone())).unwrap();
                    assert_eq!(echoes.recv(), Ok(value));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    stop(&reactor);
    assert!(reactor.counters().sleeps() > 0);
    assert!(reactor.counters().sleep_ns() > 0);
}

#[test]
fn a_descriptor_wakes_a_sleeper() {
    let (read, mut write) = UnixStream::pair().unwrap();
    read.set_nonblocking(true).unwrap();
    let (eaten, meals) = bounded(1);
    let reactor = spawn(config(SLEEPY), move |context| {
        let mut echo = Echo::new(context)?;
        echo.descriptor = Some(read.into());
        echo.eaten = Some(eaten);
        Ok(echo)
    })
    .unwrap();
    for _ in 0..1_000 {
        write.write_all(&[1]).unwrap();
        meals.recv().unwrap();
    }
    stop(&reactor);
}

#[test]
fn a_full_mailbox_gives_the_message_back() {
    let reactor = spawn(config(PollMode::Busy), Echo::new).unwrap();
    let (open, gate) = bounded(0);
    let (sender, echoes) = unbounded();
    reactor.send(Message::Wait(gate)).unwrap();
    let mut sent = 0;
    let refused = loop {
        match reactor.send(Message::Echo(sent, sender.clone())) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, SendError::Full(Message::Echo(value, _)) if value == sent));
    drop(open);
    assert_eq!(
        echoes.iter().take(usize::try_from(sent).unwrap()).count() as u64,
        sent
    );
    stop(&reactor);
}

/// Is sent each message between its last idle turn and its sleep.
struct Disturbed {
    ask: Sender<()>,
    sent: Receiver<()>,
    messages: u64,
    since: Instant,
}

impl Worker for Disturbed {
    type Message = ();

    fn turn(&mut self, turn: &Turn) -> usize {
        assert!(turn.now < self.since + LOST, "a wake-up was lost");
        0
    }
    fn message(&mut self, (): (), _: &Turn) {
        self.messages += 1;
    }
    fn descriptors(&self, _: &mut Vec<RawFd>) {
        self.ask.send(()).unwrap();
        self.sent.recv().unwrap();
    }
    fn next_deadline(&self) -> Option<Instant> {
        Some(self.since + LOST)
    }
    fn stopped(&self) -> bool {
        self.messages == 100
    }
}

#[test]
fn a_message_just_before_sleep_prevents_it() {
    let (ask, asked) = bounded(0);
    let (answer, sent) = bounded(0);
    let reactor = spawn(config(SLEEPY), move |_| {
        Ok(Disturbed {
            ask,
            sent,
            messages: 0,
            since: Instant::now(),
        })
    })
    .unwrap();
    for () in asked {
        reactor.send(()).unwrap();
        answer.send(()).unwrap();
    }
    reactor.join().unwrap();
    assert_eq!(reactor.counters().messages(), 100);
    assert_eq!(reactor.counters().sleeps(), 0);
}

/// Tasks that other threads wake while the reactor falls asleep.
struct Woken {
    tasks: TaskSet<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
    ended: Vec<TaskEnd<()>>,
    since: Instant,
}

impl Worker for Woken {
    type Message = ();

    fn turn(&mut self, turn: &Turn) -> usize {
        assert!(turn.now < self.since + LOST, "a wake-up was lost");
        self.tasks.run(&mut self.ended)
    }
    fn message(&mut self, (): (), _: &Turn) {}
    fn descriptors(&self, _: &mut Vec<RawFd>) {}
    fn next_deadline(&self) -> Option<Instant> {
        Some(self.since + LOST)
    }
    fn stopped(&self) -> bool {
        self.ended.iter().any(|end| end.outcome.is_ok())
    }
}

#[test]
fn no_wake_is_lost_to_sleep() {
    const ROUNDS: u64 = 20_000;
    let seen = Arc::new(AtomicU64::new(0));
    let (wakers, receiver) = bounded::<Waker>(1);
    let asked = Arc::new(AtomicU64::new(0));
    let reactor = {
        let (seen, asked) = (Arc::clone(&seen), Arc::clone(&asked));
        spawn(config(SLEEPY), move |context| {
            let mut tasks: TaskSet<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
                TaskSet::new(4, Some(context.alarm()));
            let task = poll_fn(move |context| {
                let _ = wakers.try_send(context.waker().clone());
                let round = asked.load(SeqCst);
                seen.store(round, SeqCst);
                if round == ROUNDS {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            assert!(tasks.spawn(Box::pin(task)).is_ok());
            Ok(Woken {
                tasks,
                ended: Vec::new(),
                since: Instant::now(),
            })
        })
        .unwrap()
    };
    let waker = receiver.recv().unwrap();
    for round in 1..=ROUNDS {
        // Rings at every moment of the turns that lead to sleep.
        for _ in 0..round % 500 {
            std::hint::spin_loop();
        }
        asked.store(round, SeqCst);
        waker.wake_by_ref();
        // One wake per round: if it were lost, nobody would ever answer.
        while seen.load(SeqCst) != round {
            thread::yield_now();
        }
    }
    reactor.join().unwrap();
    assert!(reactor.counters().sleeps() > 0);
}

#[test]
fn reactors_are_pinned_and_impossible_cores_are_named() {
    let allowed = core_affinity::get_core_ids().unwrap();
    let core = allowed[0];
    let pinned = ReactorConfig {
        core: Some(core.id),
        ..config(PollMode::Busy)
    };
    let (sender, seen) = bounded(1);
    let reactor = spawn(pinned, move |context| {
        sender.send((context.core(), core_affinity::get_core_ids()))?;
        Echo::new(context)
    })
    .unwrap();
    assert_eq!(seen.recv().unwrap(), (Some(core.id), Some(vec![core])));
    let watchdog = Watchdog::spawn(std::slice::from_ref(&reactor)).unwrap();
    stop(&reactor);
    drop(watchdog);
    for absent in [1023, 1024, 5000, usize::MAX] {
        let config = ReactorConfig {
            core: Some(absent),
            ..config(PollMode::Busy)
        };
        match spawn(config, Echo::new) {
            Err(SpawnError::Core { core, allowed }) => {
                assert!(core == absent && !allowed.is_empty());
            }
            _ => panic!("core {absent}"),
        }
    }
}

#[test]
fn failures_to_build_and_panics_are_reported() {
    let failed = spawn::<Echo, _>(config(PollMode::Busy), |_| Err("no memory".into()));
    assert_eq!(failed.err().unwrap().to_string(), "no memory");
    let panicked = spawn::<Echo, _>(config(PollMode::Busy), |_| panic!("on purpose"));
    assert!(matches!(panicked, Err(SpawnError::Panicked)));
    let reactor = spawn(config(SLEEPY), Echo::new).unwrap();
    reactor.send(Message::Panic).unwrap();
    let payload = reactor.join().unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(reactor.join().is_ok());
}
