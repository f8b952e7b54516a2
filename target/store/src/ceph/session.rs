//! A mount, and the objects and files that are kept of it. All of it is used by helpers only, since
//! also closing may block.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::config::CephConfig;
use super::handle::{self, ObjectKey};
use super::leases::SessionLeases;
use super::subdirectories::SubdirectoryCounts;
use super::sys::{File, Identity, Inode, Mount, MountError, OpenMode};
use crate::lru::Lru;
use crate::{Caller, Handle};

/// How long an unused object stays known.
const OBJECT_IDLE: Duration = Duration::from_secs(60);

/// How long an unused file stays open. An open file delays changes by other servers.
const FILE_IDLE: Duration = Duration::from_secs(5);

/// How long one that is open for writing stays so while it is held. When it is closed, and the file
/// stays open for reading only, the metadata server records that it is not written any more, but not
/// at once: for up to five seconds, others that open the file wait. Where there are leases it is as
/// for other files: a file that is open for writing has none.
const HELD_FILE_IDLE: Duration = Duration::from_secs(60);

/// A mount and what is open.
pub(super) struct Session {
    // Dropped in this order.
    files: Mutex<Lru<(u64, OpenMode), IdleEntry<File>>>,
    pub leases: SessionLeases,
    /// Files that are held, and how often.
    held: Mutex<HashMap<u64, (Arc<File>, usize)>>,
    /// Files that are held no longer.
    released: Mutex<Vec<Arc<File>>>,
    objects: Mutex<Lru<u64, IdleEntry<Inode>>>,
    pub subdirectories: SubdirectoryCounts,
    root: Arc<Inode>,
    pub root_handle: Handle,
    /// The identity of the file system in handles.
    pub file_system: u64,
    pub superuser: Identity,
    /// Shared by requests that use names.
    names: RwLock<()>,
    mount: Arc<Mount>,
    most: usize,
    locks: Mutex<SessionLocks>,
}

/// The locks that depend on a session.
#[derive(Default)]
struct SessionLocks {
    /// Files open for them.
    files: usize,
    /// Tells that they are gone.
    lost: Option<Box<dyn Fn() + Send>>,
}

struct IdleEntry<T> {
    value: Arc<T>,
    used: Instant,
    /// Of a file: who used it last.
    user: u32,
}

impl Session {
    /// Mounts, and keeps at most as many objects and files as configured.
    pub fn open(config: &CephConfig) -> Result<Self, MountError> {
        let (mount, most) = (
            Mount::open(&config.library_mount())?,
            config.limits.open_files,
        );
        let failed = |error| MountError {
            step: "reading the root".to_owned(),
            error,
        };
        let superuser = Identity::of(&Caller::SUPERUSER);
        let root = Arc::new(Inode::root(&mount).map_err(failed)?);
        let found = root.attributes(&superuser).map_err(failed)?;
        let leases = config.leases.then(|| mount.begin_leases()).flatten();
        let file_system = handle::file_system(mount.file_system_number(), &found);
        Ok(Self {
            files: Mutex::new(Lru::new()),
            leases: SessionLeases::new(leases),
            held: Mutex::default(),
            released: Mutex::default(),
            objects: Mutex::new(Lru::new()),
            subdirectories: SubdirectoryCounts::new(most),
            root_handle: ObjectKey::of(&found).handle(file_system),
            root,
            file_system,
            superuser,
            names: RwLock::new(()),
            mount,
            most: most.max(1),
            locks: Mutex::default(),
        })
    }

    /// The root.
    pub fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Counts another file that is open for locks. The last one to say how to tell that they are
    /// lost counts.
    pub fn begin_lock_file(&self, lost: Box<dyn Fn() + Send>) {
        let mut locks = lock(&self.locks);
        locks.files += 1;
        locks.lost = Some(lost);
    }

    /// Does not count it any more.
    pub fn end_lock_file(&self) {
        lock(&self.locks).files -= 1;
    }

    /// Tells that the locks are gone.
    pub fn lose_locks(&self) {
        if let Some(lost) = &lock(&self.locks).lost {
            lost();
        }
    }

    /// Whether files are open for locks.
    pub fn has_lock_files(&self) -> bool {
        lock(&self.locks).files > 0
    }

