//! Exports of folders of the host: opening and closing them, and a reactor's resources for them.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use millrace_admin::change::check_opened;
use millrace_admin::config::{self, Config, ConfigProblem, KeyPath};
use millrace_mempool::{Arena, Pool};
use millrace_reactor::{Alarm, Clock};
use millrace_store::any::{AnyStore, AnyVolume};
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::helpers::HelperLimits;
use millrace_store::posix::identity::{can_act_as_others, privileged};
use millrace_store::posix::volume::{
    Direct, Groups, Limits, Mounts, OpenError, Sync, Volume, VolumeConfig,
};

use super::devices::OpenedDevices;
use super::served::backend_name;
use crate::exports::{ExportId, Exports, Rules};

/// The folder of state from clean stops, below the state directory.
const STATE: &str = "exports";

/// The most operations on file data in progress on a reactor, for all its folders.
const OPERATIONS: u32 = 4096;

/// The timeout of checking a folder.
const LOOK: Duration = Duration::from_secs(5);

/// Opens the folder of an export of a configuration. Blocks.
///
/// # Errors
/// It cannot be opened, or its name leads out of its exportable root: the owner of a folder there
/// could have changed it after the earlier check.
pub fn open(
    config: &Config,
    export: &config::Export,
    posix: &config::Posix,
) -> Result<Volume, OpenError> {
    let volume_config = volume_config(export, posix, config.state_directory.as_deref());
    let volume = Volume::open_checked(volume_config, |opened| {
        check_opened(config, &posix.root, opened)
    })?;
    tell(&volume);
    Ok(volume)
}

/// Logs information for operators about an opened folder.
fn tell(volume: &Volume) {
    let about = volume.info();
    let config = volume.config();
    let alignment = about.direct_alignment;
    tracing::info!(
        path = config.name,
        root = %config.root.display(),
        file_system = about.file_system,
        identity = format!("{:016x}", about.identity),
        direct_alignment = alignment.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string()),
        lasting_handles = about.lasting_handles,
        "folder"
    );
    if !privileged() {
        tracing::warn!(
            path = config.name,
            "identity: server: all clients' users act as the server's own user, as this process \
             lacks the right to act as them"
        );
    }
    if about.read_only {
        tracing::warn!(
            path = config.name,
            "the folder's file system is mounted read-only"
        );
    }
    for (capability, lost) in &about.missing {
        tracing::warn!(
            path = config.name,
            capability,
            "the process lacks a capability: {lost}"
        );
    }
    if !about.lasting_handles && about.missing.is_empty() {
        tracing::warn!(
            path = config.name,
            "the file system has no file handles: clients' handles end with the process, and \
             become stale when other programs move files"
        );
    }
}

/// Applies the settings of a folder that can change while it is served.
pub fn adjust(volume: &Volume, posix: &config::Posix) {
    volume.adjust(direct(posix), sync(posix), limits(&posix.limits));
}

fn direct(posix: &config::Posix) -> Direct {
    match posix.direct {
        config::DirectIo::Auto => Direct::Auto,
        config::DirectIo::Always => Direct::Always,
        config::DirectIo::Never => Direct::Never,
    }
}

fn sync(posix: &config::Posix) -> Sync {
    match posix.sync {
        config::SyncMode::Strict => Sync::Strict,
        config::SyncMode::Relaxed => Sync::Relaxed,
    }
}

/// How a folder is used now: the words of the configuration for `direct` and `sync`.
pub fn modes(volume: &Volume) -> (&'static str, &'static str) {
    let config = volume.config();
    let direct = match config.direct {
        Direct::Auto => config::DirectIo::Auto,
        Direct::Always => config::DirectIo::Always,
        Direct::Never => config::DirectIo::Never,
    };
    let sync = match config.sync {
        Sync::Strict => config::SyncMode::Strict,
        Sync::Relaxed => config::SyncMode::Relaxed,
    };
    (direct.name(), sync.name())
}

/// The configuration of a volume.
fn volume_config(
    export: &config::Export,
    posix: &config::Posix,
    state_directory: Option<&Path>,
) -> VolumeConfig {
    VolumeConfig {
        name: export.path.clone(),
        root: posix.root.clone(),
        direct: direct(posix),
        sync: sync(posix),
        groups: match posix.groups {
            config::GroupSource::Client => Groups::Client,
            config::GroupSource::Server => Groups::Server,
        },
        mounts: match posix.mounts {
            config::MountView::Hide => Mounts::Hide,
            config::MountView::Cross => Mounts::Cross,
        },
        exclusive: posix.exclusive,
        limits: limits(&posix.limits),
        state: state_directory.and_then(|folder| state_file(folder, &export.path)),
    }
}

