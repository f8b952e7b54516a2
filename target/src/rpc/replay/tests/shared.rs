//! Tests of journals that servers share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::mpsc;

use millrace_reactor::Clock;

use super::super::layout::{PAGE, SLOT};
use super::super::shared_slots::SlotThread;
use super::*;

const KEY: [u8; 16] = [9; 16];
const LIMIT: Duration = Duration::from_secs(60);

/// A server with a folder beside those of others.
struct SharingServer {
    folder: PathBuf,
    opened: OpenedCache,
    journals: SharedJournals,
}

impl SharingServer {
    fn start(all: &Path, name: &str) -> Self {
        Self::start_with(all, name, KEY, || ())
    }

    fn start_with(
        all: &Path,
        name: &str,
        key: [u8; 16],
        on_start: impl FnOnce() + Send + 'static,
    ) -> Self {
        let folder = all.join(name);
        let _ = fs::create_dir(&folder);
        let others = others(all, &folder);
        let opened = ReplayCache::open_shared(limits(), &folder, &others, key, 2, on_start);
        let (opened, journals) = opened.unwrap();
        Self {
            folder,
            opened,
            journals,
        }
    }

    fn begin(&mut self, xid: u32, name: u64) -> JournalPlace {
        let (key, writer) = (self.key(xid), &mut self.opened.writers[1]);
        let place = writer.begin(&key, Moment::now(), [0, name], false);
        place.expect("a free slot")
    }

    fn execute(&mut self, xid: u32, name: u64) {
        let place = self.begin(xid, name);
        self.opened.writers[1].done(&place, Moment::now(), b"reply");
    }

    fn key(&self, xid: u32) -> CallKey {
        key(&self.opened.cache, address(1), xid, PROGRAM, b"arguments")
    }

    /// Ends when what it recorded is written. Returns its folder.
    fn kill(self) -> PathBuf {
        assert!(self.journals.flush(LIMIT));
        self.folder
    }

    fn replace(&self, dead: &Path) -> TakenCalls {
        let others = others(self.folder.parent().unwrap(), &self.folder);
        let others: Vec<_> = others.into_iter().filter(|other| other != dead).collect();
        self.journals.take_over(dead, &others).unwrap()
    }

    /// Whether a call was begun, and whether it was alone then.
    fn begun(&self, xid: u32) -> Option<bool> {
        let ticket = execute(&self.opened.cache, self.key(xid), Instant::now());
        let again = ticket.again();
        assert!(again.is_none_or(|again| again.is_shared));
        again.map(|again| again.alone)
    }

    fn replayed(&self, xid: u32) -> Option<Vec<u8>> {
        match enter(&self.opened.cache, self.key(xid), Instant::now()) {
            Poll::Ready(Entered::Replay(reply)) => Some(reply.to_vec()),
            _ => None,
        }
    }

    fn knows(&self) -> (Option<Vec<u8>>, Option<bool>) {
        (self.replayed(1), self.begun(2))
    }
}

fn others(all: &Path, own: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(all)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    found.filter(|path| path != own).collect()
}

fn limits() -> ReplayLimits {
    ReplayLimits {
        entries: 2048,
        bytes: 1 << 20,
        age: Duration::from_secs(120),
    }
}

fn poll(future: Pin<&mut WrittenSlots>) -> Poll<()> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What a server knows that has executed the first call and begun the second, or taken these over.
fn both() -> (Option<Vec<u8>>, Option<bool>) {
    (Some(b"reply".to_vec()), Some(true))
}

/// A server that was killed while it executed its second call.
fn dead(all: &Path, name: u64) -> PathBuf {
    let mut server = SharingServer::start(all, "a");
    server.execute(1, name);
    let _open = server.begin(2, name);
    server.kill()
}

#[test]
fn a_server_knows_the_calls_of_one_that_it_replaces() {
    let all = tempfile::tempdir().unwrap();
    let server = SharingServer::start(all.path(), "b");
    assert_eq!(server.knows(), (None, None));
    let dead = dead(all.path(), 5);
    let taken = TakenCalls { done: 1, begun: 1 };
    assert_eq!(server.replace(&dead), taken);
    assert_eq!(server.knows(), both());
    // Its next start has nothing to answer for.
    assert!(files(&dead).is_empty());
    assert_eq!(SharingServer::start(all.path(), "a").knows(), (None, None));
    assert_eq!(server.replace(&all.path().join("a")), TakenCalls::default());
    assert_eq!(
        files(&server.folder),
        ["replay-journal", "replay-journal.0"]
    );
}

