//! What the service has done since its start, for the management plane.

use std::time::Duration;

use millrace_admin::figures::{
    CallLatencies, CallTotals, ItemSample, ItemSamples, ReactorTime, ServiceTotals,
};
use millrace_primitives::HistogramSnapshot;

use super::control::ServiceControl;
use crate::export_counters::ExportCall;
use crate::exports::ExportId;

impl ServiceControl {
    /// The sums over all reactors. Queries no reactor.
    pub(super) fn totals_now(&self) -> ServiceTotals {
        let mut totals = ServiceTotals {
            read: self.latency_of(ExportCall::Read),
            write: self.latency_of(ExportCall::Write),
            other: self.latency_of(ExportCall::Other),
            ..ServiceTotals::default()
        };
        for (reactor, parts) in self.reactors.iter().zip(&self.parts) {
            let programs = parts.programs.programs.iter();
            for procedure in programs.flat_map(|program| &program.procedures) {
                // Errors first, so that they are never more than the calls.
                totals.errors += procedure.errors.get();
                totals.requests += procedure.calls.get();
            }
            totals.bytes_read += parts.programs.bytes_read.get();
            totals.bytes_written += parts.programs.bytes_written.get();
            let counters = reactor.counters();
            totals.reactors.push(ReactorTime {
                name: reactor.name().to_owned(),
                busy: Duration::from_nanos(counters.busy_ns()),
                idle: Duration::from_nanos(counters.idle_ns() + counters.sleep_ns()),
            });
        }
        totals
    }

    /// Each export and each client, summed over all reactors. Queries no reactor.
    pub(super) fn item_samples_now(&self) -> ItemSamples {
        let in_force = self.in_force();
        let exports = in_force.exports.iter().map(|(rules, _)| {
            let id = ExportId::of(&rules.path);
            let totals = self.export_totals(id);
            let [read, write, other] = ExportCall::ALL.map(|call| {
                let mut sum = HistogramSnapshot::default();
                for parts in &self.parts {
                    sum.merge(&parts.exports.get(id).latency(call).snapshot());
                }
                sum
            });
            ItemSample {
                key: rules.path.clone(),
                totals: CallTotals {
                    requests: totals.requests,
                    errors: totals.errors,
                    bytes_read: totals.bytes_read,
                    bytes_written: totals.bytes_written,
                },
                latencies: Some(Box::new(CallLatencies { read, write, other })),
            }
        });
        let clients = self.client_usage().present.into_iter().map(|client| {
            let totals = client.totals;
            ItemSample {
                key: client.address,
                totals: CallTotals {
                    requests: totals.requests,
                    errors: totals.errors,
                    bytes_read: totals.bytes_read,
                    bytes_written: totals.bytes_written,
                },
                latencies: None,
            }
        });
        ItemSamples {
            exports: exports.collect(),
            clients: clients.collect(),
        }
    }

    fn latency_of(&self, call: ExportCall) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        for parts in &self.parts {
            sum.merge(&parts.exports.latency(call));
        }
        sum
    }
}
