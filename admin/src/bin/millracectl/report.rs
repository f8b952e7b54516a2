//! The result of a change, as text.

use std::fmt::Write;

use millrace_admin::change::{ChangeReport, FileComparison, HistoryEntry, Pending};
use millrace_admin::config::{Effect, KeyChange};
use millrace_admin::status::ReactorOutcome;
use serde_json::Value;

use super::table::{plain, time, when};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const END: &str = "\x1b[0m";

/// The result, or the expected result, of a change.
pub fn report(report: &ChangeReport, colour: bool) -> String {
    let mut text = changes(&report.changes, colour);
    let generation = report.generation;
    // Writing to a string does not fail.
    let _ = match (report.dry_run, report.changes.is_empty()) {
        (true, true) => writeln!(text, "nothing would change"),
        (true, false) => writeln!(
            text,
            "dry run: nothing was changed; generation {generation} is in force"
        ),
        (false, true) => writeln!(text, "nothing differs; generation {generation} is in force"),
        (false, false) => writeln!(text, "generation {generation} is in force"),
    };
    if report.persisted {
        text.push_str("the server's configuration file was written\n");
    }
    text.push_str(&reactors(&report.reactors));
    let earlier: Vec<&KeyChange> = report
        .restart_required
        .iter()
        .filter(|pending| !report.changes.iter().any(|one| one.path == pending.path))
        .collect();
    if !earlier.is_empty() {
        text.push_str("still waiting for a restart, from earlier changes:\n");
        for change in earlier {
            text.push_str(&line(change, colour));
        }
    }
    text.push_str(&notes(report));
    text
}

/// The server's notes on the sections that change. Other notes are not new, and are in its log.
pub fn notes(report: &ChangeReport) -> String {
    fn section(key: &str) -> &str {
        key.split(['.', '[', ':']).next().unwrap_or_default()
    }
    let changed = |note: &&String| {
        let mut changes = report.changes.iter();
        changes.any(|change| section(&change.path) == section(note))
    };
    let notes = report.notes.iter().filter(changed);
    notes
        .map(|note| format!("note: {}\n", plain(note)))
        .collect()
}

/// Keys with their old and new values, one per line.
pub fn changes(list: &[KeyChange], colour: bool) -> String {
    list.iter().map(|change| line(change, colour)).collect()
}

/// Settings that wait for a restart, and those that are not in the file.
pub fn pending(pending: &Pending, colour: bool) -> String {
    let mut text = match pending.restart_required.as_slice() {
        [] => "nothing waits for a restart\n".to_owned(),
        list => format!(
            "waiting for a restart (running -> wanted):\n{}",
            changes(list, colour)
        ),
    };
    if let Some(file) = &pending.file {
        text.push_str(&unsaved(file, colour));
    }
    text
}

/// What of the configuration is not in the file.
pub fn unsaved(file: &FileComparison, colour: bool) -> String {
    let path = plain(&file.path);
    let edited = match file.edited {
        true => " (edited since the server read it)",
        false => "",
    };
    match (&file.error, file.unsaved.as_slice()) {
        (Some(error), _) => format!("{path}{edited}: {}\n", plain(error)),
        (None, []) => format!("{path} has all of the configuration\n"),
        (None, list) => format!(
            "not in {path}{edited} (file -> server); a restart loses it:\n{}",
            changes(list, colour)
        ),
    }
}

/// The generations, the latest first.
pub fn history(list: &[HistoryEntry], colour: bool) -> String {
    let mut text = String::new();
    for entry in list {
        let from = match &entry.author.address {
            Some(address) => format!(" from {}", plain(address)),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "{:>4}  {}  {} by {}{from}{}",
            entry.generation,
            when(entry.time_seconds),
            plain(&entry.summary),
            plain(&entry.author.name),
            if entry.persisted {
                ""
            } else {
                ", not in the file"
            },
        );
        for change in &entry.changes {
            let _ = write!(text, "    {}", line(change, colour));
        }
    }
    text
}

