//! The log of a running `millraced` whose reader has stopped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// Calls of one client, each of which is a line of the log.
const CALLS: u32 = 300;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe that takes not one byte more, and its reader.
fn full_pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut writer = File::from(OwnedFd::from(writer));
    for length in [4096, 1] {
        while writer.write(&vec![b'.'; length]).is_ok() {}
    }
    let full = writer.write(b".").unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    rustix::fs::fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (File::from(OwnedFd::from(reader)), writer)
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("an answer in time");
    answer
}

/// A call of RPC over TCP without credentials (RFC 5531 sections 9 and 11), and its answer.
fn call(socket: &mut TcpStream, xid: u32, program: u32, procedure: u32, path: &str) -> Vec<u8> {
    let mut message: Vec<u8> = [xid, 0, 2, program, 3, procedure, 0, 0, 0, 0]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    if !path.is_empty() {
        message.extend((path.len() as u32).to_be_bytes());
        message.extend(path.as_bytes());
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let mark = 1 << 31 | message.len() as u32;
    socket
        .write_all(&[&mark.to_be_bytes(), &message[..]].concat())
        .unwrap();
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).expect("an answer in time");
    let mut answer = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], xid.to_be_bytes());
    answer
}

#[test]
fn a_reader_of_the_log_that_has_stopped_stops_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("millraced.yaml");
    let text = "reactors: { cores: [0], poll: adaptive }\nmempool: { hugepages: off, size: 8MiB }\n\
        fabric: [{ provider: iwarp, listen: \"127.0.0.1:0\" }]\nrpc: { listen: \"127.0.0.1:0\" }\n\
        admin: { listen: \"127.0.0.1:0\" }\n";
    let core = millrace_reactor::allowed_cores()[0];
    std::fs::write(&file, text.replace("[0]", &format!("[{core}]"))).unwrap();
    let notices = folder.path().join("notices");
    let socket = UnixDatagram::bind(&notices).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut reader, full) = full_pipe();
    let server = Command::new(env!("CARGO_BIN_EXE_millraced"))
        .arg("--config")
        .arg(&file)
        .env("NOTIFY_SOCKET", &notices)
        .stdin(Stdio::null())
        .stderr(full)
        .spawn();
    let mut server = Server(server.unwrap());

    let mut notice = [0; 4096];
    let status = loop {
        let length = socket
            .recv(&mut notice)
            .expect("it starts with its log stuck");
        let text = String::from_utf8(notice[..length].to_vec()).unwrap();
        if text.contains("READY=1") {
            break text;
        }
    };
    let (_, admin) = status.trim_end().rsplit_once(' ').unwrap();
    let admin: SocketAddr = admin.parse().unwrap();
    let listeners = get(admin, "/api/v1/listeners");
    let (_, rpc) = listeners.rsplit_once("\"127.0.0.1:").unwrap();
    let rpc = format!("127.0.0.1:{}", rpc.split_once('"').unwrap().0);
    let rpc: SocketAddr = rpc.parse().unwrap();

    // MNT of what is no export: a line each. NULL of NFS beside it is answered throughout.
    let (mut noisy, mut quiet) = (connect(rpc), connect(rpc));
    for xid in 1..=CALLS {
        let refused = call(&mut noisy, xid, 100_005, 1, "/not-there");
        assert_ne!(refused[24..28], [0; 4], "refused");
        call(&mut quiet, xid, 100_003, 0, "");
    }
    let metrics = get(admin, "/metrics");
    let value = |name: &str| -> f64 {
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    };
    assert!(value("millrace_log_lines_left_out_total") >= 100.0);
    assert_eq!(
        value("millrace_log_lines_dropped_total"),
        0.0,
        "there is room for the rest"
    );

    let process = rustix::process::Pid::from_child(&server.0);
    let read = std::thread::spawn(move || {
        let mut log = Vec::new();
        reader.read_to_end(&mut log).unwrap();
        String::from_utf8(log).unwrap()
    });
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    let log = read.join().unwrap();
    let told = log
        .lines()
        .filter(|line| line.contains("mount refused"))
        .count();
    assert!((100..=200).contains(&told), "{told} lines of one kind");
    let report = "too many log lines of one kind: some were left out";
    let line = log
        .lines()
        .find(|line| line.contains(report))
        .expect("it is said");
    assert!(line.contains("mount3::program:"), "{line}");
    let ended = log.lines().any(|line| line.ends_with(" stopped"));
    assert!(ended, "the last word is written");
}
