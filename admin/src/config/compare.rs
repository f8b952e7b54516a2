//! Compares two configurations in the form of the file, key by key.

use serde_yaml::{Mapping, Value};

use super::{Effect, KeyChange};

/// Lists whose entries are identified by one of their keys instead of their index.
const KEYED: [(&str, &str); 3] = [
    ("fabric", "listen"),
    ("exports", "path"),
    ("limits", "clients"),
];

/// The key that identifies entries of the list at this path; `None` for other lists.
pub fn entry_key(path: &str) -> Option<&'static str> {
    let (_, key) = KEYED.iter().find(|(list, _)| *list == path)?;
    Some(key)
}

/// The changes from `before` to `after`; `live` is the part in force without a restart.
pub fn changes(before: &Value, after: &Value, live: &Value) -> Vec<KeyChange> {
    let mut comparison = Comparison {
        path: String::new(),
        changes: Vec::new(),
    };
    comparison.walk(Some(before), Some(after), Some(live));
    comparison.changes
}

struct Comparison {
    path: String,
    changes: Vec<KeyChange>,
}

impl Comparison {
    fn walk(&mut self, before: Option<&Value>, after: Option<&Value>, live: Option<&Value>) {
        if before == after {
            return;
        }
        if let Some(key) = entry_key(&self.path) {
            let [before, after, live] = [before, after, live].map(|list| named(list, key));
            return self.entries(&before, &after, &live);
        }
        match (before, after) {
            (Some(Value::Mapping(one)), Some(Value::Mapping(other))) if one_kind(one, other) => {
                for key in keys_of_both(one, other) {
                    let live = live.and_then(|live| live.get(key));
                    self.at(key, |at| at.walk(one.get(key), other.get(key), live));
                }
            }
            _ => self.change(before, after, live == after),
        }
    }

    /// Lists of identified entries.
    fn entries(
        &mut self,
        before: &[ListEntry<'_>],
        after: &[ListEntry<'_>],
        live: &[ListEntry<'_>],
    ) {
        for (index, entry) in before.iter().enumerate() {
            if find(after, entry).is_none() {
                let gone = find(live, entry).is_none();
                self.at_index(index, |at| at.change(Some(entry.value), None, gone));
            }
        }
        let stay = |list: &[ListEntry<'_>]| -> Vec<Value> {
            let both = |entry: &&ListEntry<'_>| {
                find(before, entry).is_some() && find(after, entry).is_some()
            };
            list.iter()
                .filter(both)
                .map(|entry| entry.name.clone())
                .collect()
        };
        let (order_before, order_after) = (stay(before), stay(after));
        if order_before != order_after {
            let holds = stay(live) == order_after;
            let [one, other] = [order_before, order_after].map(Value::Sequence);
            self.change(Some(&one), Some(&other), holds);
        }
        for (index, entry) in after.iter().enumerate() {
            let live = find(live, entry);
            self.at_index(index, |at| match find(before, entry) {
                Some(before) => at.walk(Some(before), Some(entry.value), live),
                None => at.change(None, Some(entry.value), live == Some(entry.value)),
            });
        }
    }

    fn at(&mut self, key: &Value, inner: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key.as_str().unwrap_or_default());
        inner(self);
        self.path.truncate(length);
    }

    fn at_index(&mut self, index: usize, inner: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        inner(self);
        self.path.truncate(length);
    }

    fn change(&mut self, before: Option<&Value>, after: Option<&Value>, holds: bool) {
        let json = |value: Option<&Value>| serde_json::to_value(value).unwrap_or_default();
        self.changes.push(KeyChange {
            path: self.path.clone(),
            before: json(before),
            after: json(after),
            effect: if holds { Effect::Live } else { Effect::Restart },
        });
    }
}

/// Whether both have the same keys: a store of another kind has other keys.
fn one_kind(one: &Mapping, other: &Mapping) -> bool {
    one.get("kind") == other.get("kind")
}

/// The keys of two mappings, in the order of their own mappings.
fn keys_of_both<'a>(one: &'a Mapping, other: &'a Mapping) -> Vec<&'a Value> {
    let mut keys: Vec<&Value> = other.keys().collect();
    let mut place = 0;
    for key in one.keys() {
        match keys.iter().position(|other| *other == key) {
            Some(found) => place = found + 1,
            None => {
                keys.insert(place, key);
                place += 1;
            }
        }
    }
    keys
}

/// A list entry with its identity: a key's value, and its index among those with the same value, as
/// a rule may permit several.
struct ListEntry<'a> {
    name: Value,
    occurrence: usize,
    value: &'a Value,
}

/// The entries of a list; an empty one may be absent.
fn named<'a>(list: Option<&'a Value>, key: &str) -> Vec<ListEntry<'a>> {
    let list = list
        .and_then(Value::as_sequence)
        .map_or(&[][..], Vec::as_slice);
    let mut entries: Vec<ListEntry<'a>> = Vec::with_capacity(list.len());
    for value in list {
        let name = value.get(key).cloned().unwrap_or_default();
        let occurrence = entries.iter().filter(|entry| entry.name == name).count();
        entries.push(ListEntry {
            name,
            occurrence,
            value,
        });
    }
    entries
}

fn find<'a>(list: &[ListEntry<'a>], entry: &ListEntry<'_>) -> Option<&'a Value> {
    let mut same = list.iter().filter(|other| other.name == entry.name);
    same.nth(entry.occurrence).map(|found| found.value)
}
