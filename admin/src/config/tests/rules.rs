//! The errors of each rule, with their positions and messages.

use super::super::*;
use super::{accept, refuse, refuse_at};

#[test]
fn unknown_keys_are_named_with_their_line_at_every_level() {
    for (text, line, column, path, known) in [
        ("log: info\nreactor: 1\n", 2, 1, "reactor", "`reactors`"),
        (
            "reactors:\n  cores: [0]\n  pol: busy\n",
            3,
            3,
            "reactors.pol",
            "`poll`",
        ),
        (
            "mempool: { hugepage: off }\n",
            1,
            12,
            "mempool.hugepage",
            "`hugepages`",
        ),
        (
            "fabric:\n- provider: iwarp\n  port: 1\n",
            3,
            3,
            "fabric[0].port",
            "`listen`",
        ),
        ("rpc:\n  bind: x\n", 2, 3, "rpc.bind", "`rpcbind`"),
        (
            "rpcrdma:\n  version: 1\n",
            2,
            3,
            "rpcrdma.version",
            "`versions`",
        ),
        (
            "flow:\n  # a comment\n\n  credit: 1\n",
            4,
            3,
            "flow.credit",
            "`credits`",
        ),
        (
            "exports:\n- path: /a\n  stor: {}\n",
            3,
            3,
            "exports[0].stor",
            "`store`",
        ),
        (
            "exports:\n- path: /a\n  store:\n    kind: memory\n    bytes: 1\n",
            5,
            5,
            "exports[0].store.bytes",
            "`size`",
        ),
        (
            "exports:\n- path: /a\n  store: {kind: memory, size: 1GiB}\n  limits: { ops: 3 }\n",
            4,
            13,
            "exports[0].limits.ops",
            "`iops`",
        ),
        (
            "admin:\n  listen: 127.0.0.1:1\n  ssl: on\n",
            3,
            3,
            "admin.ssl",
            "`token_file`",
        ),
    ] {
        refuse_at(
            text,
            line,
            column,
            path,
            &["unknown key `", "expected", known],
        );
    }
}

#[test]
fn values_of_the_wrong_kind_say_what_is_accepted() {
    for (text, line, column, path, words) in [
        (
            "flow:\n  credits: lots\n",
            2,
            12,
            "flow.credits",
            "a whole number",
        ),
        (
            "flow:\n  credits: -1\n",
            2,
            12,
            "flow.credits",
            "a whole number",
        ),
        (
            "flow:\n  credits: 1.5\n",
            2,
            12,
            "flow.credits",
            "a whole number",
        ),
        (
            "flow:\n  credits: 4294967296\n",
            2,
            12,
            "flow.credits",
            "to 4294967295",
        ),
        (
            "flow: 3\n",
            1,
            7,
            "flow",
            "`3`, expected keys with their values",
        ),
        ("log:\n", 1, 5, "log", "such as info"),
        ("exports: /scratch\n", 1, 10, "exports", "a sequence"),
        (
            "mempool:\n  size: 256MB\n",
            2,
            9,
            "mempool.size",
            "KiB, MiB, GiB or TiB",
        ),
        ("mempool:\n  size: [1]\n", 2, 9, "mempool.size", "256MiB"),
        (
            "mempool:\n  size: 99999999999GiB\n",
            2,
            9,
            "mempool.size",
            "too large",
        ),
        (
            "reactors:\n  idle_after: 100\n",
            2,
            15,
            "reactors.idle_after",
            "100us",
        ),
        (
            "reactors:\n  idle_after: 1d\n",
            2,
            15,
            "reactors.idle_after",
            "us, ms, s, m or h",
        ),
        (
            "reactors:\n  poll: spin\n",
            2,
            9,
            "reactors.poll",
            "`busy` or `adaptive`",
        ),
        ("reactors:\n  cores: all\n", 2, 10, "reactors.cores", "auto"),
        (
            "reactors:\n  cores: [0, one]\n",
            2,
            14,
            "reactors.cores[1]",
            "a whole number",
        ),
        (
            "rpc:\n  listen: localhost:2049\n",
            2,
            11,
            "rpc.listen",
            "such as 127.0.0.1:20049",
        ),
        (
            "rpc:\n  listen: 127.0.0.1\n",
            2,
            11,
            "rpc.listen",
            "and a port",
        ),
        (
            "rpc:\n  listen: 127.0.0.1:65536\n",
            2,
            11,
            "rpc.listen",
            "65535",
        ),
        ("rpc:\n  rpcbind: on\n", 2, 12, "rpc.rpcbind", "`embedded`"),
        (
            "fabric:\n- provider: siw\n",
            2,
            13,
            "fabric[0].provider",
            "`iwarp` or `verbs`",
        ),
        (
            "fabric:\n- provider: iwarp\n",
            2,
            3,
            "fabric[0]",
            "missing key `listen`",
        ),
        (
            "exports:\n- path: /a\n",
            2,
            3,
            "exports[0]",
            "missing key `store`",
        ),
        ("log: info\nlog: warn\n", 2, 1, "log", "repeated key `log`"),
        (
            "flow:\n  credits: 1\n  max_exposures: 2\n  credits: 3\n",
            4,
            3,
            "flow.credits",
            "repeated",
        ),
    ] {
        refuse_at(text, line, column, path, &[words]);
    }
}

