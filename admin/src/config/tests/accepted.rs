//! Valid configurations and their meaning.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::{FILE, accept};

/// The whole contract with operators and scripts.
const CONTRACT: &str = r#"
reactors:
  cores: [0]
  poll: busy
  idle_after: 100us
mempool:
  hugepages: auto
  size: 256MiB
fabric:
  - provider: iwarp
    listen: 127.0.0.1:20049
    crc: auto
rpc:
  listen: 127.0.0.1:2049
  rpcbind: off
rpcrdma:
  versions: [1, 2]
  inline: 4096
  read_chunk_replies: off
  padding: on
  ccp: on
flow:
  credits: 128
  done_window: 10s
  on_window_end: free
  max_exposures: 16
exports:
  - path: /scratch
    store: { kind: memory, size: 1GiB }
    clients: ["127.0.0.0/8", "::1/128"]
    access: rw
    squash: none
    anon_uid: 65534
    anon_gid: 65534
  - path: /data
    store: { kind: posix, root: /srv/data, direct: auto }
    clients: ["10.0.0.0/8"]
    access: rw
    squash: root
    limits: { iops: 50000, bandwidth: 2GiB/s }
admin:
  listen: 127.0.0.1:9620
  token_file: /etc/millrace/token
log: info
"#;

fn scratch() -> Export {
    Export {
        path: "/scratch".to_owned(),
        store: Store::Memory {
            size: ByteSize::gib(1),
            inodes: None,
        },
        clients: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        security: vec![ExportSecurity::Sys, ExportSecurity::None],
        access: Access::Rw,
        squash: Squash::None,
        anon_uid: 65534,
        anon_gid: 65534,
        limits: None,
    }
}

#[test]
fn the_contract_is_accepted() {
    let config = accept(CONTRACT);
    assert_eq!(config.exports[0], scratch());
    let folder = Store::Posix(Posix::new("/srv/data"));
    assert_eq!(config.exports[1].store, folder);
}

#[test]
fn every_key_of_a_folder_is_read() {
    let config = accept(
        "exports:\n- path: /a\n  store: { kind: posix, root: /b, direct: never, sync: relaxed, \
         groups: server, identity: server, mounts: cross, exclusive: true, limits: { open_files: 16, threads: 2, queue: 3, \
         operations: 4, dirty: 5MiB } }\n",
    );
    let expected = Posix {
        root: "/b".into(),
        direct: DirectIo::Never,
        sync: SyncMode::Relaxed,
        groups: GroupSource::Server,
        identity: CallerIdentity::Server,
        mounts: MountView::Cross,
        exclusive: true,
        limits: StoreLimits {
            open_files: 16,
            threads: 2,
            queue: 3,
            operations: 4,
            dirty: ByteSize::mib(5),
        },
    };
    assert_eq!(config.exports[0].store, Store::Posix(expected));
}

#[test]
fn what_is_served_of_the_contract_is_the_default() {
    let (kept, rest) = CONTRACT.split_once("  - path: /data").unwrap();
    let (_, tail) = rest.split_once("admin:").unwrap();
    let config = accept(&format!("{kept}admin:{tail}"));
    let token_file = Some(PathBuf::from("/etc/millrace/token"));
    let expected = Config {
        exports: vec![scratch()],
        admin: Admin {
            token_file,
            ..Admin::default()
        },
        ..Config::default()
    };
    assert_eq!(config, expected);
    assert_eq!(accept("{}"), Config::default());
}

#[test]
fn series_of_clients_may_be_none_or_many() {
    assert_eq!(Admin::default().client_series, 64);
    for most in [0, 1, 1024] {
        let config = accept(&format!("admin: {{ client_series: {most} }}"));
        assert_eq!(config.admin.client_series, most);
    }
}

#[test]
fn the_default_text_is_the_default_with_one_export() {
    let config = accept(Config::default_text());
    assert_eq!(
        config,
        Config {
            exports: vec![scratch()],
            ..Config::default()
        }
    );
}

#[test]
fn the_default_text_shows_every_key_of_the_contract() {
    let keys = |text: &str| -> Vec<String> {
        text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c == ':'))
            .filter_map(|word| word.strip_suffix(':'))
            .map(str::to_owned)
            .filter(|key| !key.is_empty())
            .collect()
    };
    let shown = keys(Config::default_text());
    for key in keys(CONTRACT) {
        assert!(
            shown.contains(&key),
            "`{key}` is not in deploy/millraced.yaml"
        );
    }
}

#[test]
fn every_example_in_deploy_parses() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
    let mut examples = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let config = load(&path).unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!(accept(&to_yaml(&config)), config);
            examples += 1;
        }
    }
    assert!(examples > 0);
}