/// Limits in the form of a volume.
fn limits(limits: &config::StoreLimits) -> Limits {
    Limits {
        open_files: limits.open_files as usize,
        helpers: HelperLimits {
            threads: limits.threads as usize,
            queue: limits.queue as usize,
        },
        operations: limits.operations as usize,
        dirty: limits.dirty.bytes(),
    }
}

/// The file of an export's state. `None` if its folder cannot be made; the only effect is that
/// clients write uncommitted data again.
fn state_file(directory: &Path, path: &str) -> Option<PathBuf> {
    let folder = directory.join(STATE);
    if let Err(error) = fs::create_dir_all(&folder) {
        tracing::warn!(
            folder = %folder.display(), %error,
            "state_directory: write verifiers are not kept across a stop"
        );
        return None;
    }
    Some(folder.join(format!("{:016x}", ExportId::of(path).0)))
}

/// Folders of a configuration that cannot be served, without opening any. Blocks for at most a few
/// seconds for each.
#[must_use]
pub fn unserved(config: &Config) -> Vec<ConfigProblem> {
    let exports = config.exports.iter().enumerate();
    exports
        .filter_map(|(index, export)| match &export.store {
            config::Store::Posix(posix) => {
                let why = look(&posix.root).err()?;
                Some(ConfigProblem::new(root_key(index), why))
            }
            config::Store::Memory { .. } | config::Store::Ceph(_) => None,
        })
        .collect()
}

/// Folders of a configuration that this process may not serve, as it lacks the right to act as
/// their callers and the configuration does not permit the server's own user instead.
#[must_use]
pub fn unentitled(config: &Config) -> Vec<ConfigProblem> {
    let exports = config.exports.iter().enumerate();
    exports
        .filter_map(|(index, export)| match &export.store {
            config::Store::Posix(posix) => {
                entitlement(index, export, posix, can_act_as_others()).err()
            }
            config::Store::Memory { .. } | config::Store::Ceph(_) => None,
        })
        .collect()
}

/// Whether an export may be served by a process that `may_act` as its callers, or may not.
///
/// # Errors
/// The key, and the remedy.
pub fn entitlement(
    index: usize,
    export: &config::Export,
    posix: &config::Posix,
    may_act: bool,
) -> Result<(), ConfigProblem> {
    if may_act || posix.identity == config::CallerIdentity::Server {
        return Ok(());
    }
    let path = KeyPath::root().key("exports").index(index);
    Err(ConfigProblem::new(
        path.key("store").key("identity"),
        format!(
            "this process lacks the right to act as its callers (CAP_SETUID and CAP_SETGID, in a \
             user namespace that has other users), so all users of {} would act as the server's \
             own user; grant the right (deploy/systemd/folders.conf; a server that started \
             without folders has dropped it, and regains it by a restart), or accept this with \
             `identity: server`",
            export.path
        ),
    ))
}

/// The configuration with only those of its exports that `running` does not serve; the others keep
/// their indices, as exports in memory.
#[must_use]
pub fn new_of(running: &Config, next: &Config) -> Config {
    let mut new = next.clone();
    for export in &mut new.exports {
        let mut known = running.exports.iter();
        if known.any(|one| one.path == export.path) {
            export.store = config::Store::Memory {
                size: config::ByteSize(0),
                inodes: None,
            };
        }
    }
    new
}

/// The key of an export's folder.
pub fn root_key(index: usize) -> KeyPath {
    let export = KeyPath::root().key("exports").index(index);
    export.key("store").key("root")
}

/// Checks that there is such a folder. On a thread of its own: the file system may not answer.
fn look(root: &Path) -> Result<(), String> {
    let shown = root.display();
    let (answer, answered) = crossbeam_channel::bounded(1);
    let path = root.to_owned();
    let thread = std::thread::Builder::new().name("look".to_owned());
    let asked = thread.spawn(move || {
        // The receiver may be gone.
        let _ = answer.try_send(fs::metadata(path));
    });
    asked.map_err(|error| format!("`{shown}` cannot be examined: {error}"))?;
    match answered.recv_timeout(LOOK) {
        Ok(Ok(found)) if found.is_dir() => Ok(()),
        Ok(Ok(_)) => Err(format!("`{shown}` is no folder; name one")),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "`{shown}` is not there; make the folder, or mount its file system, first"
        )),
        Ok(Err(error)) => Err(format!("`{shown}` cannot be served: {error}")),
        Err(_) => Err(format!(
            "`{shown}` does not answer within {LOOK:?}; check its file system"
        )),
    }
}

/// A reactor's resources for stores. Its engine exists once the first folder needs it.
pub struct ReactorStores {
    pool: Pool,
    clock: Clock,
    alarm: Alarm,
    engine: RefCell<Option<Engine>>,
    /// The stores served now that have something to do by themselves: all but those in memory.
    served: RefCell<Vec<AnyStore>>,
    backend: Arc<OnceLock<Backend>>,
    devices: OpenedDevices,
}

