//! What `millraced` says before it serves: what this machine lacks for a configuration, and that it
//! starts.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Signal, geteuid};

use crate::millraced::{Server, ask};

/// Keys that are the same everywhere: on any machine there is this much.
const SMALL: &str = "reactors: { poll: adaptive }\nmempool: { hugepages: off, size: 8MiB }\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, text: &str) -> PathBuf {
        let file = self.path("millraced.yaml");
        fs::write(&file, text).unwrap();
        file
    }
}

fn command(arguments: &[&str], file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
    command.args(arguments).arg("--config").arg(file);
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str], file: &Path) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(arguments, file).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// Both ways of asking say the same, as does nothing else.
#[track_caller]
fn refused(file: &Path, lines: &[(&str, &[&str])]) {
    for arguments in [&["--check"][..], &["--check=machine"], &[]] {
        let (status, said) = run(arguments, file);
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said.len(), lines.len(), "{arguments:?}: {said:?}");
        for (place, words) in lines {
            let begin = format!("{}:{place}: ", file.display());
            let line = said.iter().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("{begin} in {said:?}"));
            for words in *words {
                assert!(line.contains(words), "`{words}` in `{line}`");
            }
        }
    }
}

#[test]
fn memory_that_no_machine_has_is_refused_before_any_is_touched() {
    let folder = Folder::new();
    let export = |size: &str| {
        let text = format!(
            "{SMALL}rpc: {{ listen: \"127.0.0.1:0\" }}\nadmin: {{ listen: \"127.0.0.1:0\" }}\n\
             fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\nexports:\n- path: /big\n  \
             store: {{ kind: memory, size: {size} }}\n"
        );
        folder.config(&text)
    };
    let file = export("1048576GiB");
    let words = [
        "asked for",
        "1024TiB",
        "make the exports in memory or mempool.size smaller",
    ];
    refused(&file, &[("8:32: exports[0].store.size", &words)]);
    let (status, said) = run(&["--check=file"], &file);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = run(&["--check"], &export("1MiB"));
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn all_that_this_machine_lacks_is_told_at_once_with_its_lines() {
    let folder = Folder::new();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap();
    fs::write(folder.path("file"), "").unwrap();
    let text = format!(
        "reactors: {{ poll: adaptive, cores: [1000] }}\n\
         mempool: {{ hugepages: off, size: 8MiB }}\n\
         state_directory: {}\n\
         rpc:\n  listen: \"{taken}\"\n\
         fabric:\n- provider: iwarp\n  listen: \"192.0.2.77:20049\"\n\
         admin:\n  listen: \"127.0.0.1:0\"\n  audit_file: {}\n\
         exports:\n- path: /a\n  store: {{ kind: posix, root: {} }}\n",
        folder.path("file/state").display(),
        folder.path("none/audit.jsonl").display(),
        folder.path("nowhere").display()
    );
    let file = folder.config(&text);
    let used = format!("cannot listen on {taken}: the port is in use");
    refused(
        &file,
        &[
            ("1:37: reactors.cores[0]", &["core 1000 cannot be used"]),
            ("3:18: state_directory", &["file is no folder"]),
            ("5:11: rpc.listen", &[&used]),
            (
                "8:11: fabric[0].listen",
                &["this machine has no such address"],
            ),
            ("11:15: admin.audit_file", &["none: No such file"]),
            ("14:31: exports[0].store.root", &["is not there"]),
        ],
    );
}

#[test]
fn files_are_written_with_the_rights_of_the_user_who_serves() {
    let folder = Folder::new();
    let state = folder.path("state");
    fs::create_dir(&state).unwrap();
    let text = format!(
        "{SMALL}rpc: {{ listen: \"127.0.0.1:0\" }}\nadmin: {{ listen: \"127.0.0.1:0\" }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\nstate_directory: {}\n",
        state.display()
    );
    let file = folder.config(&text);
    let user: &[&str] = if geteuid().is_root() {
        &["--user", "nobody"]
    } else {
        &[]
    };
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        for folder in [folder.0.path(), &state] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    for arguments in [&["--check"][..], &[]] {
        mode(0o555);
        let (status, said) = run(&[user, arguments].concat(), &file);
        mode(0o777);
        assert_eq!(status, Some(2), "{said}");
        let begin = format!("{}:6:18: state_directory: ", file.display());
        assert!(said.starts_with(&begin), "{said}");
        assert!(said.contains("cannot be written by user"), "{said}");
    }
    let (status, said) = run(&[user, &["--check"]].concat(), &file);
    assert_eq!(status, Some(0), "{said}");
}

/// The status and body of an answer; `None` while nothing listens.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    ask(address, "GET", path, "", "")
}

