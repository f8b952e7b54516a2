//! A service in a process of its own that is killed after it has executed a call and before the
//! client has the answer: the same call on a new connection to the next process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use millrace::service::Service;
use millrace_admin::config;
use millrace_bench::client::Client;
use millrace_bench::requester::{Call, Completion, Session};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_wire::nfs3::{
    self, CreateArguments, CreateHow, FileHandle, MkdirArguments, NameInDirectory, Procedure,
    RenameArguments, SetAttributes,
};
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, OpaqueAuth};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

/// How long anything may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Tells a child what to serve.
const CONFIGURATION: &str = "MILLRACE_TEST_SERVICE";

/// Not a test but the service, where the environment says so.
#[test]
fn service_of_a_child() {
    let Ok(text) = std::env::var(CONFIGURATION) else {
        return;
    };
    let config = config::parse(&text, "test").expect("good");
    let service = Service::start(Arc::new(config)).expect("starts");
    let addresses = service.addresses();
    let rpc = addresses.rpc.expect("served");
    println!("\nserving {} {rpc}", addresses.fabric[0]);
    loop {
        std::thread::park();
    }
}

/// The service, killed and started again in the same place.
struct Server {
    folder: tempfile::TempDir,
    child: Option<Child>,
    rdma: SocketAddr,
    rpc: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("data")).expect("a folder");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            folder,
            child: None,
            rdma: any,
            rpc: any,
        };
        server.spawn();
        server
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn spawn(&mut self) {
        let folder = self.folder.path().display();
        let text = format!(
            "reactors: {{ cores: [0], poll: adaptive }}\n\
             mempool: {{ hugepages: off, size: 32MiB }}\n\
             fabric: [{{ provider: iwarp, listen: \"{}\" }}]\n\
             rpc: {{ listen: \"{}\" }}\n\
             state_directory: '{folder}/state'\n\
             exports: [{{ path: /data, store: {{ kind: posix, root: '{folder}/data' }}, \
             clients: [\"127.0.0.0/8\"] }}]\n",
            self.rdma, self.rpc
        );
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "service_of_a_child", "--nocapture"])
            .env(CONFIGURATION, text)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let line = output
            .lines()
            .map(|line| line.expect("text"))
            .find(|line| line.starts_with("serving "))
            .expect("it serves");
        let mut addresses = line
            .split(' ')
            .skip(1)
            .map(|text| text.parse().expect("one"));
        self.rdma = addresses.next().expect("of the fabric");
        self.rpc = addresses.next().expect("of RPC");
        self.child = Some(child);
    }

    /// Ends the process without a word, and starts the next one.
    fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
        self.spawn();
    }

    fn client(&self) -> Client {
        #[derive(Parser)]
        struct ProgramArguments {
            #[command(flatten)]
            client: Client,
        }
        let (target, mount) = (self.rdma.to_string(), self.rpc.to_string());
        let line = ProgramArguments::try_parse_from([
            "test", "--target", &target, "--mount", &mount, "--export", "/data", "--settle", "0ms",
            "--uid", "0", "--gid", "0",
        ]);
        line.expect("parses").client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until something is seen to be so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}

fn entry(directory: FileHandle, name: &[u8]) -> NameInDirectory<'_> {
    NameInDirectory { directory, name }
}

