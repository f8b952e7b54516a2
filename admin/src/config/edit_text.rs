//! Changes a configuration's text only where values change: comments, order and spelling of the
//! rest stay.
//!
//! Positions come from the YAML library ([`super::locate`]); the end of a value is derived from its
//! first character and from indentation. This covers the usual forms of YAML, not all of them (not
//! anchors and block scalars, for example); so the result is parsed again, and used only if it is
//! exactly the wanted configuration.

use serde_yaml::{Mapping, Value};

use super::locate::Point;
use super::parse::{locate, without_mark};
use super::text_span::{entry_end, flow_end, inline, line_of, line_start, plain_end};
use super::{Config, KeyPath, Segment, compare, parse};

/// The text with the differing values of `wanted`. `None` if its form is not supported here.
pub fn edit_text(text: &str, wanted: &Config) -> Option<String> {
    let body = without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let now = serde_yaml::to_value(parse(body, "").ok()?).ok()?;
    let after = serde_yaml::to_value(wanted).ok()?;
    let mut steps = Vec::new();
    compare_trees(&now, &after, &KeyPath::root(), &mut steps);
    let mut edited = TextEdit {
        text: body.to_owned(),
        wanted,
        after: &after,
    };
    for step in &steps {
        edited.apply(step)?;
    }
    let says = parse(&edited.text, "").ok()?;
    (says == *wanted).then(|| format!("{mark}{}", edited.text))
}

/// One change of the text.
enum EditStep {
    /// The value at the first path becomes that of the wanted configuration at the second: entries
    /// of lists may have another index there.
    Set(KeyPath, KeyPath),
    Remove(KeyPath),
    /// A list gets one more entry, the one at the second path.
    Append(KeyPath, KeyPath),
}

fn compare_trees(now: &Value, after: &Value, path: &KeyPath, steps: &mut Vec<EditStep>) {
    compare_at(now, after, path, path, steps);
}

fn compare_at(
    now: &Value,
    after: &Value,
    here: &KeyPath,
    there: &KeyPath,
    steps: &mut Vec<EditStep>,
) {
    if now == after {
        return;
    }
    if let (Value::Mapping(one), Value::Mapping(other)) = (now, after) {
        for (key, value) in one {
            let Some(name) = key.as_str() else { continue };
            let path = here.key(name.to_owned());
            match other.get(key) {
                Some(after) => {
                    compare_at(value, after, &path, &there.key(name.to_owned()), steps);
                }
                None => steps.push(EditStep::Remove(path)),
            }
        }
        let new = other.keys().filter(|key| !one.contains_key(*key));
        for name in new.filter_map(Value::as_str) {
            let [here, there] = [here, there].map(|path| path.key(name.to_owned()));
            steps.push(EditStep::Set(here, there));
        }
        return;
    }
    let kept = match (now, after) {
        (Value::Sequence(one), Value::Sequence(other)) => kept_entries(one, other, here),
        _ => None,
    };
    let (Some(kept), Value::Sequence(one), Value::Sequence(other)) = (kept, now, after) else {
        return steps.push(EditStep::Set(here.clone(), there.clone()));
    };
    for (place, &index) in kept.iter().enumerate() {
        let paths = (here.index(index), there.index(place));
        compare_at(&one[index], &other[place], &paths.0, &paths.1, steps);
    }
    // From the end, so that earlier indices stay valid.
    for index in (0..one.len()).rev().filter(|index| !kept.contains(index)) {
        steps.push(EditStep::Remove(here.index(index)));
    }
    for place in kept.len()..other.len() {
        steps.push(EditStep::Append(here.clone(), there.index(place)));
    }
}

/// The indices of the remaining entries, if added ones are behind them.
fn kept_entries(now: &[Value], after: &[Value], path: &KeyPath) -> Option<Vec<usize>> {
    let key = compare::entry_key(&path.to_string())?;
    let name = |entry: &Value| entry.get(key).cloned();
    let [one, other]: [Option<Vec<Value>>; 2] =
        [now, after].map(|list| list.iter().map(name).collect());
    let (one, other) = (one?, other?);
    // Entries with new names in place of others.
    if one.len() == other.len() && !one.iter().any(|name| other.contains(name)) {
        return Some((0..one.len()).collect());
    }
    let repeats = |list: &[Value]| (1..list.len()).any(|at| list[..at].contains(&list[at]));
    let stays = |at: &usize| other.contains(&one[*at]);
    let kept: Vec<usize> = (0..one.len()).filter(stays).collect();
    let in_order = kept.iter().zip(&other).all(|(&at, name)| one[at] == *name);
    (!kept.is_empty() && in_order && !repeats(&one) && !repeats(&other)).then_some(kept)
}

struct TextEdit<'a> {
    text: String,
    wanted: &'a Config,
    after: &'a Value,
}

