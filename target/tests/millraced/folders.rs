//! `millraced` with an export that is a folder, as clients over TCP see it from one process to the
//! next.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nfs3_types::nfs3 as n;
use nfs3_types::xdr_codec::Opaque;

use crate::tcp_client::{Connection, block_on, create, mount, name, write};

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// What outlives the server: its state, its configuration and the folder.
struct ServerFolders {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl ServerFolders {
    fn new() -> Self {
        // On a file system with handles; temporary folders need not be.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path();
        fs::create_dir(path.join("data")).unwrap();
        let configuration = format!(
            "reactors: {{ cores: auto, poll: adaptive }}\n\
             mempool: {{ hugepages: off, size: 16MiB }}\n\
             fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
             rpc: {{ listen: \"127.0.0.1:0\" }}\n\
             exports: [{{ path: /data, store: {{ kind: posix, root: {} }} }}]\n\
             admin: {{ listen: \"127.0.0.1:0\" }}\n\
             state_directory: {}\n",
            path.join("data").display(),
            path.join("state").display(),
        );
        fs::write(path.join("millraced.yaml"), configuration).unwrap();
        let socket = UnixDatagram::bind(path.join("notify")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { folder, socket }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
        command
            .arg("--config")
            .arg(self.folder.path().join("millraced.yaml"))
            .env("NOTIFY_SOCKET", self.folder.path().join("notify"))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let mut server = Server { process, rpc: None };
        let admin = loop {
            let mut datagram = [0; 4096];
            let length = self.socket.recv(&mut datagram).expect("it starts");
            let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
            let mut lines = text.lines();
            if let Some(line) = lines.find(|line| line.starts_with("STATUS=serving ")) {
                break line.rsplit_once(' ').unwrap().1.parse().unwrap();
            }
        };
        let listeners = get(admin, "/api/v1/listeners");
        let (_, rest) = listeners
            .split_once("\"provider\":\"tcp\",\"address\":\"")
            .unwrap();
        server.rpc = Some(rest.split('"').next().unwrap().parse().unwrap());
        server
    }
}

struct Server {
    process: Child,
    rpc: Option<SocketAddr>,
}

impl Server {
    async fn mount(&self) -> Connection {
        mount(self.rpc.unwrap(), "/data").await.unwrap()
    }

    fn stop(&mut self) {
        let process = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

async fn commit(client: &mut Connection, file: &n::nfs_fh3) -> n::writeverf3 {
    let arguments = n::COMMIT3args {
        file: file.clone(),
        offset: 0,
        count: 0,
    };
    client.commit(&arguments).await.unwrap().unwrap().verf
}

async fn read(client: &mut Connection, file: &n::nfs_fh3) -> Vec<u8> {
    let arguments = n::READ3args {
        file: file.clone(),
        offset: 0,
        count: 4096,
    };
    let read = client.read(&arguments).await.unwrap().unwrap();
    read.data.as_ref().to_vec()
}

#[test]
fn helpers_that_a_reactor_starts_leave_its_core() {
    let [reactor, _, ..] = *millrace_reactor::allowed_cores() else {
        millrace_testing::skip!("this process has one core only");
        return;
    };
    let place = ServerFolders::new();
    let file = place.folder.path().join("millraced.yaml");
    let configuration = fs::read_to_string(&file).unwrap();
    let one = configuration.replace("cores: auto", &format!("cores: [{reactor}]"));
    fs::write(&file, one).unwrap();
    let server = place.start();
    block_on(async {
        let mut client = server.mount().await;
        let root = client.root_nfs_fh3();
        create(&mut client, &root, "file").await;
    });
    let tasks = PathBuf::from(format!("/proc/{}/task", server.process.id()));
    let cores = |wanted: &str| {
        let mut all = Vec::new();
        for task in fs::read_dir(&tasks).unwrap() {
            // A thread may end meanwhile.
            let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else {
                continue;
            };
            let value = |key| status.lines().find_map(|line| line.strip_prefix(key));
            if value("Name:\t").unwrap().starts_with(wanted) {
                all.push(value("Cpus_allowed_list:\t").unwrap().to_owned());
            }
        }
        assert!(!all.is_empty(), "no thread {wanted}");
        all
    };
    let others = cores("watchdog");
    assert!(!others.contains(&cores("reactor-")[0]));
    // One may have been started just now.
    let start = Instant::now();
    while cores("posix").iter().any(|helper| *helper != others[0]) {
        assert!(start.elapsed() < LIMIT, "{:?}", cores("posix"));
        std::thread::yield_now();
    }
}

#[test]
fn a_clean_stop_keeps_the_write_verifier_and_a_kill_does_not() {
    let place = ServerFolders::new();
    let mut server = place.start();
    let (root, file, verifier) = block_on(async {
        let mut client = server.mount().await;
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        let verifier = write(&mut client, &file, 0, b"not committed").await;
        (root, file, verifier)
    });
    assert_eq!(
        fs::read(place.data().join("file")).unwrap(),
        b"not committed"
    );
    server.stop();

    let mut server = place.start();
    block_on(async {
        let mut client = server.mount().await;
        assert_eq!(client.root_nfs_fh3().data, root.data);
        assert_eq!(read(&mut client, &file).await, b"not committed");
        assert_eq!(
            commit(&mut client, &file).await,
            verifier,
            "nothing is lost"
        );
        write(&mut client, &file, 0, b"killed").await;
    });
    server.kill();

    let mut server = place.start();
    block_on(async {
        let mut client = server.mount().await;
        assert_eq!(client.root_nfs_fh3().data, root.data);
        // The host did not crash, so what the process wrote is there. Clients cannot know.
        assert_eq!(read(&mut client, &file).await, b"killedmmitted");
        let now = commit(&mut client, &file).await;
        assert_ne!(now, verifier, "they have to write again");
        let what = n::diropargs3 {
            dir: root.clone(),
            name: name("file"),
        };
        let removed = client.remove(&n::REMOVE3args { object: what }).await;
        removed.unwrap().unwrap();
    });
    assert!(!place.data().join("file").exists());
    server.stop();
}

#[test]
fn a_write_is_answered_as_durable_as_it_was_asked_for_and_no_more() {
    let place = ServerFolders::new();
    let mut server = place.start();
    block_on(async {
        let mut client = server.mount().await;
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        for stable in [
            n::stable_how::UNSTABLE,
            n::stable_how::DATA_SYNC,
            n::stable_how::FILE_SYNC,
        ] {
            let arguments = n::WRITE3args {
                file: file.clone(),
                offset: 0,
                count: 7,
                stable,
                data: Opaque::borrowed(b"content"),
            };
            let written = client.write(&arguments).await.unwrap().unwrap();
            assert_eq!(written.committed as u32, stable as u32);
        }
    });
    server.stop();
}