#[test]
fn rr1_bind_02_listeners_are_at_port_20049_and_may_be_elsewhere() {
    assert_eq!(Fabric::default().listen.port(), 20049);
    let config = accept(
        "fabric: [{ provider: iwarp, listen: 0.0.0.0:20051 }]\n\
         exports: [{ path: /, store: { kind: memory, size: 1MiB } }]\n",
    );
    assert_eq!(config.fabric[0].listen.port(), 20051);
}

#[test]
fn old_10_early_clients_find_the_listener_at_port_2049_by_setting() {
    let config = accept(
        "fabric: [{ provider: iwarp, listen: 127.0.0.2:2049 }]\n\
         rpc: { listen: 127.0.0.1:2049 }\n\
         exports: [{ path: /, store: { kind: memory, size: 1MiB } }]\n",
    );
    assert_eq!(config.fabric[0].listen.to_string(), "127.0.0.2:2049");
}

#[test]
fn every_word_of_every_set_is_known() {
    let config = accept(
        "reactors: { cores: auto, poll: adaptive, idle_after: 5ms }\n\
         mempool: { hugepages: required, size: 64MiB }\n\
         fabric: [{ provider: iwarp, listen: '[::1]:20049', crc: required },\n  \
                  { provider: iwarp, listen: 0.0.0.0:20050 },\n  \
                  { provider: verbs, listen: 0.0.0.0:20049, shared_receives: true },\n  \
                  { provider: verbs, listen: 0.0.0.0:20050, read_chunk_replies: on }]\n\
         rpc: { listen: 0.0.0.0:2049, rpcbind: register }\n\
         rpcrdma: { versions: [1], inline: 16KiB, padding: off, ccp: false, ccp_flavor: none,\n  \
                    ccp_program: 0x20000001, same_xid: lenient }\n\
         flow: { credits: 1, done_window: 500ms, on_window_end: close, max_exposures: 1,\n  \
                 transfer_least: 64KiB, transfer_window: 10s }\n\
         exports:\n\
         - { path: /, store: { kind: memory, size: 1MiB }, access: ro, squash: all, anon_uid: 0 }\n\
         - { path: /a/b, store: { kind: memory, size: 3000000, inodes: 2000000 }, squash: root, flavor: sys }\n\
         state_directory: /var/lib/millrace\n",
    );
    assert_eq!(config.reactors.cores, Cores::Auto);
    assert_eq!(config.reactors.poll, PollMode::Adaptive);
    assert_eq!(config.reactors.idle_after, Duration::from_millis(5));
    assert_eq!(config.fabric[0].crc, Some(CrcPolicy::Required));
    assert_eq!(config.fabric[1].crc, Some(CrcPolicy::Auto));
    assert_eq!(config.fabric[1].shared_receives, None);
    assert_eq!(config.fabric[2].provider, Provider::Verbs);
    assert_eq!(config.fabric[2].crc, None);
    assert_eq!(config.fabric[2].shared_receives, Some(Switch::On));
    assert_eq!(config.fabric[3].shared_receives, Some(Switch::Off));
    assert_eq!(config.rpcrdma.inline.bytes(), 16384);
    assert!(!config.rpcrdma.padding.is_on() && !config.rpcrdma.ccp.is_on());
    assert_eq!(config.rpcrdma.ccp_flavor, CcpFlavor::None);
    assert_eq!(config.rpcrdma.ccp_program, 0x2000_0001);
    assert_eq!(config.rpcrdma.same_xid, SameXid::Lenient);
    assert_eq!(config.flow.on_window_end, WindowEnd::Close);
    assert_eq!(config.exports[0].clients, scratch().clients);
    assert_eq!(config.exports[0].security, scratch().security);
    assert_eq!(config.exports[1].security, [ExportSecurity::Sys]);
    assert_eq!(
        config.exports[1].store,
        Store::Memory {
            size: ByteSize(3_000_000),
            inodes: Some(2_000_000),
        }
    );
    assert_eq!(
        config.state_directory,
        Some(PathBuf::from("/var/lib/millrace"))
    );
    assert_eq!(accept(&to_yaml(&config)), config);
}

#[test]
fn auto_leaves_the_last_core_unless_it_is_the_only_one() {
    assert_eq!(Cores::Auto.resolve(&[0, 2, 5]), [0, 2]);
    assert_eq!(Cores::Auto.resolve(&[3]), [3]);
    assert_eq!(Cores::List(vec![7, 1]).resolve(&[0]), [7, 1]);
}

