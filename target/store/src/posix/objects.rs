//! The objects of a volume that a reactor has open.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache_hits::CacheHits;
use super::data::sync_group::ObjectState;
use super::file_system::FileSystem;
pub(super) use super::object::{DataFile, Use};
use super::object::{Files, Verdicts};
use super::open_files::Opened;
pub(super) use super::shared_file::SharedFile;
use super::volume::Volume;
use crate::lru::Lru;
use crate::{ClientKey, Handle, Kind, Result, StoreError};

/// How long an unused object stays open: then the space of a file removed by other programs is
/// freed.
const IDLE: Duration = Duration::from_secs(10);

/// How long objects to be closed wait before a helper is requested again.
const AGAIN: Duration = Duration::from_millis(1);

/// The number of objects to be closed that makes a helper run before the reactor's turn ends.
const BATCH: usize = 32;

/// The objects that a reactor keeps open, up to a limit.
pub(super) struct Objects {
    volume: Volume,
    table: RefCell<Lru<Handle, Kept>>,
    /// The time of the reactor's turn.
    now: Cell<Instant>,
    closing: Rc<Closing>,
    /// The number of unlinked objects that this reactor has processed.
    unlinked: Cell<u64>,
}

/// An object in the table.
struct Kept {
    object: Rc<Object>,
    used: Instant,
}

/// An object, open until this is dropped.
pub(super) struct Object {
    /// Its handle for clients.
    pub handle: Handle,
    /// Its kind, which never changes.
    pub kind: Kind,
    /// Opened as a path only: names it in system calls, gives no access to data.
    pub path: Arc<OwnedFd>,
    /// Its state shared by all reactors.
    pub shared: Arc<SharedFile>,
    /// The state of this reactor's reads, writes and syncs.
    pub local: ObjectState,
    /// Its file system.
    pub(super) file_system: Arc<FileSystem>,
    pub(super) volume: Volume,
    /// Its data, once opened.
    pub(super) files: RefCell<Files>,
    /// Permission verdicts for its data.
    pub(super) verdicts: RefCell<Verdicts>,
    /// Set when its last name was seen to be removed.
    pub(super) gone: Cell<bool>,
    /// Whether the kernel has its access control list in memory, or knows that it has none.
    pub(super) has_list_in_memory: Cell<bool>,
    pub(super) cache_hits: CacheHits,
    closing: Rc<Closing>,
}

impl Objects {
    pub fn new(volume: &Volume) -> Self {
        Self {
            volume: volume.clone(),
            table: RefCell::new(Lru::new()),
            now: Cell::new(Instant::now()),
            closing: Rc::new(Closing::new(volume)),
            unlinked: Cell::new(0),
        }
    }

    /// The object with this handle. If it is not open, a helper opens it in the client's turn.
    pub async fn get(&self, client: ClientKey, handle: Handle) -> Result<Rc<Object>> {
        if let Some(object) = self.find(&handle) {
            if object.gone.get() {
                self.forget(&handle);
                return Err(StoreError::Stale);
            }
            return Ok(object);
        }
        let volume = self.volume.clone();
        let job = move || volume.open_object(&handle);
        let opened = self.volume.helpers().run(client, job).await??;
        Ok(self.insert(opened))
    }

    /// The object with this handle, if it is open.
    pub fn find(&self, handle: &Handle) -> Option<Rc<Object>> {
        let mut table = self.table.borrow_mut();
        let kept = table.get(handle)?;
        kept.used = self.now.get();
        Some(Rc::clone(&kept.object))
    }