pub(super) fn with_export(lines: &str) -> String {
    format!("exports:\n- path: /a\n  store: {{ kind: memory, size: 1GiB }}\n{lines}")
}

#[test]
fn export_rules() {
    for (path, words) in [
        ("scratch", "not absolute"),
        ("''", "not absolute"),
        ("/a/", "none at the end"),
        ("//a", "one slash"),
        ("/a/./b", "without `.`"),
        ("/a/..", "without `.`"),
        ("\"/a\\nb\"", "control characters"),
        ("\"/a\\0\"", "control characters"),
    ] {
        let text = format!("exports:\n- store: {{ kind: memory, size: 1GiB }}\n  path: {path}\n");
        refuse_at(&text, 3, 9, "exports[0].path", &[words]);
    }
    let long = format!(
        "exports:\n- path: /{}\n  store: {{ kind: memory, size: 1GiB }}\n",
        "n".repeat(256)
    );
    refuse_at(&long, 2, 9, "exports[0].path", &["255 bytes"]);
    let twice = with_export("- store: { kind: memory, size: 1GiB }\n  path: /a\n");
    refuse_at(&twice, 5, 9, "exports[1].path", &["exports[0]"]);

    for (lines, line, column, key, words) in [
        ("  clients: []\n", 4, 3, "clients", "no host could mount"),
        (
            "  clients: [10.0.0.1/8]\n",
            4,
            13,
            "clients[0]",
            "did you mean 10.0.0.0/8",
        ),
        (
            "  clients:\n  - 10.0.0.0/8\n  - ten\n",
            6,
            5,
            "clients[1]",
            "such as 10.0.0.0/8",
        ),
        ("  clients: [10.0.0.0/33]\n", 4, 13, "clients[0]", "0 to 32"),
        (
            "  clients: ['fd00::/+8']\n",
            4,
            13,
            "clients[0]",
            "such as 10.0.0.0/8",
        ),
        ("  access: wo\n", 4, 11, "access", "`rw` or `ro`"),
        ("  squash: yes\n", 4, 11, "squash", "`root`"),
        ("  anon_uid: nobody\n", 4, 13, "anon_uid", "a whole number"),
        ("  limits: { iops: 0 }\n", 4, 19, "limits.iops", "1 or more"),
        (
            "  limits: { bandwidth: 0/s }\n",
            4,
            24,
            "limits.bandwidth",
            "1/s or more",
        ),
        ("  limits: {}\n", 4, 11, "limits", "has no limit"),
    ] {
        refuse_at(
            &with_export(lines),
            line,
            column,
            &format!("exports[0].{key}"),
            &[words],
        );
    }
}

