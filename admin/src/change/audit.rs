//! The audit log: one record for each attempted change, with its origin, keys and result.
//!
//! Records go to the log, with the target `audit` at level `info`, and as JSON into a file if one
//! is configured. They have values of the configuration, never the content of files that it names,
//! so they contain no token.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;
use serde_json::Value;

use super::{Author, ChangeError, Generation};
use crate::config::KeyChange;
use crate::status::{FieldProblem, Occurrence};

/// The most keys of a record. Beyond that it has the number of keys left out.
const KEYS_MAX: usize = 64;
/// The most bytes of a value. Longer values are cut.
const VALUE_MAX: usize = 512;
/// The most keys of an event.
const EVENT_KEYS_MAX: usize = 16;

/// One record.
pub struct Record<'a> {
    /// The client.
    pub author: &'a Author,
    /// The action, such as `put` or `reload`.
    pub summary: &'a str,
    /// The result.
    pub outcome: &'a str,
    /// The generation in force afterwards.
    pub generation: Generation,
    /// The changes by key.
    pub changes: &'a [KeyChange],
    /// The reason of a failure.
    pub error: Option<&'a ChangeError>,
}

/// Writes the record; `now` is in seconds since 1970. If the file cannot be written, that is
/// logged, and the change goes on.
pub fn record(record: &Record<'_>, now: f64, file: Option<&Path>) {
    let keys: Vec<Key<'_>> = record
        .changes
        .iter()
        .take(KEYS_MAX)
        .map(Key::from)
        .collect();
    let left_out = record.changes.len() - keys.len();
    let errors: &[FieldProblem] = match record.error {
        Some(ChangeError::Invalid(errors)) => errors,
        _ => &[],
    };
    let errors: Vec<FieldProblem> = errors.iter().map(shorter).collect();
    let errors = errors.as_slice();
    let line = AuditLine {
        time_seconds: now,
        author: &record.author.name,
        address: record.author.address.as_deref(),
        action: record.summary,
        outcome: record.outcome,
        generation: record.generation,
        error: record.error.map(ToString::to_string),
        errors,
        changes: &keys,
        changes_left_out: left_out,
    };
    // As strings, which the log writes with quotes and escapes.
    let (told, changed) = (in_words(errors), in_line(&keys, left_out));
    tracing::info!(
        target: "audit",
        author = line.author,
        address = line.address.unwrap_or("local"),
        action = line.action,
        outcome = line.outcome,
        generation = line.generation,
        error = line.error.as_deref(),
        errors = (!told.is_empty()).then_some(told.as_str()),
        changes = (!changed.is_empty()).then_some(changed.as_str()),
        "change"
    );
    if let Some(file) = file
        && let Err(error) = append(file, &line)
    {
        let file = file.display();
        tracing::error!("admin.audit_file: {file} cannot be written: {error}");
    }
}

/// The event of a change.
pub fn change_event(record: &Record<'_>) -> Occurrence {
    let keys = record.changes.iter().take(EVENT_KEYS_MAX);
    Occurrence::Configuration {
        author: cut(&record.author.name),
        address: record.author.address.clone(),
        action: cut(record.summary),
        outcome: cut(record.outcome),
        generation: record.generation,
        keys: keys.map(|change| cut(&change.path)).collect(),
    }
}

/// The event of an action that does not change the configuration.
pub fn action_event(record: &Record<'_>) -> Occurrence {
    Occurrence::Action {
        author: cut(&record.author.name),
        address: record.author.address.clone(),
        action: cut(record.summary),
        outcome: cut(record.outcome),
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(VALUE_MAX)].to_owned()
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time_seconds: f64,
    author: &'a str,
    address: Option<&'a str>,
    action: &'a str,
    outcome: &'a str,
    generation: Generation,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldProblem],
    changes: &'a [Key<'a>],
    #[serde(skip_serializing_if = "is_zero")]
    changes_left_out: usize,
}