/// Calls that would fail if they were executed twice, and what shows that one was executed.
fn each_call(
    root: FileHandle,
    data: &Path,
    mut test: impl FnMut(Procedure, &dyn Fn(&mut Encoder<'_>), &dyn Fn() -> bool),
) {
    let there = |name: &str| data.join(name).exists();
    for name in ["removed", "old"] {
        std::fs::write(data.join(name), b"").expect("written");
    }
    std::fs::create_dir(data.join("empty")).expect("made");
    let attributes = SetAttributes {
        mode: Some(0o755),
        ..SetAttributes::default()
    };
    let create = CreateArguments {
        entry: entry(root, b"created"),
        how: CreateHow::Guarded(attributes),
    };
    let mkdir = MkdirArguments {
        entry: entry(root, b"made"),
        attributes,
    };
    let rename = RenameArguments {
        from: entry(root, b"old"),
        to: entry(root, b"new"),
    };
    let encoded = |arguments: &dyn Encoded, out: &mut Encoder<'_>| arguments.put(out);
    test(
        Procedure::Remove,
        &|out| encoded(&entry(root, b"removed"), out),
        &|| !there("removed"),
    );
    test(
        Procedure::Rmdir,
        &|out| encoded(&entry(root, b"empty"), out),
        &|| !there("empty"),
    );
    test(Procedure::Create, &|out| encoded(&create, out), &|| {
        there("created")
    });
    test(Procedure::Mkdir, &|out| encoded(&mkdir, out), &|| {
        there("made")
    });
    test(Procedure::Rename, &|out| encoded(&rename, out), &|| {
        there("new")
    });
}

/// Arguments of any kind.
trait Encoded {
    fn put(&self, out: &mut Encoder<'_>);
}

impl<T: Encode> Encoded for T {
    fn put(&self, out: &mut Encoder<'_>) {
        self.encode(out).expect("room");
    }
}

/// Arguments that are encoded already.
struct Ready(Vec<u8>);

impl Encode for Ready {
    fn encode(&self, out: &mut Encoder<'_>) -> millrace_wire::xdr::Result<()> {
        out.raw(&self.0)
    }
}

fn ready(arguments: &dyn Fn(&mut Encoder<'_>)) -> Ready {
    let mut bytes = vec![0; 4096];
    let mut out = Encoder::new(&mut bytes);
    arguments(&mut out);
    let length = out.position();
    bytes.truncate(length);
    Ready(bytes)
}

/// A record with a call.
fn record(xid: u32, procedure: Procedure, arguments: &Ready) -> Vec<u8> {
    let header = CallHeader {
        xid,
        program: nfs3::PROGRAM,
        version: nfs3::VERSION,
        procedure: procedure.number(),
        credential: Credential::Sys(AuthSys {
            stamp: 0,
            machine: b"client",
            uid: 0,
            gid: 0,
            gids: Groups::new(),
        }),
        verifier: OpaqueAuth::NONE,
    };
    let mut bytes = vec![0; 8192];
    let mut out = Encoder::new(&mut bytes[4..]);
    header.encode(&mut out).expect("room");
    arguments.encode(&mut out).expect("room");
    let length = out.position();
    bytes[..4].copy_from_slice(&(0x8000_0000 | length as u32).to_be_bytes());
    bytes.truncate(4 + length);
    bytes
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.rpc).expect("connects");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("set");
    stream
}

fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("an answer");
    let mut message = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut message).expect("an answer");
    message
}

/// The status of results behind a reply header: six words.
fn status(message: &[u8]) -> u32 {
    let mut input = Decoder::new(message);
    (0..7)
        .map(|_| u32::decode(&mut input).expect("a reply"))
        .last()
        .expect("seven")
}

#[test]
fn over_tcp_a_call_without_an_answer_is_answered_by_the_next_process() {
    let mut server = Server::start();
    let root = server.client().root().expect("mounts");
    let data = server.data();
    let mut xid = 100;
    each_call(root, &data, |procedure, arguments, executed| {
        xid += 1;
        let call = record(xid, procedure, &ready(arguments));
        let mut first = connect(&server);
        first.write_all(&call).expect("sent");
        until("the call is executed", executed);
        server.kill();
        drop(first);
        let mut second = connect(&server);
        second.write_all(&call).expect("sent");
        let answer = reply(&mut second);
        assert_eq!(status(&answer), 0, "{procedure:?} {answer:02x?}");
        // And by the one after that, to the letter.
        server.kill();
        let mut third = connect(&server);
        third.write_all(&call).expect("sent");
        assert_eq!(reply(&mut third), answer, "{procedure:?}");
    });
}

#[test]
fn over_rdma_a_call_without_an_answer_is_answered_by_the_next_process() {
    let mut server = Server::start();
    let client = server.client();
    let root = client.root().expect("mounts");
    let data = server.data();
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
    let mut settings = client.settings(8);
    settings.keep_calls = true;
    let mut session = client.session(&pool, settings).expect("connects");
    each_call(root, &data, |procedure, arguments, executed| {
        let arguments = ready(arguments);
        session.null().expect("it is connected");
        let call = Call::nfs3(7, procedure, arguments, 0);
        let (connection, provider) = session.parts();
        connection.submit(&call, Instant::now()).expect("room");
        // Sent, and nothing is received from here on.
        connection.pump(provider, &mut |_| panic!("no answer was taken"));
        provider.flush(Instant::now());
        until("the call is executed", executed);
        server.kill();
        let (connection, provider) = session.parts();
        let before = connection.counters().sent;
        provider.abort(connection.queue_pair());
        assert_eq!(answer(&mut session), 0, "{procedure:?}");
        assert!(
            session.connection().counters().sent > before,
            "it was sent again"
        );
    });
}

/// The status of the call that is under way.
fn answer(session: &mut Session) -> u32 {
    let mut found = None;
    until("an answer", || {
        session.turn(&mut |completion: Completion<'_>| {
            let reply = completion.result.expect("an answer");
            found = Some(status(reply.message));
        });
        found.is_some()
    });
    found.expect("an answer")
}
