//! What clients use is taken away by force only, over the API and from the command line.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_admin::change::{Author, ChangeRequest, ConfigStore, Edit};
use millrace_admin::config::{self, Config, to_yaml};
use millrace_admin::control::Control;
use millrace_admin::status::{PoolStatus, ProblemType};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use support::bench::{Bench, problem, report};
use support::{Service, ctl};

mod support;

/// Adds `/scratch`, of which the service says that it has files, requests and an open.
fn exported(bench: &Bench) {
    let scratch = json!([{
        "path": "/scratch", "store": { "kind": "memory", "size": "1MiB" },
        "clients": ["192.0.2.0/24"],
    }]);
    report(&bench.patch(json!({ "exports": scratch })));
}

fn exports(service: &Service) -> usize {
    service.config().exports.len()
}

#[test]
fn an_export_in_use_is_removed_by_force_only() {
    let bench = Bench::new();
    exported(&bench);
    let none = json!({ "exports": [] });
    let refused = problem(&bench.patch(none.clone()), 409);
    assert_eq!(refused.kind, ProblemType::InUse.uri());
    assert!(refused.detail.contains("force"), "{}", refused.detail);
    let [used] = refused.uses.as_slice() else {
        panic!("{refused:?}");
    };
    assert_eq!(used.resource, "exports[/scratch]");
    assert_eq!(used.clients, ["192.0.2.1"]);
    for words in ["1536 bytes", "2 opens, locks or delegations", "99 requests"] {
        assert!(used.message.contains(words), "{words}: {}", used.message);
    }
    assert_eq!(exports(&bench.service), 1);

    let kind = "application/merge-patch+json";
    let tried = bench.ask("PATCH", "/api/v1/config?dry_run=true", kind, &none);
    let notes = report(&tried).notes.join("\n");
    assert!(notes.contains("needs force: exports[/scratch]"), "{notes}");
    assert_eq!(exports(&bench.service), 1);

    let forced = bench.ask("PATCH", "/api/v1/config?force=true", kind, &none);
    assert_eq!(report(&forced).generation, 3);
    assert_eq!(exports(&bench.service), 0);
    let history: Value = serde_json::from_str(&bench.get("/api/v1/config/history").body).unwrap();
    assert_eq!(history["history"][0]["summary"], "patch by force");
    let audit = std::fs::read_to_string(bench.folder.path().join("audit.jsonl")).unwrap();
    let outcomes: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["applied", "in_use", "tried", "applied"]);
}

#[test]
fn every_way_to_change_the_configuration_has_the_same_rule() {
    let bench = Bench::new();
    exported(&bench);
    // The file does not have it.
    let mut whole = (*bench.service.config()).clone();
    whole.exports.clear();
    let yaml = "application/yaml";
    for (method, path, kind, body) in [
        ("PUT", "/api/v1/config", yaml, to_yaml(&whole)),
        ("POST", "/api/v1/config/rollback/1", "", String::new()),
        ("POST", "/api/v1/config/reload", "", String::new()),
    ] {
        let refused = problem(&bench.ask(method, path, kind, &body), 409);
        assert_eq!(refused.kind, ProblemType::InUse.uri(), "{method} {path}");
        assert_eq!(exports(&bench.service), 1, "{method} {path}");
        let forced = bench.ask(method, &format!("{path}?force=true"), kind, &body);
        report(&forced);
        assert_eq!(exports(&bench.service), 0, "{method} {path}");
        exported(&bench);
    }
}

