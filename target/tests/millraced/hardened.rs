//! `millraced` with all of `hardening` in force: it serves, takes changes, and keeps its trail.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_testing::skip;
use nfs3_types::nfs3 as n;

use crate::landlock;
use crate::tcp_client::{Connection, block_on, create, mount, name, write};

const TOKEN: &str = "0123456789abcdef";

/// How long the server may take to find out that clients have left.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder with all that a server uses. `data` becomes a mount in the server's own view of the
/// file tree, as Landlock takes it.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        // On a file system with handles; temporary folders need not be.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["data/first", "data/second", "other", "etc", "log"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("etc/token"), TOKEN).unwrap();
        Self(folder)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn configure(&self, more: &str) {
        let at = |path| self.at(path).display().to_string();
        let text = format!(
            "reactors: {{ cores: auto, poll: adaptive }}\n\
             mempool: {{ hugepages: off, size: 8MiB }}\n\
             fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
             rpc: {{ listen: \"127.0.0.1:0\" }}\n\
             state_directory: {}\n\
             admin:\n  listen: 127.0.0.1:0\n  token_file: {}\n  audit_file: {}\n  \
             exportable_roots: [{}]\n\
             hardening: {{ no_new_privileges: required, capabilities: required, \
             seccomp: required, landlock: on }}\n\
             exports:\n  - {{ path: /memory, store: {{ kind: memory, size: 1MiB }} }}\n  \
             - {{ path: /first, store: {{ kind: posix, root: {}, groups: server }} }}\n{more}",
            at("state"),
            at("etc/token"),
            at("log/audit.jsonl"),
            at("data"),
            at("data/first"),
        );
        fs::write(self.at("etc/millraced.yaml"), text).unwrap();
    }

    /// Starts the server where this is mounted on `data`: `data` itself, or an image.
    fn start(&self, mounted: &str) -> Server {
        let how = match mounted {
            "data" => "--bind",
            _ => "-oloop",
        };
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c"]);
        command.arg("mount \"$1\" \"$2\" \"$3\" && shift 3 && mkdir -p \"$0\" && exec \"$@\"");
        command.arg(self.at("data/first"));
        command.args([how.into(), self.at(mounted), self.at("data")]);
        command.arg(env!("CARGO_BIN_EXE_millraced"));
        command.arg("--config").arg(self.at("etc/millraced.yaml"));
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut server = Server {
            process,
            log,
            read: String::new(),
            admin: "127.0.0.1:0".parse().unwrap(),
        };
        let line = server.until("admin plane at http://");
        let (_, rest) = line.split_once("http://").unwrap();
        server.admin = rest.split_once('/').unwrap().0.parse().unwrap();
        server
    }
}

struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
    /// What was read of it.
    read: String,
    admin: SocketAddr,
}