#[test]
fn client_limit_rules() {
    for (entry, column, key, words) in [
        ("{ clients: [], iops: 1 }", 5, ".clients", "no clients"),
        ("{ clients: [10.0.0.1] }", 3, "", "has no limit"),
        ("{ clients: [10.0.0.1], iops: 0 }", 32, ".iops", "1 or more"),
        (
            "{ clients: [10.0.0.1], iops: 5k }",
            32,
            ".iops",
            "a whole number",
        ),
        (
            "{ clients: [10.0.0.1], bandwidth: 0/s }",
            37,
            ".bandwidth",
            "1/s or more",
        ),
        ("{ iops: 5 }", 3, "", "`clients`"),
        ("{ clients: [10.0.0.1], ops: 5 }", 26, ".ops", "`iops`"),
    ] {
        let text = format!("limits:\n- {entry}\n");
        refuse_at(&text, 2, column, &format!("limits[0]{key}"), &[words]);
    }
}

#[test]
fn store_rules() {
    for (store, column, key, words) in [
        ("{ kind: memory }", 10, "", "needs the key `size`"),
        ("{ size: 1GiB }", 10, "", "missing key `kind`"),
        ("{ kind: memory, size: 0 }", 32, ".size", "1MiB or more"),
        (
            "{ kind: memory, size: 1GiB, root: /a }",
            10,
            "",
            "`root`, `direct`",
        ),
        ("{ kind: tape }", 18, ".kind", "`memory`, `posix`, `ceph`"),
        ("{ kind: posix }", 10, "", "needs the key `root`"),
        (
            "{ kind: posix, root: /a, size: 1GiB }",
            10,
            "",
            "`size` and `inodes` are keys of",
        ),
        (
            "{ kind: memory, size: 1GiB, inodes: 0 }",
            46,
            ".inodes",
            "the root directory",
        ),
        (
            "{ kind: posix, root: /a, inodes: 5 }",
            10,
            "",
            "`size` and `inodes` are keys of",
        ),
        (
            "{ kind: posix, root: a/b }",
            31,
            ".root",
            "`a/b` is relative",
        ),
        (
            "{ kind: posix, root: /a/../b }",
            31,
            ".root",
            "write it without",
        ),
        (
            "{ kind: posix, root: /a, limits: { threads: 0 } }",
            54,
            ".limits.threads",
            "accepted are 1 to 1024",
        ),
        (
            "{ kind: posix, root: /a, limits: { open_files: 3 } }",
            57,
            ".limits.open_files",
            "accepted are 16 to",
        ),
        (
            "{ kind: posix, root: /a, limits: { dirty: 1KiB } }",
            52,
            ".limits.dirty",
            "accepted are 1MiB to",
        ),
        ("memory", 10, "", "expected"),
    ] {
        let text = format!("exports:\n- path: /a\n  store: {store}\n");
        refuse_at(
            &text,
            3,
            column,
            &format!("exports[0].store{key}"),
            &[words],
        );
    }
}

