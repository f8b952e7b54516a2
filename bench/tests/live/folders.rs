//! Exports that are folders of the host: files in and out, restarts, and changes under load.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use millrace_admin::config::{Access, DirectIo, Export, Fabric, Provider, Squash, Store, SyncMode};
use millrace_admin::control::Control;
use millrace_wire::nfs3::{FileHandle, Stability, Status, WriteVerifier};
use millrace_wire::nfs4::{
    LockOperation, LockType, Locker, NewLockOwner, Operation, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tempfile::TempDir;

use super::running::{Client, Running, export};

/// An export of a folder.
fn folder(path: &str, root: &Path) -> Export {
    let export = serde_json::json!({ "path": path, "store": { "kind": "posix", "root": root } });
    serde_json::from_value(export).expect("an export")
}

/// A place for an export's folder and for the state of its server, on a file system with handles.
struct ExportFolder {
    folder: TempDir,
}

impl ExportFolder {
    fn new() -> Self {
        // Temporary folders may be on another kind of file system than the sources.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        fs::create_dir(folder.path().join("data")).expect("a folder");
        Self { folder }
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self) -> Running {
        let state = self.folder.path().join("state");
        let root = self.root();
        let more = format!("state_directory: {}", state.display());
        let export = format!(
            "{{ path: /data, store: {{ kind: posix, root: {} }} }}",
            root.display()
        );
        Running::serving(&export, &more)
    }
}

/// Writes without asking for it to be durable. The verifier of the answer.
fn write_unstable(client: &mut Client, file: FileHandle, content: &[u8]) -> WriteVerifier {
    let mut buffer = client.session.buffer(content.len()).expect("memory");
    buffer[..content.len()].copy_from_slice(content);
    let memory = [buffer.into_slice(0..content.len())];
    let written = client.session.write(file, 0, &memory, Stability::Unstable);
    let written = written.expect("written");
    assert_eq!(written.count as usize, content.len());
    assert_eq!(written.committed, Stability::Unstable);
    written.verifier
}

#[test]
fn files_go_in_and_out_and_are_the_hosts() {
    let place = ExportFolder::new();
    let running = place.start();
    let root = running.mount("/data").expect("mounted");
    // One on each reactor.
    let mut clients = [running.client(0), running.client(0)];
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let file = clients[0].create(root, "in", &content);
    assert_eq!(fs::read(place.root().join("in")).expect("there"), content);
    fs::write(place.root().join("out"), &content).expect("written");
    for client in &mut clients {
        assert_eq!(client.read(file, 100_000).expect("served"), content);
        let out = client.session.lookup(root, b"out").expect("found").object;
        assert_eq!(client.read(out, 100_000).expect("served"), content);
    }
    let exports = running.control().exports().expect("stores answer");
    assert_eq!(exports[0].store, "posix");
    let capacity = exports[0].capacity_bytes.expect("the host's");
    assert!(capacity > exports[0].used_bytes.expect("the host's"));
    let folder = exports[0].folder.as_ref().expect("a folder");
    assert!(folder.open_objects >= 2, "{folder:?}");
    assert!(!folder.file_system.is_empty());
    assert!(matches!(folder.backend.as_str(), "ring" | "threads"));

    clients[0].session.remove(root, b"in").expect("removed");
    assert!(!place.root().join("in").exists());
    assert_eq!(clients[1].status(file), Some(Status::Stale));
}

#[test]
fn v4_lock_19_a_lock_of_a_client_is_one_of_the_host() {
    let place = ExportFolder::new();
    let path = place.root().join("file");
    fs::write(&path, "content").expect("written");
    let running = place.start();
    let mut client = running.client(0).session;
    let session = client.create_session(2, b"locks", [1; 8], 1);
    let mut session = session.expect("a session");
    let file = client.open_path(&mut session, ("/data", "file"), share::BOTH);
    let file = file.expect("open");
    let locker = Locker::New(NewLockOwner {
        open_sequence: 0,
        open: file.open,
        lock_sequence: 0,
        owner: StateOwner {
            client: session.client,
            owner: BoundedBytes(b"owner"),
        },
    });
    let lock = [
        Operation::Putfh(BoundedBytes(&file.handle)),
        Operation::Lock(LockOperation {
            kind: LockType::Write,
            reclaim: false,
            offset: 0,
            length: 4,
            locker,
        }),
    ];
    let host = fs::File::options().write(true).open(&path).expect("open");
    let try_lock = || rustix::fs::fcntl_lock(&host, FlockOperation::NonBlockingLockExclusive);
    try_lock().expect("nobody has a lock");
    rustix::fs::fcntl_lock(&host, FlockOperation::Unlock).expect("given back");
    let locked = client.in_session(&mut session, &lock, |_| Some(()));
    locked.expect("locked");
    assert_eq!(try_lock(), Err(Errno::AGAIN));
    client.end_session(session, &file).expect("ended");
    running.until("the lock is gone", |_| try_lock().is_ok());
}

#[test]
fn commit_of_a_folder_is_for_those_who_may_write() {
    let place = ExportFolder::new();
    let running = place.start();
    let root = running.mount("/data").expect("mounted");
    let mut client = running.client(0);
    let file = client.create(root, "file", b"content");
    let path = place.root().join("file");
    let mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).expect("ours");
    };
    mode(0o644);
    client.session.commit(file, 0, 0).expect("the superuser");
    running.change(|config| config.exports[0].squash = Squash::All);
    let privileged = millrace_store::posix::identity::privileged();
    if privileged {
        let refused = client.session.commit(file, 0, 0).expect_err("no right");
        assert_eq!(refused.status(), Some(Status::AccessDenied));
    } else {
        millrace_testing::skip!("this process may not act on behalf of others");
    }
    mode(0o666);
    client.session.commit(file, 0, 0).expect("anybody may");
    running.change(|config| config.exports[0].access = Access::Ro);
    let refused = client.session.commit(file, 0, 0).expect_err("read-only");
    assert_eq!(refused.status(), Some(Status::ReadOnly));
}