    /// Keeps a newly opened object, unless it is open already. The least recently used one is evicted
    /// for it.
    pub fn insert(&self, opened: Opened) -> Rc<Object> {
        let there = self.find(&opened.handle);
        // The second descriptor is closed here: the first one keeps the object in the kernel.
        if let Some(object) = there.filter(|there| !there.gone.get() && !there.file_system.slow) {
            return object;
        }
        let object = Object {
            handle: opened.handle,
            kind: opened.attributes.kind,
            path: Arc::new(opened.path),
            shared: self.volume.files().get(opened.handle),
            local: ObjectState::default(),
            file_system: opened.file_system,
            volume: self.volume.clone(),
            files: RefCell::default(),
            verdicts: RefCell::default(),
            gone: Cell::new(false),
            has_list_in_memory: Cell::new(false),
            cache_hits: CacheHits::default(),
            closing: Rc::clone(&self.closing),
        };
        // Another task may have opened it in the meantime; the second one is closed.
        if let Some(object) = self.find(&object.handle).filter(|there| !there.gone.get()) {
            return object;
        }
        let object = Rc::new(object);
        let kept = Kept {
            object: Rc::clone(&object),
            used: self.now.get(),
        };
        let bound = self.volume.config().limits.open_files.max(1);
        // Dropped only after the borrow of the table: dropping the last reference calls helpers.
        let replaced = self.table.borrow_mut().insert(object.handle, kept);
        drop(replaced);
        while self.len() > bound {
            self.evict();
        }
        object
    }

    /// Drops an object: it was removed, or its handle refers to another one now.
    pub fn forget(&self, handle: &Handle) {
        let removed = self.table.borrow_mut().remove(handle);
        drop(removed);
    }

    /// As [`Objects::forget`], and lets a helper close it without waiting for the turn to end.
    pub fn close(&self, handle: &Handle) {
        self.forget(handle);
        self.closing.flush();
    }

    /// The number of open objects in the table.
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Advances the time, drops idle objects, and lets helpers close dropped ones. Returns their
    /// number.
    pub fn tick(&self, now: Instant) -> usize {
        self.now.set(now);
        let mut closed = self.let_go_unlinked();
        for _ in 0..BATCH {
            if self.deadline().is_none_or(|deadline| deadline > now) {
                break;
            }
            if !self.spare_oldest() {
                self.evict();
                closed += 1;
            }
        }
        closed + self.closing.flush()
    }

    /// When [`Objects::tick`] next has work, as far as known now.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.closing.is_waiting() {
            return Some(self.now.get() + AGAIN);
        }
        self.deadline()
    }

    /// Drops objects unlinked on any reactor.
    fn let_go_unlinked(&self) -> usize {
        let unlinked = self.volume.unlinked();
        if !unlinked.has_more(self.unlinked.get()) {
            return 0;
        }
        let (gone, seen) = unlinked.since(self.unlinked.get());
        self.unlinked.set(seen);
        for handle in &gone {
            self.forget(handle);
        }
        gone.len()
    }

    /// When the least recently used object reaches the idle time.
    fn deadline(&self) -> Option<Instant> {
        let table = self.table.borrow();
        table.oldest().map(|(_, kept)| kept.used + IDLE)
    }

    /// Evicts the least recently used object without operations. If the old ones all have
    /// operations, one of them is removed from the table, and stays open until these end.
    fn evict(&self) {
        for _ in 0..BATCH {
            if !self.spare_oldest() {
                break;
            }
        }
        let mut table = self.table.borrow_mut();
        let oldest = table.oldest().map(|(handle, _)| *handle);
        let removed = oldest.and_then(|handle| table.remove(&handle));
        drop(table);
        drop(removed);
    }

    /// Marks the least recently used object as used if it has operations.
    fn spare_oldest(&self) -> bool {
        let mut table = self.table.borrow_mut();
        let busy = table
            .oldest()
            .filter(|(_, kept)| Rc::strong_count(&kept.object) > 1)
            .map(|(handle, _)| *handle);
        let kept = busy.and_then(|handle| table.get(&handle));
        kept.map(|kept| kept.used = self.now.get()).is_some()
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let files = std::mem::take(self.files.get_mut());
        self.closing.put(Remains {
            handle: self.handle,
            path: Arc::clone(&self.path),
            shared: Arc::clone(&self.shared),
            file_system: Arc::clone(&self.file_system),
            files,
        });
    }
}

/// The parts of a dropped object.
struct Remains {
    handle: Handle,
    path: Arc<OwnedFd>,
    shared: Arc<SharedFile>,
    file_system: Arc<FileSystem>,
    files: Files,
}

type Batch = std::sync::Mutex<Vec<Remains>>;

/// Closes objects on helpers: closing the last descriptor of a removed file frees its space, and
/// written bytes are made durable first.
struct Closing {
    volume: Volume,
    waiting: RefCell<Vec<Remains>>,
}

