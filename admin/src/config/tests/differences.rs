//! Differences between two configurations, and which of them need a restart.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::config::{
    ClientLimits, Cores, Effect, Export, Fabric, KeyChange, Provider, Switch, diff, diff_while,
    live_part,
};

fn told(before: &str, after: &str) -> Vec<(String, String, String, Effect)> {
    let changes = diff(&accept(before), &accept(after));
    let text = |value: &Value| value.to_string().replace('"', "");
    let words = |one: KeyChange| (one.path, text(&one.before), text(&one.after), one.effect);
    changes.into_iter().map(words).collect()
}

fn one(before: &str, after: &str) -> (String, String, String, Effect) {
    let mut changes = told(before, after);
    assert_eq!(changes.len(), 1, "{changes:?}");
    changes.remove(0)
}

fn exports(paths: &[&str]) -> String {
    let export = |path: &&str| format!("{{path: {path}, store: {{kind: memory, size: 1GiB}}}}");
    let list: Vec<String> = paths.iter().map(export).collect();
    format!("exports: [{}]", list.join(", "))
}

#[test]
fn values_are_those_of_the_file() {
    for (before, after, path, values) in [
        ("{}", "flow: {credits: 64}", "flow.credits", ["128", "64"]),
        (
            "{}",
            "mempool: {size: 512MiB}",
            "mempool.size",
            ["256MiB", "512MiB"],
        ),
        (
            "{}",
            "flow: {done_window: 1500ms}",
            "flow.done_window",
            ["10s", "1500ms"],
        ),
        (
            "{}",
            "reactors: {cores: [0, 1]}",
            "reactors.cores",
            ["[0]", "[0,1]"],
        ),
        (
            "{}",
            "reactors: {cores: auto}",
            "reactors.cores",
            ["[0]", "auto"],
        ),
        (
            "{}",
            "state_directory: /s",
            "state_directory",
            ["null", "/s"],
        ),
        (
            "{handle_secret: /h, state_directory: /s}",
            "{handle_secret: /h, state_directory: /s, gateways: {name: a, directory: /g}}",
            "gateways",
            [
                "null",
                "{directory:/g,name:a,share_reservations:off,shared_replies:off}",
            ],
        ),
        (
            "{}",
            "rpcrdma: {versions: [1]}",
            "rpcrdma.versions",
            ["[1,2]", "[1]"],
        ),
    ] {
        let (found, one, other, _) = one(before, after);
        assert_eq!(
            (found.as_str(), [one.as_str(), other.as_str()]),
            (path, values)
        );
    }
}

#[test]
fn another_provider_at_an_address_is_told_key_by_key() {
    let at = |rest: &str| format!("fabric: [{{listen: '127.0.0.1:1', {rest}}}]");
    let paths = |one: &str, other: &str| -> Vec<_> {
        let changes = told(&at(one), &at(other));
        let words = changes.into_iter().map(|(path, before, after, effect)| {
            // The address of a device cannot be handed from listener to listener.
            let waits = one.contains("verbs") && other.contains("verbs");
            let expected = if waits { Effect::Restart } else { Effect::Live };
            assert_eq!(effect, expected);
            format!("{path} {before} {after}")
        });
        words.collect()
    };
    assert_eq!(
        paths("provider: verbs", "provider: verbs, shared_receives: on"),
        ["fabric[0].shared_receives off on"]
    );
    assert_eq!(
        paths("provider: iwarp", "provider: verbs"),
        [
            "fabric[0].provider iwarp verbs",
            "fabric[0].crc auto null",
            "fabric[0].shared_receives null off"
        ]
    );
}

