use super::*;

/// The text after a change.
fn change(text: &str, change: impl FnOnce(&mut Config)) -> String {
    let mut config = parse(text, "").unwrap();
    change(&mut config);
    edit_text(text, &config).unwrap_or_else(|| panic!("not known:\n{text}"))
}

const BY_HAND: &str = "\
# The north rack.
log: info   # until the move

flow: # by measurement
  credits:  64 # was 128
  # never less
  max_exposures: 8
exports:
  # Scratch space.
  - path: /a
    store: { kind: memory, size: 1MiB }  # small
    clients: [10.0.0.0/8, \"fd00::/8\"]
  # For the build machines.
  - path: '/b'
    store:
      kind: memory
      size: 2MiB
    access: ro

# The end.
";

fn lines_that_differ(one: &str, other: &str) -> (Vec<String>, Vec<String>) {
    let only = |these: &str, those: &str| {
        let those: Vec<&str> = those.lines().collect();
        let new = these.lines().filter(|line| !those.contains(line));
        new.map(str::to_owned).collect()
    };
    (only(one, other), only(other, one))
}

#[test]
fn nothing_but_the_value_changes() {
    assert_eq!(change(BY_HAND, |_| {}), BY_HAND);
    for (edit, old, new) in [
        (
            (|config: &mut Config| config.flow.credits = 96) as fn(&mut Config),
            "  credits:  64 # was 128",
            "  credits:  96 # was 128",
        ),
        (
            |config| config.log = "info,millrace=debug".to_owned(),
            "log: info   # until the move",
            "log: info,millrace=debug   # until the move",
        ),
        (
            |config| {
                config.exports[0].store = crate::config::Store::Memory {
                    size: crate::config::ByteSize::mib(3),
                    inodes: None,
                }
            },
            "    store: { kind: memory, size: 1MiB }  # small",
            "    store: { kind: memory, size: 3MiB }  # small",
        ),
        (
            |config| config.exports[1].access = crate::config::Access::Rw,
            "    access: ro",
            "    access: rw",
        ),
        (
            |config| config.exports[0].clients.truncate(1),
            "    clients: [10.0.0.0/8, \"fd00::/8\"]",
            "    clients: [10.0.0.0/8]",
        ),
    ] {
        let after = change(BY_HAND, edit);
        let expected = (vec![old.to_owned()], vec![new.to_owned()]);
        assert_eq!(lines_that_differ(BY_HAND, &after), expected, "{after}");
    }
}

#[test]
fn keys_come_into_their_section_and_no_defaults_with_them() {
    let after = change(BY_HAND, |config| {
        config.flow.max_total_exposures = 77;
        config.rpcrdma.versions = vec![1];
        config.admin.hosts = vec!["storage.example".to_owned()];
        config.exports[0].access = crate::config::Access::Ro;
        config.state_directory = Some("/var/lib/millrace".into());
    });
    let (gone, new) = lines_that_differ(BY_HAND, &after);
    assert_eq!(gone, [""; 0]);
    assert_eq!(
        new,
        [
            "  max_total_exposures: 77",
            "    access: ro",
            "rpcrdma:",
            "  versions: [1]",
            "admin:",
            "  hosts: [storage.example]",
            "state_directory: /var/lib/millrace",
        ]
        .iter()
        .filter(|line| !BY_HAND.lines().any(|there| there == **line))
        .copied()
        .collect::<Vec<_>>()
    );
}

#[test]
fn entries_come_and_go_and_the_others_keep_their_comments() {
    let third = |config: &mut Config| {
        let mut export = config.exports[0].clone();
        export.path = "/c".to_owned();
        config.exports.push(export);
    };
    let after = change(BY_HAND, third);
    let (gone, new) = lines_that_differ(BY_HAND, &after);
    assert_eq!(gone, [""; 0], "{after}");
    assert_eq!(new[0], "  - path: /c");
    assert!(
        !after.contains("squash") && !after.contains("anon_uid"),
        "{after}"
    );

    let after = change(BY_HAND, |config| {
        config.exports.remove(0);
        third(config);
    });
    assert!(after.contains("# For the build machines."), "{after}");
    assert!(
        !after.contains("path: /a") && after.contains("path: /c"),
        "{after}"
    );

    let all_gone = change(BY_HAND, |config| config.exports.clear());
    assert!(
        all_gone.contains("exports: []\n") && all_gone.ends_with("# The end.\n"),
        "{all_gone}"
    );
}

#[test]
fn other_ways_of_writing_are_known_or_given_up() {
    let credits = |text: &str| {
        let mut config = parse(text, "").unwrap();
        config.flow.credits = 7;
        edit_text(text, &config)
    };
    for (text, expected) in [
        ("{}", "{ flow: { credits: 7 } }"),
        ("{ log: info }\n", "{ log: info, flow: { credits: 7 } }\n"),
        (
            "flow: { credits: 64, max_exposures: 3 }\n",
            "flow: { credits: 7, max_exposures: 3 }\n",
        ),
        (
            "flow: {max_exposures: 3}\n",
            "flow: {max_exposures: 3, credits: 7}\n",
        ),
        ("flow: {}\n", "flow: { credits: 7 }\n"),
        ("log: info", "log: info\nflow:\n  credits: 7\n"),
        (
            "\u{feff}log: info\n",
            "\u{feff}log: info\nflow:\n  credits: 7\n",
        ),
        (
            "flow:\n    max_exposures: 3\nlog: info\n",
            "flow:\n    max_exposures: 3\n    credits: 7\nlog: info\n",
        ),
        ("---\nflow:\n  credits: '64'\n", ""),
    ] {
        let Ok(_) = parse(text, "") else { continue };
        assert_eq!(credits(text).as_deref(), Some(expected), "{text}");
    }
    assert!(
        credits("flow: &flow\n  max_exposures: 3\n").is_some_and(|text| text.contains("&flow"))
    );
}

#[test]
fn the_complete_example_keeps_its_comments() {
    let text = Config::default_text();
    let after = change(text, |config| {
        config.flow.credits = 7;
        config.admin.token_file = Some("/etc/millrace/token".into());
        config.fabric[0].listen = "127.0.0.1:20050".parse().unwrap();
        config.reactors.cores = crate::config::Cores::Auto;
    });
    let (gone, new) = lines_that_differ(text, &after);
    assert!(
        gone.iter().all(|line| !line.trim_start().starts_with('#')),
        "{gone:?}"
    );
    assert!(new.len() <= 6, "{new:?}");
}
