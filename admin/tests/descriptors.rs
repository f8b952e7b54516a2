//! The API where the process is out of descriptors. The limit is the process's, so this test has
//! one of its own.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_admin::api::{AdminState, serve};
use millrace_admin::change::ConfigStore;
use millrace_admin::config::Config;
use millrace_admin::control::Control;
use millrace_admin::metrics::Metrics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::Service;

/// Pauses of the listener, as a scrape tells them.
fn pauses(metrics: &Metrics) -> u64 {
    let text = metrics.render().unwrap();
    let name = "millrace_accept_pauses_total{listener=\"admin\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().parse().unwrap()
}

#[test]
fn a_listener_without_descriptors_waits_for_some() {
    let service = Service::new(Config::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config_store = Arc::new(ConfigStore::new(
        Arc::clone(&service) as _,
        service.config(),
        None,
    ));
    let metrics = Metrics::new();
    let state = AdminState::new(Arc::clone(&service) as _, metrics.clone(), config_store);
    let api = serve(listener, state).unwrap();
    assert_eq!(pauses(&metrics), 0);

    let limit = Rlimit {
        current: Some(128),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken: Vec<OwnedFd> = Vec::new();
    while let Ok(descriptor) = rustix::io::dup(std::io::stdout()) {
        taken.push(descriptor);
    }
    taken.pop();
    let mut client = TcpStream::connect(api.address()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while pauses(&metrics) == 0 {
        assert!(Instant::now() < deadline, "no pause is counted");
        std::thread::yield_now();
    }
    drop(taken);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    api.shutdown();
}
