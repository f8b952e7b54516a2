//! Names of metrics in queries.

use std::collections::BTreeSet;

use crate::metrics::{Kind, catalogue};

/// The metrics of this project in a text of queries, with any suffixes.
fn named(text: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_word(c))
        .filter(|word| word.starts_with("millrace_"))
        .collect()
}

/// Names of the series of a scrape, in the order of the catalogue.
pub fn series() -> impl Iterator<Item = String> {
    catalogue::all().flat_map(|family| {
        let ends: &[&str] = match family.kind {
            Kind::Histogram => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        ends.iter().map(|end| format!("{}{end}", family.name))
    })
}

/// Names in a text of queries that no scrape has.
pub fn unknown(text: &str) -> Vec<String> {
    let known: BTreeSet<String> = series().collect();
    let strange = named(text)
        .into_iter()
        .filter(|name| !known.contains(*name));
    strange.map(str::to_owned).collect()
}

/// Whether a query names a metric of this family.
pub(super) fn names(query: &str, family: &str) -> bool {
    named(query).iter().any(|name| {
        let rest = name.strip_prefix(family);
        matches!(rest, Some("" | "_bucket" | "_count" | "_sum"))
    })
}
