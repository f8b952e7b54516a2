//! `millraced` with an export that is a folder, as a user who may not act as its clients' users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::millraced::Server;

const NOBODY: u32 = 65_534;

/// A configuration, and the program where everybody can run it.
struct Installation {
    folder: tempfile::TempDir,
    is_root: bool,
}

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        // By another process: a program cannot be run while a descriptor is open that writes it,
        // and what other tests start at that moment would inherit ours.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_millraced")).arg(path);
        assert!(copy.status().unwrap().success());
        let is_root = fs::metadata(path).unwrap().uid() == 0;
        for name in ["data", "other"] {
            let data = path.join(name);
            fs::create_dir(&data).unwrap();
            if is_root {
                std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        Self { folder, is_root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration, with a line for each export: its folder, and what its store says
    /// besides.
    fn configure(&self, exports: &[(&str, &str)]) {
        let mut text = "reactors: { cores: auto, poll: adaptive }\n\
             mempool: { hugepages: off, size: 8MiB }\n\
             fabric: [{ provider: iwarp, listen: \"127.0.0.1:0\" }]\n\
             rpc: { listen: \"127.0.0.1:0\" }\n\
             admin: { listen: \"127.0.0.1:0\" }\n\
             exports:\n"
            .to_owned();
        for (name, more) in exports {
            let root = self.path(name);
            let root = root.display();
            text +=
                &format!("  - {{ path: /{name}, store: {{ kind: posix, root: {root}{more} }} }}\n");
        }
        fs::write(self.path("millraced.yaml"), text).unwrap();
    }

    /// The program with no right but its user's own, or root's.
    fn command(&self, as_root: bool) -> Command {
        let mut command = Command::new(self.path("millraced"));
        command
            .arg("--config")
            .arg(self.path("millraced.yaml"))
            .current_dir("/")
            .stdin(Stdio::null());
        if self.is_root && !as_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn check(&self) -> Output {
        self.command(false).arg("--check").output().unwrap()
    }

    fn start(&self, as_root: bool) -> Server {
        Server::serving(self.command(as_root))
    }
}

/// What is told of an export that is refused.
fn assert_refused(done: &Output, file: &Path) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    let line = format!("{}:8:", file.display());
    for part in [&*line, "exports[1].store", "/other", "`identity: server`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("exports[0]"), "it accepts it: {said}");
}

#[test]
fn a_folder_whose_callers_it_cannot_be_is_refused_before_it_is_served() {
    let installation = Installation::new();
    let accepts = ", identity: server";
    installation.configure(&[("data", accepts), ("other", "")]);
    let file = installation.path("millraced.yaml");
    assert_refused(&installation.check(), &file);
    let started = installation.command(false).output().unwrap();
    assert_refused(&started, &file);

    installation.configure(&[("data", accepts), ("other", accepts)]);
    let checked = installation.check();
    assert!(checked.status.success(), "{checked:?}");
    if installation.is_root {
        // Root may be anybody, and nothing is to be accepted.
        installation.configure(&[("data", ""), ("other", "")]);
        let checked = installation.command(true).arg("--check").output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_folder_whose_callers_it_cannot_be_is_served_where_that_is_accepted_and_said_so() {
    let installation = Installation::new();
    installation.configure(&[("data", ", identity: server")]);
    let mut server = installation.start(false);
    assert!(
        server
            .read
            .contains("identity: server: all clients' users act as the server's own user")
    );
    let says = |server: &Server| {
        let exports = server.get("/api/v1/exports").1;
        let metrics = server.get("/metrics").1;
        let (_, rest) = exports.split_once("\"acts_as\":\"").expect("a folder");
        let word = rest.split('"').next().unwrap().to_owned();
        let metric = "millrace_store_acts_as_server{export=\"/data\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(metric));
        (word, line.expect("a metric").to_owned())
    };
    assert_eq!(says(&server), ("server".to_owned(), "1".to_owned()));

    // One more that does not accept it is refused while it runs, and what runs stays.
    installation.configure(&[("data", ", identity: server"), ("other", "")]);
    server.signal(Signal::HUP);
    let line = server.until("exports[1].store.identity");
    assert!(line.contains("`identity: server`"), "{line}");
    server.until("the configuration was not reloaded");
    assert!(!server.get("/api/v1/exports").1.contains("/other"));
    // So is one that does not accept it any more.
    installation.configure(&[("data", "")]);
    server.signal(Signal::HUP);
    server.until("exports[0].store.identity");
    installation.configure(&[
        ("data", ", identity: server"),
        ("other", ", identity: server"),
    ]);
    server.signal(Signal::HUP);
    server.until("the configuration was reloaded");
    assert!(server.get("/api/v1/exports").1.contains("/other"));
    drop(server);

    if installation.is_root {
        installation.configure(&[("data", "")]);
        let server = installation.start(true);
        assert_eq!(says(&server), ("caller".to_owned(), "0".to_owned()));
        assert!(!server.read.contains("identity: server"));
    }
}
