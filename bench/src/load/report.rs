//! What a load came to.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::table::Table;

/// One load, measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Measurement {
    /// What was done.
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
        "data",
    ]);
    let cpu = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
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
            match measured.mismatches {
                0 => "ok".to_owned(),
                wrong => format!("{wrong} WRONG"),
            },
        ]);
    }
    table
}
