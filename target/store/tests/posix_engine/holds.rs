//! Who watches operations hears how they end, whoever waits.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use millrace_store::posix::engine::{Backend, Durability};
use millrace_store::posix::hold::{CompletionObserver, Hold};
use millrace_store::posix::identity::{Identity, privileged};

use crate::stage::{Folder, Stage, backends, poll_once, superuser};

/// A number, with bytes or the error's code, or nothing.
type Told = (u32, Option<Result<usize, i32>>);

/// What was told.
#[derive(Default)]
struct Diary {
    told: RefCell<Vec<Told>>,
    /// How many were told when somebody was woken first.
    at_wake: AtomicUsize,
}

impl CompletionObserver for Diary {
    fn ended(&self, number: u32, outcome: Option<&io::Result<usize>>) {
        let outcome = outcome.map(|outcome| match outcome {
            Ok(bytes) => Ok(*bytes),
            Err(error) => Err(error.raw_os_error().unwrap_or(0)),
        });
        self.told.borrow_mut().push((number, outcome));
    }
}

fn hold(diary: &Rc<Diary>, number: u32) -> Option<Hold> {
    let observer = Rc::clone(diary);
    Some(Hold::new(observer, number))
}

#[test]
fn holds_are_told_once_also_when_nobody_waits() {
    for backend in backends() {
        let stage = Stage::new(backend, 2);
        let folder = Folder::new();
        let file = folder.file("file", b"contents");
        let read_only = std::fs::File::open(folder.path("file")).unwrap();
        let read_only = Arc::new(read_only.into());
        let root = superuser();
        let diary = Rc::new(Diary::default());
        let slice = stage.slice(100);
        let small = stage.slice(0);
        let durability = Durability::None;
        let engine = &stage.engine;
        {
            let mut read = pin!(engine.read(&file, 0, &slice, false, &root, hold(&diary, 1)));
            let mut write =
                pin!(engine.write(&read_only, 0, &slice, durability, &root, hold(&diary, 2)));
            let mut waits = pin!(engine.sync(&file, true, hold(&diary, 3)));
            assert!(poll_once(read.as_mut()).is_pending());
            assert!(poll_once(write.as_mut()).is_pending());
            assert!(poll_once(waits.as_mut()).is_pending());
            assert_eq!(diary.told.take(), []);
        }
        // The one in line never came to the kernel.
        assert_eq!(diary.told.take(), [(3, None)]);
        stage.finish();
        let mut told = diary.told.take();
        told.sort_unstable_by_key(|&(number, _)| number);
        assert_eq!(told, [(1, Some(Ok(8))), (2, Some(Err(libc::EBADF)))]);
        stage
            .run(engine.sync(&file, false, hold(&diary, 4)))
            .unwrap();
        assert_eq!(diary.told.take(), [(4, Some(Ok(0)))]);
        let read = engine.read(&file, 0, &small, false, &root, hold(&diary, 5));
        assert_eq!(stage.run(read).unwrap(), 0);
        let read = engine.read(&file, u64::MAX, &slice, false, &root, hold(&diary, 6));
        stage.run(read).unwrap_err();
        assert_eq!(diary.told.take(), [(5, None), (6, None)]);
        assert_eq!(Rc::strong_count(&diary), 1);
    }
}

#[test]
fn the_hold_of_who_is_refused_is_told_once() {
    if !privileged() {
        millrace_testing::skip!("this process may not act on behalf of others");
        return;
    }
    for backend in backends() {
        let stage = Stage::new(backend, 2);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let diary = Rc::new(Diary::default());
        let slice = stage.slice(100);
        let nobody = Identity::with_groups(u32::MAX, 1, &[]);
        let durability = Durability::None;
        let write = stage
            .engine
            .write(&file, 0, &slice, durability, &nobody, hold(&diary, 1));
        stage.run(write).unwrap_err();
        // A ring has to know the user before it begins; a thread finds out when it has.
        let expected = match backend {
            Backend::Ring => None,
            _ => Some(Err(libc::EACCES)),
        };
        assert_eq!(diary.told.take(), [(1, expected)]);
    }
}

#[test]
fn all_are_told_before_anybody_is_woken() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    struct Seen(Arc<Count>, Diary);
    impl CompletionObserver for Seen {
        fn ended(&self, number: u32, outcome: Option<&io::Result<usize>>) {
            self.1.ended(number, outcome);
            let woken = self.0.0.load(Ordering::Relaxed);
            self.1.at_wake.fetch_max(woken, Ordering::Relaxed);
        }
    }
    for backend in backends() {
        let stage = Stage::new(backend, 1);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let seen = Rc::new(Seen(Arc::clone(&count), Diary::default()));
        let waker = Waker::from(Arc::clone(&count));
        let observer: Rc<dyn CompletionObserver> = Rc::<Seen>::clone(&seen);
        let mut sync = pin!(stage.engine.sync(&file, true, Some(Hold::new(observer, 1))));
        let mut context = Context::from_waker(&waker);
        assert!(sync.as_mut().poll(&mut context).is_pending());
        stage.finish();
        assert_eq!(*seen.1.told.borrow(), [(1, Some(Ok(0)))]);
        assert_eq!(seen.1.at_wake.load(Ordering::Relaxed), 0);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(sync.poll(&mut context), Poll::Ready(Ok(()))));
    }
}