#[test]
fn files_in_memory_and_open_files_and_connected_clients_each_are_a_use() {
    let bench = Bench::new();
    exported(&bench);
    let refused = || {
        problem(&bench.patch(json!({ "exports": [] })), 409)
            .uses
            .remove(0)
    };
    bench.service.nfs4.states.lock().unwrap().clear();
    let message = refused().message;
    assert!(
        !message.contains("opens") && message.contains("99 requests"),
        "{message}"
    );
    // Clients that are connected, but have asked this export for nothing, do not use it.
    bench.service.export_requests.store(0, Ordering::Relaxed);
    let message = refused().message;
    assert!(!message.contains("connected"), "{message}");
    bench.service.export_requests.store(99, Ordering::Relaxed);
    bench.service.connections.lock().unwrap().clear();
    let alone = refused();
    assert!(
        alone
            .message
            .starts_with("its files (1536 bytes) are in memory"),
        "{alone:?}"
    );
    assert!(
        !alone.message.contains(';') && alone.clients.is_empty(),
        "{alone:?}"
    );

    // What is in a folder stays there.
    let text = "exports: [{ path: /data, store: { kind: posix, root: /srv } }]";
    let before = config::parse(text, "").unwrap();
    let service = Service::new(before.clone());
    service.connections.lock().unwrap().clear();
    let store = ConfigStore::new(Arc::clone(&service) as _, service.config(), None);
    let request = ChangeRequest {
        edit: Edit::Replace(Box::new(Config {
            exports: Vec::new(),
            ..before
        })),
        expected: None,
        author: Author {
            name: "test".to_owned(),
            address: None,
        },
        dry_run: false,
        persist: false,
        force: false,
    };
    store.change(request).unwrap();
    assert_eq!(exports(&service), 0);
}

#[test]
fn files_in_memory_are_a_use_by_their_number_or_else_by_their_bytes() {
    let bench = Bench::new();
    bench.service.nfs4.states.lock().unwrap().clear();
    bench.service.connections.lock().unwrap().clear();
    // The root of a store is a file.
    for (used_bytes, files, is_used) in [
        (Some(0), None, false),
        (Some(1), None, true),
        (Some(4096), Some(0), false),
        (Some(4096), Some(1), false),
        (None, Some(2), true),
    ] {
        exported(&bench);
        *bench.service.scratch.lock().unwrap() = (used_bytes, files);
        let removed = bench.patch(json!({ "exports": [] }));
        let expected = if is_used { 409 } else { 200 };
        assert_eq!(removed.status, expected, "{used_bytes:?} {files:?}");
    }
}

#[test]
fn all_pages_of_states_count_and_few_of_their_clients_are_named() {
    let bench = Bench::new();
    exported(&bench);
    let kind = millrace_admin::status::Nfs4StateKind::Open;
    let states = (0..2500).map(|number| {
        let mut state = support::nfs4::state("5f2a01000000000000000001", kind);
        state.address = (number % 20 > 0).then(|| format!("192.0.2.{}", number % 20));
        state
    });
    *bench.service.nfs4.states.lock().unwrap() = states.collect();
    let used = &problem(&bench.patch(json!({ "exports": [] })), 409).uses[0];
    assert!(used.message.contains("2500 opens"), "{}", used.message);
    assert_eq!(used.clients.len(), 16, "{:?}", used.clients);

    // A client without an address is named by its identifier.
    bench.service.nfs4.states.lock().unwrap().truncate(1);
    bench.service.connections.lock().unwrap().clear();
    let used = &problem(&bench.patch(json!({ "exports": [] })), 409).uses[0];
    assert_eq!(used.clients, ["5f2a9c0000000001"]);
}

#[test]
fn of_many_connections_those_in_use_are_found() {
    let bench = Bench::new();
    let path = "/api/v1/clients/192.0.2.1";
    let named = || -> Vec<String> {
        let uses = problem(&bench.ask("DELETE", path, "", ""), 409).uses;
        uses.into_iter().map(|one| one.resource).collect()
    };
    let idle = |id| {
        let mut one = support::connection();
        (one.id, one.requests_in_flight, one.exposures) = (id, 0, 0);
        one
    };
    bench.service.nfs4.clients.lock().unwrap().clear();
    *bench.service.connections.lock().unwrap() = (100..140).map(idle).collect();
    bench.service.connections.lock().unwrap()[39].exposures = 1;
    assert_eq!(named(), ["connection 139"]);
    // A client of NFS version 4 beyond the first pages, one reason at a time.
    for (at, id) in [130, 131, 132].into_iter().enumerate() {
        let mut clients: Vec<_> = (0..2500)
            .map(|number| support::nfs4::client(&format!("{number:016x}")))
            .collect();
        let last = clients.last_mut().unwrap();
        let mut held = [0; 3];
        held[at] = 1;
        (last.opens, last.locked_ranges, last.delegations) = (held[0], held[1], held[2]);
        last.connections = vec![id];
        *bench.service.nfs4.clients.lock().unwrap() = clients;
        assert_eq!(
            named(),
            [format!("connection {id}"), "connection 139".to_owned()]
        );
    }
    for one in bench.service.connections.lock().unwrap().iter_mut() {
        one.requests_in_flight = 1;
    }
    assert_eq!(named().len(), 16, "so many are named");
}