    /// Lets a request use names.
    pub fn share_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one request alone use names.
    pub fn own_names(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with a number.
    ///
    /// # Errors
    /// [`Errno::STALE`]: there is none. Errors of the cluster.
    pub fn object(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        if let Some(entry) = lock(&self.objects).get(&number) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.value));
        }
        let found = Inode::by_number(&self.mount, number)?;
        Ok(self.keep(number, found))
    }

    /// Keeps an object that was found.
    pub fn keep(&self, number: u64, found: Inode) -> Arc<Inode> {
        let value = Arc::new(found);
        insert(&self.objects, number, &value, 0, self.most);
        value
    }

    /// Keeps a file that a user has made, and that is open for writing: most are written next, and
    /// others that open it do not wait ([`HELD_FILE_IDLE`]).
    pub fn keep_made(&self, number: u64, made: File, user: u32) -> Arc<Inode> {
        let (inode, made) = (Arc::clone(made.inode()), Arc::new(made));
        insert(&self.objects, number, &inode, 0, self.most);
        if self.keeps_writing() {
            let key = (number, OpenMode::Write);
            insert(&self.files, key, &made, user, self.most);
        }
        inode
    }

    /// Whether files stay open for writing without being written. Leases are not given then.
    fn keeps_writing(&self) -> bool {
        !self.leases.exist()
    }

    /// An object's file, open for reading or writing by a user.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn file(
        &self,
        number: u64,
        inode: &Arc<Inode>,
        mode: OpenMode,
        user: u32,
    ) -> Result<Arc<File>, Errno> {
        if let Some(entry) = lock(&self.files).get(&(number, mode)) {
            entry.used = Instant::now();
            entry.user = user;
            return Ok(Arc::clone(&entry.value));
        }
        let value = Arc::new(File::open(inode, &self.superuser, mode)?);
        insert(&self.files, (number, mode), &value, user, self.most);
        Ok(value)
    }

    /// Holds an object's file, once more.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn hold(&self, number: u64, inode: &Arc<Inode>) -> Result<(), Errno> {
        let add = |held: &mut HashMap<u64, (Arc<File>, usize)>| {
            held.get_mut(&number).map(|(_, holds)| *holds += 1)
        };
        if add(&mut lock(&self.held)).is_some() {
            return Ok(());
        }
        // Not under the lock: this may block. Others may do the same meanwhile.
        let file = Arc::new(File::open(inode, &self.superuser, OpenMode::Read)?);
        let mut held = lock(&self.held);
        if add(&mut held).is_none() {
            held.insert(number, (Arc::clone(&file), 1));
        }
        drop(held);
        Ok(())
    }

    /// Ends a hold. The next [`Session::sweep`] closes the file, as that may block.
    pub fn release(&self, number: u64) {
        let mut held = lock(&self.held);
        if let Some((_, holds)) = held.get_mut(&number) {
            *holds -= 1;
            if *holds == 0 {
                let file = held.remove(&number).map(|(file, _)| file);
                lock(&self.released).extend(file);
            }
        }
    }

    /// Whether an object's file is held.
    pub fn is_held(&self, number: u64) -> bool {
        lock(&self.held).contains_key(&number)
    }

    /// An object's file if it is open for writing already.
    pub fn written_file(&self, number: u64) -> Option<Arc<File>> {
        let mut files = lock(&self.files);
        let entry = files.get(&(number, OpenMode::Write))?;
        Some(Arc::clone(&entry.value))
    }

    /// Whether an object's file is open for writing, and was written by this user last. Never
    /// blocks, for reactors.
    pub fn is_written(&self, number: u64, user: u32) -> bool {
        let mut files = lock(&self.files);
        let entry = files.get(&(number, OpenMode::Write));
        entry.is_some_and(|entry| entry.user == user)
    }

    /// Lets go of an object whose last name was removed, so that its space becomes free.
    pub fn forget(&self, number: u64) {
        let modes = [OpenMode::Read, OpenMode::Write];
        let files = modes.map(|mode| lock(&self.files).remove(&(number, mode)));
        let object = lock(&self.objects).remove(&number);
        // Not under the locks: closing may block.
        drop((files, object));
    }

    /// Lets go of what has not been used for long.
    pub fn sweep(&self, now: Instant) {
        // Not under the locks: closing may block, and reactors release files.
        let released = std::mem::take(&mut *lock(&self.released));
        drop(released);
        let unused = {
            let held = lock(&self.held);
            let is_held = |key: &(u64, OpenMode)| {
                self.keeps_writing() && key.1 == OpenMode::Write && held.contains_key(&key.0)
            };
            let time = |key: &_| match is_held(key) {
                true => HELD_FILE_IDLE,
                false => FILE_IDLE,
            };
            idle(&self.files, now, FILE_IDLE, time)
        };
        drop(unused);
        drop(idle(&self.objects, now, OBJECT_IDLE, |_| OBJECT_IDLE));
    }

    /// Open files whose writes may not be durable yet.
    pub fn written_files(&self) -> Vec<Arc<File>> {
        let files = lock(&self.files);
        let written = files
            .oldest_first()
            .filter(|(key, _)| key.1 == OpenMode::Write);
        written.map(|(_, entry)| Arc::clone(&entry.value)).collect()
    }

    /// Objects known, and files open.
    pub fn kept(&self) -> (usize, usize) {
        (lock(&self.objects).len(), lock(&self.files).len())
    }
}

/// Adds an entry. What has to go for it is dropped without the lock.
fn insert<K: Copy + Eq + std::hash::Hash, T>(
    table: &Mutex<Lru<K, IdleEntry<T>>>,
    key: K,
    value: &Arc<T>,
    user: u32,
    most: usize,
) {
    let mut entries = lock(table);
    let used = Instant::now();
    let value = Arc::clone(value);
    let mut gone = vec![entries.insert(key, IdleEntry { value, used, user })];
    while entries.len() > most {
        let Some((oldest, _)) = entries.oldest() else {
            break;
        };
        let oldest = *oldest;
        gone.push(entries.remove(&oldest));
    }
    drop(entries);
    drop(gone);
}

/// Removes the entries that have been idle for `least`, and for a time of their own.
fn idle<K: Copy + Eq + std::hash::Hash, T>(
    table: &Mutex<Lru<K, IdleEntry<T>>>,
    now: Instant,
    least: Duration,
    own: impl Fn(&K) -> Duration,
) -> Vec<IdleEntry<T>> {
    let mut entries = lock(table);
    let unused = |entry: &IdleEntry<T>| now.saturating_duration_since(entry.used);
    let idle = (entries.oldest_first()).take_while(|(_, entry)| unused(entry) >= least);
    let keys: Vec<K> = idle
        .filter(|(key, entry)| unused(entry) >= own(key))
        .map(|(key, _)| *key)
        .collect();
    let gone = keys.iter().filter_map(|key| entries.remove(key));
    gone.collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
