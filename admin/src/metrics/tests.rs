//! The catalogue compared with a scrape of everything in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use millrace_primitives::Histogram;

use super::*;

/// Fills every family of the catalogue, with values that need escaping.
struct Everything;

const ODD: &str = "a\"b\\c\nd";

/// An unusual value where any is permitted.
fn value_of(label: &Label) -> &'static str {
    label.values.first().copied().unwrap_or(ODD)
}

impl MetricsSource for Everything {
    fn collect(&self, out: &mut Families) {
        for family in catalogue::all() {
            let labels: Vec<_> = family.labels.iter().map(|label| value_of(label)).collect();
            match family.kind {
                Kind::Histogram => {
                    let histogram = Histogram::default();
                    histogram.observe(1_000);
                    histogram.observe(u64::MAX / 2);
                    out.histogram(family, &labels, &histogram.snapshot());
                }
                _ if family.name.contains("_seconds") => {
                    out.seconds(family, &labels, Duration::from_millis(2500));
                }
                _ => out.number(family, &labels, 7),
            }
        }
    }
}

/// One line of the exposition: name, labels, value.
type ExpositionLine = (String, Vec<(String, String)>, f64);

/// Parses the exposition format strictly; panics on anything else.
fn parse_exposition(
    text: &str,
) -> (
    HashMap<String, String>,
    HashMap<String, String>,
    Vec<ExpositionLine>,
) {
    let (mut kinds, mut helps, mut lines) = (HashMap::new(), HashMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} twice"
            );
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            helps.insert(name.to_owned(), help.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}').unwrap())),
                None => (series, Vec::new()),
            };
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(word), "{name}");
            lines.push((name.to_owned(), labels, value.parse().unwrap()));
        }
    }
    (kinds, helps, lines)
}

fn parse_labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = after[end + 1..].trim_start_matches(',');
    }
    labels
}

#[test]
fn the_scrape_shows_the_catalogue_as_declared() {
    let metrics = Metrics::new();
    metrics.register(Arc::new(Everything));
    let text = metrics.render().unwrap();
    let (kinds, helps, lines) = parse_exposition(&text);

    assert_eq!(
        kinds.len(),
        catalogue::all().count(),
        "families in the scrape and in the catalogue"
    );
    let mut series = HashSet::new();
    for (name, labels, value) in &lines {
        assert!(value.is_finite() && *value >= 0.0, "{name} {value}");
        assert!(
            series.insert((name.clone(), labels.clone())),
            "{name} {labels:?} twice"
        );
    }
    for family in catalogue::all() {
        let name = family.name;
        let kind = format!("{:?}", family.kind).to_lowercase();
        assert_eq!(kinds.get(name), Some(&kind), "{name}");
        assert_eq!(
            helps.get(name).map(String::as_str),
            Some(family.help),
            "{name}"
        );
        let suffix = if family.kind == Kind::Histogram {
            "_count"
        } else {
            ""
        };
        let expected: Vec<_> = family
            .labels
            .iter()
            .map(|label| (label.name.to_owned(), value_of(label).to_owned()))
            .collect();
        let sample = |(found, labels, _): &&ExpositionLine| {
            found.strip_suffix(suffix) == Some(name) && *labels == expected
        };
        assert!(
            lines.iter().any(|line| sample(&line)),
            "{name} {expected:?}\n{text}"
        );
    }
}

