//! What the management plane tells of a client's connection, as a running service sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace::service::Service;
use millrace_admin::config;
use millrace_admin::control::Control;
use millrace_admin::status::ConnectionStatus;
use millrace_bench::requester::{Session, Settings};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_wire::rpcrdma::Versions;

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The one connection, once it has had a call answered.
fn answered(service: &Service) -> ConnectionStatus {
    let start = Instant::now();
    while start.elapsed() < TEST_TIMEOUT {
        let list = service.control().connections().expect("reactors answer");
        if let Some(one) = list.into_iter().find(|one| one.requests > 0) {
            return one;
        }
    }
    panic!("no connection with a call");
}

/// What is told of a client that offers these versions to a server with receives of 1 KiB, whose
/// only export is for these `clients`.
fn status_of_a_client(serves: &str, offers: Versions, clients: &str) -> ConnectionStatus {
    let text = format!(
        "reactors: {{ cores: [0], poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 16MiB }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         rpcrdma: {{ versions: {serves}, inline: 1KiB }}\n\
         flow: {{ credits: 16 }}\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 8MiB }}, \
         clients: [\"{clients}\"] }}]\n"
    );
    let service = Service::start(Arc::new(config::parse(&text, "test").expect("good")));
    let service = service.expect("starts");
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).expect("memory");
    let provider = Iwarp::new(IwarpConfig::default()).expect("descriptors");
    let settings = Settings {
        versions: offers,
        credits: 24,
        calls: 24,
        timeout: TEST_TIMEOUT,
        ..Settings::default()
    };
    let address = service.addresses().fabric[0];
    let mut session =
        Session::connect(Box::new(provider), &pool, address, settings).expect("connects");
    session.null().expect("an answer");
    let status = answered(&service);
    drop(session);
    service.drain(Duration::ZERO);
    status
}

#[test]
fn the_version_spoken_is_told_with_credits_and_limits() {
    let two = status_of_a_client("[1, 2]", Versions::TWO, "127.0.0.1");
    assert_eq!(two.rpcrdma_version, Some(2));
    assert_eq!(
        (two.credits_requested, two.credits_granted),
        (Some(24), Some(16))
    );
    // Version two asks for more than the configuration has.
    assert_eq!(
        (two.inline_receive_bytes, two.inline_send_bytes),
        (Some(4096), Some(4096))
    );
    assert_eq!(two.exposures, 0);

    let one = status_of_a_client("[1]", Versions::ONE, "127.0.0.1");
    assert_eq!(one.rpcrdma_version, Some(1));
    assert_eq!(
        (one.inline_receive_bytes, one.inline_send_bytes),
        (Some(1024), Some(1024))
    );
}

#[test]
fn a_client_that_no_export_admits_is_served_with_one_credit() {
    let unknown = status_of_a_client("[1, 2]", Versions::TWO, "192.0.2.0/24");
    assert_eq!(
        (unknown.credits_requested, unknown.credits_granted),
        (Some(24), Some(1))
    );
}
