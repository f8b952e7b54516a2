//! A scrape of a service that has served traffic, against the catalogue of metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace::service::Service;
use millrace_admin::change::ConfigStore;
use millrace_admin::config;
use millrace_admin::control::Control;
use millrace_admin::metrics::{Kind, Metrics, catalogue};
use millrace_bench::client::{Client, ClientOptions, ServerAddress};
use millrace_bench::requester::Session;
use millrace_bench::requester::session::CopyOptions;
use millrace_wire::nfs3::{CreateHow, FileHandle, SetAttributes};

const CONFIG: &str = "
reactors: { cores: [0], poll: adaptive }
mempool: { hugepages: off, size: 32MiB }
fabric: [{ provider: iwarp, listen: \"127.0.0.1:0\" }]
rpc: { listen: \"127.0.0.1:0\" }
exports:
  - { path: /scratch, store: { kind: memory, size: 16MiB }, limits: { iops: 100000 } }
  - { path: /idle, store: { kind: memory, size: 4MiB } }
limits: [{ clients: [\"127.0.0.0/8\"], iops: 99000, bandwidth: 10GiB/s }]
";

/// Most bytes of a scrape of one reactor.
const SCRAPE_MAX: usize = 1 << 20;

fn start() -> (Service, Metrics) {
    let config = Arc::new(config::parse(CONFIG, "test").expect("good"));
    let service = Service::start(Arc::clone(&config)).expect("starts");
    let metrics = Metrics::new();
    metrics.register(service.control());
    metrics.register(Arc::new(ConfigStore::new(service.control(), config, None)));
    (service, metrics)
}

/// What clap would have made of no options.
fn options() -> ClientOptions {
    #[derive(clap::Parser)]
    struct Options {
        #[command(flatten)]
        options: ClientOptions,
    }
    <Options as clap::Parser>::parse_from(["test", "--settle", "0ms"]).options
}

fn client(service: &Service) -> Client {
    let addresses = service.addresses();
    let rpc = addresses.rpc.expect("a listener");
    Client {
        place: ServerAddress::of(addresses.fabric[0], rpc, "/scratch"),
        options: options(),
    }
}

fn session(client: &Client) -> (Session, FileHandle) {
    let root = client.root().expect("mounts");
    let pool = millrace_bench::client::pool(32 << 20).expect("memory");
    let session = client.session(&pool, client.settings(4)).expect("connects");
    (session, root)
}

/// Writes, reads and looks about, with a few failures.
fn work(session: &mut Session, root: FileHandle) {
    session.null().expect("an answer");
    for (name, length) in [("small", 1_000), ("middle", 60_000), ("large", 1_000_000)] {
        let how = CreateHow::Unchecked(SetAttributes::default());
        session.create(root, name.as_bytes(), how).expect("created");
        let file = session.lookup(root, name.as_bytes()).expect("found").object;
        let options = CopyOptions {
            block: Some(1 << 20),
            depth: 1,
        };
        let mut source = Cursor::new(vec![7; length]);
        session
            .copy_in(file, &mut source, options)
            .expect("written");
        let mut back = Vec::new();
        session.copy_out(file, &mut back, options).expect("read");
        assert_eq!(back, vec![7; length]);
    }
    assert!(session.lookup(root, b"nothing").is_err());
    session.remove(root, b"small").expect("removed");
}

type Series = BTreeMap<String, String>;

/// Samples by the name of their line: labels and value.
fn scrape(metrics: &Metrics) -> BTreeMap<String, Vec<(Series, f64)>> {
    let text = metrics.render().expect("a text");
    assert!(text.len() < SCRAPE_MAX, "{} bytes", text.len());
    let mut samples: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.trim_end_matches('}')),
            None => (series, ""),
        };
        let pairs = labels.split(',').filter(|pair| !pair.is_empty());
        let labels = pairs.map(|pair| {
            let (label, value) = pair.split_once('=').expect("a pair");
            (label.to_owned(), value.trim_matches('"').to_owned())
        });
        let sample = (labels.collect(), value.parse().expect("a number"));
        samples.entry(name.to_owned()).or_default().push(sample);
    }
    samples
}

/// The sum of all series of a name with this label.
fn sum(samples: &BTreeMap<String, Vec<(Series, f64)>>, name: &str, with: &[(&str, &str)]) -> f64 {
    let series = samples.get(name).unwrap_or_else(|| panic!("no {name}"));
    let fits = |labels: &Series| {
        with.iter()
            .all(|(label, value)| labels.get(*label).map(String::as_str) == Some(value))
    };
    let fitting = series.iter().filter(|(labels, _)| fits(labels));
    fitting.map(|(_, value)| value).sum()
}

#[test]
fn every_family_is_there_with_its_labels_and_nothing_else() {
    let (service, metrics) = start();
    let client = client(&service);
    let (mut session, root) = session(&client);
    work(&mut session, root);
    let samples = scrape(&metrics);
    service.drain(Duration::ZERO);

    let mut known = BTreeSet::new();
    for family in catalogue::all() {
        let ends: &[&str] = match family.kind {
            Kind::Histogram => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        for end in ends {
            let name = format!("{}{end}", family.name);
            match samples.get(&name) {
                // Software iWARP is what this service speaks.
                None => assert!(
                    family.absent.is_some_and(|why| !why.contains("iwarp")),
                    "{name} is not there"
                ),
                Some(series) => {
                    for (labels, _) in series {
                        let names: BTreeSet<_> =
                            labels.keys().filter(|label| *label != "le").collect();
                        let declared: BTreeSet<_> =
                            family.labels.iter().map(|label| label.name).collect();
                        assert!(
                            names.iter().map(|name| name.as_str()).eq(declared),
                            "{name}"
                        );
                        for label in family.labels {
                            let value = &labels[label.name];
                            assert!(label.takes(value), "{name} {} {value}", label.name);
                        }
                    }
                }
            }
            known.insert(name);
        }
    }
    let strangers: Vec<_> = samples
        .keys()
        .filter(|name| !known.contains(*name))
        .collect();
    assert!(strangers.is_empty(), "not in the catalogue: {strangers:?}");
}

#[test]
fn what_was_done_is_counted() {
    let (service, metrics) = start();
    let client = client(&service);
    let (mut session, root) = session(&client);
    work(&mut session, root);
    let before = scrape(&metrics);
    // A call that waits for nothing has its latency settled by the end of its turn, and what the
    // fabric did for it is counted when the next one arrives.
    session.null().expect("an answer");
    session.null().expect("an answer");
    let samples = scrape(&metrics);
    let count = |name: &str, with: &[(&str, &str)]| sum(&samples, name, with);
    let bytes = 1_061_000.0;

    for (way, operation) in [("read", "write"), ("write", "read")] {
        let moved = [("procedure", way)];
        assert_eq!(count("millrace_rpc_data_bytes_total", &moved), bytes);
        let moved = [("operation", way)];
        assert_eq!(count("millrace_export_data_bytes_total", &moved), bytes);
        // Small data travels in the message.
        let rdma = count("millrace_rdma_bytes_total", &[("operation", operation)]);
        assert!((1_060_000.0..=bytes).contains(&rdma), "{operation}: {rdma}");
        for size in ["le_4k", "le_64k", "le_1m"] {
            let timed = [("procedure", way), ("size", size)];
            assert!(
                count("millrace_rpc_duration_seconds_count", &timed) >= 1.0,
                "{way} {size}"
            );
        }
    }
    for operation in ["send", "receive", "read", "write"] {
        let with = [("operation", operation)];
        let posted = count("millrace_rdma_posted_total", &with);
        let done = count("millrace_rdma_operations_total", &with);
        assert!(
            done >= 1.0 && posted >= done,
            "{operation}: {done} of {posted}"
        );
    }
    let answered = count("millrace_rpc_requests_total", &[("program", "nfs")]);
    let timed = count("millrace_rpc_duration_seconds_count", &[("program", "nfs")]);
    assert!(answered - timed <= 1.0, "{timed} of {answered}");
    let null = sum(
        &before,
        "millrace_rpc_requests_total",
        &[("procedure", "null")],
    );
    assert_eq!(
        count("millrace_rpc_requests_total", &[("procedure", "null")]),
        null + 2.0
    );

    assert_eq!(
        count("millrace_nfs_errors_total", &[("status", "noent")]),
        1.0
    );
    assert_eq!(count("millrace_nfs_errors_total", &[]), 1.0);
    let busy = [("export", "/scratch")];
    assert_eq!(count("millrace_export_errors_total", &busy), 1.0);
    assert!(count("millrace_export_requests_total", &busy) >= 12.0);
    assert_eq!(
        count("millrace_export_requests_total", &[("export", "/idle")]),
        0.0
    );
    // Each call on an export is timed once, by what it did there.
    let timed_on = |export, call| {
        let with = [("export", export), ("call", call)];
        count("millrace_export_duration_seconds_count", &with)
    };
    for call in ["read", "write"] {
        let sizes = ["le_4k", "le_64k", "le_1m"];
        let timed = sizes.map(|size| {
            let with = [("procedure", call), ("size", size)];
            count("millrace_rpc_duration_seconds_count", &with)
        });
        assert_eq!(timed_on("/scratch", call), timed.iter().sum::<f64>());
    }
    let calls = ["read", "write", "other"];
    let timed: f64 = calls.map(|call| timed_on("/scratch", call)).iter().sum();
    assert_eq!(timed, count("millrace_export_requests_total", &busy));
    let took = [("export", "/scratch"), ("call", "other")];
    assert!(count("millrace_export_duration_seconds_sum", &took) > 0.0);
    assert!(calls.iter().all(|call| timed_on("/idle", call) == 0.0));
    // The same calls, by the class of the client: the entry of the limits that applies to it.
    for call in calls {
        let with = [("class", "127.0.0.0/8"), ("call", call)];
        let of_class = count("millrace_client_class_duration_seconds_count", &with);
        assert_eq!(of_class, timed_on("/scratch", call), "{call}");
    }
    let other = [("class", "other")];
    assert_eq!(
        sum(
            &samples,
            "millrace_client_class_duration_seconds_count",
            &other
        ),
        0.0
    );
    // The same sums, for the history of figures.
    let totals = Control::totals(&*service.control());
    let moved = totals.bytes_read + totals.bytes_written;
    assert_eq!(moved, 2 * 1_061_000);
    let requests = count("millrace_rpc_requests_total", &[]);
    assert_eq!(totals.requests as f64, requests);
    assert_eq!(totals.errors, 1);
    let latencies = [&totals.read, &totals.write, &totals.other];
    for (call, latency) in calls.iter().zip(latencies) {
        assert_eq!(latency.count() as f64, timed_on("/scratch", call));
    }
    let samples = Control::item_samples(&*service.control());
    let export = |path: &str| {
        let found = samples.exports.iter().find(|one| one.key == path);
        found.unwrap_or_else(|| panic!("no sample of {path}"))
    };
    let scratch = export("/scratch");
    assert_eq!(
        scratch.totals.requests as f64,
        count("millrace_export_requests_total", &busy)
    );
    assert_eq!(scratch.totals.errors, 1);
    assert_eq!(scratch.totals.bytes_read, scratch.totals.bytes_written);
    assert_eq!(scratch.totals.bytes_read as f64, bytes);
    let latencies = scratch.latencies.as_deref().expect("of an export");
    let latencies = [&latencies.read, &latencies.write, &latencies.other];
    for (call, latency) in calls.iter().zip(latencies) {
        assert_eq!(latency.count() as f64, timed_on("/scratch", call));
    }
    assert_eq!(export("/idle").totals.requests, 0);
    let [client] = &samples.clients[..] else {
        panic!("one client: {:?}", samples.clients);
    };
    assert_eq!(client.key.to_string(), "127.0.0.1");
    assert!(client.totals.requests >= scratch.totals.requests);
    assert_eq!(client.totals.errors, 1);
    let moved = (client.totals.bytes_read, client.totals.bytes_written);
    assert_eq!(
        moved,
        (scratch.totals.bytes_read, scratch.totals.bytes_written)
    );
    let named: Vec<_> = totals.reactors.iter().map(|one| &one.name[..]).collect();
    assert_eq!(named, ["reactor-0"]);
    assert!(totals.reactors[0].busy > Duration::ZERO);
    assert_eq!(count("millrace_export_files", &busy), 3.0);
    assert_eq!(count("millrace_export_capacity_files", &busy), 16384.0);
    assert_eq!(
        count("millrace_export_capacity_bytes", &busy),
        f64::from(16 << 20)
    );
    for class in ["read", "write", "metadata"] {
        let with = [("class", class)];
        assert!(
            count("millrace_store_duration_seconds_count", &with) >= 1.0,
            "{class}"
        );
    }
    assert!(count("millrace_replay_lookups_total", &[("outcome", "new")]) >= 4.0);
    assert!(count("millrace_replay_entries", &[]) >= 4.0);
    assert!(count("millrace_replay_reply_bytes", &[]) > 100.0);
    assert_eq!(count("millrace_connections", &[("provider", "iwarp")]), 1.0);
    assert_eq!(count("millrace_clients", &[]), 1.0);
    let own = [("client", "127.0.0.1")];
    assert!(count("millrace_client_requests_total", &own) >= 12.0);
    assert_eq!(count("millrace_client_data_bytes_total", &own), 2.0 * bytes);
    assert_eq!(
        count("millrace_client_limit_calls_per_second", &own),
        99_000.0
    );
    // The connection for MOUNT may still be there.
    assert!((1.0..=2.0).contains(&count("millrace_client_connections", &own)));
    assert!(count("millrace_client_credits_granted", &own) >= 1.0);
    assert_eq!(
        count("millrace_client_requests_total", &[("client", "other")]),
        0.0
    );
    assert_eq!(count("millrace_ready", &[]), 1.0);
    assert_eq!(count("millrace_draining", &[]), 0.0);
    assert!(count("millrace_pool_memory_bytes", &[]) >= f64::from(32 << 20));

    drop(session);
    let control = service.control();
    service.drain(Duration::from_secs(10));
    let samples = scrape(&metrics);
    assert_eq!(sum(&samples, "millrace_ready", &[]), 0.0);
    assert_eq!(sum(&samples, "millrace_draining", &[]), 1.0);
    // Whoever was first, the client that went or the server that drained.
    let ends = sum(
        &samples,
        "millrace_connections_closed_total",
        &[("provider", "iwarp")],
    );
    assert_eq!(ends, 1.0);
    drop(control);
}

/// Calls that are answered in the turns that they come in are seen after it.
#[test]
fn credits_in_use_and_requests_in_flight_are_seen_between_calls() {
    let (service, metrics) = start();
    let client = client(&service);
    let (mut session, _) = session(&client);
    let control = service.control();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        session.null().expect("an answer");
        let seen = [
            sum(&scrape(&metrics), "millrace_credits_in_use", &[]) as u64,
            u64::from(control.connections().expect("some")[0].requests_in_flight),
            control.clients().expect("some")[0].credits_used,
            control.reactors().expect("some")[0].requests_in_flight,
        ];
        if seen == [1; 4] {
            break;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
    }
    service.drain(Duration::ZERO);
}
