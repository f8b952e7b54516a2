//! Snapshots as tables.

use std::time::Duration;

use millrace_admin::config::{Bandwidth, format_duration};
use millrace_admin::status::{
    Ban, ClientStatus, ConnectionStatus, ExportStatus, Latency, ListenerStatus, OperationStatus,
    PoolStatus, RateLimits, ReactorStatus, Version,
};

use super::table::{Cell, Table, bytes, fields, plain, time};

pub fn version(version: &Version) -> String {
    format!(
        "{} {} ({}, {}), API {}\n",
        plain(&version.name),
        plain(&version.version),
        plain(&version.profile),
        plain(&version.architecture),
        plain(&version.api)
    )
}

pub fn connections(list: &[ConnectionStatus]) -> String {
    let mut table = Table::new(&[
        "ID",
        "PEER",
        "PROVIDER",
        "CORE",
        "AGE",
        "VERSION",
        "CREDITS",
        "WANTED",
        "IN FLIGHT",
        "EXPOSURES",
        "REQUESTS",
        "READ",
        "WRITTEN",
    ]);
    for one in list {
        table.row(vec![
            Cell::number(one.id),
            Cell::word(&one.peer),
            Cell::word(&one.provider),
            Cell::maybe(one.core),
            Cell::number(time(one.age_seconds)),
            Cell::maybe(one.rpcrdma_version),
            Cell::maybe(one.credits_granted),
            Cell::maybe(one.credits_requested),
            Cell::number(one.requests_in_flight),
            Cell::number(one.exposures),
            Cell::number(one.requests),
            Cell::number(bytes(one.bytes_read)),
            Cell::number(bytes(one.bytes_written)),
        ]);
    }
    table.render("no connections")
}

pub fn bans(list: &[Ban]) -> String {
    let mut table = Table::new(&["ADDRESS", "FOR"]);
    for one in list {
        table.row(vec![
            Cell::word(&one.address),
            Cell::number(format_duration(Duration::from_secs(one.seconds))),
        ]);
    }
    table.render("no address is banned")
}

pub fn reactors(list: &[ReactorStatus]) -> String {
    let mut table = Table::new(&[
        "NAME",
        "CORE",
        "STATE",
        "BUSY",
        "CONNECTIONS",
        "TASKS",
        "TURNS",
        "LONGEST TURN",
        "SLEEPS",
    ]);
    for one in list {
        let all = one.busy_seconds + one.idle_seconds;
        let busy = if all > 0.0 {
            one.busy_seconds / all * 100.0
        } else {
            0.0
        };
        table.row(vec![
            Cell::word(&one.name),
            Cell::maybe(one.core),
            Cell::word(if one.stalled { "STALLED" } else { "turns" }),
            Cell::number(format!("{busy:.1}%")),
            Cell::number(one.connections),
            Cell::number(one.tasks),
            Cell::number(one.turns),
            Cell::number(time(one.longest_turn_seconds)),
            Cell::number(one.sleeps),
        ]);
    }
    table.render("no reactors")
}

pub fn pools(list: &[PoolStatus]) -> String {
    let mut table = Table::new(&[
        "CORE", "CLASS", "SIZE", "BUFFERS", "IN USE", "MOST", "WAITING", "WAITS", "PAGES",
    ]);
    for one in list {
        table.row(vec![
            Cell::maybe(one.core),
            Cell::word(&one.class),
            Cell::number(bytes(one.buffer_bytes)),
            Cell::number(one.buffers),
            Cell::number(one.in_use),
            Cell::number(one.high_water),
            Cell::number(one.waiters),
            Cell::number(one.waits),
            Cell::number(bytes(one.page_bytes)),
        ]);
    }
    table.render("no pools")
}

pub fn exports(list: &[ExportStatus]) -> String {
    let mut table = Table::new(&[
        "PATH", "STORE", "ACCESS", "SQUASH", "ACTS AS", "USED", "CAPACITY", "FILES", "REQUESTS",
        "READ", "WRITTEN", "LIMITS", "CLIENTS",
    ]);
    for one in list {
        table.row(vec![
            Cell::word(&one.path),
            Cell::word(&one.store),
            Cell::word(&one.access),
            Cell::word(&one.squash),
            Cell::maybe(one.folder.as_ref().map(|folder| plain(&folder.acts_as))),
            Cell::maybe(one.used_bytes.map(bytes)),
            Cell::maybe(one.capacity_bytes.map(bytes)),
            Cell::maybe(one.files),
            Cell::number(one.requests),
            Cell::number(bytes(one.bytes_read)),
            Cell::number(bytes(one.bytes_written)),
            Cell::word(&limits(&one.limits)),
            Cell::word(&one.clients.join(" ")),
        ]);
    }
    table.render("no exports")
}

pub fn listeners(list: &[ListenerStatus]) -> String {
    let mut table = Table::new(&["ADDRESS", "PROVIDER", "STATE", "CONNECTIONS", "ACCEPTED"]);
    for one in list {
        table.row(vec![
            Cell::word(&one.address),
            Cell::word(&one.provider),
            Cell::word(if one.accepting { "accepts" } else { "CLOSED" }),
            Cell::number(one.connections),
            Cell::number(one.accepted),
        ]);
    }
    table.render("no listeners")
}

