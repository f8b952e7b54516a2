//! The results of a load.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::table::Table;

/// The side that a rate is limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// It has hardly any time left without work, and less than the server has.
    Requester,
    /// It has hardly any time left without work.
    Server,
    /// Both have time left: latency limits.
    Neither,
    /// The server does not tell its busy time.
    Unknown,
}

/// Share of busy time from which on a side counts as saturated.
const SATURATED: f64 = 0.8;

impl Limit {
    /// From the shares of time in which both sides had work.
    #[must_use]
    pub fn of(requester: f64, server: Option<f64>) -> Self {
        match server {
            None => Self::Unknown,
            Some(server) if requester.max(server) < SATURATED => Self::Neither,
            Some(server) if requester >= server => Self::Requester,
            Some(_) => Self::Server,
        }
    }

    /// For tables. The requester's limit says nothing of the server and is marked.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Requester => "REQUESTER",
            Self::Server => "server",
            Self::Neither => "neither",
            Self::Unknown => "-",
        }
    }
}

/// Seconds in which both sides had work: turns that found none do not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusySeconds {
    /// The requester's.
    pub client: f64,
    /// The server's, if its metrics tell.
    pub server: Option<f64>,
}

/// One load, measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Measurement {
    /// The name of the load.
    pub name: String,
    /// Operations that ended.
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Time that it took.
    pub seconds: f64,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// Latency that 99 % keep, in microseconds.
    pub p99_us: f64,
    /// Latency that 99.9 % keep, in microseconds.
    pub p999_us: f64,
    /// The client's processor time per operation, in microseconds.
    pub client_cpu_us: Option<f64>,
    /// The server's processor time per operation, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Time in which the client had work, in microseconds per operation.
    pub client_busy_us: f64,
    /// The same of the server.
    pub server_busy_us: Option<f64>,
    /// Share of the time in which the client had work, 0 to 1.
    pub client_share: f64,
    /// The same of the server.
    pub server_share: Option<f64>,
    /// What limits the rate.
    pub limit: Limit,
    /// Places where data was not what it should be.
    pub mismatches: u64,
}

impl Measurement {
    pub(super) fn new(
        name: String,
        (operations, bytes, mismatches): (u64, u64, u64),
        elapsed: Duration,
        latencies: &Histogram<u64>,
        (client, server): (Option<f64>, Option<f64>),
        busy: BusySeconds,
    ) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let each = |seconds: f64| seconds * 1e6 / operations.max(1) as f64;
        let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            name,
            operations,
            bytes,
            seconds,
            operations_per_second: operations as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            mean_us: latencies.mean() / 1000.0,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            client_cpu_us: client.map(each),
            server_cpu_us: server.map(each),
            client_busy_us: each(busy.client),
            server_busy_us: busy.server.map(each),
            client_share: busy.client / seconds,
            server_share: busy.server.map(|busy| busy / seconds),
            limit: Limit::of(
                busy.client / seconds,
                busy.server.map(|busy| busy / seconds),
            ),
            mismatches,
        }
    }
}

/// All loads in one table.
#[must_use]
pub fn table(measurements: &[Measurement]) -> Table {
    let mut table = Table::new(&[
        "load",
        "operations/s",
        "MiB/s",
        "mean us",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "client CPU us",
        "server CPU us",
        "client busy us",
        "%",
        "server busy us",
        "%",
        "limited by",
        "data",
    ]);
    let cpu = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let share =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0}", value * 100.0));
    for measured in measurements {
        table.row(&[
            measured.name.clone(),
            format!("{:.0}", measured.operations_per_second),
            format!("{:.1}", measured.bytes_per_second / f64::from(1 << 20)),
            format!("{:.1}", measured.mean_us),
            format!("{:.1}", measured.p50_us),
            format!("{:.1}", measured.p99_us),
            format!("{:.1}", measured.p999_us),
            cpu(measured.client_cpu_us),
            cpu(measured.server_cpu_us),
            cpu(Some(measured.client_busy_us)),
            share(Some(measured.client_share)),
            cpu(measured.server_busy_us),
            share(measured.server_share),
            measured.limit.text().to_owned(),
            match measured.mismatches {
                0 => "ok".to_owned(),
                wrong => format!("{wrong} WRONG"),
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn the_busier_of_two_sides_limits_if_it_is_saturated() {
        assert_eq!(Limit::of(0.99, Some(0.9)), Limit::Requester);
        assert_eq!(Limit::of(0.9, Some(0.99)), Limit::Server);
        assert_eq!(Limit::of(0.3, Some(0.5)), Limit::Neither);
        assert_eq!(Limit::of(0.99, None), Limit::Unknown);
    }
}