impl ReactorStores {
    /// Resources for stores with a reactor's memory.
    pub(super) fn new(pool: &Pool, clock: &Clock, alarm: &Alarm, devices: OpenedDevices) -> Self {
        Self {
            devices,
            pool: pool.clone(),
            clock: clock.clone(),
            alarm: alarm.clone(),
            engine: RefCell::default(),
            served: RefCell::default(),
            backend: Arc::default(),
        }
    }

    /// Makes sure that there is an engine.
    ///
    /// # Errors
    /// The system gives neither a ring nor threads.
    fn prepare(&self) -> io::Result<()> {
        let mut engine = self.engine.borrow_mut();
        if engine.is_none() {
            let config = EngineConfig {
                backend: Backend::Auto,
                operations: OPERATIONS,
            };
            let arenas = self.pool.arenas();
            let alarm = Some(self.alarm.clone());
            let make = match self.devices.get() {
                Some(_) => Engine::beside_devices,
                None => Engine::new,
            };
            let made = make(config, &self.pool, &arenas, alarm)?;
            let backend = *self.backend.get_or_init(|| made.backend());
            tracing::info!(
                backend = backend_name(backend),
                "reads and writes of folders"
            );
            *engine = Some(made);
        }
        Ok(())
    }

    /// This reactor's stores of these exports: those that it has, and new ones.
    ///
    /// # Errors
    /// The system gives neither a ring nor threads, and one of them is a folder.
    pub fn stores(
        &self,
        exports: &[(Rules, AnyVolume)],
        before: Option<&Exports<AnyStore>>,
    ) -> io::Result<Vec<(Rules, AnyStore)>> {
        if any(exports) {
            self.prepare()?;
        }
        let engine = self.engine.borrow();
        let known = |volume: &AnyVolume| {
            let mut known = before.into_iter().flat_map(Exports::iter);
            let known = known.find(|export| export.store.is_of(volume));
            known.map(|export| export.store.clone())
        };
        let store = |(rules, volume): &(Rules, AnyVolume)| {
            let new = || volume.store(&self.pool, engine.as_ref(), &self.clock);
            let store = known(volume).or_else(new);
            let store = store.map(|store| (rules.clone(), store));
            store.ok_or_else(|| io::Error::other("a folder has no engine"))
        };
        exports.iter().map(store).collect()
    }

    /// Serves the folders among these from now on, and no others.
    pub fn serve(&self, exports: &Exports<AnyStore>) {
        let stores = exports.iter().map(|export| &export.store);
        let served = stores.filter(|store| !matches!(store, AnyStore::Memory(_)));
        let served: Vec<_> = served.cloned().collect();
        if let Some(engine) = &*self.engine.borrow() {
            let limits = served.iter().filter_map(|store| match store {
                AnyStore::Posix(folder) => Some(folder.volume().config().limits.operations),
                _ => None,
            });
            let all = limits.fold(0, usize::saturating_add);
            let most = u32::try_from(all).unwrap_or(u32::MAX).clamp(1, OPERATIONS);
            // So that a folder that hangs leaves workers to the others.
            if let Err(error) = engine.set_workers(most) {
                tracing::debug!(%error, "the kernel's own bound of workers holds");
            }
        }
        // Removed ones are dropped here; running calls hold theirs.
        self.served.replace(served);
    }

    /// The pool has more memory.
    pub fn add_arena(&self, arena: &Arc<Arena>) {
        if let Some(engine) = &*self.engine.borrow() {
            engine.add_arena(arena);
        }
    }

    /// Submits requests, collects completions, and lets folders close idle objects. Returns the
    /// amount of work.
    pub fn poll(&self, now: Instant) -> usize {
        let served = self.served.borrow();
        let done: usize = served.iter().map(|store| store.poll(now)).sum();
        let engine = self.engine.borrow();
        engine.as_ref().map_or(0, |engine| engine.poll(now)) + done
    }

    /// The latest time of the next work.
    pub fn next_deadline(&self) -> Option<Instant> {
        let served = self.served.borrow();
        let engine = self.engine.borrow();
        let of_engine = engine.as_ref().and_then(Engine::next_deadline);
        let of_stores = served.iter().filter_map(AnyStore::next_deadline);
        of_stores.chain(of_engine).min()
    }

    /// Readable when there are completions.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.engine.borrow().as_ref().and_then(Engine::descriptor)
    }

    /// To be called before a sleep: false if there are completions already.
    pub fn arm(&self) -> bool {
        self.engine.borrow().as_ref().is_none_or(Engine::arm)
    }

    /// The backend of folders on this reactor, once it has had any.
    pub fn backend(&self) -> Arc<OnceLock<Backend>> {
        Arc::clone(&self.backend)
    }
}