#[test]
fn a_pool_does_not_become_smaller_than_its_use() {
    let bench = Bench::new();
    let size = bench.service.config().mempool.size.bytes();
    let less =
        |bytes: u64| bench.patch(json!({ "mempool": { "size": format!("{}MiB", bytes >> 20) } }));
    let pool = |core, in_use| PoolStatus {
        core: Some(core),
        class: "large".to_owned(),
        buffer_bytes: 1 << 20,
        buffers: 1000,
        in_use,
        high_water: in_use,
        waiters: 0,
        waits: 0,
        page_bytes: 4096,
    };
    let unknown = problem(&less(size / 2), 409);
    assert_eq!(unknown.uses[0].resource, "mempool.size");
    assert!(unknown.uses[0].message.contains("not known"), "{unknown:?}");
    let half = (size / 2) >> 20;
    for pools in [
        vec![pool(0, half + 1)],
        vec![pool(0, half + 1), pool(1, half)],
    ] {
        *bench.service.pools.lock().unwrap() = Some(pools);
        let refused = problem(&less(size / 2), 409);
        assert_eq!(refused.kind, ProblemType::InUse.uri());
    }
    // The largest use of one reactor counts, not the sum.
    *bench.service.pools.lock().unwrap() = Some(vec![pool(0, half), pool(1, half)]);
    report(&less(size / 2));
    *bench.service.pools.lock().unwrap() = None;
    // It waits for a restart, and other changes are made in the meantime.
    report(&bench.patch(json!({ "log": "warn" })));
}

#[test]
fn connections_and_clients_in_use_are_ended_by_force_only() {
    for (method, path, body) in [
        ("DELETE", "/api/v1/connections/7", ""),
        ("DELETE", "/api/v1/clients/192.0.2.1", ""),
        ("PUT", "/api/v1/clients/192.0.2.1/ban", r#"{"seconds":60}"#),
    ] {
        let bench = Bench::new();
        let kind = if body.is_empty() {
            ""
        } else {
            "application/json"
        };
        let refused = problem(&bench.ask(method, path, kind, body), 409);
        assert_eq!(refused.kind, ProblemType::InUse.uri(), "{path}");
        let used = &refused.uses[0];
        assert_eq!(used.resource, "connection 7");
        assert_eq!(used.clients, ["192.0.2.1:800"]);
        for words in [
            "2 requests in flight",
            "13 replies",
            "3 open files, 5 locked ranges",
        ] {
            assert!(used.message.contains(words), "{words}: {}", used.message);
        }
        assert_eq!(bench.service.connections.lock().unwrap().len(), 1, "{path}");
        assert!(bench.service.bans.lock().unwrap().is_empty());
        problem(
            &bench.ask(method, &format!("{path}?force=maybe"), kind, body),
            400,
        );
        let forced = bench.ask(method, &format!("{path}?force=true"), kind, body);
        assert_eq!(forced.status, 200, "{forced:?}");
        assert!(
            bench.service.connections.lock().unwrap().is_empty(),
            "{path}"
        );
    }
    // An idle one without open files needs no force.
    let bench = Bench::new();
    let idle = |one: &mut millrace_admin::status::ConnectionStatus| {
        one.requests_in_flight = 0;
        one.exposures = 0;
    };
    idle(&mut bench.service.connections.lock().unwrap()[0]);
    bench.service.nfs4.clients.lock().unwrap().clear();
    let closed = bench.ask("DELETE", "/api/v1/connections/7", "", "");
    assert_eq!(closed.status, 200, "{closed:?}");
}

#[test]
fn a_client_of_nfs4_with_open_files_is_ended_by_force_only() {
    let bench = Bench::new();
    let path = "/api/v1/nfs4/clients/5f2a9c0000000001";
    let refused = problem(&bench.ask("DELETE", path, "", ""), 409);
    assert_eq!(
        refused.uses[0].resource,
        "NFS version 4 client 5f2a9c0000000001"
    );
    assert_eq!(bench.service.nfs4.clients.lock().unwrap().len(), 2);
    let forced = bench.ask("DELETE", &format!("{path}?force=true"), "", "");
    assert_eq!(forced.status, 204, "{forced:?}");
    problem(&bench.ask("DELETE", path, "", ""), 404);
    let mut clients = bench.service.nfs4.clients.lock().unwrap();
    (clients[0].opens, clients[0].locked_ranges) = (0, 0);
    drop(clients);
    let other = bench.ask("DELETE", "/api/v1/nfs4/clients/5f2a9c0000000002", "", "");
    assert_eq!(other.status, 204, "{other:?}");
}

/// Runs a command at a terminal where `answer` is typed. Gives its status and what is to be seen.
fn at_terminal(bench: &ctl::Bench, arguments: &[&str], answer: &str) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open = || {
        // It must not become the terminal of this process, which would end with it.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap()
    };
    let mut command = bench.command(arguments);
    command.stdin(open()).stdout(open()).stderr(open());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut master = File::from(master);
    master.write_all(answer.as_bytes()).unwrap();
    let mut seen = Vec::new();
    // The end of a terminal without programs is an error.
    let _ = master.read_to_end(&mut seen);
    let status = child.wait().unwrap().code().unwrap();
    (status, String::from_utf8_lossy(&seen).into_owned())
}