impl Server {
    /// Reads the log up to a line with these words.
    fn until(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.log.read_line(&mut line).unwrap();
            assert!(length > 0, "the server ended: {}", self.read);
            self.read += &line;
            if line.contains(words) {
                return line;
            }
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(self.admin).unwrap();
        let (host, length) = (self.admin, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Authorization: Bearer {TOKEN}\r\nIf-Match: *\r\nContent-Type: application/merge-patch+json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Where RPC over TCP is served.
    fn rpc(&self) -> SocketAddr {
        let listeners = self.ask("GET", "/api/v1/listeners", "");
        let (_, rest) = listeners
            .split_once("\"provider\":\"tcp\",\"address\":\"")
            .unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    /// A line of each thread's status.
    fn of_threads(&self, key: &str) -> Vec<String> {
        let threads = format!("/proc/{}/task", self.process.id());
        let threads = fs::read_dir(threads).unwrap().flatten();
        let read = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.expect(key).trim_start_matches(':').trim().to_owned()
        };
        let statuses = threads.flat_map(|thread| fs::read_to_string(thread.path().join("status")));
        statuses.map(read).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn mount_export(server: &Server, export: &str) -> Connection {
    mount(server.rpc(), export).await.unwrap()
}

async fn link(client: &mut Connection, file: &n::nfs_fh3, directory: &n::nfs_fh3) {
    let link = n::LINK3args {
        file: file.clone(),
        link: n::diropargs3 {
            dir: directory.clone(),
            name: name("linked"),
        },
    };
    client.link(&link).await.unwrap().unwrap();
}

async fn read(client: &mut Connection, file: &n::nfs_fh3) -> Vec<u8> {
    let arguments = n::READ3args {
        file: file.clone(),
        offset: 0,
        count: 100,
    };
    let read = client.read(&arguments).await.unwrap().unwrap();
    read.data.as_ref().to_vec()
}

/// Makes a file, writes, links and reads it.
fn use_export(server: &Server, export: &str) {
    block_on(async {
        let mut client = mount_export(server, export).await;
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        write(&mut client, &file, 0, b"content").await;
        link(&mut client, &file, &root).await;
        assert_eq!(read(&mut client, &file).await, b"content", "{export}");
    });
}

#[test]
fn a_server_without_the_rights_that_it_gave_up_serves_and_is_changed() {
    let mut tried = Command::new("unshare");
    let tried = tried.args(["--mount", "true"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip!("this takes root, who may make mounts of its own");
        return;
    }
    let installation = Installation::new();
    if !landlock::is_fit_for_folders() {
        skip!("this kernel's Landlock is missing, or not fit for exported folders");
        return;
    }
    installation.configure("");
    let mut server = installation.start("data");
    for key in ["no_new_privileges", "landlock", "capabilities", "seccomp"] {
        let line = format!("INFO hardening.{key}: ");
        assert!(server.read.contains(&line), "{key}: {}", server.read);
    }
    // Version 5 of its interface has all that the server asks for.
    let whole = server.read.contains("hardening.landlock: in force\n");
    assert_eq!(whole, landlock::version() >= 5, "{}", server.read);
    for export in ["/memory", "/first"] {
        use_export(&server, export);
    }

    // Helpers run by now, and all have given up what the first thread did.
    let threads = server.of_threads("Name");
    assert!(threads.len() > 5, "{threads:?}");
    assert!(server.of_threads("NoNewPrivs").iter().all(|one| one == "1"));
    assert!(server.of_threads("Seccomp").iter().all(|one| one == "2"));
    let bounding = server.of_threads("CapBnd");
    let admin = 1 << 21;
    for set in bounding {
        assert_eq!(u64::from_str_radix(&set, 16).unwrap() & admin, 0, "{set}");
    }

    // One more folder below what may be exported.
    let exports = format!(
        "{{\"exports\": [{{\"path\": \"/memory\", \"store\": {{\"kind\": \"memory\", \"size\": \"1MiB\"}}}},\
         {{\"path\": \"/second\", \"store\": {{\"kind\": \"posix\", \"root\": \"{}\"}}}}]}}",
        installation.at("data/second").display()
    );
    let start = Instant::now();
    let answer = loop {
        let answer = server.ask("PATCH", "/api/v1/config", &exports);
        // The server may still have to find out that the clients have left.
        if !answer.starts_with("HTTP/1.1 409") || start.elapsed() > LIMIT {
            break answer;
        }
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    use_export(&server, "/second");
    let linked = installation.at("data/second/linked");
    assert_eq!(fs::read(linked).unwrap(), b"content");
    let audit = fs::read_to_string(installation.at("log/audit.jsonl")).unwrap();
    assert!(audit.contains("/second"), "{audit}");

    // The file is read again, and another folder waits for a restart.
    let other = installation.at("other").display().to_string();
    installation.configure(&format!(
        "  - {{ path: /other, store: {{ kind: posix, root: {other} }} }}\n"
    ));
    server.signal("-HUP");
    let line = server.until("hardening.landlock");
    assert!(line.contains(&other) && line.contains("restart"), "{line}");
    installation.configure("flow: { credits: 64 }\n");
    server.signal("-HUP");
    server.until("the configuration was reloaded");

    server.signal("-TERM");
    server.until("stopped");
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn what_is_not_in_force_is_warned_of() {
    let installation = Installation::new();
    installation.configure("");
    let file = installation.at("etc/millraced.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let roots = format!("[{}]", installation.at("data").display());
    fs::write(&file, text.replace(&roots, "[/]")).unwrap();
    let mut server = installation.start("data");
    let warned = "WARN hardening.landlock: not in force: ";
    assert!(server.read.contains(warned), "{}", server.read);
    server.signal("-TERM");
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn files_are_found_by_handles_that_the_kernel_has_forgotten_the_names_of() {
    let installation = Installation::new();
    let image = installation.at("image");
    let makes = |mut command: Command| command.output().is_ok_and(|done| done.status.success());
    let made = fs::File::create(&image).and_then(|file| file.set_len(16 << 20));
    made.unwrap();
    let mut format = Command::new("mkfs.ext4");
    format.arg("-q").arg(&image);
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-oloop"]);
    mount.args([&image, &installation.at("data")]);
    if !makes(format) || !makes(mount) {
        skip!("this takes root, mkfs.ext4 and a loop device");
        return;
    }
    if !landlock::is_fit_for_folders() {
        skip!("this kernel's Landlock is missing, or not fit for exported folders");
        return;
    }
    installation.configure("");
    let mut server = installation.start("image");
    let (root, file) = block_on(async {
        let mut client = mount_export(&server, "/first").await;
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        write(&mut client, &file, 0, b"content").await;
        (root, file)
    });
    server.signal("-TERM");
    assert!(server.process.wait().unwrap().success());

    // The image is mounted anew: nothing of it is known to the kernel.
    let server = installation.start("image");
    block_on(async {
        let mut client = mount_export(&server, "/first").await;
        assert_eq!(read(&mut client, &file).await, b"content");
        link(&mut client, &file, &root).await;
        write(&mut client, &file, 7, b" and more").await;
        assert_eq!(read(&mut client, &file).await, b"content and more");
    });
}
