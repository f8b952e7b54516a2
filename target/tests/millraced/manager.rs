//! `millraced` as a service manager sees it: a real socket for its notices, and a reactor that is
//! really held still.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// A manager's side of one service.
struct Manager {
    socket: UnixDatagram,
    /// Words of a datagram that have not been looked at yet.
    words: VecDeque<String>,
    /// Files that it was asked to keep.
    kept: Vec<OwnedFd>,
    /// Those that it will close, at the latest when it is asked whether it has.
    removed: Vec<OwnedFd>,
    service: Child,
    folder: tempfile::TempDir,
}

impl Manager {
    fn start(watchdog: Option<Duration>, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("millraced.yaml");
        std::fs::write(&file, configuration).unwrap();
        let mut command = millraced(&file);
        if let Some(time) = watchdog {
            command.env("WATCHDOG_USEC", time.as_micros().to_string());
        }
        Self::spawn(folder, command)
    }

    fn spawn(folder: tempfile::TempDir, mut command: Command) -> Self {
        let at = folder.path().join("notify");
        let socket = UnixDatagram::bind(&at).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        command.env("NOTIFY_SOCKET", &at).env_remove("WATCHDOG_PID");
        Self {
            socket,
            words: VecDeque::new(),
            kept: Vec::new(),
            removed: Vec::new(),
            service: command.spawn().unwrap(),
            folder,
        }
    }

    /// Stops the service, and has what it gave to keep.
    fn stopped(mut self) -> Vec<OwnedFd> {
        self.signal("-TERM");
        self.until("STOPPING=1");
        let kept = std::mem::take(&mut self.kept);
        assert!(self.end().success());
        kept
    }

    /// The next process of a service, with what the one before gave to keep: listeners of RDMA and
    /// RPC.
    fn start_again(kept: Vec<OwnedFd>, configuration: &str) -> Self {
        let copies: Vec<_> = kept.iter().map(|file| file.try_clone().unwrap()).collect();
        let [one, other] = <[OwnedFd; 2]>::try_from(copies).expect("two listeners");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("millraced.yaml");
        std::fs::write(&file, configuration).unwrap();
        let service = millraced(&file);
        let place = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
        let mut command = Command::new("bash");
        command.args(["-c", place, "bash"]);
        command.arg(service.get_program()).args(service.get_args());
        command.stdin(one).stdout(other).stderr(Stdio::null());
        let mut next = Self::spawn(folder, command);
        next.kept = kept;
        next
    }