#[test]
fn a_clean_stop_keeps_handles_and_verifier() {
    let place = ExportFolder::new();
    let running = place.start();
    let root = running.mount("/data").expect("mounted");
    let mut client = running.client(0);
    let file = client.create(root, "file", b"durable");
    let before = write_unstable(&mut client, file, b"fragile");
    let lasting = {
        let exports = running.control().exports().expect("stores answer");
        exports[0]
            .folder
            .as_ref()
            .expect("a folder")
            .lasting_handles
    };
    drop(client);
    running.stop(Duration::from_secs(10));

    let running = place.start();
    let mut client = running.client(0);
    assert_eq!(running.mount("/data").expect("mounted"), root);
    let expected = if lasting {
        None
    } else {
        // Without the kernel's handles names have to be found again.
        Some(Status::Stale)
    };
    assert_eq!(client.status(file), expected);
    let file = client.session.lookup(root, b"file").expect("found").object;
    assert_eq!(client.read(file, 7).expect("served"), b"fragile");
    let commit = client.session.commit(file, 0, 0).expect("committed");
    assert_eq!(commit.verifier, before, "nothing was lost");
}

#[test]
fn folders_come_change_and_go_while_others_are_served() {
    let place = ExportFolder::new();
    // Reactors without folders have no engine before the first one comes.
    let running = Running::start("");
    let scratch = running.mount("/scratch").expect("mounted");
    let mut clients = [running.client(0), running.client(0)];
    let kept = clients[0].create(scratch, "kept", b"kept");
    for round in 0..3 {
        for client in &mut clients {
            client.submit_getattrs(kept, 8);
        }
        running.change(|config| config.exports.push(folder("/data", &place.root())));
        running.until("all calls are answered", |_| {
            clients.iter_mut().for_each(Client::turn);
            clients
                .iter()
                .all(|client| client.answered == 8 * (round + 1))
        });
        let root = running.mount("/data").expect("mounted");
        let name = format!("file{round}");
        let file = clients[0].create(root, &name, b"content");
        assert_eq!(clients[1].read(file, 7).expect("served"), b"content");

        running.change(|config| {
            let Store::Posix(posix) = &mut config.exports[1].store else {
                panic!("a folder");
            };
            posix.direct = DirectIo::Never;
            posix.sync = SyncMode::Relaxed;
            posix.limits.open_files = 16;
            posix.limits.threads = 1;
            posix.limits.operations = 1;
        });
        // More than may be open, by one thread and one operation at a time.
        for number in 0..40 {
            let name = format!("more{number}");
            let more = clients[number % 2].create(root, &name, name.as_bytes());
            let read = clients[(number + 1) % 2].read(more, 100).expect("served");
            assert_eq!(read, name.as_bytes());
        }
        let exports = running.control().exports().expect("stores answer");
        let status = exports[1].folder.clone().expect("a folder");
        assert_eq!(
            (status.direct.as_str(), status.sync.as_str()),
            ("never", "relaxed")
        );

        running.change(|config| config.exports.truncate(1));
        for client in &mut clients {
            assert_eq!(client.status(file), Some(Status::Stale));
            assert_eq!(client.read(kept, 4).expect("served"), b"kept");
        }
        // All that it had open is closed.
        running.until("the folder is let go", |_| !is_open(&place.root()));
    }
}

