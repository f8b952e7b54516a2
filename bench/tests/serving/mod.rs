//! A service on loopback, and clients that use it.

// Not every test uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use millrace::service::{Service, ServiceControl};
use millrace_admin::config;
use millrace_admin::control::Control;
use millrace_admin::status::ConnectionStatus;
use millrace_bench::client::Client;
use millrace_bench::requester::Session;
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_wire::nfs3::{CreateHow, SetAttributes, Stability};

pub const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the file that [`exchange`] writes and reads.
pub const BYTES: usize = 10_000;

#[derive(Parser)]
struct ProgramArguments {
    #[command(flatten)]
    client: Client,
}

/// A service of one reactor, with more of the configuration in `more`.
pub fn start(more: &str) -> Service {
    let text = format!(
        "reactors: {{ cores: [0], poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 32MiB }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 16MiB }}, \
         clients: [\"127.0.0.0/8\"] }}]\n\
         {more}"
    );
    let config = config::parse(&text, "test").expect("good");
    Service::start(Arc::new(config)).expect("starts")
}

/// A client at an address.
pub fn client(service: &Service, source: &str) -> Client {
    let addresses = service.addresses();
    let target = addresses.fabric[0].to_string();
    let mount = addresses.rpc.expect("served").to_string();
    let line = ProgramArguments::try_parse_from([
        "test", "--target", &target, "--mount", &mount, "--source", source, "--settle", "0ms",
    ]);
    line.expect("parses").client
}

/// A connection of a client.
pub fn session(client: &Client) -> Session {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
    client.session(&pool, client.settings(8)).expect("connects")
}

/// What `look` finds, as soon as it finds anything.
pub fn until<T>(control: &ServiceControl, mut look: impl FnMut(&ServiceControl) -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < TEST_TIMEOUT {
        if let Some(found) = look(control) {
            return found;
        }
        std::thread::yield_now();
    }
    panic!("nothing found");
}

/// The connections, once there are so many.
pub fn connections(control: &ServiceControl, count: usize) -> Vec<ConnectionStatus> {
    until(control, |control| {
        let list = control.connections().expect("reactors answer");
        (list.len() == count).then_some(list)
    })
}

/// Writes a file and reads it.
pub fn exchange(client: &Client, session: &mut Session) {
    let root = client.root().expect("mounts");
    let how = CreateHow::Guarded(SetAttributes::default());
    session.create(root, b"file", how).expect("created");
    let file = session.lookup(root, b"file").expect("there").object;
    let data = session.buffer(BYTES).expect("memory").into_slice(0..BYTES);
    let data = std::slice::from_ref(&data);
    let written = session.write(file, 0, data, Stability::FileSync);
    assert_eq!(written.expect("written").count as usize, BYTES);
    let read = session.read(file, 0, data).expect("read");
    assert_eq!(read.count as usize, BYTES);
}