#[test]
fn the_catalogue_keeps_its_rules() {
    let mut names = HashSet::new();
    for family in catalogue::all() {
        let name = family.name;
        assert!(names.insert(name), "{name} twice");
        assert!(name.starts_with("millrace_"), "{name}");
        assert_eq!(
            family.kind == Kind::Counter,
            name.ends_with("_total"),
            "{name}"
        );
        assert!(
            family.kind != Kind::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        assert!(
            family.help.ends_with('.') && family.help.len() > 5,
            "{name}"
        );
        assert_eq!(
            family.labels.len(),
            family
                .labels
                .iter()
                .map(|label| label.name)
                .collect::<HashSet<_>>()
                .len(),
            "{name}"
        );
        for label in family.labels {
            assert!(
                label.name != "le" && label.meaning.ends_with('.'),
                "{name} {}",
                label.name
            );
        }
        assert!(
            family.purpose.ends_with('.') && family.purpose.len() > 5,
            "{name}"
        );
        let base = name.strip_suffix("_total").unwrap_or(name);
        for unit in ["seconds", "bytes"] {
            assert_eq!(
                base.ends_with(&format!("_{unit}")),
                family.unit == unit,
                "{name}"
            );
        }
        // OpenMetrics calls a counter's family by its name without the suffix.
        let plain = name.strip_suffix("_total");
        assert!(
            !catalogue::all().any(|other| Some(other.name) == plain),
            "{name} and {plain:?} are one name in OpenMetrics"
        );
        for wrong in [
            "_ms",
            "_us",
            "_ns",
            "_milliseconds",
            "_microseconds",
            "_kb",
            "_percent",
        ] {
            assert!(
                !name.split('_').any(|word| word == wrong),
                "{name} is not in base units"
            );
        }
    }
}

#[test]
fn samples_of_the_same_labels_are_added_up() {
    struct Core(u64);
    impl MetricsSource for Core {
        fn collect(&self, out: &mut Families) {
            let labels = ["nfs", "read"];
            out.number(&catalogue::RPC_REQUESTS, &labels, self.0);
            let histogram = Histogram::default();
            histogram.observe(self.0 * 1000);
            let labels = ["nfs", "read", "le_4k"];
            out.histogram(&catalogue::RPC_DURATION, &labels, &histogram.snapshot());
        }
    }
    let metrics = Metrics::new();
    metrics.register(Arc::new(Core(2)));
    metrics.register(Arc::new(Core(40)));
    let text = metrics.render().unwrap();
    let (_, _, lines) = parse_exposition(&text);
    for (name, bound, expected) in [
        ("millrace_rpc_requests_total", None, 42.0),
        ("millrace_rpc_duration_seconds_count", None, 2.0),
        ("millrace_rpc_duration_seconds_sum", None, 0.000_042),
        (
            "millrace_rpc_duration_seconds_bucket",
            Some("0.000002048"),
            1.0,
        ),
        ("millrace_rpc_duration_seconds_bucket", Some("+Inf"), 2.0),
    ] {
        let found = lines.iter().find(|(found, labels, _)| {
            let le = labels.iter().find(|(label, _)| label == "le");
            found == name && le.map(|(_, le)| le.as_str()) == bound
        });
        let (_, labels, value) = found.unwrap_or_else(|| panic!("{name} {bound:?}\n{text}"));
        assert_eq!(*value, expected, "{name} {bound:?}");
        for pair in [("program", "nfs"), ("procedure", "read")] {
            assert!(
                labels
                    .iter()
                    .any(|(label, value)| (label.as_str(), value.as_str()) == pair),
                "{name} {labels:?}"
            );
        }
    }
}

#[test]
fn the_process_tells_of_itself() {
    let (_, _, lines) = parse_exposition(&Metrics::new().render().unwrap());
    let value = |name: &str| lines.iter().find(|line| line.0 == name).map(|line| line.2);
    assert_eq!(value("millrace_build_info"), Some(1.0));
    assert!(value("millrace_process_cpu_seconds_total").is_some());
    assert!(value("millrace_process_resident_memory_bytes") > Some(1e5));
    assert!(value("millrace_process_threads") >= Some(2.0));
    assert!(value("millrace_process_open_fds") >= Some(3.0));
    assert!(value("millrace_process_max_fds") >= value("millrace_process_open_fds"));
    // After 2020: the boot time and the ticks were combined correctly.
    assert!(value("millrace_process_start_time_seconds") > Some(1.577e9));
}
