//! Credits, memory, polling, limits, the protocol's settings and the log.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_admin::config::{ByteSize, ClientLimits, Config, Cores, PollMode, Switch, live_part};
use millrace_admin::control::Control;
use millrace_admin::metrics::Metrics;
use millrace_bench::requester::Settings;

use super::running::{Client, Running, sum};

/// Credits granted to the one connection.
fn granted(running: &Running) -> u32 {
    let list = running.control().connections().expect("reactors answer");
    let rdma: Vec<_> = list.iter().filter_map(|one| one.credits_granted).collect();
    assert_eq!(rdma.len(), 1);
    rdma[0]
}

#[test]
fn credits_follow_at_the_next_grant_up_and_down() {
    let running = Running::start("flow: { credits: 8 }");
    let mut client = Client::connect(running.fabric(0), 64).expect("connects");
    for credits in [3, 8, 48, 1, 64] {
        running.change(|config| config.flow.credits = credits);
        // A cut is taken back step by step, one with each reply.
        for _ in 0..64 {
            client.session.null().expect("served");
        }
        running.until("it follows", |running| granted(running) == credits);
    }
}

#[test]
fn memory_grows_and_its_size_is_told() {
    let running = Running::start("");
    let attainable = || {
        let pools = running.control().pools().expect("reactors answer");
        pools
            .iter()
            .map(|pool| pool.buffers * pool.buffer_bytes)
            .sum::<u64>()
    };
    let root = running.mount("/scratch").expect("mounted");
    let mut client = running.client(0);
    let file = client.create(root, "file", b"content");
    let before = attainable();
    running.change(|config| config.mempool.size = ByteSize::mib(64));
    assert_eq!(client.read(file, 7).expect("served"), b"content");
    assert!(attainable() > before);
    assert_eq!(running.control().config().mempool.size, ByteSize::mib(64));
    // It never shrinks.
    let mut smaller = (*running.control().config()).clone();
    smaller.mempool.size = ByteSize::mib(16);
    let live = live_part(&running.control().config(), &smaller);
    assert_eq!(live.mempool.size, ByteSize::mib(64));
}

#[test]
fn polling_changes_both_ways() {
    let running = Running::start("");
    let mut client = running.client(0);
    let sleeps = |running: &Running| {
        let reactors = running.control().reactors().expect("reactors answer");
        reactors.iter().map(|one| one.sleeps).sum::<u64>()
    };
    running.until("an idle reactor sleeps", |running| sleeps(running) > 0);
    running.change(|config| config.reactors.poll = PollMode::Busy);
    let before = sleeps(&running);
    for _ in 0..100 {
        client.session.null().expect("served");
    }
    assert_eq!(sleeps(&running), before, "nobody sleeps any more");
    running.change(|config| {
        config.reactors.poll = PollMode::Adaptive;
        config.reactors.idle_after = Duration::from_micros(1);
    });
    running.until("an idle reactor sleeps again", |running| {
        sleeps(running) > before
    });
}

#[test]
fn limits_of_clients_come_and_go() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let mut client = running.client(0);
    let file = client.create(root, "file", b"content");
    running.change(|config| {
        config.limits = vec![ClientLimits {
            clients: vec!["127.0.0.0/8".parse().expect("a network")],
            iops: Some(1),
            bandwidth: None,
        }];
    });
    client.submit_getattrs(file, 4);
    running.until("calls wait for the limit", |running| {
        client.turn();
        let clients = running.control().clients().expect("reactors answer");
        clients.iter().any(|one| one.waiting > 0)
    });
    running.change(|config| config.limits.clear());
    running.until("calls wait no longer", |_| {
        client.turn();
        client.answered == 4
    });
    let metrics = Metrics::new();
    metrics.register(running.service().control());
    let throttled = || {
        sum(
            &metrics.render().expect("text"),
            "millrace_throttled_seconds_total",
        )
    };
    let before = throttled();
    assert!(before > 0.0);
    for _ in 0..50 {
        assert_eq!(client.read(file, 7).expect("served"), b"content");
    }
    assert!(throttled() <= before, "nobody waits any more");
}

#[test]
fn connections_keep_to_what_they_were_made_with() {
    let running = Running::start("");
    let settings = |versions| Settings {
        versions,
        ..Settings::default()
    };
    let two = settings(millrace_wire::rpcrdma::Versions::TWO);
    let mut before = Client::with(running.fabric(0), two.clone()).expect("version two");
    running.change(|config| {
        config.rpcrdma.versions = vec![1];
        config.rpcrdma.padding = Switch::Off;
        config.rpcrdma.ccp = Switch::Off;
    });
    before.session.null().expect("served as it was");
    assert!(Client::with(running.fabric(0), two.clone()).is_err());
    running.client(0).session.null().expect("version one");
    running.change(|config| config.rpcrdma.versions = vec![1, 2]);
    Client::with(running.fabric(0), two).expect("version two again");
    before.session.null().expect("served");
}

#[test]
fn the_log_is_told_of_a_filter_that_parses() {
    let running = Running::start("");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let hook = Box::new(move |filter: tracing_subscriber::EnvFilter| {
        heard.lock().expect("whole").push(filter.to_string());
        Ok(())
    });
    running.service().control().on_log_filter(hook);
    running.change(|config| config.log = "warn,millrace=debug".to_owned());
    running.change(|config| config.flow.credits = 5);
    assert_eq!(*told.lock().expect("whole"), ["millrace=debug,warn"]);
}

#[test]
fn what_only_the_service_can_tell_is_checked() {
    let running = Running::start("");
    let problems = |edit: &dyn Fn(&mut Config)| {
        let control = running.control();
        let mut next = (*control.config()).clone();
        edit(&mut next);
        let problems = control.check(&next);
        let paths = problems.iter().map(|problem| problem.path.to_string());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(problems(&|_| {}), Vec::<String>::new());
    assert_eq!(
        problems(&|next| next.log = "millrace=loud".to_owned()),
        ["log"]
    );
    let cores = Cores::List(vec![1023]);
    let bad = problems(&|next| next.reactors.cores = cores.clone());
    assert_eq!(bad, ["reactors.cores[0]"]);
}

#[test]
fn evicting_a_connection_ends_that_one() {
    let running = Running::start("");
    let mut first = running.client(0);
    first.session.null().expect("served");
    let connections = || running.control().connections().expect("reactors answer");
    let id = connections()[0].id;
    let second = running.client(0);
    assert_eq!(running.control().evict(id), Ok(true));
    running.until("the connection has ended", |_| connections().len() == 1);
    assert!(first.session.null().is_err());
    let mut second = second;
    second.session.null().expect("served");
    assert_eq!(running.control().evict(u64::MAX), Ok(false));
}

#[test]
fn a_banned_client_may_connect_again_when_the_ban_is_lifted() {
    let running = Running::start("");
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let hour = Duration::from_secs(3600);
    running.control().ban(loopback, hour).expect("banned");
    assert_eq!(running.control().bans()[0].address, "127.0.0.1");
    assert!(Client::connect(running.fabric(0), 64).is_err());
    // Its TCP connections end before they have served anything.
    assert!(running.mount("/scratch").is_err());
    assert!(
        running
            .control()
            .connections()
            .expect("reactors answer")
            .is_empty()
    );
    assert!(running.control().lift_ban(loopback));
    assert!(!running.control().lift_ban(loopback));
    running.mount("/scratch").expect("served");
    running.client(0).session.null().expect("served");
}