#[test]
fn an_entry_that_goes_is_one_change_whatever_its_place() {
    let (path, before, after, effect) = one(&exports(&["/a", "/b", "/c"]), &exports(&["/b", "/c"]));
    assert_eq!(
        (path.as_str(), after.as_str(), effect),
        ("exports[0]", "null", Effect::Live)
    );
    assert!(
        before.starts_with("{") && before.contains("path:/a"),
        "{before}"
    );
    let (path, before, ..) = one(&exports(&["/b", "/c"]), &exports(&["/a", "/b", "/c"]));
    assert_eq!((path.as_str(), before.as_str()), ("exports[0]", "null"));
    let (path, before, after, _) = one(&exports(&["/a", "/b"]), &exports(&["/b", "/a"]));
    assert_eq!(
        (path.as_str(), before.as_str(), after.as_str()),
        ("exports", "[/a,/b]", "[/b,/a]")
    );
    let limit = "limits: [{clients: [10.0.0.0/8], iops: 5}]";
    assert_eq!(one("{}", limit).0, "limits[0]");
    assert_eq!(one(limit, "{}").0, "limits[0]");
    assert_eq!(one(limit, &limit.replace('5', "6")).0, "limits[0].iops");
    let moved = told(limit, &limit.replace("10.", "11."));
    assert_eq!(moved.len(), 2, "{moved:?}");
    let access = exports(&["/a", "/b"]).replacen("1GiB}}]", "1GiB}, access: ro}]", 1);
    let changes = told(&exports(&["/x", "/a", "/b"]), &access);
    let paths: Vec<_> = changes.iter().map(|change| change.0.as_str()).collect();
    assert_eq!(paths, ["exports[0]", "exports[1].access"]);
}

#[test]
fn what_needs_a_restart_is_told_key_by_key() {
    let memory = "exports: [{path: /a, store: {kind: memory, size: 1GiB}}]";
    let larger = "exports: [{path: /a, store: {kind: memory, size: 2GiB}, access: ro}]";
    for (before, after, expected) in [
        ("{}", "reactors: {cores: [1]}", vec![Effect::Restart]),
        ("{}", "rpcrdma: {inline: 8KiB}", vec![Effect::Restart]),
        ("{}", "admin: {listen: 127.0.0.1:1}", vec![Effect::Restart]),
        (
            "{}",
            "admin: {token_file: /t, audit_file: /a}",
            vec![Effect::Live, Effect::Live],
        ),
        ("{}", "hardening: {seccomp: off}", vec![Effect::Restart]),
        ("{}", "log: warn", vec![Effect::Live]),
        ("{}", "nfs4: {domain: a.example}", vec![Effect::Restart]),
        ("{}", "flow: {credits: 1}", vec![Effect::Live]),
        ("{}", "mempool: {size: 512MiB}", vec![Effect::Live]),
        ("{}", "mempool: {size: 128MiB}", vec![Effect::Restart]),
        (memory, larger, vec![Effect::Restart, Effect::Live]),
        (
            "{}",
            "nfs3: off\nnfs4: {minor_versions: [1], lease: 30s, delegations: off, courtesy: 1s}",
            vec![
                Effect::Restart,
                Effect::Restart,
                Effect::Live,
                Effect::Live,
                Effect::Live,
            ],
        ),
    ] {
        let effects: Vec<Effect> = told(before, after).into_iter().map(|one| one.3).collect();
        assert_eq!(effects, expected, "{after}");
    }
}

#[test]
fn going_back_to_what_runs_takes_no_restart() {
    let running = accept("{}");
    let wanted = accept("rpcrdma: {inline: 8KiB}");
    assert_eq!(diff(&wanted, &running)[0].effect, Effect::Restart);
    assert_eq!(
        diff_while(&running, &wanted, &running)[0].effect,
        Effect::Live
    );
}