#[test]
fn reactor_pool_and_flow_rules() {
    let cores: String = (0..=255).map(|n| format!("{n},")).collect();
    accept(&format!("reactors: {{ cores: [{cores}] }}\n"));
    for (text, line, column, path, words) in [
        (
            "reactors:\n  cores: []\n",
            2,
            3,
            "reactors.cores",
            "at least one",
        ),
        (
            "reactors:\n  cores: [1, 1]\n",
            2,
            14,
            "reactors.cores[1]",
            "twice",
        ),
        (
            "reactors:\n  cores:\n  - 0\n  - 1024\n",
            4,
            5,
            "reactors.cores[1]",
            "0 to 1023",
        ),
        (
            "reactors:\n  idle_after: 2s\n",
            2,
            15,
            "reactors.idle_after",
            "1us to 1s",
        ),
        (
            "mempool:\n  size: 0\n",
            2,
            9,
            "mempool.size",
            "8MiB to 1TiB",
        ),
        ("flow:\n  credits: 0\n", 2, 12, "flow.credits", "1 to 4096"),
        (
            "flow:\n  max_exposures: 0\n",
            2,
            18,
            "flow.max_exposures",
            "1 to 1024",
        ),
        (
            "flow:\n  max_client_exposures: 0\n",
            2,
            25,
            "flow.max_client_exposures",
            "1 to 1048576",
        ),
        (
            "flow:\n  max_total_exposures: 1048577\n",
            2,
            24,
            "flow.max_total_exposures",
            "1 to 1048576",
        ),
        (
            "flow:\n  max_exposed_bytes: 1MiB\n",
            2,
            22,
            "flow.max_exposed_bytes",
            "2MiB to 1TiB",
        ),
        (
            "flow:\n  transfer_least: 100\n",
            2,
            19,
            "flow.transfer_least",
            "1KiB to 1GiB",
        ),
        (
            "flow:\n  transfer_window: 1s\n",
            2,
            20,
            "flow.transfer_window",
            "5s to 600s",
        ),
        (
            "flow:\n  done_window: 0s\n",
            2,
            16,
            "flow.done_window",
            "1ms to 600s",
        ),
        (
            "flow:\n  credits: 4096\nmempool:\n  size: 16MiB\n",
            4,
            9,
            "mempool.size",
            "receive buffers of one connection",
        ),
        ("log: ''\n", 1, 6, "log", "such as info"),
        ("log: inof\n", 1, 6, "log", "`inof` is neither a level"),
        (
            "state_directory: state\n",
            1,
            18,
            "state_directory",
            "relative",
        ),
        (
            "admin:\n  token_file: token\n",
            2,
            15,
            "admin.token_file",
            "relative",
        ),
        (
            "admin:\n  client_series: 1025\n",
            2,
            18,
            "admin.client_series",
            "0 to 1024",
        ),
    ] {
        refuse_at(text, line, column, path, &[words]);
    }
}

#[test]
fn hardening_rules() {
    accept("hardening: { no_new_privileges: off, seccomp: off, landlock: off }\n");
    accept("hardening: { capabilities: required, seccomp: required, landlock: on }\n");
    for (needing, other) in [("landlock", "seccomp"), ("seccomp", "landlock")] {
        let text =
            format!("hardening:\n  no_new_privileges: off\n  {other}: off\n  {needing}: on\n");
        let path = "hardening.no_new_privileges";
        let words = format!("hardening.{needing}, which needs it");
        refuse_at(&text, 2, 22, path, &[&words]);
    }
}

#[test]
fn rpcrdma_rules() {
    for (value, column, key, words) in [
        ("versions: []", 3, "versions", "[1, 2]"),
        ("versions: [3]", 14, "versions[0]", "1 and 2"),
        ("versions: [1, 1]", 17, "versions[1]", "twice"),
        ("versions: [2, 0]", 17, "versions[1]", "1 and 2"),
        ("inline: 1000", 11, "inline", "1KiB to 256KiB"),
        ("inline: 0", 11, "inline", "1KiB to 256KiB"),
        ("inline: 257KiB", 11, "inline", "1KiB to 256KiB"),
        (
            "read_chunk_replies: 1",
            23,
            "read_chunk_replies",
            "expected",
        ),
        ("padding: maybe", 12, "padding", "`on`"),
        ("ccp_flavor: gss", 15, "ccp_flavor", "`sys`"),
        ("ccp_program: 100003", 16, "ccp_program", "100417"),
        ("ccp_program: -1", 16, "ccp_program", "a whole number"),
        ("same_xid: on", 13, "same_xid", "`lenient`"),
    ] {
        let text = format!("rpcrdma:\n  {value}\n");
        refuse_at(&text, 2, column, &format!("rpcrdma.{key}"), &[words]);
    }
    accept("rpcrdma: { versions: [2] }\n");
    accept("rpcrdma: { ccp_flavor: sys, ccp_program: 100417, same_xid: strict }\n");
    accept("rpcrdma: { ccp: off, ccp_program: 100003 }\n");
    accept(
        "rpcrdma: { versions: [2, 1], inline: 262144, read_chunk_replies: false }\nflow: { credits: 16 }\n",
    );
}