impl TextEdit<'_> {
    fn apply(&mut self, step: &EditStep) -> Option<()> {
        let raw: Value = serde_yaml::from_str(&self.text).ok()?;
        match step {
            EditStep::Set(here, there) => {
                let value = self.slim(there)?;
                match at(&raw, here) {
                    Some(old) => self.replace(here, old, &value),
                    None => self.insert(&raw, here, &value),
                }
            }
            EditStep::Remove(here) if at(&raw, here).is_none() => Some(()),
            EditStep::Remove(here) => self.remove(&raw, here),
            EditStep::Append(here, there) => match at(&raw, here) {
                Some(Value::Sequence(list)) if !list.is_empty() => {
                    let value = self.slim(there)?;
                    self.append(&raw, here, list.len() - 1, &value)
                }
                // The default list is not in the text.
                _ => {
                    let list = there.parent()?;
                    let value = self.slim(&list)?;
                    match at(&raw, here) {
                        Some(old) => self.replace(here, old, &value),
                        None => self.insert(&raw, here, &value),
                    }
                }
            },
        }
    }

    /// The wanted value without keys that have their defaults.
    fn slim(&self, path: &KeyPath) -> Option<Value> {
        let mut whole = self.after.clone();
        let mut left: Vec<KeyPath> = vec![path.clone()];
        while let Some(path) = left.pop() {
            let keys: Vec<KeyPath> = match at(&whole, &path)? {
                Value::Mapping(map) => {
                    let names = map.keys().filter_map(Value::as_str);
                    names.map(|name| path.key(name.to_owned())).collect()
                }
                Value::Sequence(list) => (0..list.len()).map(|index| path.index(index)).collect(),
                _ => continue,
            };
            for key in keys {
                if let Some(Segment::Key(name)) = key.segments().last() {
                    let mut without = whole.clone();
                    at_mut(&mut without, &path)?
                        .as_mapping_mut()?
                        .remove(name.as_ref());
                    let same = serde_yaml::from_value::<Config>(without.clone());
                    if same.is_ok_and(|config| config == *self.wanted) {
                        whole = without;
                        continue;
                    }
                }
                left.push(key);
            }
        }
        at(&whole, path).cloned()
    }

    /// The position of a value or key, from the start of the text.
    fn offset(&self, path: &KeyPath, point: Point) -> Option<usize> {
        let (line, column) = locate(&self.text, path, point)?;
        let start = line_start(&self.text, line)?;
        let rest = self.text[start..].char_indices();
        let mut places = rest.map(|(at, _)| start + at).chain([self.text.len()]);
        places.nth(column.checked_sub(1)?)
    }

    fn is_flow(&self, path: &KeyPath) -> bool {
        let start = self.offset(path, Point::Value);
        start.is_some_and(|start| self.text[start..].starts_with(['{', '[']))
    }

    /// Whether a value is in flow style.
    fn is_in_flow(&self, path: &KeyPath) -> bool {
        let mut above = path.parent();
        while let Some(path) = above {
            if self.is_flow(&path) {
                return true;
            }
            above = path.parent();
        }
        false
    }

    /// The end of a value in flow style or on one line.
    fn value_end(&self, path: &KeyPath, start: usize) -> Option<usize> {
        match self.text[start..].chars().next()? {
            '&' | '*' | '!' | '|' | '>' => None,
            '{' | '[' | '"' | '\'' => flow_end(&self.text, start),
            _ => Some(plain_end(&self.text, start, self.is_in_flow(path))),
        }
    }

    fn splice(&mut self, from: usize, to: usize, new: &str) -> Option<()> {
        self.text.get(from..to)?;
        self.text.replace_range(from..to, new);
        Some(())
    }

    fn replace(&mut self, path: &KeyPath, old: &Value, value: &Value) -> Option<()> {
        let start = self.offset(path, Point::Value)?;
        let in_flow = self.is_in_flow(path);
        let block = matches!(old, Value::Mapping(_) | Value::Sequence(_)) && !self.is_flow(path);
        if !block {
            let end = self.value_end(path, start)?;
            return self.splice(start, end, &inline(value, in_flow)?);
        }
        // Everything indented below the key.
        let key = self.offset(path, Point::Key(1))?;
        let end = entry_end(&self.text, key);
        let colon = key + self.text[key..].find(':')? + 1;
        self.splice(colon, end, &format!(" {}\n", inline(value, in_flow)?))
    }

    /// Inserts a key that the text does not have, into the nearest enclosing mapping.
    fn insert(&mut self, raw: &Value, path: &KeyPath, value: &Value) -> Option<()> {
        let mut above = path.parent()?;
        while at(raw, &above).is_none() {
            above = above.parent()?;
        }
        let Some(Value::Mapping(map)) = at(raw, &above) else {
            return None;
        };
        let names = path.segments()[above.segments().len()..].iter();
        let names: Option<Vec<&str>> = names
            .map(|segment| match segment {
                Segment::Key(name) => Some(name.as_ref()),
                Segment::Index(_) => None,
            })
            .collect();
        let names = names?;
        if self.is_flow(&above) || self.is_in_flow(&above) {
            let mut value = value.clone();
            for name in names[1..].iter().rev() {
                value = Value::Mapping(Mapping::from_iter([((*name).into(), value)]));
            }
            let entry = format!("{}: {}", names[0], inline(&value, true)?);
            return self.insert_in_brackets(&above, &entry, map.is_empty());
        }
        let first = above.key(map.keys().next()?.as_str()?.to_owned());
        let last = above.key(map.keys().last()?.as_str()?.to_owned());
        let column = self.column(self.offset(&first, Point::Key(1))?);
        let end = entry_end(&self.text, self.offset(&last, Point::Key(1))?);
        let mut lines = String::new();
        for (depth, name) in names.iter().enumerate() {
            let indent = " ".repeat(column + 2 * depth);
            lines.push_str(&format!("{indent}{name}:"));
            match depth + 1 == names.len() {
                true => lines.push_str(&format!(" {}\n", inline(value, false)?)),
                false => lines.push('\n'),
            }
        }
        self.add_lines(end, &lines)
    }

    fn insert_in_brackets(&mut self, path: &KeyPath, entry: &str, is_empty: bool) -> Option<()> {
        let start = self.offset(path, Point::Value)?;
        let end = flow_end(&self.text, start)?;
        let inner = self.text.get(start + 1..end - 1)?;
        let used = start + 1 + inner.trim_end().trim_end_matches(',').len();
        let comma = if is_empty { " " } else { ", " };
        let space = if is_empty { " " } else { "" };
        self.splice(used, used, &format!("{comma}{entry}{space}"))
    }

    fn append(&mut self, raw: &Value, path: &KeyPath, last: usize, value: &Value) -> Option<()> {
        if self.is_flow(path) || self.is_in_flow(path) {
            let Some(Value::Sequence(list)) = at(raw, path) else {
                return None;
            };
            let entry = inline(value, true)?;
            return self.insert_in_brackets(path, &entry, list.is_empty());
        }
        let dash = self.dash(&path.index(last))?;
        let end = entry_end(&self.text, dash);
        let indent = " ".repeat(self.column(dash));
        let entry = serde_yaml::to_string(value).ok()?;
        let mut lines = String::new();
        for (number, line) in entry.lines().enumerate() {
            let lead = if number == 0 { "- " } else { "  " };
            lines.push_str(&format!("{indent}{lead}{line}\n"));
        }
        self.add_lines(end, &lines)
    }

    fn add_lines(&mut self, at: usize, lines: &str) -> Option<()> {
        let before = self.text.get(..at)?;
        let end = if before.ends_with('\n') || before.is_empty() {
            ""
        } else {
            "\n"
        };
        self.splice(at, at, &format!("{end}{lines}"))
    }

    fn remove(&mut self, raw: &Value, path: &KeyPath) -> Option<()> {
        let above = path.parent()?;
        let count = match at(raw, &above)? {
            Value::Mapping(map) => map.len(),
            Value::Sequence(list) => list.len(),
            _ => return None,
        };
        let is_key = matches!(path.segments().last(), Some(Segment::Key(_)));
        let point = if is_key { Point::Key(1) } else { Point::Value };
        let start = self.offset(path, point)?;
        if self.is_flow(&above) || self.is_in_flow(&above) {
            let value = self.offset(path, Point::Value)?;
            let end = self.value_end(path, value)?;
            let rest = &self.text[end..];
            let after = rest.trim_start();
            if let Some(after) = after.strip_prefix(',') {
                let end = self.text.len() - after.trim_start_matches(' ').len();
                return self.splice(start, end, "");
            }
            let before = self.text[..start].trim_end();
            let from = before.strip_suffix(',').unwrap_or(before).len();
            return self.splice(from, end, "");
        }
        // The rest would be null, which differs from an empty list or mapping.
        if count == 1 {
            return None;
        }
        let start = if is_key { start } else { self.dash(path)? };
        let line = line_of(&self.text, start);
        // The first key of an entry follows its dash.
        if !self.text[line..start].trim().is_empty() {
            return None;
        }
        let end = entry_end(&self.text, start);
        self.splice(line, end, "")
    }

    /// The position of the dash of a list entry.
    fn dash(&self, path: &KeyPath) -> Option<usize> {
        let start = self.offset(path, Point::Value)?;
        let before = self.text[..start].trim_end_matches(' ');
        before.ends_with('-').then(|| before.len() - 1)
    }

    fn column(&self, at: usize) -> usize {
        self.text[line_of(&self.text, at)..at].chars().count()
    }
}

fn at<'a>(value: &'a Value, path: &KeyPath) -> Option<&'a Value> {
    path.segments()
        .iter()
        .try_fold(value, |value, segment| match segment {
            Segment::Key(name) => value.as_mapping()?.get(name.as_ref()),
            Segment::Index(index) => value.as_sequence()?.get(*index),
        })
}

fn at_mut<'a>(value: &'a mut Value, path: &KeyPath) -> Option<&'a mut Value> {
    let mut segments = path.segments().iter();
    segments.try_fold(value, |value, segment| match segment {
        Segment::Key(name) => value.as_mapping_mut()?.get_mut(name.as_ref()),
        Segment::Index(index) => value.as_sequence_mut()?.get_mut(*index),
    })
}

#[cfg(test)]
mod tests;