#[test]
fn the_command_line_asks_at_a_terminal_and_refuses_without_one() {
    let bench = ctl::Bench::new();
    let add = [
        "exports",
        "add",
        "/scratch",
        "--memory",
        "1MiB",
        "--client",
        "192.0.2.0/24",
    ];
    bench.says(&add);
    let remove = ["exports", "remove", "/scratch"];
    let (_, complaint) = bench.ends(1, &remove);
    ctl::has(
        &complaint,
        &[
            "exports[/scratch]: ",
            "99 requests",
            "(192.0.2.1)",
            "--force",
        ],
    );
    let (status, seen) = at_terminal(&bench, &remove, "no\n");
    assert_eq!((status, exports(&bench.service)), (1, 1), "{seen}");
    ctl::has(
        &seen,
        &[
            "192.0.2.1",
            "take it away all the same?",
            "nothing was changed",
        ],
    );
    let (status, seen) = at_terminal(&bench, &remove, "what\nyes\n");
    assert_eq!((status, exports(&bench.service)), (0, 0), "{seen}");

    let (status, seen) = at_terminal(&bench, &["connections", "evict", "7"], "n\n");
    assert_eq!(
        (status, bench.service.connections.lock().unwrap().len()),
        (1, 1),
        "{seen}"
    );
    for forced in [
        &["connections", "evict", "7"][..],
        &["nfs4", "end", "5f2a9c0000000001"],
    ] {
        bench.ends(1, forced);
        bench.says(&[forced, &["--force"]].concat());
    }
    *bench.service.connections.lock().unwrap() = vec![support::connection()];
    bench.service.nfs4.clients.lock().unwrap().clear();
    for forced in [
        &["clients", "ban", "192.0.2.1"][..],
        &["clients", "evict", "192.0.2.1"],
    ] {
        *bench.service.connections.lock().unwrap() = vec![support::connection()];
        bench.ends(1, forced);
        bench.says(&[forced, &["--force"]].concat());
    }
    bench.says(&add);
    // As after the file was edited by hand: it has no export.
    let (_, complaint) = bench.ends(1, &["config", "reload"]);
    ctl::has(&complaint, &["exports[/scratch]"]);
    bench.says(&["config", "reload", "--force"]);
    assert_eq!(exports(&bench.service), 0);
}