pub fn clients(list: &[ClientStatus]) -> String {
    let mut table = Table::new(&[
        "ADDRESS",
        "CONNECTIONS",
        "CREDITS",
        "WANTED",
        "USED",
        "WAITING",
        "EXPOSURES",
        "MEMORY",
        "REQUESTS",
        "READ",
        "WRITTEN",
        "THROTTLED",
        "LIMITS",
    ]);
    for one in list {
        table.row(vec![
            Cell::word(&one.address),
            Cell::number(one.connections),
            Cell::number(one.credits_granted),
            Cell::number(one.credits_requested),
            Cell::number(one.credits_used),
            Cell::number(one.waiting),
            Cell::number(one.exposures),
            Cell::number(bytes(one.memory_bytes)),
            Cell::number(one.requests),
            Cell::number(bytes(one.bytes_read)),
            Cell::number(bytes(one.bytes_written)),
            Cell::number(time(one.throttled_seconds)),
            Cell::word(&limits(&one.limits)),
        ]);
    }
    table.render("no clients")
}

pub fn client(one: &ClientStatus) -> String {
    fields(&[
        ("address", plain(&one.address)),
        ("connections", one.connections.to_string()),
        ("credits granted", one.credits_granted.to_string()),
        ("credits wanted", one.credits_requested.to_string()),
        ("credits used", one.credits_used.to_string()),
        ("requests waiting", one.waiting.to_string()),
        ("replies to be fetched", one.exposures.to_string()),
        ("memory held", bytes(one.memory_bytes)),
        ("requests", one.requests.to_string()),
        ("read", bytes(one.bytes_read)),
        ("written", bytes(one.bytes_written)),
        ("throttled", time(one.throttled_seconds)),
        ("limits", limits(&one.limits)),
    ])
}

pub fn connection(one: &ConnectionStatus) -> String {
    let maybe = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let size = |value: Option<u64>| value.map_or("-".to_owned(), bytes);
    fields(&[
        ("id", one.id.to_string()),
        ("peer", plain(&one.peer)),
        ("provider", plain(&one.provider)),
        (
            "device",
            one.device.as_deref().map_or("-".to_owned(), plain),
        ),
        ("core", maybe(one.core.map(|core| core as u64))),
        ("age", time(one.age_seconds)),
        (
            "RPC-over-RDMA version",
            maybe(one.rpcrdma_version.map(u64::from)),
        ),
        ("inline to the client", size(one.inline_send_bytes)),
        ("inline from the client", size(one.inline_receive_bytes)),
        ("credits granted", maybe(one.credits_granted.map(u64::from))),
        (
            "credits wanted",
            maybe(one.credits_requested.map(u64::from)),
        ),
        ("requests in flight", one.requests_in_flight.to_string()),
        ("requests", one.requests.to_string()),
        ("read", bytes(one.bytes_read)),
        ("written", bytes(one.bytes_written)),
        ("replies to be fetched", one.exposures.to_string()),
        ("latency", latency(one.latency.as_ref())),
    ])
}

pub fn operations(list: &[OperationStatus]) -> String {
    let mut table = Table::new(&[
        "PROGRAM",
        "PROCEDURE",
        "REQUESTS",
        "ERRORS",
        "BYTES",
        "P50",
        "P90",
        "P99",
        "P99.9",
    ]);
    for one in list {
        let quantile =
            |of: fn(&Latency) -> f64| Cell::maybe(one.latency.as_ref().map(of).map(time));
        table.row(vec![
            Cell::word(&one.program),
            Cell::word(&one.procedure),
            Cell::number(one.requests),
            Cell::number(one.errors),
            Cell::number(bytes(one.bytes)),
            quantile(|latency| latency.p50_seconds),
            quantile(|latency| latency.p90_seconds),
            quantile(|latency| latency.p99_seconds),
            quantile(|latency| latency.p999_seconds),
        ]);
    }
    table.render("no requests yet")
}

/// Limits as in the configuration.
pub fn limits(limits: &RateLimits) -> String {
    let iops = limits.iops.map(|iops| format!("{iops}/s"));
    let bandwidth = limits
        .bandwidth_bytes
        .map(|bytes| Bandwidth(bytes).to_string());
    match (iops, bandwidth) {
        (None, None) => "-".to_owned(),
        (one, other) => one.into_iter().chain(other).collect::<Vec<_>>().join(", "),
    }
}

/// Quantiles in one line.
pub fn latency(latency: Option<&Latency>) -> String {
    match latency {
        None => "-".to_owned(),
        Some(latency) => format!(
            "half within {}, 90% {}, 99% {}, 99.9% {}",
            time(latency.p50_seconds),
            time(latency.p90_seconds),
            time(latency.p99_seconds),
            time(latency.p999_seconds)
        ),
    }
}