    /// The next word, such as `READY=1`.
    fn word(&mut self) -> String {
        while self.words.is_empty() {
            let mut datagram = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut datagram)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(&self.socket, &mut parts, &mut ancillary, flags);
            let length = received.expect("a notice in time").bytes;
            let mut files = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    files.extend(some);
                }
            }
            let text = std::str::from_utf8(&datagram[..length]).unwrap();
            match text.lines().next() {
                Some("FDSTORE=1") => self.kept.append(&mut files),
                Some("FDSTOREREMOVE=1") => self.removed.append(&mut self.kept),
                // The file that came with it is closed last.
                Some("BARRIER=1") => self.removed.clear(),
                _ => {}
            }
            self.words.extend(text.lines().map(str::to_owned));
        }
        self.words.pop_front().unwrap()
    }

    /// All words up to one that begins like this, which is the last.
    fn until(&mut self, beginning: &str) -> Vec<String> {
        let mut words = Vec::new();
        loop {
            let word = self.word();
            let found = word.starts_with(beginning);
            words.push(word);
            if found {
                return words;
            }
        }
    }

    /// Waits until it serves. The address of its management plane.
    fn serving(&mut self) -> SocketAddr {
        let words = self.until("STATUS=serving ");
        assert!(words.contains(&"READY=1".to_owned()), "{words:?}");
        let (_, address) = words.last().unwrap().rsplit_once(' ').unwrap();
        address.parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        let service = self.service.id().to_string();
        let sent = Command::new("kill").args([signal, &service]).status();
        assert!(sent.unwrap().success());
    }

    fn stop(self) -> ExitStatus {
        self.signal("-TERM");
        self.end()
    }

    fn end(mut self) -> ExitStatus {
        self.service.wait().unwrap()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

/// A configuration with these ports of RDMA and RPC, so that the next process wants the same.
fn configuration_at(listeners: [SocketAddr; 2]) -> String {
    let [rdma, rpc] = listeners.map(|address| address.to_string());
    let text = configuration("adaptive");
    text.replacen("127.0.0.1:0", &rdma, 1)
        .replacen("127.0.0.1:0", &rpc, 1)
}

/// Addresses that nobody has.
fn free_addresses() -> [SocketAddr; 2] {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

fn millraced(configuration: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
    command.arg("--config").arg(configuration);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn configuration(poll: &str) -> String {
    format!(
        r#"
reactors: {{ cores: auto, poll: {poll} }}
mempool: {{ hugepages: off, size: 8MiB }}
fabric: [{{ provider: iwarp, listen: "127.0.0.1:0" }}]
rpc: {{ listen: "127.0.0.1:0" }}
exports: [{{ path: /scratch, store: {{ kind: memory, size: 1MiB }} }}]
admin: {{ listen: "127.0.0.1:0" }}
"#
    )
}

/// The status and body of an answer.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// A thread held still as a debugger holds it, by the thread that made this value.
struct StoppedThread(libc::pid_t);

impl StoppedThread {
    fn reactor_of(service: &Child) -> Self {
        let tasks = format!("/proc/{}/task", service.id());
        let reactor = std::fs::read_dir(tasks).unwrap().find_map(|task| {
            let task = task.unwrap();
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap();
            name.starts_with("reactor-").then(|| task.file_name())
        });
        let thread: libc::pid_t = reactor.unwrap().to_str().unwrap().parse().unwrap();
        let ptrace = |request| {
            let nothing = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: these requests neither read nor write memory of this process.
            let done = unsafe { libc::ptrace(request, thread, nothing, nothing) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        };
        ptrace(libc::PTRACE_SEIZE);
        let held = Self(thread);
        ptrace(libc::PTRACE_INTERRUPT);
        // SAFETY: the status is not asked for, so nothing is written.
        let stopped = unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
        assert_eq!(stopped, thread, "{}", std::io::Error::last_os_error());
        held
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above. The thread may be gone, and then there is nothing to let go.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, nothing, nothing) };
    }
}

#[test]
fn the_manager_is_told_of_start_and_stop() {
    let mut manager = Manager::start(None, &configuration("adaptive"));
    let words = manager.until("READY=1");
    assert!(
        words
            .iter()
            .any(|word| word.starts_with("STATUS=allocating")),
        "{words:?}"
    );
    let status = manager.word();
    assert!(status.starts_with("STATUS=serving 1 export "), "{status}");
    let admin = status.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(get(admin, "/readyz").0, 200, "ready is what it said");

    manager.signal("-TERM");
    // Long enough for the ten seconds that calls in service are given, and then some.
    let words = manager.until("STATUS=stopping");
    let end = [
        "FDSTORE=1",
        "FDNAME=listener",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=20000000",
        "STATUS=stopping: calls in progress are finished",
    ];
    assert_eq!(words, end, "and no word of the watchdog that is not there");
    assert!(manager.end().success());
}

#[test]
fn clients_that_connect_during_a_restart_are_served_by_the_next_process() {
    let listeners @ [rdma, rpc] = free_addresses();
    let text = configuration_at(listeners);
    let mut first = Manager::start(None, &text);
    first.serving();
    assert!(first.kept.is_empty(), "none is kept that may be removed");
    let first = first.stopped();

    // Nobody serves, and nobody is refused.
    let connect = |address| {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    };
    let (mut fabric, mut record) = (connect(rdma), connect(rpc));
    // MPA revision 1, without private data (RFC 5044 section 7.1.1).
    fabric
        .write_all(b"MPA ID Req Frame\x00\x01\x00\x00")
        .unwrap();
    // NULL of NFS version 3.
    let call = [0x8000_0028, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0_u32];
    record
        .write_all(&call.map(u32::to_be_bytes).concat())
        .unwrap();

    let mut next = Manager::start_again(first, &text);
    let words = next.until("READY=1");
    let removal = words.windows(2).find(|pair| pair[0] == "FDSTOREREMOVE=1");
    assert_eq!(removal.expect("it has them now")[1], "FDNAME=listener");
    let mut answer = [0; 16];
    fabric.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"MPA ID Rep Frame");
    let mut answer = [0; 28];
    record.read_exact(&mut answer).unwrap();
    let reply = [0x8000_0018, 7, 1, 0, 0, 0, 0_u32].map(u32::to_be_bytes);
    assert_eq!(answer, reply.as_flattened());
    assert!(next.stop().success());
}

#[test]
fn the_next_process_may_listen_at_other_addresses_of_the_same_ports() {
    let listeners = free_addresses();
    let everywhere = listeners.map(|at| SocketAddr::new([0, 0, 0, 0].into(), at.port()));
    let mut service = Manager::start(None, &configuration_at(listeners));
    service.serving();
    for addresses in [everywhere, listeners] {
        service = Manager::start_again(service.stopped(), &configuration_at(addresses));
        service.serving();
        assert!(service.kept.is_empty());
        for port in listeners {
            TcpStream::connect(port).expect("it listens");
        }
    }
    assert!(service.stop().success());
}

#[test]
fn without_an_rdma_listener_it_is_not_ready() {
    let listener = r#"[{ provider: iwarp, listen: "127.0.0.1:0" }]"#;
    let without = configuration("adaptive").replace(listener, "[]");
    assert!(without.contains("fabric: []"), "{without}");
    let mut manager = Manager::start(None, &without);
    let admin = manager.serving();
    let (status, body) = get(admin, "/readyz");
    assert!(status == 503 && body.contains("no_listener"), "{body}");
    assert_eq!(get(admin, "/healthz").0, 200);
    assert!(manager.stop().success());
}

#[test]
fn the_watchdog_is_fed_while_reactors_turn_and_only_then() {
    let watchdog = Duration::from_millis(100);
    // A reactor that sleeps has a right not to turn, one that polls has not.
    let mut manager = Manager::start(Some(watchdog), &configuration("busy"));
    let admin = manager.serving();
    for _ in 0..5 {
        assert_eq!(manager.word(), "WATCHDOG=1");
    }
    assert_eq!(get(admin, "/healthz").0, 200);

    let held = StoppedThread::reactor_of(&manager.service);
    let words = manager.until("STATUS=");
    let stuck = words.last().unwrap();
    let expected = "STATUS=stuck, watchdog not notified: reactor-";
    assert!(stuck.starts_with(expected), "{stuck}");
    let (status, answer) = get(admin, "/healthz");
    assert_eq!(status, 503);
    assert!(answer.contains("\"name\":\"reactor-"), "{answer}");
    // A word at each time to feed, and none of them feeds.
    for _ in 0..20 {
        let word = manager.word();
        assert!(word.starts_with(expected), "{word}");
    }

    drop(held);
    let words = manager.until("WATCHDOG=1");
    let (_, [serving, _]) = words.split_last_chunk::<2>().unwrap();
    assert!(serving.starts_with("STATUS=serving 1 export "), "{words:?}");
    assert_eq!(get(admin, "/healthz").0, 200);
    assert!(manager.stop().success());
}

#[test]
fn a_reload_is_told_from_its_beginning_to_its_end() {
    let mut manager = Manager::start(None, &configuration("adaptive"));
    manager.serving();
    let file = manager.folder.path().join("millraced.yaml");
    let changed = configuration("adaptive").replace("hugepages: off", "hugepages: auto");
    let waiting = "serving generation 2 of the configuration; keys that wait for a restart: 1";
    let refused = "serving the previous configuration; the last reload was refused, see the log";
    for (text, status) in [
        (changed.as_str(), waiting),
        ("flow: { credits: none }", refused),
    ] {
        std::fs::write(&file, text).unwrap();
        manager.signal("-HUP");
        assert_eq!(manager.word(), "RELOADING=1");
        let at = manager.word();
        let at = at
            .strip_prefix("MONOTONIC_USEC=")
            .expect("the time is told");
        assert!(at.parse::<u64>().unwrap() > 0);
        assert_eq!(manager.word(), "READY=1");
        assert_eq!(manager.word(), format!("STATUS={status}"));
    }
    assert!(manager.stop().success());
}

#[test]
fn without_a_manager_it_serves_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("millraced.yaml");
    std::fs::write(&file, configuration("adaptive")).unwrap();
    for socket in [None, Some("/nowhere/notify"), Some("")] {
        let mut command = millraced(&file);
        command.env_remove("NOTIFY_SOCKET").stderr(Stdio::piped());
        if let Some(socket) = socket {
            command.env("NOTIFY_SOCKET", socket);
        }
        let mut service = command.spawn().unwrap();
        let lines = BufReader::new(service.stderr.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let served = lines.any(|line| line.contains("mount it: "));
        let stopped = Command::new("kill").arg(service.id().to_string()).status();
        assert!(stopped.unwrap().success());
        // Read to its end, so that nothing it says is in its way.
        let rest: Vec<_> = lines.collect();
        assert!(service.wait().unwrap().success(), "{socket:?}: {rest:?}");
        assert!(served, "{socket:?}");
    }
}
