//! Keys such as `exports[/scratch].limits.iops`, and their values.

use std::fmt;

use serde_json::{Map, Value};

/// The keys by which an entry of a list may be named.
const NAMES: &[&str] = &["path", "listen", "name"];

/// The path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Vec<Step>);

/// One step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    /// An entry of a list, by index or name.
    Entry(String),
}

impl Key {
    /// Parses a key.
    ///
    /// # Errors
    ///
    /// A step is empty or a bracket is not closed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is no key; write sections and keys with dots and list indices in \
                 brackets, such as exports[0].access"
            )
        };
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                // A name may contain brackets itself: an address such as [::1]:20049.
                let end = match inner.starts_with('[') {
                    true => inner[1..]
                        .find(']')
                        .and_then(|at| inner[at + 2..].find(']').map(|more| at + 2 + more)),
                    false => inner.find(']'),
                };
                let end = end.ok_or_else(refused)?;
                steps.push(Step::Entry(inner[..end].to_owned()));
                rest = &inner[end + 1..];
            } else {
                let part = match steps.is_empty() {
                    true => rest,
                    false => rest.strip_prefix('.').ok_or_else(refused)?,
                };
                let end = part.find(['.', '[']).unwrap_or(part.len());
                steps.push(Step::Key(part[..end].to_owned()));
                rest = &part[end..];
            }
        }
        let empty = |step: &Step| matches!(step, Step::Key(s) | Step::Entry(s) if s.is_empty());
        if steps.is_empty() || steps.iter().any(empty) {
            return Err(refused());
        }
        Ok(Self(steps))
    }

    /// The value of the key.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn get<'a>(&self, config: &'a Value) -> Result<&'a Value, String> {
        let mut value = config;
        for (at, step) in self.0.iter().enumerate() {
            let found = match (step, value) {
                (Step::Key(key), Value::Object(map)) => map.get(key),
                (Step::Entry(name), Value::Array(list)) => {
                    place(list, name).and_then(|place| list.get(place))
                }
                _ => None,
            };
            value = found.ok_or_else(|| self.missing(at, value))?;
        }
        Ok(value)
    }

    /// Sets a value; `null` removes the key or the entry.
    ///
    /// # Errors
    ///
    /// There is no section or list for the key.
    pub fn set(&self, config: &mut Value, new: Value) -> Result<(), String> {
        let mut value = config;
        let Some((last, way)) = self.0.split_last() else {
            return Ok(());
        };
        for (at, step) in way.iter().enumerate() {
            let missing = self.missing(at, value);
            let found = match (step, value) {
                // A section left out exists with its defaults.
                (Step::Key(key), Value::Object(map)) => {
                    let section = map.entry(key).or_insert(Value::Null);
                    if section.is_null() {
                        *section = Value::Object(Map::new());
                    }
                    Some(section)
                }
                (Step::Entry(name), Value::Array(list)) => {
                    place(list, name).and_then(|place| list.get_mut(place))
                }
                _ => None,
            };
            value = found.ok_or(missing)?;
        }
        let missing = self.missing(way.len(), value);
        match (last, value) {
            (Step::Key(key), Value::Object(map)) => {
                match new {
                    Value::Null => map.remove(key),
                    new => map.insert(key.clone(), new),
                };
            }
            (Step::Entry(name), Value::Array(list)) => match (place(list, name), new) {
                (Some(place), Value::Null) => drop(list.remove(place)),
                (Some(place), new) => list[place] = new,
                (None, _) => return Err(missing),
            },
            _ => return Err(missing),
        }
        Ok(())
    }

    /// An error that there is nothing at this step, with the alternatives.
    fn missing(&self, step: usize, around: &Value) -> String {
        let before = Self(self.0[..step].to_vec());
        let whole = Self(self.0[..=step].to_vec());
        let inside = match step {
            0 => "the configuration".to_owned(),
            _ => format!("`{before}`"),
        };
        match around {
            Value::Object(map) => {
                let keys: Vec<&str> = map.keys().map(String::as_str).collect();
                format!("there is no `{whole}`; {inside} has {}", keys.join(", "))
            }
            Value::Array(list) => {
                format!(
                    "there is no `{whole}`; {inside} is a list of {}",
                    list.len()
                )
            }
            _ => format!("there is no `{whole}`; {inside} is a single value"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if at == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Entry(name) => write!(f, "[{name}]")?,
            }
        }
        Ok(())
    }
}

