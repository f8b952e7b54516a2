//! The reference page: every metric in the table of its subject.

use std::fmt::Write;

use super::names::names;
use super::panels::ROWS;
use crate::metrics::{Family, Kind, Label, catalogue};

/// The page in Markdown.
pub fn page() -> String {
    let mut out = String::from(FRONT);
    for subject in catalogue::SUBJECTS {
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "\n## {}\n\n| metric | kind | unit | labels | what it tells | what it is for | dashboard |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
            subject.title
        );
        for family in subject.families {
            out.push_str(&line(family));
        }
    }
    out.push_str("\n## Labels\n\n| label | meaning | values |\n| --- | --- | --- |\n");
    let mut known: Vec<&Label> = Vec::new();
    for label in catalogue::all().flat_map(|family| family.labels) {
        if !known.iter().any(|one| std::ptr::eq(*one, *label)) {
            known.push(label);
            let of = owners(label);
            let values = match label.values {
                [] => "any".to_owned(),
                values => format!("`{}`", values.join("`, `")),
            };
            let _ = writeln!(
                out,
                "| `{}`{of} | {} | {values} |",
                label.name, label.meaning
            );
        }
    }
    out.push_str(
        "\n## Absent metrics\n\nA scrape has every metric above, with these exceptions:\n\n",
    );
    for family in catalogue::all() {
        if let Some(why) = family.absent {
            let _ = writeln!(out, "- `{}`: absent for {why}.", family.name);
        }
    }
    out
}

fn line(family: &Family) -> String {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<_> = family
        .labels
        .iter()
        .map(|label| format!("`{}`", label.name))
        .collect();
    format!(
        "| `{}` | {kind} | {} | {} | {} | {} | {} |\n",
        family.name,
        family.unit,
        labels.join(", "),
        family.help,
        family.purpose,
        places(family)
    )
}

/// The metrics with this label, if another label has the same name.
fn owners(label: &Label) -> String {
    let has = |family: &&Family| family.labels.iter().any(|one| std::ptr::eq(*one, label));
    let same = |family: &&Family| family.labels.iter().any(|one| one.name == label.name);
    if catalogue::all().filter(same).all(|family| has(&family)) {
        return String::new();
    }
    let names: Vec<_> = catalogue::all()
        .filter(has)
        .map(|family| family.name)
        .collect();
    format!(" of `{}`", names.join("`, `"))
}

/// The panels of the dashboard that show it.
fn places(family: &Family) -> String {
    let mut found = Vec::new();
    for (row, panels) in ROWS {
        for panel in *panels {
            if panel
                .queries
                .iter()
                .any(|(query, _)| names(query, family.name))
            {
                found.push(format!("{row}: {}", panel.title));
            }
        }
    }
    found.join("; ")
}

const FRONT: &str = "# Metrics

Made from the catalogue in `admin/src/metrics/catalogue` by
`cargo run -p millrace-admin --example metrics-reference -- --write`; edits belong there.

`GET /metrics` answers all of them in the text format of Prometheus. A scrape reads counters that
the reactors write for themselves; it exchanges no messages with them. Times are in
seconds and sizes in bytes. Counters begin at zero when the server starts. The number of series is
bounded by the cores, the exports and `admin.client_series`.

`deploy/prometheus/prometheus.yml` shows how to scrape, `deploy/prometheus/millrace.rules.yml` has
alerts, and `deploy/grafana/millrace.json` is a dashboard that shows the most important metrics;
the last column says where.
";