#[test]
fn notes_name_what_an_operator_may_not_expect() {
    let config = accept(
        "rpcrdma: { versions: [1] }\n\
         exports: [{ path: /s, store: { kind: memory, size: 1GiB } }]\n\
         state_directory: /var/lib/millrace\n",
    );
    assert_eq!(config.notes(), Vec::<String>::new());
    let notes = accept("exports: [{ path: /s, store: { kind: memory, size: 1GiB } }]\n").notes();
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("state_directory: ")),
        "{notes:?}"
    );
    let notes = accept(
        "fabric: []\nrpc: { listen: '127.0.0.1:0' }\nrpcrdma: { versions: [2], inline: 1KiB, ccp_flavor: none }\n\
         admin: { listen: 0.0.0.0:9620, token_file: /etc/token, plain_http: anywhere }\n",
    )
    .notes()
    .join("\n");
    for key in [
        "rpcrdma.versions: version 1 ",
        "rpcrdma.inline: ",
        "rpcrdma.ccp_flavor: ",
        "exports: ",
        "fabric: ",
        "rpc.listen: ",
        "admin.plain_http: ",
    ] {
        assert!(notes.contains(key), "no {key} in {notes}");
    }
}

#[test]
fn notes_name_bounds_that_another_one_overrules() {
    let notes = accept(
        "rpcrdma: { read_chunk_replies: on }\n\
         flow: { max_exposures: 17, max_client_exposures: 4 }\n\
         limits:\n- { clients: [10.0.0.0/8], iops: 5 }\n\
         - { clients: [10.1.0.0/16, 10.0.0.0/8], iops: 6 }\n",
    )
    .notes()
    .join("\n");
    for note in [
        "flow.max_exposures: more than flow.max_client_exposures, so 4 ",
        "limits[1].clients: 10.0.0.0/8 is in limits[0]",
    ] {
        assert!(notes.contains(note), "no {note} in {notes}");
    }
    assert!(!notes.contains("10.1.0.0"), "{notes}");
    let notes = accept("flow: { max_exposures: 17, max_client_exposures: 4 }\n").notes();
    assert!(!notes.join("\n").contains("max_exposures"), "{notes:?}");
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let folder = std::env::temp_dir().join(format!("millrace-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = load(&folder.join("absent.yaml")).unwrap_err().to_string();
    assert!(text.contains("absent.yaml: cannot be read: "), "{text}");
    let link = folder.join("link.yaml");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    let text = load(&link).unwrap_err().to_string();
    assert!(
        text.contains("link.yaml: cannot be read: it is a symbolic link"),
        "{text}"
    );
    let latin = folder.join("latin.yaml");
    std::fs::write(&latin, b"log: caf\xe9\n").unwrap();
    assert!(
        load(&latin)
            .unwrap_err()
            .to_string()
            .contains("byte 8 is not UTF-8")
    );
    let long = folder.join("long.yaml");
    std::fs::write(&long, vec![b'#'; TEXT_MAX + 1]).unwrap();
    assert!(
        load(&long)
            .unwrap_err()
            .to_string()
            .contains("longer than 1048576 bytes")
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_only_the_service_finds_is_told_with_its_place() {
    let file = std::env::temp_dir().join(format!("millrace-source-{}.yaml", std::process::id()));
    let text = "\u{feff}fabric:\n- listen: 0.0.0.0:20049\n  provider: verbs\n";
    std::fs::write(&file, text).unwrap();
    let (config, source) = load_with_source(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(config.fabric[0].provider, Provider::Verbs);
    let fabric = KeyPath::root().key("fabric").index(0);
    let problem = |key| ConfigProblem::new(fabric.key(key), "no such thing");
    let name = file.display();
    assert_eq!(
        source.error(problem("provider")).to_string(),
        format!("{name}:3:13: fabric[0].provider: no such thing")
    );
    // A default has no position, so that of its section is reported.
    assert_eq!(source.error(problem("shared_receives")).line, Some(2));
    assert_eq!(source.errors(Vec::new()), None);
    let errors = source.errors(vec![problem("listen"), problem("provider")]);
    assert_eq!(errors.unwrap().iter().count(), 2);
}

#[test]
fn networks_contain_their_addresses() {
    let contains = |network: &str, address: &str| {
        let address: IpAddr = address.parse().unwrap();
        network.parse::<Network>().unwrap().contains(address)
    };
    assert!(contains("10.0.0.0/8", "10.255.0.1"));
    assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
    assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
    assert!(contains("::ffff:10.1.2.3", "10.1.2.3"));
    assert!(contains("::ffff:0:0/96", "10.1.2.3"));
    assert!(!contains("::ffff:10.0.0.0/104", "11.1.2.3"));
    assert!(!contains("10.0.0.0/8", "11.0.0.1"));
    assert!(contains("0.0.0.0/0", "203.0.113.9"));
    assert!(!contains("0.0.0.0/0", "2001:db8::1"));
    assert!(contains("fd00::/8", "fdff::1"));
    assert!(contains("192.0.2.7", "192.0.2.7"));
    assert!(!contains("192.0.2.7", "192.0.2.6"));
}

proptest! {
    #[test]
    fn sizes_and_durations_survive_their_text(bytes: u64, micros in 0..u64::MAX / 2) {
        prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        prop_assert_eq!(Bandwidth(bytes).to_string().parse(), Ok(Bandwidth(bytes)));
        let duration = Duration::from_micros(micros);
        prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
    }

    #[test]
    fn networks_survive_their_text_and_contain_their_source(bits: u128, prefix in 0u8..=128, four: bool) {
        let (address, prefix) = match four {
            true => (IpAddr::V4((bits as u32).into()), prefix % 33),
            // Excludes the mapped IPv4 addresses, which are compared as IPv4.
            false => (IpAddr::V6((bits | 1 << 127).into()), prefix),
        };
        let network = Network::around(address, prefix).unwrap();
        prop_assert!(network.contains(address));
        prop_assert_eq!(network.to_string().parse(), Ok(network));
    }

    #[test]
    fn valid_configurations_survive_their_text(
        cores in proptest::collection::btree_set(0usize..1024, 1..8),
        credits in 1u32..=512,
        inline in 1u64..=16,
        micros in 1u64..1_000_000,
        names in proptest::collection::btree_set("[a-z]([a-z0-9 #:'\"{-]{0,8}[a-z])?", 0..5),
        on: bool,
    ) {
        let export = |name: &String| Export { path: format!("/{name}"), ..scratch() };
        let config = Config {
            reactors: Reactors {
                cores: Cores::List(cores.into_iter().collect()),
                idle_after: Duration::from_micros(micros),
                ..Reactors::default()
            },
            rpcrdma: Rpcrdma {
                inline: ByteSize::kib(inline),
                padding: if on { Switch::On } else { Switch::Off },
                ..Rpcrdma::default()
            },
            flow: Flow { credits, ..Flow::default() },
            exports: names.iter().map(export).collect(),
            ..Config::default()
        };
        prop_assert_eq!(parse(&to_yaml(&config), FILE), Ok(config));
    }
}

#[test]
fn limits_of_exports_and_of_clients_are_taken() {
    let config = accept(
        "exports:\n- path: /a\n  store: { kind: memory, size: 1MiB }\n  \
         limits: { iops: 50000, bandwidth: 2GiB/s }\n\
         limits:\n- clients: [10.0.0.0/8, 192.0.2.1]\n  iops: 1000\n\
         - clients: ['::/0']\n  bandwidth: 100MiB/s\n",
    );
    let limits = config.exports[0].limits.clone().unwrap();
    let bandwidth = |bytes| Some(Bandwidth(bytes));
    assert_eq!(
        (limits.iops, limits.bandwidth),
        (Some(50_000), bandwidth(2 << 30))
    );
    let [first, second] = &config.limits[..] else {
        panic!("{:?}", config.limits);
    };
    assert_eq!(first.clients.len(), 2);
    assert_eq!((first.iops, first.bandwidth), (Some(1000), None));
    assert_eq!(
        (second.iops, second.bandwidth),
        (None, bandwidth(100 << 20))
    );
    assert_eq!(accept(&to_yaml(&config)), config);
}

#[test]
fn a_listener_overrides_the_classic_mode_of_all() {
    for (all, one, expected) in [
        ("off", None, false),
        ("on", None, true),
        ("on", Some("off"), false),
        ("off", Some("on"), true),
    ] {
        let one = one.map_or(String::new(), |one| {
            format!("  read_chunk_replies: {one}\n")
        });
        let config = accept(&format!(
            "rpcrdma: {{ read_chunk_replies: {all} }}\nfabric:\n- provider: iwarp\n  \
             listen: 127.0.0.1:1\n{one}"
        ));
        let classic = config.fabric[0].is_classic(config.rpcrdma.read_chunk_replies);
        assert_eq!(classic, expected, "{all} {one}");
        let again = parse(&to_yaml(&config), FILE).expect("its own text");
        assert_eq!(again, config);
    }
    let text = "rpcrdma: { versions: [2], read_chunk_replies: on }\n";
    let notes = accept(text).notes().join("\n");
    let note = "it has no effect on 127.0.0.1:20049";
    assert!(notes.contains(note), "{notes}");
}