/// Whether any of these is a folder.
pub fn any(exports: &[(Rules, AnyVolume)]) -> bool {
    exports.iter().any(|(_, volume)| volume.posix().is_some())
}

/// Ends the service of unused volumes, each on a thread of its own: syncing takes for ever on a
/// file system that hangs. Waits for them, and logs those that are not done at the deadline.
pub fn close(volumes: Vec<AnyVolume>, deadline: Instant) {
    let (done, ended) = crossbeam_channel::unbounded();
    let mut waited: Vec<String> = Vec::new();
    for volume in volumes {
        let name = volume.name();
        let done = done.clone();
        let told = name.clone();
        let thread = std::thread::Builder::new().name("close".to_owned());
        let spawned = thread.spawn(move || {
            volume.close();
            drop(volume);
            // The receiver is gone after the deadline.
            let _ = done.send(told);
        });
        match spawned {
            Ok(_) => waited.push(name),
            Err(error) => tracing::warn!(path = name, %error, "the export is not closed in order"),
        }
    }
    while !waited.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(name) = ended.recv_timeout(left) else {
            break;
        };
        waited.retain(|one| *one != name);
    }
    for path in waited {
        tracing::warn!(
            path,
            "the export's file system takes too long: written data may not be durable, and clients \
             will write uncommitted data again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(path: &str, root: &Path) -> config::Export {
        let root = root.display();
        let yaml =
            format!("exports: [{{ path: {path}, store: {{ kind: posix, root: {root} }} }}]\n");
        config::parse(&yaml, "test").unwrap().exports.remove(0)
    }

    /// The folder is repeatedly replaced by a link to another one. Either the folder is opened or
    /// nothing.
    #[test]
    fn a_folder_that_is_swapped_for_a_link_is_refused_or_not_seen() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| folder.join(name);
        for name in ["srv", "srv/data", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        std::os::unix::fs::symlink("../other", at("srv/link")).unwrap();
        let mut config = Config::default();
        config.admin.exportable_roots = vec![at("srv")];
        let export = export("/data", &at("srv/data"));
        let config::Store::Posix(posix) = &export.store else {
            panic!("it is a folder");
        };
        let swap = || {
            let (one, other) = (at("srv/data"), at("srv/link"));
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        };
        let volume = open(&config, &export, posix).expect("it is there");
        let identity = volume.info().identity;
        swap();
        let refused = open(&config, &export, posix).err().expect("it leads out");
        assert!(
            refused.to_string().contains("exportable_roots"),
            "{refused}"
        );
        let (ends, mut opened) = (AtomicBool::new(false), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    swap();
                    std::thread::yield_now();
                }
            });
            let attempts = (0..300).map(|_| open(&config, &export, posix));
            opened.extend(attempts.flatten().map(|volume| volume.info().identity));
            ends.store(true, Relaxed);
        });
        opened.retain(|other| *other != identity);
        assert!(opened.is_empty(), "another folder, {} times", opened.len());
    }

    #[test]
    fn without_the_right_to_act_as_callers_only_exports_that_accept_it_are_served() {
        let mut config = Config::default();
        for path in ["/first", "/second"] {
            config.exports.push(export(path, Path::new("/srv")));
        }
        let mut accepted = |server: usize| {
            let all = config.exports.iter_mut().enumerate();
            let told = all.map(|(index, export)| {
                let config::Store::Posix(posix) = &mut export.store else {
                    panic!("it is a folder");
                };
                if index == server {
                    posix.identity = config::CallerIdentity::Server;
                }
                let posix = posix.clone();
                entitlement(index, export, &posix, true).expect("it may act as them");
                entitlement(index, export, &posix, false)
            });
            told.collect::<Vec<_>>()
        };
        let refused = accepted(0);
        assert_eq!(refused[0], Ok(()));
        let problem = refused[1].as_ref().expect_err("it says nothing of it");
        assert_eq!(problem.path.to_string(), "exports[1].store.identity");
        for part in ["/second", "CAP_SETUID", "`identity: server`"] {
            assert!(problem.message.contains(part), "{}", problem.message);
        }
        assert!(accepted(1).iter().all(Result::is_ok));
    }

    #[test]
    fn a_root_that_is_no_folder_is_told_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let missing = folder.path().join("missing");
        let mut config = Config::default();
        for (path, root) in [
            ("/good", folder.path()),
            ("/file", &file),
            ("/missing", &missing),
        ] {
            config.exports.push(export(path, root));
        }
        let problems = unserved(&config);
        let told: Vec<_> = problems.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(told, ["exports[1].store.root", "exports[2].store.root"]);
        assert!(problems[0].message.contains("is no folder"));
        assert!(problems[1].message.contains("is not there"));
        // Served folders are not checked again.
        let mut running = config.clone();
        running.exports.remove(2);
        let problems = unserved(&new_of(&running, &config));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, root_key(2));
    }
}