#[derive(Serialize)]
struct Key<'a> {
    path: &'a str,
    before: Value,
    after: Value,
}

impl<'a> From<&'a KeyChange> for Key<'a> {
    fn from(change: &'a KeyChange) -> Self {
        Self {
            path: &change.path,
            before: shortened(&change.before),
            after: shortened(&change.after),
        }
    }
}

fn shorter(error: &FieldProblem) -> FieldProblem {
    FieldProblem {
        path: cut(&error.path),
        message: cut(&error.message),
    }
}

/// The value, or the beginning of its text if that is long.
fn shortened(value: &Value) -> Value {
    let mut text = value.to_string();
    if text.len() <= VALUE_MAX {
        return value.clone();
    }
    text.truncate(text.floor_char_boundary(VALUE_MAX));
    Value::String(text + "...")
}

fn in_line(keys: &[Key<'_>], left_out: usize) -> String {
    let change = |key: &Key<'_>| format!("{}: {} -> {}", key.path, key.before, key.after);
    let mut changes: Vec<String> = keys.iter().map(change).collect();
    if left_out > 0 {
        changes.push(format!("and {left_out} more"));
    }
    changes.join("; ")
}

fn in_words(errors: &[FieldProblem]) -> String {
    let error = |error: &FieldProblem| format!("{}: {}", error.path, error.message);
    errors.iter().map(error).collect::<Vec<_>>().join("; ")
}

/// Opens the file for each record, so that a new file is begun after log rotation.
fn append(file: &Path, line: &AuditLine<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    // A pipe in place of the file must not block until there is a reader.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(nonblocking)
        .open(file)?;
    file.write_all(&text)?;
    file.sync_data()
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;
    use crate::config::Effect;

    fn change(path: &str, after: Value) -> KeyChange {
        KeyChange {
            path: path.to_owned(),
            before: Value::Null,
            after,
            effect: Effect::Live,
        }
    }

    fn write(file: &Path, changes: &[KeyChange], error: Option<&ChangeError>) {
        let author = Author {
            name: "token".to_owned(),
            address: Some("192.0.2.1".to_owned()),
        };
        let told = Record {
            author: &author,
            summary: "patch",
            outcome: "applied",
            generation: 7,
            changes,
            error,
        };
        record(&told, 12.5, Some(file));
    }

    fn lines(file: &Path) -> Vec<Value> {
        let text = fs::read_to_string(file).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn lines_are_appended_also_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        write(&file, &[change("log", json!("de\nbug"))], None);
        write(&file, &[], Some(&ChangeError::NoFile));
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
        let found = lines(&file);
        assert_eq!(
            found[0],
            json!({
                "time_seconds": 12.5, "author": "token", "address": "192.0.2.1",
                "action": "patch", "outcome": "applied", "generation": 7,
                "changes": [{ "path": "log", "before": null, "after": "de\nbug" }],
            })
        );
        assert!(
            found[1]["error"]
                .as_str()
                .unwrap()
                .contains("no configuration file")
        );
        fs::rename(&file, folder.path().join("audit.jsonl.1")).unwrap();
        write(&file, &[], None);
        assert_eq!(lines(&file).len(), 1);
    }

    #[test]
    fn a_line_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let changes = vec![change("log", json!("\u{e9}".repeat(100_000))); 1000];
        let field = FieldProblem {
            path: "x".repeat(100_000),
            message: "\u{e9}".repeat(100_000),
        };
        write(&file, &changes, Some(&ChangeError::Invalid(vec![field])));
        assert!(fs::metadata(&file).unwrap().len() < 100_000);
        let line = &lines(&file)[0];
        assert_eq!(line["changes"].as_array().unwrap().len(), KEYS_MAX);
        assert_eq!(line["changes_left_out"], 1000 - KEYS_MAX);
    }

    #[test]
    fn a_file_that_cannot_be_written_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[], None);
        write(&folder.path().join("none/audit.jsonl"), &[], None);
    }
}
