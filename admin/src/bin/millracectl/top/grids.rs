//! The rows of each view.

use millrace_admin::status::{
    ClientStatus, ConnectionStatus, ExportStatus, Latency, OperationStatus, ReactorStatus,
};

use super::grid::{Column, Grid, GridCell, Row};
use super::sample::Span;
use super::state::View;
use crate::table::{bytes, time};
use crate::views::limits;

/// The rows of a view; `None` while its data has not been queried.
pub fn grid(view: View, span: &Span<'_>) -> Option<Grid> {
    Some(match view {
        View::Overview => reactors(span),
        View::Clients => clients(span),
        View::Connections => connections(span)?,
        View::Exports => exports(span)?,
        View::Operations => operations(span),
    })
}

fn word(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        number: false,
        rank,
    }
}

fn number(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        number: true,
        rank,
    }
}

fn count(count: u64) -> GridCell {
    GridCell::number(Some(count as f64), |count| format!("{count:.0}"))
}

fn size(size: Option<u64>) -> GridCell {
    GridCell::number(size.map(|size| size as f64), |size| bytes(size as u64))
}

fn seconds(seconds: Option<f64>) -> GridCell {
    GridCell::number(seconds, time)
}

fn each_second(rate: Option<f64>) -> GridCell {
    GridCell::number(rate, per_second)
}

fn bytes_each_second(rate: Option<f64>) -> GridCell {
    GridCell::number(rate, |rate| bytes(rate as u64))
}

/// A rate with a readable number of digits.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e7 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e5 => format!("{:.0}k", rate / 1e3),
        rate if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// A counter of an entry: its growth per second since the previous sample.
fn rate<T>(span: &Span<'_>, now: &T, before: Option<&T>, of: fn(&T) -> u64) -> Option<f64> {
    span.rate(of(now) as f64, before.map(|before| of(before) as f64))
}

fn reactors(span: &Span<'_>) -> Grid {
    let row = |one: &ReactorStatus| {
        let before = span
            .before
            .and_then(|before| before.reactors.iter().find(|other| other.name == one.name));
        let busy = before.and_then(|before| {
            let busy = one.busy_seconds - before.busy_seconds;
            let all = busy + one.idle_seconds - before.idle_seconds;
            (all > 0.0 && busy >= 0.0).then(|| busy / all * 100.0)
        });
        Row {
            warns: one.stalled,
            cells: vec![
                GridCell::word(&one.name),
                GridCell::number(one.core.map(|core| core as f64), |core| {
                    format!("{core:.0}")
                }),
                GridCell::word(if one.stalled { "STALLED" } else { "turns" }),
                GridCell::number(busy, |busy| format!("{busy:.1}%")),
                count(one.connections),
                count(one.tasks),
                each_second(rate(span, one, before, |one| one.turns)),
                seconds(Some(one.longest_turn_seconds)),
                each_second(rate(span, one, before, |one| one.messages)),
                each_second(rate(span, one, before, |one| one.sleeps)),
            ],
        }
    };
    Grid {
        columns: vec![
            word("REACTOR", 0),
            number("CORE", 3),
            word("STATE", 2),
            number("BUSY", 0),
            number("CONNECTIONS", 1),
            number("TASKS", 3),
            number("TURNS/s", 2),
            number("LONGEST TURN", 3),
            number("MESSAGES/s", 4),
            number("SLEEPS/s", 4),
        ],
        rows: span.now.reactors.iter().map(row).collect(),
        usual: 0,
        empty: "no reactors",
    }
}

fn clients(span: &Span<'_>) -> Grid {
    let row = |one: &ClientStatus| {
        let before = span.before.and_then(|before| {
            before
                .clients
                .iter()
                .find(|other| other.address == one.address)
        });
        let throttled = span.rate(
            one.throttled_seconds,
            before.map(|before| before.throttled_seconds),
        );
        Row {
            warns: one.waiting > 0,
            cells: vec![
                GridCell::word(&one.address),
                each_second(rate(span, one, before, |one| one.requests)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_read)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_written)),
                count(one.connections),
                count(one.credits_used),
                count(one.credits_granted),
                count(one.credits_requested),
                count(one.waiting),
                count(one.exposures),
                // Calls that wait at the same time count separately.
                GridCell::number(throttled, |share| format!("{share:.1}")),
                GridCell::word(&limits(&one.limits)),
            ],
        }
    };
    Grid {
        columns: vec![
            word("CLIENT", 0),
            number("REQUESTS/s", 0),
            number("READ/s", 0),
            number("WRITTEN/s", 0),
            number("CONNECTIONS", 2),
            number("USED", 1),
            number("CREDITS", 2),
            number("WANTED", 3),
            number("WAITING", 1),
            number("EXPOSURES", 4),
            number("THROTTLED", 3),
            word("LIMITS", 3),
        ],
        rows: span.now.clients.iter().map(row).collect(),
        usual: 1,
        empty: "no clients",
    }
}

