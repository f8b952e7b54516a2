//! Snapshots as tables.

use millrace_admin::status::{ConnectionStatus, ExportStatus, PoolStatus, ReactorStatus};

use super::table::{Cell, Table, bytes, time};

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
        "PATH", "STORE", "ACCESS", "SQUASH", "USED", "CAPACITY", "FILES", "CLIENTS",
    ]);
    for one in list {
        table.row(vec![
            Cell::word(&one.path),
            Cell::word(&one.store),
            Cell::word(&one.access),
            Cell::word(&one.squash),
            Cell::maybe(one.used_bytes.map(bytes)),
            Cell::maybe(one.capacity_bytes.map(bytes)),
            Cell::maybe(one.files),
            Cell::word(&one.clients.join(" ")),
        ]);
    }
    table.render("no exports")
}