/// The index of a list entry, by index or name.
pub fn place(list: &[Value], name: &str) -> Option<usize> {
    if let Ok(place) = name.parse::<usize>() {
        return (place < list.len()).then_some(place);
    }
    list.iter().position(|entry| {
        let named = |key: &&str| entry.get(*key).and_then(Value::as_str) == Some(name);
        NAMES.iter().any(named)
    })
}

/// The RFC 7396 merge patch from `before` to `after`; `None` if they are the same.
pub fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let change = match old.get(key) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({
            "log": "info",
            "flow": {"credits": 128},
            "fabric": [{"listen": "[::1]:20049"}],
            "exports": [{"path": "/a"}, {"path": "/b.c", "access": "rw"}],
        })
    }

    fn get(key: &str) -> Result<Value, String> {
        Key::parse(key)?.get(&config()).cloned()
    }

    #[test]
    fn values_are_found_by_key_place_and_name() {
        assert_eq!(get("log"), Ok(json!("info")));
        assert_eq!(get("flow.credits"), Ok(json!(128)));
        assert_eq!(get("exports[1].access"), Ok(json!("rw")));
        assert_eq!(get("exports[/b.c].access"), Ok(json!("rw")));
        assert_eq!(get("fabric[[::1]:20049].listen"), Ok(json!("[::1]:20049")));
    }

    #[test]
    fn what_is_missing_is_told_with_what_there_is() {
        for (key, words) in [
            (
                "lag",
                "there is no `lag`; the configuration has exports, fabric, flow, log",
            ),
            ("flow.lag", "no `flow.lag`; `flow` has credits"),
            ("exports[2]", "no `exports[2]`; `exports` is a list of 2"),
            (
                "exports[/x].path",
                "no `exports[/x]`; `exports` is a list of 2",
            ),
            ("log.level", "no `log.level`; `log` is a single value"),
            ("", "is no key"),
            ("a..b", "is no key"),
            ("a[0", "is no key"),
            ("a[]", "is no key"),
            ("a[0]b", "is no key"),
            ("a[[::1]", "is no key"),
        ] {
            let error = get(key).unwrap_err();
            assert!(error.contains(words), "{key}: {error}");
        }
    }

    #[test]
    fn values_are_put_and_taken_away() {
        let mut wanted = config();
        for (key, value) in [
            ("exports[/a].limits.iops", json!(5)),
            ("exports[1].access", Value::Null),
            ("flow", json!({})),
            ("exports[1]", Value::Null),
        ] {
            Key::parse(key).unwrap().set(&mut wanted, value).unwrap();
        }
        assert_eq!(
            wanted,
            json!({
                "log": "info",
                "flow": {},
                "fabric": [{"listen": "[::1]:20049"}],
                "exports": [{"path": "/a", "limits": {"iops": 5}}],
            })
        );
        let refused = Key::parse("log.level").unwrap().set(&mut wanted, json!(1));
        assert!(refused.unwrap_err().contains("single value"));
    }

    #[test]
    fn a_patch_makes_the_one_of_the_other() {
        let before = config();
        let mut after = before.clone();
        after["flow"] = json!({"done_window": "5s"});
        after["exports"][0]["access"] = json!("ro");
        let patch = merge_patch(&before, &after).unwrap();
        assert_eq!(patch.as_object().unwrap().len(), 2);
        assert_eq!(patch["flow"], json!({"credits": null, "done_window": "5s"}));
        let mut patched = before.clone();
        json_patch::merge(&mut patched, &patch);
        assert_eq!(patched, after);
        assert_eq!(merge_patch(&before, &before), None);
    }
}