#[test]
fn calls_that_were_taken_over_long_ago_leave_no_files() {
    let all = tempfile::tempdir().unwrap();
    let limits = ReplayLimits {
        age: Duration::ZERO,
        ..limits()
    };
    let mut server = SharingServer::start(all.path(), "b");
    let others = [all.path().join("a")];
    let opened = ReplayCache::open_shared(limits, &server.folder, &others, KEY, 2, || ());
    (server.opened, server.journals) = opened.unwrap();
    for _ in 0..3 {
        server.replace(&dead(all.path(), 5));
        assert_eq!(
            files(&server.folder),
            ["replay-journal", "replay-journal.0"]
        );
        assert_eq!(lock(&server.opened.cache.inner.open.carried).len(), 1);
    }
}

#[test]
fn what_was_taken_over_goes_to_the_next_process_and_to_others() {
    let all = tempfile::tempdir().unwrap();
    let b = SharingServer::start(all.path(), "b");
    b.replace(&dead(all.path(), 5));
    // Another one has called since.
    b.replace(&{
        let mut c = SharingServer::start(all.path(), "c");
        c.execute(3, 7);
        c.kill()
    });
    let folder = b.kill();
    let journals = ["replay-journal", "replay-journal.0", "replay-journal.1"];
    assert_eq!(files(&folder), journals);
    let d = SharingServer::start(all.path(), "d");
    d.replace(&folder);
    assert_eq!(d.knows(), both());
    let mut d = {
        d.kill();
        SharingServer::start(all.path(), "d")
    };
    assert_eq!(files(&d.folder), ["replay-journal"]);
    assert_eq!(d.knows(), both());
    assert_eq!(d.replayed(3), Some(b"reply".to_vec()));
    // Once it is executed here, its reply is the one that counts.
    d.execute(2, 5);
    d.kill();
    let d = SharingServer::start(all.path(), "d");
    assert_eq!(d.replayed(2), Some(b"reply".to_vec()));
}

#[test]
fn calls_with_another_key_keep_it_when_another_server_takes_over() {
    let all = tempfile::tempdir().unwrap();
    let b = SharingServer::start(all.path(), "b");
    b.replace(&dead(all.path(), 5));
    let (key, next) = (b.key(2), b.key(4));
    b.opened.cache.reassign(&key, next);
    let folder = b.kill();
    let c = SharingServer::start(all.path(), "c");
    c.replace(&folder);
    assert_eq!((c.begun(2), c.begun(4)), (None, Some(true)));
}

#[test]
fn names_that_any_server_has_used_since_are_contested() {
    // The names that another server and the one that replaces have used before or since.
    for (before, since, theirs, alone) in [
        (5, 6, true, true),
        (6, 5, true, false),
        (5, 6, false, true),
        (6, 5, false, false),
    ] {
        let all = tempfile::tempdir().unwrap();
        let mut b = SharingServer::start(all.path(), "b");
        let mut c = SharingServer::start(all.path(), "c");
        let user = if theirs { &mut c } else { &mut b };
        user.execute(11, before);
        let dead = dead(all.path(), 5);
        user.execute(12, since);
        assert!(c.journals.flush(LIMIT));
        b.replace(&dead);
        assert_eq!(b.begun(2), Some(alone), "{before} {since} {theirs}");
    }
}

#[test]
fn names_that_others_used_while_a_server_was_down_are_contested() {
    for (since, alone) in [(6, true), (5, false)] {
        let all = tempfile::tempdir().unwrap();
        let mut b = SharingServer::start(all.path(), "b");
        dead(all.path(), 5);
        b.execute(12, since);
        b.kill();
        let a = SharingServer::start(all.path(), "a");
        assert_eq!(a.begun(2), Some(alone));
        assert_eq!(a.replayed(12), None, "it was not called here");
    }
}