impl Closing {
    fn new(volume: &Volume) -> Self {
        Self {
            volume: volume.clone(),
            waiting: RefCell::default(),
        }
    }

    fn put(&self, remains: Remains) {
        self.waiting.borrow_mut().push(remains);
        if self.waiting.borrow().len() >= BATCH {
            self.flush();
        }
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Requests a helper. If none is available, the objects wait. Returns their number.
    fn flush(&self) -> usize {
        if !self.is_waiting() {
            return 0;
        }
        let waiting = self.waiting.take();
        let count = waiting.len();
        let batch = Arc::new(Batch::new(waiting));
        let called = have_closed(&self.volume, &batch);
        if !called {
            let left = std::mem::take(&mut *lock(&batch));
            self.waiting.borrow_mut().extend(left);
        }
        count
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.flush();
        // No helper is available: they are closed here, so that no writes are lost.
        for remains in self.waiting.take() {
            close_one(&self.volume, remains);
        }
        self.volume.folder().below().prune();
    }
}

/// Requests a helper to close objects, unless none is available.
fn have_closed(volume: &Volume, batch: &Arc<Batch>) -> bool {
    let (by, there) = (volume.clone(), Arc::clone(batch));
    let job = volume
        .helpers()
        .run(ClientKey::OWN, move || close(&by, &there));
    !job.is_refused()
}

/// Closes objects. May block, each time for as long as a sync takes: jobs of waiting clients run in
/// between.
fn close(volume: &Volume, batch: &Arc<Batch>) {
    loop {
        let (remains, is_last) = {
            let mut batch = lock(batch);
            (batch.pop(), batch.is_empty())
        };
        let Some(remains) = remains else {
            break;
        };
        close_one(volume, remains);
        let gives_way = !is_last && volume.helpers().is_wanted_by_others(ClientKey::OWN);
        if gives_way && have_closed(volume, batch) {
            break;
        }
    }
    volume.folder().below().prune();
}

fn close_one(volume: &Volume, remains: Remains) {
    remains.files.settle(volume, &remains.shared);
    drop(remains.files);
    drop(remains.path);
    drop(remains.file_system);
    volume.files().release(remains.handle, remains.shared);
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Object {
    /// The path, borrowed.
    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.path.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::open_files::open_name;
    use super::*;
    use crate::posix::volume::{Direct, Groups, Limits, Mounts, Sync, VolumeConfig};

    fn objects(root: &std::path::Path, open_files: usize) -> Objects {
        let config = VolumeConfig {
            name: "test".into(),
            root: root.to_owned(),
            direct: Direct::Auto,
            sync: Sync::Strict,
            groups: Groups::Client,
            mounts: Mounts::Hide,
            exclusive: false,
            limits: Limits {
                open_files,
                ..Limits::default()
            },
            state: None,
        };
        Objects::new(&Volume::open(config).unwrap())
    }

    fn open(objects: &Objects, name: &str) -> Rc<Object> {
        let volume = &objects.volume;
        let opened = open_name(
            volume.folder(),
            volume.folder().root_path(),
            name.as_bytes(),
        );
        objects.insert(opened.unwrap())
    }

    fn wait<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_operations_are_at_stays_while_others_can_go() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..50 {
            fs::write(folder.path().join(index.to_string()), b"x").unwrap();
        }
        let objects = objects(folder.path(), 4);
        let held = open(&objects, "0");
        for index in 1..50 {
            open(&objects, &index.to_string());
            assert!(objects.len() <= 4);
        }
        let found = objects.find(&held.handle).unwrap();
        assert!(Rc::ptr_eq(&found, &held));
        // The limit holds even if all of them have operations.
        let all: Vec<_> = (0..50)
            .map(|index| open(&objects, &index.to_string()))
            .collect();
        assert_eq!(objects.len(), 4);
        assert!(wait(all[7].attributes(ClientKey::OWN)).is_ok());
    }

    #[test]
    fn what_an_operation_is_at_is_not_idle() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["held", "idle", "used"] {
            fs::write(folder.path().join(name), b"x").unwrap();
        }
        let objects = objects(folder.path(), 4);
        let start = Instant::now();
        objects.tick(start);
        let held = open(&objects, "held");
        let idle = open(&objects, "idle").handle;
        objects.tick(start + IDLE / 2);
        let used = open(&objects, "used").handle;
        assert_eq!(objects.next_deadline(), Some(start + IDLE));
        objects.tick(start + IDLE);
        assert!(objects.find(&idle).is_none());
        assert!(objects.find(&held.handle).is_some());
        assert!(objects.find(&used).is_some());
        drop(held);
        objects.tick(start + 3 * IDLE);
        assert_eq!(objects.len(), 0);
    }