#[test]
fn listeners_do_not_clash() {
    for (text, line, column, path, words) in [
        (
            "rpc:\n  listen: 127.0.0.1:20049\n",
            2,
            11,
            "rpc.listen",
            "fabric[0].listen",
        ),
        (
            "admin:\n  listen: 0.0.0.0:2049\n  plain_http: anywhere\n",
            2,
            11,
            "admin.listen",
            "rpc.listen",
        ),
        (
            "fabric:\n- {provider: iwarp, listen: '[::]:1'}\n- {provider: iwarp, listen: 1.2.3.4:1}\n",
            3,
            29,
            "fabric[1].listen",
            "fabric[0].listen",
        ),
    ] {
        refuse_at(text, line, column, path, &[words]);
    }
    accept("rpc: { listen: '127.0.0.1:0' }\nadmin: { listen: '127.0.0.1:0' }\n");
    accept("rpc: { listen: '127.0.0.2:20049' }\n");
}

#[test]
fn each_provider_has_keys_of_its_own() {
    let verbs = "fabric:\n- provider: verbs\n  listen: 0.0.0.0:20049\n";
    let iwarp = verbs.replace("verbs", "iwarp");
    for (text, line, column, path, words) in [
        (
            format!("{verbs}  crc: off\n"),
            2,
            3,
            "fabric[0]",
            "`crc` is a key of provider iwarp",
        ),
        (
            format!("{iwarp}  shared_receives: on\n"),
            2,
            3,
            "fabric[0]",
            "`shared_receives` is a key of provider verbs",
        ),
        (
            format!("{verbs}  shared_receives: 4\n"),
            4,
            20,
            "fabric[0].shared_receives",
            "expected",
        ),
        (
            format!("{verbs}  shared_receives: auto\n"),
            4,
            20,
            "fabric[0].shared_receives",
            "expected one of `on`",
        ),
        (
            format!("{verbs}  device: mlx5_0\n"),
            4,
            3,
            "fabric[0].device",
            "`shared_receives`",
        ),
        (
            format!("{verbs}- provider: verbs\n  listen: 10.0.0.1:20049\n"),
            5,
            11,
            "fabric[1].listen",
            "fabric[0].listen",
        ),
    ] {
        refuse_at(&text, line, column, path, &[words]);
    }
}

#[test]
fn ports_of_rdma_are_not_those_of_tcp_but_a_note_tells_of_iwarp_devices() {
    let text = "fabric:\n- {provider: verbs, listen: '0.0.0.0:20049'}\n\
                - {provider: iwarp, listen: '10.0.0.1:20049'}\n\
                - {provider: verbs, listen: '[::1]:9620'}\n";
    let notes = accept(text).notes();
    let about: Vec<_> = notes
        .iter()
        .filter(|note| note.contains("TCP port of"))
        .collect();
    assert_eq!(about.len(), 1, "{notes:?}");
    assert!(
        about[0].starts_with("fabric[0].listen: 0.0.0.0:20049 is also the TCP port of fabric[1]."),
        "{about:?}"
    );
}

#[test]
fn all_broken_rules_are_told_at_once_up_to_a_bound() {
    let errors = refuse("flow: { credits: 0, max_exposures: 0 }\nmempool: { size: 1 }\nlog: ''\n");
    let paths: Vec<_> = errors.iter().map(|error| error.path.to_string()).collect();
    assert_eq!(
        paths,
        ["mempool.size", "flow.credits", "flow.max_exposures", "log"]
    );
    assert_eq!(errors.to_string().lines().count(), 4);

    let many = format!("reactors: {{ cores: [{}] }}\n", "7,".repeat(100));
    assert_eq!(refuse(&many).iter().count(), ConfigErrors::MAX);
}

#[test]
fn a_rule_broken_by_a_default_points_at_what_the_file_has() {
    // The pool's size is not in the file: the position is that of the enclosing section.
    refuse_at(
        "log: info\nmempool:\n  hugepages: off\nflow: { credits: 4096 }\nrpcrdma: { inline: 64KiB }\n",
        3,
        3,
        "mempool.size",
        &["256MiB is too small"],
    );
}
