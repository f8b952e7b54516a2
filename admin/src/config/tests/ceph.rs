//! Stores in clusters.

use std::path::PathBuf;

use super::super::*;
use super::{accept, refuse_at};

#[test]
fn every_key_of_a_cluster_is_read() {
    let config = accept(
        "handle_secret: /h\nexports:\n- path: /a\n  store: { kind: ceph, conf: /c, user: u, keyring: \
         /k, file_system: f, root: /r, sync: relaxed, read_only: true, delegations: true, \
         limits: { open_files: 16, threads: 2, queue: 3, cache: 16MiB } }\n- path: /b\n  store: { kind: ceph, user: v }\n",
    );
    let expected = Ceph {
        conf: "/c".into(),
        user: "u".into(),
        keyring: Some("/k".into()),
        file_system: Some("f".into()),
        root: "/r".into(),
        sync: SyncMode::Relaxed,
        read_only: true,
        delegations: true,
        limits: CephLimits {
            open_files: 16,
            threads: 2,
            queue: 3,
            cache: ByteSize::mib(16),
        },
    };
    assert_eq!(config.exports[0].store, Store::Ceph(expected));
    let Store::Ceph(least) = &config.exports[1].store else {
        panic!("it is in a cluster");
    };
    assert_eq!(least.conf, PathBuf::from("/etc/ceph/ceph.conf"));
    assert_eq!(least.root, PathBuf::from("/"));
    assert_eq!(config.handle_secret, Some(PathBuf::from("/h")));
    let text = to_yaml(&config);
    assert_eq!(accept(&text), config);
}

#[test]
fn stores_in_clusters_have_their_own_keys() {
    for (store, column, key, word) in [
        ("{ kind: ceph }", 10, "", "needs the key `user`"),
        (
            "{ kind: ceph, user: a, size: 1GiB }",
            10,
            "",
            "`size` and `inodes` are keys of kind memory",
        ),
        (
            "{ kind: ceph, user: a, limits: { dirty: 1GiB } }",
            10,
            "",
            "the others of kind posix",
        ),
        ("{ kind: posix, root: /a, user: a }", 10, "", "of kind ceph"),
        (
            "{ kind: ceph, user: client.a }",
            30,
            ".user",
            "write it without `client.`",
        ),
        (
            "{ kind: ceph, user: a, conf: b/c }",
            39,
            ".conf",
            "`b/c` is relative",
        ),
        (
            "{ kind: ceph, user: a, keyring: b/c }",
            42,
            ".keyring",
            "`b/c` is relative",
        ),
        (
            "{ kind: ceph, user: a, root: /a/../b }",
            39,
            ".root",
            "write it without",
        ),
        (
            "{ kind: ceph, user: a, limits: { cache: 1MiB } }",
            50,
            ".limits.cache",
            "accepted are 0 and 16MiB to",
        ),
    ] {
        let text = format!("exports:\n- path: /a\n  store: {store}\n");
        refuse_at(&text, 3, column, &format!("exports[0].store{key}"), &[word]);
    }
}

#[test]
fn directories_of_a_cluster_are_exported_once() {
    let store = "{ kind: ceph, user: a, root: /r }";
    let text = format!(
        "exports:\n- path: /a\n  store: {store}\n- path: /b\n  store: {{ kind: ceph, user: b, root: /r/s }}\n"
    );
    let words = ["exports[0].store.root", "export the upper one alone"];
    refuse_at(&text, 5, 39, "exports[1].store.root", &words);
}