fn connections(span: &Span<'_>) -> Option<Grid> {
    let all = span.now.connections.as_ref()?;
    let before = span.before.and_then(|before| before.connections.as_ref());
    // Both are mostly sorted by identifier; a map finds those of a thousand connections at once.
    let before: std::collections::HashMap<u64, &ConnectionStatus> = before
        .into_iter()
        .flatten()
        .map(|one| (one.id, one))
        .collect();
    let row = |one: &ConnectionStatus| {
        let before = before.get(&one.id).copied();
        Row {
            warns: false,
            cells: vec![
                GridCell::word(&one.peer),
                count(one.id),
                GridCell::word(&one.provider),
                GridCell::number(one.core.map(|core| core as f64), |core| {
                    format!("{core:.0}")
                }),
                each_second(rate(span, one, before, |one| one.requests)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_read)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_written)),
                count(u64::from(one.requests_in_flight)),
                GridCell::number(one.credits_granted.map(f64::from), |count| {
                    format!("{count:.0}")
                }),
                GridCell::number(one.credits_requested.map(f64::from), |count| {
                    format!("{count:.0}")
                }),
                count(u64::from(one.exposures)),
                seconds(one.latency.map(|latency| latency.p50_seconds)),
                seconds(one.latency.map(|latency| latency.p99_seconds)),
                seconds(Some(one.age_seconds)),
            ],
        }
    };
    Some(Grid {
        columns: vec![
            word("PEER", 0),
            number("ID", 0),
            word("PROVIDER", 3),
            number("CORE", 4),
            number("REQUESTS/s", 0),
            number("READ/s", 0),
            number("WRITTEN/s", 0),
            number("IN FLIGHT", 1),
            number("CREDITS", 3),
            number("WANTED", 4),
            number("EXPOSURES", 5),
            number("P50", 4),
            number("P99", 2),
            number("AGE", 5),
        ],
        rows: all.iter().map(row).collect(),
        usual: 4,
        empty: "no connections",
    })
}

fn exports(span: &Span<'_>) -> Option<Grid> {
    let all = span.now.exports.as_ref()?;
    let row = |one: &ExportStatus| {
        let before = span.before.and_then(|before| before.exports.as_ref());
        let before = before.and_then(|list| list.iter().find(|other| other.path == one.path));
        let (used, capacity) = (one.used_bytes, one.capacity_bytes);
        let full = used.zip(capacity).filter(|(_, capacity)| *capacity > 0);
        let full = full.map(|(used, capacity)| used as f64 / capacity as f64 * 100.0);
        Row {
            warns: full.is_some_and(|full| full >= 90.0),
            cells: vec![
                GridCell::word(&one.path),
                each_second(rate(span, one, before, |one| one.requests)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_read)),
                bytes_each_second(rate(span, one, before, |one| one.bytes_written)),
                size(used),
                size(capacity),
                GridCell::number(full, |full| format!("{full:.0}%")),
                GridCell::number(one.files.map(|files| files as f64), |files| {
                    format!("{files:.0}")
                }),
                GridCell::word(&one.store),
                GridCell::word(&one.access),
                GridCell::word(&limits(&one.limits)),
            ],
        }
    };
    Some(Grid {
        columns: vec![
            word("EXPORT", 0),
            number("REQUESTS/s", 0),
            number("READ/s", 0),
            number("WRITTEN/s", 0),
            number("USED", 2),
            number("CAPACITY", 3),
            number("FULL", 1),
            number("FILES", 3),
            word("STORE", 4),
            word("ACCESS", 4),
            word("LIMITS", 5),
        ],
        rows: all.iter().map(row).collect(),
        usual: 1,
        empty: "no exports",
    })
}

fn operations(span: &Span<'_>) -> Grid {
    let row = |one: &OperationStatus| {
        let before = span.before.and_then(|before| {
            before
                .operations
                .iter()
                .find(|other| (&other.program, &other.procedure) == (&one.program, &one.procedure))
        });
        let quantile = |of: fn(&Latency) -> f64| seconds(one.latency.as_ref().map(of));
        let errors = rate(span, one, before, |one| one.errors);
        Row {
            warns: errors.is_some_and(|errors| errors > 0.0),
            cells: vec![
                GridCell::word(&format!("{} {}", one.program, one.procedure)),
                each_second(rate(span, one, before, |one| one.requests)),
                each_second(errors),
                bytes_each_second(rate(span, one, before, |one| one.bytes)),
                quantile(|latency| latency.p50_seconds),
                quantile(|latency| latency.p90_seconds),
                quantile(|latency| latency.p99_seconds),
                quantile(|latency| latency.p999_seconds),
                count(one.requests),
                count(one.errors),
            ],
        }
    };
    Grid {
        columns: vec![
            word("OPERATION", 0),
            number("REQUESTS/s", 0),
            number("ERRORS/s", 1),
            number("BYTES/s", 0),
            number("P50", 1),
            number("P90", 2),
            number("P99", 1),
            number("P99.9", 3),
            number("REQUESTS", 3),
            number("ERRORS", 3),
        ],
        rows: span.now.operations.iter().map(row).collect(),
        usual: 1,
        empty: "no requests yet",
    }
}
