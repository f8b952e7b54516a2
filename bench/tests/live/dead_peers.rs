//! Peers that take nothing, or are gone, while a folder's data waits for them: over real sockets,
//! and with the server's own deadlines. READs of a folder hold memory of the pool until the
//! kernel has taken their data.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_admin::control::Control;
use millrace_admin::metrics::Metrics;
use millrace_bench::requester::{Call, Settings};
use millrace_mempool::Slice;
use millrace_wire::nfs3::{FileHandle, Procedure, ReadArguments};

use super::running::{Client, EndOfLoad, Running, sum};
use super::slow::Folder;

const MIB: usize = 1 << 20;

/// READs that a client has outstanding: more bytes than the kernel's buffers of a connection take.
const READS: u32 = 32;

/// The shortest that the configuration takes, and what is in force below: a connection that takes
/// nothing ends after one or two.
const FLOW: &str = "flow: { transfer_window: 5s }";

/// No deadline of the server's is as long; TCP would give such peers up after 30 s.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with one reactor and a folder with a file.
struct Served {
    running: Running,
    file: FileHandle,
    _folder: Folder,
}

impl Served {
    fn new(name: &str, addresses: &[&str]) -> Self {
        let folder = Folder::new(&std::env::temp_dir(), name);
        let file = folder.0.join("file");
        fs::write(&file, vec![7; MIB]).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its own");
        let exports = format!(
            "{{ path: /data, store: {{ kind: posix, root: {} }}, \
             clients: [\"127.0.0.0/8\", \"::1\", \"10.0.0.0/8\"] }}",
            folder.0.display()
        );
        let running = Running::listening(1, addresses, &exports, FLOW);
        let root = running.mount("/data").expect("mounted");
        let mut client = running.client(0);
        let file = client.session.lookup(root, b"file").expect("found").object;
        Self {
            running,
            file,
            _folder: folder,
        }
    }

    /// A client that may have all these READs outstanding, and knows so.
    fn client(address: SocketAddr, file: FileHandle) -> (Client, Slice) {
        let settings = Settings {
            credits: READS,
            calls: READS as usize,
            ..Settings::default()
        };
        let mut client = Client::with(address, settings).expect("connects");
        assert_eq!(client.status(file), None);
        let room = client.session.buffer(MIB).expect("memory");
        (client, room.into_slice(0..MIB))
    }

    /// Bytes of the pool that a client holds, as operators see it.
    fn memory(&self, client: IpAddr) -> u64 {
        let clients = self.running.control().clients().expect("reactors answer");
        let address = client.to_string();
        let found = clients.iter().find(|one| one.address == address);
        found.map_or(0, |one| one.memory_bytes)
    }

    /// Connections that were ended as they took nothing.
    fn ended(&self) -> u64 {
        let metrics = Metrics::new();
        metrics.register(self.running.service().control());
        let text = metrics.render().expect("text");
        sum(&text, "millrace_connections_untaken_total") as u64
    }

    /// Serves another client while `dead` holds what it may, and until all of that is back.
    fn outlives(&self, dead: IpAddr, connections: u64) {
        let start = Instant::now();
        let mut good = self.running.client(0);
        let mut served = 0;
        while self.ended() < connections || self.memory(dead) > 0 {
            assert_eq!(good.read(self.file, MIB).expect("served").len(), MIB);
            // One that waited for the end of others was not served beside them.
            served += u32::from(self.ended() == 0);
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "the memory does not come back"
            );
        }
        assert!(served > 2, "{served} READs were served meanwhile");
        assert_eq!(self.ended(), connections);
        let found = self.running.control().connections().expect("answers");
        let left = found
            .iter()
            .filter(|one| one.peer.contains(&dead.to_string()));
        assert_eq!(left.count(), 0);
    }
}

/// Asks for READs into the same memory until there may be no more.
fn submit(client: &mut Client, file: FileHandle, room: &Slice) {
    let sinks = [std::slice::from_ref(room)];
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: MIB as u32,
    };
    let (connection, _) = client.session.parts();
    for token in 0.. {
        let call = Call::nfs3(1 << 40 | token, Procedure::Read, arguments, 0).with_sinks(&sinks);
        if connection.submit(&call, Instant::now()).is_err() {
            return;
        }
    }
}

#[test]
fn peers_with_a_closed_window_keep_no_memory_and_nobody_waiting() {
    let served = Served::new("window", &["127.0.0.1:0", "[::1]:0"]);
    let address = served.running.fabric(1);
    let mut silent: Vec<_> = (0..2)
        .map(|_| Served::client(address, served.file))
        .collect();
    for (client, room) in &mut silent {
        submit(client, served.file, room);
        // The calls leave; from here on nothing is read from the socket.
        client.turn();
    }
    let dead = address.ip();
    served
        .running
        .until("READs hold memory", |_| served.memory(dead) > 0);
    served.outlives(dead, 2);
}

/// A network of two hosts: this one, and a namespace at its other end. Gone with the value.
struct Network {
    name: String,
    address: String,
    peer: String,
}

fn ip(arguments: &str) -> bool {
    let command = Command::new("ip").args(arguments.split(' ')).output();
    command.is_ok_and(|output| output.status.success())
}

impl Network {
    /// None, recorded as skipped, where this process may make no such thing.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let subnet = format!("10.213.{}", id % 250);
        let network = Self {
            name: format!("mr{id}"),
            address: format!("{subnet}.1"),
            peer: format!("{subnet}.2"),
        };
        let Self {
            name,
            address,
            peer,
        } = &network;
        let made = ip(&format!("netns add {name}"))
            && ip(&format!(
                "link add {name}a type veth peer name {name}b netns {name}"
            ))
            && ip(&format!("address add {address}/24 dev {name}a"))
            && ip(&format!("link set {name}a up"))
            && ip(&format!("-n {name} address add {peer}/24 dev {name}b"))
            && ip(&format!("-n {name} link set {name}b up"));
        if !made {
            millrace_testing::skip!("no network namespaces for this process");
            return None;
        }
        Some(network)
    }

    /// Moves this thread to the other end.
    fn enter(&self) {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        let path = Path::new("/run/netns").join(&self.name);
        let namespace = fs::File::open(path).expect("it is there");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).expect("as root");
    }

    fn cut(&self) {
        assert!(ip(&format!("-n {0} link set {0}b down", self.name)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&format!("link del {}a", self.name));
        ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn peers_whose_network_is_cut_keep_no_memory_and_nobody_waiting() {
    let Some(network) = Network::new() else {
        return;
    };
    let listener = format!("{}:0", network.address);
    let served = Served::new("cut", &["127.0.0.1:0", &listener]);
    let address = served.running.fabric(1);
    let dead: IpAddr = network.peer.parse().expect("an address");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also where this test fails.
        let _end = EndOfLoad(&ends);
        scope.spawn(|| {
            network.enter();
            let (mut client, room) = Served::client(address, served.file);
            // It takes all that comes, and asks for more.
            while !ends.load(Relaxed) {
                submit(&mut client, served.file, &room);
                client.turn();
                std::thread::yield_now();
            }
        });
        served
            .running
            .until("READs hold memory", |_| served.memory(dead) > 0);
        network.cut();
        served.outlives(dead, 1);
    });
}