    #[test]
    fn two_who_open_one_object_at_a_time_have_the_same() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), b"x").unwrap();
        let objects = objects(folder.path(), 4);
        let file = open(&objects, "file");
        let again = open(&objects, "file");
        assert!(Rc::ptr_eq(&file, &again));
        assert_eq!(objects.len(), 1);
        let handle = file.handle;
        let shared = Arc::clone(&file.shared);
        drop((file, again));
        objects.forget(&handle);
        // Opened again, on a helper; the state shared by reactors is the same.
        let file = wait(objects.get(ClientKey::OWN, handle)).unwrap();
        assert!(Arc::ptr_eq(&file.shared, &shared));
        fs::remove_file(folder.path().join("file")).unwrap();
        let attributes = wait(file.attributes(ClientKey::OWN));
        assert_eq!(attributes.err(), Some(StoreError::Stale));
        let found = wait(objects.get(ClientKey::OWN, handle));
        assert_eq!(found.err(), Some(StoreError::Stale));
        assert_eq!(objects.len(), 0);
    }

    #[test]
    fn data_is_opened_once_for_each_use_and_by_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), b"x").unwrap();
        let objects = objects(folder.path(), 4);
        let file = open(&objects, "file");
        let data = |wanted, direct| wait(file.data(ClientKey::OWN, wanted, direct)).unwrap();
        let read = data(Use::Read, false);
        assert!(Arc::ptr_eq(&data(Use::Read, false).file, &read.file));
        assert_eq!(read.direct, None);
        // A writable one replaces it for both.
        let written = data(Use::Write, false);
        assert!(!Arc::ptr_eq(&written.file, &read.file));
        assert!(Arc::ptr_eq(&data(Use::Read, false).file, &written.file));
        let flags = |file: &DataFile| rustix::fs::fcntl_getfl(&file.file).unwrap();
        let direct = data(Use::Write, true);
        if let Some(alignment) = direct.direct {
            assert!(alignment >= 4096 && alignment.is_power_of_two());
            assert!(flags(&direct).contains(rustix::fs::OFlags::DIRECT));
        } else {
            // tmpfs accepts it through the page cache only.
            assert!(Arc::ptr_eq(&direct.file, &written.file));
        }
        assert!(!flags(&written).contains(rustix::fs::OFlags::DIRECT));
        assert!(Arc::ptr_eq(&data(Use::Write, true).file, &direct.file));
    }

    #[test]
    fn closing_many_objects_holds_up_a_client_for_one() {
        use std::sync::mpsc::channel;
        const OPEN: usize = 5;
        let folder = tempfile::tempdir().unwrap();
        for index in 0..OPEN {
            fs::write(folder.path().join(index.to_string()), b"x").unwrap();
        }
        let objects = objects(folder.path(), 100);
        let volume = objects.volume.clone();
        let mut limits = volume.config().limits;
        limits.helpers.threads = 1;
        volume.adjust(Direct::Auto, Sync::Strict, limits);
        let opened: Vec<_> = (0..OPEN)
            .map(|index| open(&objects, &index.to_string()).handle)
            .collect();
        // The one helper begins when all are queued.
        let (begun, has_begun) = channel();
        let (go, may_go) = channel::<()>();
        let held = volume.helpers().run(ClientKey::OWN, move || {
            begun.send(()).unwrap();
            let _ = may_go.recv();
        });
        has_begun.recv().unwrap();
        for handle in &opened {
            objects.forget(handle);
        }
        objects.closing.flush();
        let there = volume.clone();
        let left = volume
            .helpers()
            .run(ClientKey::new(1), move || there.files().len());
        go.send(()).unwrap();
        wait(held).unwrap();
        assert_eq!(wait(left), Ok(OPEN - 1));
        while volume.files().len() > 0 {
            std::thread::yield_now();
        }
    }
}
