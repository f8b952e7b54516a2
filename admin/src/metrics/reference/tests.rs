//! The files of `deploy/` compared with the catalogue.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::metrics::catalogue;

fn project() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().expect("in the workspace").to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(project().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn the_files_are_as_the_catalogue_makes_them() {
    for (file, text) in files() {
        assert!(
            read(file) == text,
            "{file} is out of date: cargo run -p millrace-admin --example metrics-reference -- --write"
        );
    }
}

#[test]
fn queries_name_metrics_that_there_are() {
    for file in [
        "deploy/grafana/millrace.json",
        "deploy/prometheus/millrace.rules.yml",
        "deploy/prometheus/millrace.rules.test.yml",
        "admin/src/dashboard/page/exposition.js",
    ] {
        let text = read(file);
        assert!(text.contains("millrace_"), "{file} has none");
        let strange: Vec<_> = unknown(&text)
            .into_iter()
            // The page uses prefixes as well.
            .filter(|name| !file.ends_with(".js") || !series().any(|one| one.starts_with(name)))
            .collect();
        assert!(strange.is_empty(), "{file}: {strange:?}");
    }
    assert_eq!(
        unknown("rate(millrace_no_such_total[5m])"),
        ["millrace_no_such_total"]
    );
    assert_eq!(
        unknown("millrace_rpc_duration_seconds"),
        ["millrace_rpc_duration_seconds"]
    );
    assert!(unknown("x(millrace_rpc_duration_seconds_bucket{a=\"b\"})").is_empty());
}

#[test]
fn the_page_tells_of_every_metric_once() {
    let page = page();
    for family in catalogue::all() {
        let line = format!("| `{}` |", family.name);
        assert_eq!(page.matches(&line).count(), 1, "{line}");
    }
    assert!(
        page.contains("| Reactors: Busy |"),
        "places on the dashboard are told"
    );
}

#[test]
fn the_dashboard_is_in_order() {
    let whole: Value = serde_json::from_str(&dashboard()).expect("JSON");
    let panels = whole["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (HashSet::new(), HashSet::new());
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().expect("a number")),
            "{panel}"
        );
        let place = |side: &str| panel["gridPos"][side].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{panel}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "panels overlap at {x}, {y}: {panel}");
            }
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            assert!(query.contains("instance=~\"$instance\""), "{query}");
        }
    }
    assert!(panels.len() > 20);
}
