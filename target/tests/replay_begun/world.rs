//! One process after the other over the same files, some of which are killed.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use millrace::call::{Peer, TransportKind};
use millrace::exports::Exports;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::replay::{ReplayCache, ReplayLimits, SharedJournals};
use millrace::service::ReactorPrograms;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_store::{Namespace, Store};
use millrace_wire::nfs3::{FileHandle, NameInDirectory, Procedure};
use millrace_wire::xdr::{Decode, Encode, from_bytes};

use crate::support::lasting::{Killed, Lasting};
use crate::support::{self, Bench, nfs, rules};

/// How long a journal may take to be written.
const LIMIT: Duration = Duration::from_secs(60);

/// Who serves when a process has been killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The next process of the same server.
    Restart,
    /// Another server, which shares its journals.
    Replacement,
}

/// One process after the other over the same files.
pub struct World {
    succession: Succession,
    registry: Registry,
    pub store: Lasting,
    pub bench: RefCell<Bench<Lasting>>,
    pub folder: RefCell<tempfile::TempDir>,
    /// What the present process shares.
    shared: RefCell<Option<SharedJournals>>,
}

impl World {
    pub fn new(succession: Succession) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = Lasting::new(support::memory_store(&registry));
        let folder = tempfile::tempdir().unwrap();
        let (bench, shared) = succession.process(&registry, &store, &folder);
        Self {
            succession,
            registry,
            store,
            bench: RefCell::new(bench),
            folder: RefCell::new(folder),
            shared: RefCell::new(shared),
        }
    }

    pub fn root(&self) -> FileHandle {
        self.bench.borrow().root()
    }

    pub fn entry<'a>(&self, name: &'a [u8]) -> NameInDirectory<'a> {
        NameInDirectory {
            directory: self.root(),
            name,
        }
    }

    /// Another process is started over what is in the files now.
    pub fn restart(&self) {
        if let Some(shared) = &*self.shared.borrow() {
            assert!(shared.flush(LIMIT));
        }
        let dead = tempfile::tempdir().unwrap();
        copy(self.folder.borrow().path(), dead.path());
        self.succeed(dead);
    }

    /// Another process is started over what one has left.
    fn succeed(&self, dead: tempfile::TempDir) {
        let (own, dead) = match self.succession {
            Succession::Restart => (dead, None),
            Succession::Replacement => (tempfile::tempdir().unwrap(), Some(dead)),
        };
        let (bench, shared) = self.succession.process(&self.registry, &self.store, &own);
        if let (Some(shared), Some(dead)) = (&shared, dead) {
            shared.take_over(dead.path(), &[]).unwrap();
        }
        bench.xid.set(self.bench.borrow().xid.get());
        self.bench.replace(bench);
        self.folder.replace(own);
        self.shared.replace(shared);
    }

    /// A call whose process is killed where `at` says. Another one has been started then.
    pub fn killed(&self, at: Killed, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let message = self
            .bench
            .borrow()
            .message((100_003, 3, procedure.number()), arguments);
        self.kill(at, &message);
        message
    }

    /// A call that is dropped where `at` says, as if its task had panicked.
    pub fn abandoned(&self, at: Killed, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let bench = self.bench.borrow();
        let message = bench.message((100_003, 3, procedure.number()), arguments);
        self.store.killed.set(at);
        bench.send_until_stopped(&message, &self.store.is_killed, || ());
        self.store.killed.set(Killed::Never);
        message
    }

    pub fn kill(&self, at: Killed, message: &[u8]) {
        let dead = tempfile::tempdir().unwrap();
        self.store.killed.set(at);
        let (bench, is_killed) = (self.bench.borrow(), &self.store.is_killed);
        bench.send_until_stopped(message, is_killed, || {
            copy(self.folder.borrow().path(), dead.path());
        });
        drop(bench);
        self.store.killed.set(Killed::Never);
        self.succeed(dead);
    }

    /// The same call again, from another port and by another transport.
    pub fn repeat<T: for<'a> Decode<'a>>(&self, message: &[u8]) -> T {
        let bench = self.bench.borrow();
        let client: SocketAddr = "192.0.2.1:2000".parse().unwrap();
        let before = bench.call_from(Peer::new(client, TransportKind::Tcp));
        let first = bench.success(message);
        assert_eq!(first, bench.success(message), "remembered by now");
        assert_eq!(bench.service.counters().replayed.get(), 1);
        bench.call_from(before.peer());
        from_bytes(&first).unwrap()
    }

    /// Something that another client does.
    pub fn other<T: for<'a> Decode<'a>>(&self, procedure: Procedure, arguments: &impl Encode) -> T {
        let bench = self.bench.borrow();
        let client: SocketAddr = "192.0.2.9:1000".parse().unwrap();
        let before = bench.call_from(Peer::new(client, TransportKind::Tcp));
        let results = nfs::call(&bench, procedure, arguments);
        bench.call_from(before.peer());
        results
    }

    /// Makes a file that nobody has changed for an hour.
    pub fn old_file(&self, name: &[u8]) -> FileHandle {
        let file = nfs::create(&self.bench.borrow(), self.root(), name);
        self.age(name);
        file
    }

    pub fn age(&self, name: &[u8]) {
        let (handle, _) = self.find(name).expect("it is there");
        self.store.old.borrow_mut().insert(handle);
    }

    /// Someone changes it again.
    pub fn touch(&self, name: &[u8]) {
        let (handle, _) = self.find(name).expect("it is there");
        self.store.old.borrow_mut().remove(&handle);
    }

    /// A client of another server makes a file, well after anything else.
    pub fn make_elsewhere(&self, name: &[u8]) {
        let how = millrace_store::CreateHow::Guarded(millrace_store::SetAttributes::default());
        let (caller, root) = (millrace_store::Caller::SUPERUSER, self.store.root());
        let made = support::ready(self.store.store.create(&caller, root, name, &how));
        let (file, _) = made.result.unwrap();
        self.store.young.borrow_mut().insert(file);
    }

    /// A client of another server removes a file.
    pub fn remove_elsewhere(&self, name: &[u8]) {
        let (caller, root) = (millrace_store::Caller::SUPERUSER, self.store.root());
        let removed = support::ready(self.store.store.remove(&caller, root, name));
        removed.result.unwrap();
    }

    pub fn find(
        &self,
        name: &[u8],
    ) -> Option<(millrace_store::Handle, millrace_store::Attributes)> {
        let caller = millrace_store::Caller::SUPERUSER;
        let root = self.store.root();
        support::ready(self.store.store.lookup(&caller, root, name)).ok()
    }
}

/// Copies the journals in a folder.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

impl Succession {
    fn process(
        self,
        registry: &Registry,
        store: &Lasting,
        folder: &tempfile::TempDir,
    ) -> (Bench<Lasting>, Option<SharedJournals>) {
        let (limits, folder) = (ReplayLimits::default(), folder.path());
        let (mut opened, shared) = match self {
            Self::Restart => (ReplayCache::open(limits, folder, 1), None),
            Self::Replacement => {
                let opened = ReplayCache::open_shared(limits, folder, &[], [7; 16], 1, || ());
                let (opened, shared) = opened.unwrap();
                (opened, Some(shared))
            }
        };
        let writer = opened.writers.pop().expect("the file system is fit for it");
        let exports = Exports::new([(rules("/export"), store.clone())]).unwrap();
        let key = HandleKey::new(&support::SECRET);
        let service = ReactorPrograms::new(exports, key, opened.cache, MountTable::default());
        let service = service.with_journal(writer, &Clock::new(Instant::now()));
        let bench = Bench::over(registry, store.clone(), service);
        bench.waits.set(self == Self::Replacement);
        (bench, shared)
    }
}