/// Whether this process has anything open at a path or below.
fn is_open(path: &Path) -> bool {
    let open = fs::read_dir("/proc/self/fd").expect("Linux");
    open.flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.starts_with(path))
}

#[test]
fn what_cannot_change_while_it_is_served_is_left_and_said() {
    let place = ExportFolder::new();
    let running = place.start();
    let control = running.control();
    let now = control.config();
    let mut next = (*now).clone();
    next.exports[0].store = export("/data").store;
    let live = millrace_admin::config::live_part(&now, &next);
    assert_eq!(live, *now, "another kind of store waits");
    let mut next = (*now).clone();
    let Store::Posix(posix) = &mut next.exports[0].store else {
        panic!("a folder");
    };
    posix.root = "/elsewhere".into();
    posix.direct = DirectIo::Always;
    let changes = millrace_admin::config::diff(&now, &next);
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.path.as_str(), change.effect))
        .collect();
    use millrace_admin::config::Effect::{Live, Restart};
    assert_eq!(
        told,
        [
            ("exports[0].store.root", Restart),
            ("exports[0].store.direct", Live)
        ]
    );
}

#[test]
fn a_folder_that_is_not_there_is_refused_with_its_key() {
    let place = ExportFolder::new();
    let running = Running::start("");
    let control = running.control();
    let mut next = (*control.config()).clone();
    next.exports
        .push(folder("/data", &place.root().join("missing")));
    let problems = control.check(&next);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].path.to_string(), "exports[1].store.root");
    let refused = control
        .apply(std::sync::Arc::new(next))
        .expect_err("missing");
    assert_eq!(refused.path, "exports[1].store.root");
}

/// The device is not reached: what is refused is not opened.
#[test]
fn rdma_devices_are_not_added_to_reactors_that_have_acted_as_callers() {
    let place = ExportFolder::new();
    let running = place.start();
    let exports = running.control().exports().expect("reactors answer");
    let folder = exports[0].folder.as_ref().expect("a folder");
    if folder.acts_as != "caller" {
        return millrace_testing::skip!("this process may not act on behalf of others");
    }
    let mut next = (*running.control().config()).clone();
    next.fabric.push(Fabric {
        provider: Provider::Verbs,
        ..Fabric::default()
    });
    let problems = running.control().check(&next);
    let mut told = problems
        .iter()
        .map(|one| (one.path.to_string(), &one.message));
    let late = told.find(|(_, message)| message.contains("restart millraced with this listener"));
    assert_eq!(late.expect("refused").0, "fabric[1].provider");
    // Nor where no check came before.
    let error = running.control().apply(std::sync::Arc::new(next));
    let error = error.expect_err("refused");
    assert_eq!(error.path.to_string(), "fabric[1].provider");
    let reason = "reactors have acted as users";
    assert!(error.reason.contains(reason), "{}", error.reason);
}