/// Turns `before` into `after` using the differences only.
fn apply(mut document: Value, changes: &[KeyChange]) -> Value {
    for (list, key) in [
        ("fabric", "listen"),
        ("exports", "path"),
        ("limits", "clients"),
    ] {
        let start = format!("{list}[");
        let place = |path: &str| {
            path.strip_prefix(&start)?
                .strip_suffix(']')?
                .parse::<usize>()
                .ok()
        };
        let entries = document[list].as_array().cloned().unwrap_or_default();
        let gone: Vec<usize> = changes
            .iter()
            .filter(|change| change.after.is_null())
            .filter_map(|change| place(&change.path))
            .collect();
        let kept = entries
            .into_iter()
            .enumerate()
            .filter(|(at, _)| !gone.contains(at));
        let mut kept: Vec<Value> = kept.map(|(_, entry)| entry).collect();
        if let Some(order) = changes.iter().find(|change| change.path == list) {
            let names = order.after.as_array().unwrap();
            let mut ordered = Vec::new();
            for name in names {
                let at = kept.iter().position(|entry| entry[key] == *name).unwrap();
                ordered.push(kept.remove(at));
            }
            assert!(kept.is_empty());
            kept = ordered;
        }
        for change in changes.iter().filter(|change| change.before.is_null()) {
            if let Some(at) = place(&change.path) {
                kept.insert(at, change.after.clone());
            }
        }
        document[list] = Value::Array(kept);
    }
    for change in changes {
        let lists = ["fabric", "exports", "limits"];
        if lists.contains(&change.path.as_str()) || change.path.ends_with(']') {
            continue;
        }
        let pointer = format!("/{}", change.path.replace(['.', '['], "/").replace(']', ""));
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = document
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap();
        match change.after.is_null() {
            true => parent.remove(key),
            false => parent.insert(key.to_owned(), change.after.clone()),
        };
    }
    if document["limits"].as_array().is_some_and(Vec::is_empty) {
        document.as_object_mut().unwrap().remove("limits");
    }
    document
}

fn configurations() -> impl Strategy<Value = Config> {
    let fabric =
        (0_u16..3, any::<bool>(), any::<bool>()).prop_map(|(port, verbs, shared)| Fabric {
            provider: if verbs {
                Provider::Verbs
            } else {
                Provider::Iwarp
            },
            listen: ([127, 0, 0, 1], port).into(),
            crc: (!verbs).then_some(crate::config::CrcPolicy::Auto),
            shared_receives: verbs.then_some(if shared { Switch::On } else { Switch::Off }),
            read_chunk_replies: None,
        });
    let export = (0..4, 1..3, any::<bool>()).prop_map(|(path, size, posix)| -> Export {
        let store = match posix {
            true => "{kind: posix, root: /r}".to_owned(),
            false => format!("{{kind: memory, size: {size}GiB}}"),
        };
        let access = if size == 1 { "ro" } else { "rw" };
        let text = format!("{{path: /{path}, store: {store}, access: {access}}}");
        serde_yaml::from_str(&text).unwrap()
    });
    let limit = (0..3, prop::option::of(1_u64..3)).prop_map(|(network, iops)| ClientLimits {
        clients: vec![format!("10.{network}.0.0/16").parse().unwrap()],
        iops,
        bandwidth: None,
    });
    let lists = (
        prop::collection::vec(fabric, 0..4),
        prop::collection::vec(export, 0..5),
        prop::collection::vec(limit, 0..4),
    );
    (lists, 1..3_u32, 0..3_usize, any::<bool>()).prop_map(|(lists, credits, core, folder)| {
        let mut config = Config::default();
        (config.fabric, config.exports, config.limits) = lists;
        config.flow.credits = credits;
        config.reactors.cores = Cores::List((0..core).collect());
        config.state_directory = folder.then(|| "/s".into());
        config
    })
}

proptest! {
    #[test]
    fn differences_are_empty_for_equals_only_and_lead_from_one_to_the_other(
        one in configurations(), other in configurations(),
    ) {
        let changes = diff(&one, &other);
        prop_assert_eq!(changes.is_empty(), one == other);
        prop_assert!(diff(&one, &one.clone()).is_empty());
        prop_assert!(changes.iter().all(|change| change.before != change.after));
        let value = |config: &Config| serde_json::to_value(config).unwrap();
        prop_assert_eq!(apply(value(&one), &changes), value(&other), "{:?}", changes);
    }

    /// After applying the live part, further attempts change nothing more, and the rest needs a
    /// restart.
    #[test]
    fn the_live_part_is_all_that_can_be_had(
        mut one in configurations(), mut other in configurations(),
    ) {
        for config in [&mut one, &mut other] {
            // A rule forbids two exports of one path.
            let mut seen = HashSet::new();
            config.exports.retain(|export| seen.insert(export.path.clone()));
        }
        let live = live_part(&one, &other);
        prop_assert_eq!(&live_part(&live, &other), &live);
        prop_assert!(diff(&one, &live).iter().all(|change| change.effect == Effect::Live));
        prop_assert!(diff(&live, &other).iter().all(|change| change.effect == Effect::Restart));
    }
}