#[test]
fn a_journal_that_cannot_be_read_may_have_used_all_names() {
    let all = tempfile::tempdir().unwrap();
    let b = SharingServer::start(all.path(), "b");
    let c = SharingServer::start(all.path(), "c").kill();
    let dead = dead(all.path(), 5);
    let journal = c.join(JOURNAL_FILE);
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() - 1]).unwrap();
    b.replace(&dead);
    assert_eq!(b.knows(), (Some(b"reply".to_vec()), Some(false)));
}

#[test]
fn journals_with_another_key_are_left_out() {
    let all = tempfile::tempdir().unwrap();
    let b = SharingServer::start(all.path(), "b");
    let mut foreign = SharingServer::start_with(all.path(), "a", [8; 16], || ());
    foreign.execute(1, 5);
    let folder = foreign.kill();
    let journal = fs::read(folder.join(JOURNAL_FILE)).unwrap();
    let left = Left::read(&journal, &[0; 16], limits().age).unwrap();
    assert_eq!(left.done(), 1);
    assert_eq!(b.replace(&folder), TakenCalls::default());
}

#[test]
fn calls_wait_until_others_can_read_what_was_begun() {
    let all = tempfile::tempdir().unwrap();
    let (go, gone) = mpsc::channel();
    let mut a = SharingServer::start_with(all.path(), "a", KEY, move || gone.recv().unwrap());
    let clock = Clock::new(Instant::now());
    let _open = a.begin(2, 5);
    let mut written = pin!(a.opened.writers[1].written(&clock).unwrap());
    assert!(poll(written.as_mut()).is_pending());
    let recorded = |folder: &Path| {
        let bytes = fs::read(folder.join(JOURNAL_FILE)).unwrap();
        Left::read(&bytes, &[0; 16], limits().age).unwrap().begun()
    };
    assert_eq!(recorded(&a.folder), 0);
    go.send(()).unwrap();
    assert!(a.journals.flush(LIMIT));
    assert!(poll(written.as_mut()).is_ready());
    assert_eq!(recorded(&a.folder), 1);
}

#[test]
fn calls_wait_a_second_at_most_and_not_at_all_while_it_takes_longer() {
    let all = tempfile::tempdir().unwrap();
    let (go, gone) = mpsc::channel();
    let mut a = SharingServer::start_with(all.path(), "a", KEY, move || gone.recv().unwrap());
    let now = Instant::now();
    let clock = Clock::new(now);
    let _open = a.begin(2, 5);
    let mut written = pin!(a.opened.writers[1].written(&clock).unwrap());
    assert!(poll(written.as_mut()).is_pending());
    clock.turn(now + Duration::from_millis(900));
    assert!(poll(written.as_mut()).is_pending());
    assert_eq!(a.journals.unshared(), 0);
    clock.turn(now + Duration::from_millis(1100));
    assert!(poll(written.as_mut()).is_ready());
    assert_eq!(a.journals.unshared(), 1);
    let _other = a.begin(3, 5);
    assert!(a.opened.writers[1].written(&clock).is_none());
    assert_eq!(a.journals.unshared(), 2);
    // When it answers again, what it was told meanwhile is there, and calls wait again.
    go.send(()).unwrap();
    assert!(a.journals.flush(LIMIT));
    assert!(a.opened.writers[1].written(&clock).is_some());
    assert_eq!(a.journals.unshared(), 2);
    let folder = a.kill();
    let b = SharingServer::start(all.path(), "b");
    let taken = TakenCalls { done: 0, begun: 2 };
    assert_eq!(b.replace(&folder), taken);
}

#[test]
fn slots_are_written_even_if_others_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let writable = File::create(&path).unwrap();
    let read_only = File::open(&path).unwrap();
    let thread = SlotThread::start(|| ()).unwrap();
    for (file, byte) in [(read_only, 1), (writable, 2)] {
        thread.file(&Arc::new(file)).put(0, &[byte; SLOT]);
    }
    assert!(thread.flush(LIMIT));
    assert_eq!(fs::read(&path).unwrap()[PAGE..], [2; SLOT]);
    assert_eq!(thread.unshared(), 1);
}