fn line(change: &KeyChange, colour: bool) -> String {
    let paint = |colour_of: &str, text: String| match colour {
        true => format!("{colour_of}{text}{END}"),
        false => text,
    };
    let (before, after) = (value(&change.before), value(&change.after));
    let path = plain(&change.path);
    let (sign, values) = match (&change.before, &change.after) {
        (Value::Null, _) => ("+", paint(GREEN, after)),
        (_, Value::Null) => ("-", paint(RED, before)),
        _ => (
            "~",
            format!("{} -> {}", paint(RED, before), paint(GREEN, after)),
        ),
    };
    let effect = match change.effect {
        Effect::Live => "live".to_owned(),
        Effect::Restart => paint(YELLOW, "needs a restart".to_owned()),
    };
    format!("  {sign} {path}: {values}  ({effect})\n")
}

/// A value in one line.
fn value(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

fn reactors(list: &[ReactorOutcome]) -> String {
    let mut text = String::new();
    let applied = list.iter().filter(|one| one.applied);
    let slowest = applied.clone().map(|one| one.seconds).fold(0.0, f64::max);
    match applied.count() {
        0 => {}
        1 => text = format!("applied by 1 reactor within {}\n", time(slowest)),
        count => text = format!("applied by {count} reactors within {}\n", time(slowest)),
    }
    for one in list.iter().filter(|one| !one.applied) {
        let error = one.error.as_deref().unwrap_or("no reason given");
        let _ = writeln!(
            text,
            "NOT APPLIED by {}: {}",
            plain(&one.name),
            plain(error)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(path: &str, before: Value, after: Value, effect: Effect) -> KeyChange {
        KeyChange {
            path: path.to_owned(),
            before,
            after,
            effect,
        }
    }

    fn three() -> Vec<KeyChange> {
        vec![
            change(
                "reactors.poll",
                json!("busy"),
                json!("adaptive"),
                Effect::Live,
            ),
            change("limits", Value::Null, json!([{"iops": 5}]), Effect::Live),
            change(
                "state_directory",
                json!("/a\x1b[2J"),
                Value::Null,
                Effect::Restart,
            ),
        ]
    }

    #[test]
    fn a_report_says_what_changed_and_what_waits() {
        let outcome = |applied: bool| ReactorOutcome {
            name: "reactor-1".to_owned(),
            core: Some(1),
            applied,
            error: (!applied).then(|| "no memory".to_owned()),
            seconds: 0.000_2,
        };
        let all = ChangeReport {
            generation: 4,
            dry_run: false,
            persisted: true,
            changes: three(),
            restart_required: vec![
                change("state_directory", json!("/a"), Value::Null, Effect::Restart),
                change(
                    "mempool.hugepages",
                    json!("off"),
                    json!("auto"),
                    Effect::Restart,
                ),
            ],
            notes: vec![
                "reactors.poll: sleeps".to_owned(),
                "exports: there are none".to_owned(),
            ],
            reactors: vec![outcome(true), outcome(false)],
        };
        assert_eq!(
            report(&all, false),
            "  ~ reactors.poll: busy -> adaptive  (live)\n  \
             + limits: [{\"iops\":5}]  (live)\n  \
             - state_directory: /a\u{fffd}[2J  (needs a restart)\n\
             generation 4 is in force\n\
             the server's configuration file was written\n\
             applied by 1 reactor within 200us\n\
             NOT APPLIED by reactor-1: no memory\n\
             still waiting for a restart, from earlier changes:\n  \
             ~ mempool.hugepages: off -> auto  (needs a restart)\n\
             note: reactors.poll: sleeps\n"
        );
        let tried = ChangeReport {
            dry_run: true,
            ..all.clone()
        };
        assert!(report(&tried, false).contains("dry run: nothing was changed; generation 4"));
    }

    #[test]
    fn colours_mark_old_new_and_restart() {
        let text = changes(&three(), true);
        assert!(
            text.contains("\x1b[31mbusy\x1b[0m -> \x1b[32madaptive\x1b[0m"),
            "{text:?}"
        );
        assert!(text.contains("\x1b[33mneeds a restart\x1b[0m"), "{text:?}");
        assert!(!text.contains("[2J\x1b[2J"), "{text:?}");
    }
}
