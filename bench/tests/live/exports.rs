//! Exports that come, change and go.

use std::sync::Arc;

use millrace_admin::config::{Access, ByteSize, Export, Limits, Store};
use millrace_admin::control::Control;
use millrace_bench::requester::session::Error;
use millrace_wire::mount;
use millrace_wire::nfs3::Status;

use super::running::{Running, export};

#[test]
fn an_export_comes_and_goes_and_its_handles_with_it() {
    let running = Running::start("");
    assert!(matches!(
        running.mount("/other"),
        Err(Error::Mount(mount::Status::NoEntry))
    ));
    running.change(|config| config.exports.push(export("/other")));
    let other = running.mount("/other").expect("mounted");
    let scratch = running.mount("/scratch").expect("mounted");
    // One on each reactor.
    let mut clients = [running.client(0), running.client(0)];
    let files = [0, 1].map(|n: usize| clients[n].create(other, &format!("file{n}"), b"content"));
    let kept = clients[0].create(scratch, "kept", b"kept");

    running.change(|config| config.exports.retain(|one| one.path != "/other"));
    for (client, file) in clients.iter_mut().zip(files) {
        assert_eq!(client.status(file), Some(Status::Stale));
        assert_eq!(client.status(other), Some(Status::Stale));
        assert_eq!(client.read(kept, 4).expect("served"), b"kept");
    }
    assert!(running.mount("/other").is_err());
    let exports = running.control().exports().expect("stores answer");
    assert_eq!(exports.len(), 1);

    // It comes back empty, and what was in it stays gone.
    running.change(|config| config.exports.push(export("/other")));
    let again = running.mount("/other").expect("mounted");
    assert_eq!(clients[0].status(files[0]), Some(Status::Stale));
    let name = clients[0].session.lookup(again, b"file0");
    assert_eq!(name.expect_err("empty").status(), Some(Status::NoEntry));
}

#[test]
fn rules_change_and_the_content_stays() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let mut clients = [running.client(0), running.client(0)];
    let file = clients[0].create(root, "file", b"one");
    running.change(|config| {
        config.exports[0].access = Access::Ro;
        config.exports[0].limits = Some(Limits {
            iops: Some(500_000),
            bandwidth: None,
        });
    });
    let exports = running.control().exports().expect("stores answer");
    assert_eq!(exports[0].access, "ro");
    assert_eq!(exports[0].limits.iops, Some(500_000));
    assert_eq!(exports[0].limits.bandwidth_bytes, None);
    for client in &mut clients {
        let refused = client.write(file, b"two").expect_err("read-only");
        assert_eq!(refused.status(), Some(Status::ReadOnly));
        assert_eq!(client.read(file, 3).expect("served"), b"one");
    }
    running.change(|config| {
        config.exports[0].access = Access::Rw;
        config.exports[0].clients = vec!["10.0.0.0/8".parse().expect("a network")];
    });
    for client in &mut clients {
        assert!(client.status(file).is_some(), "not for this host");
    }
    running.change(|config| {
        config.exports[0].clients = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    for client in &mut clients {
        client.write(file, b"two").expect("written");
        assert_eq!(client.read(file, 3).expect("served"), b"two");
    }
}

#[test]
fn an_export_without_memory_for_it_leaves_all_as_it_was() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let mut client = running.client(0);
    let huge = Export {
        store: Store::Memory {
            size: ByteSize::gib(1 << 30),
            inodes: None,
        },
        ..export("/huge")
    };
    let control = running.control();
    let mut next = (*control.config()).clone();
    next.exports[0].access = Access::Ro;
    next.exports.push(export("/other"));
    next.exports.push(huge);
    let problems = control.check(&next);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].path.to_string(), "exports[2].store.size");
    // Whoever asks all the same is refused, too.
    let refused = control.apply(Arc::new(next)).expect_err("there is no room");
    assert_eq!(refused.path, "exports[2].store.size");
    assert!(running.mount("/other").is_err());
    client.create(root, "file", b"still written");
}