/// A port that was free a moment ago, and that the system gives to nobody who asks for any.
fn free_port() -> SocketAddr {
    // Bound and connected, it is in TIME_WAIT afterwards: only who names it can have it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    address
}

#[test]
fn a_check_names_what_would_be_served_and_where() {
    let folder = Folder::new();
    let text = format!(
        "{SMALL}rpc: {{ listen: \"127.0.0.1:7002\" }}\nadmin: {{ listen: \"[::1]:7003\" }}\n\
         fabric: [{{ provider: iwarp, listen: \"0.0.0.0:7001\" }}]\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 1MiB }} }}]\n"
    );
    let checked = command(&["--check=file"], &folder.config(&text)).output();
    let said = String::from_utf8(checked.unwrap().stdout).unwrap();
    let served = [
        "\nNFS over RDMA: 0.0.0.0:7001 (iwarp)\n",
        "\nNFS and MOUNT over TCP: 127.0.0.1:7002\n",
        "\nmanagement: http://[::1]:7003\n",
        "\nexport: /scratch (memory, rw)\n",
    ];
    for line in served {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn what_the_server_of_the_same_file_has_is_free_for_a_check_and_for_no_start() {
    let folder = Folder::new();
    let [rpc, admin, fabric] = [free_port(), free_port(), free_port()];
    let text = format!(
        "{SMALL}state_directory: {}\nrpc: {{ listen: \"{rpc}\" }}\n\
         admin: {{ listen: \"{admin}\" }}\nfabric: [{{ provider: iwarp, listen: \"{fabric}\" }}]\n",
        folder.path("state").display()
    );
    let file = folder.config(&text);
    let mut server = Server::serving(command(&[], &file));
    let checked = command(&["--check"], &file).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{said}");
    let process = server.process.id();
    assert!(
        said.contains(&format!("note: process {process} runs with this file")),
        "{said}"
    );

    let (status, said) = run(&[], &file);
    assert_eq!(status, Some(2), "{said}");
    let used = [
        "state_directory",
        "rpc.listen",
        "admin.listen",
        "fabric[0].listen",
    ];
    for key in used {
        assert!(said.contains(&format!(": {key}: ")), "{key} in {said}");
    }
    let other = folder.path("other.yaml");
    fs::write(&other, text).unwrap();
    assert_eq!(
        run(&["--check"], &other).0,
        Some(2),
        "another file is another server's"
    );
    server.signal(Signal::TERM);
    assert!(server.process.wait().unwrap().success());
    assert_eq!(run(&["--check"], &other).0, Some(0));
}

#[test]
fn a_start_answers_what_it_does_and_is_ended_by_one_signal() {
    let folder = Folder::new();
    let state = folder.path("state");
    fs::create_dir(&state).unwrap();
    // Whoever reads it waits until somebody writes.
    let secret = state.join("handle-secret");
    mkfifoat(CWD, &secret, Mode::RUSR | Mode::WUSR).unwrap();
    let admin = free_port();
    let text = format!(
        "{SMALL}state_directory: {}\nrpc: {{ listen: \"127.0.0.1:0\" }}\n\
         admin: {{ listen: \"{admin}\" }}\nfabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         exports: [{{ path: /a, store: {{ kind: memory, size: 1MiB }} }}]\n",
        state.display()
    );
    let mut server = Server::spawn(command(&[], &folder.config(&text)));
    server.until("the management plane runs beside the reactors");
    // It listens before it says where it runs.
    let expected = r#"{"readiness":"starting","stage":"reading the state directory"}"#;
    let told = loop {
        let told = get(admin, "/readyz").expect("it listens");
        // The stage before has no name, or is that of devices.
        if told.1.contains("state directory") {
            break told;
        }
    };
    assert_eq!(told, (503, expected.to_owned()));
    assert_eq!(
        get(admin, "/healthz"),
        Some((200, r#"{"stalled":[]}"#.to_owned()))
    );
    assert_eq!(get(admin, "/metrics").unwrap().0, 503);

    server.signal(Signal::TERM);
    // Its thread that is told of signals may take a while; the start goes on when it is.
    let status = format!("/proc/{}/status", server.process.id());
    let pending = || {
        let text = fs::read_to_string(&status).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("ShdPnd:"));
        lines
            .map(str::trim)
            .any(|set| u64::from_str_radix(set, 16).unwrap() != 0)
    };
    while pending() {
        std::thread::yield_now();
    }
    fs::write(&secret, [7; 16]).unwrap();
    server.until("stopped before the service had started");
    assert!(server.process.wait().unwrap().success());
    let mut rest = String::new();
    server.log.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "the last word");
    assert!(
        !server.read.contains("export"),
        "nothing was served: {}",
        server.read
    );
}
