//! The service's reports of its clients, their connections and their calls.

use std::collections::HashMap;
use std::net::IpAddr;

use millrace_admin::control::ControlError;
use millrace_admin::status::{
    ClientStatus, ConnectionStatus, Latency, OperationStatus, RateLimits,
};
use millrace_primitives::HistogramSnapshot;

use super::control::ServiceControl;
use super::status::ReactorReport;
use crate::counters::ProgramsCounters;
use crate::flow::{ClientUsage, ClientsUsage};
use crate::rpc::ConnectionReport;
use crate::rpc::program::ProgramInfo;

/// The data of one client in the reports of reactors.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    requested: u64,
    used: u64,
    waiting: u64,
    exposures: u64,
}

impl ServiceControl {
    /// The clients and their usage, and the totals of removed ones. Queries no reactor.
    #[must_use]
    pub fn client_usage(&self) -> ClientsUsage {
        self.clients.usage()
    }

    pub(super) fn connections_now(&self) -> Result<Vec<ConnectionStatus>, ControlError> {
        let reports = self.reports()?;
        let mut connections = Vec::new();
        for (report, reactor) in reports.iter().zip(&self.reactors) {
            let status = |one| connection(one, reactor.core());
            connections.extend(report.connections.iter().map(status));
        }
        connections.sort_unstable_by_key(|one| one.id);
        Ok(connections)
    }

    pub(super) fn clients_now(&self) -> Result<Vec<ClientStatus>, ControlError> {
        let reports = self.reports()?;
        let moments = moments(&reports);
        let usage = self.clients.usage();
        let present = usage.present.into_iter();
        let connected = present.filter(|client| client.connections > 0);
        Ok(connected
            .map(|one| client(&one, moments.get(&one.address).copied().unwrap_or_default()))
            .collect())
    }

    pub(super) fn operations_now(&self) -> Vec<OperationStatus> {
        let all: Vec<&ProgramsCounters> = self.parts.iter().map(|parts| &*parts.programs).collect();
        let programs = all.first().map_or(&[][..], |first| &first.programs[..]);
        let operations = programs.iter().enumerate().flat_map(|(at, program)| {
            (0..program.procedures.len()).map(move |number| (at, number, program.info))
        });
        operations
            .filter_map(|(at, number, info)| operation(&all, at, number, info))
            .collect()
    }
}

fn connection(one: &ConnectionReport, core: Option<usize>) -> ConnectionStatus {
    let latency = one.latency.snapshot();
    let rdma = one.rdma.as_ref();
    ConnectionStatus {
        id: one.id,
        peer: one.address().to_string(),
        provider: rdma.map_or("tcp", |rdma| rdma.provider).to_owned(),
        device: rdma.and_then(|rdma| rdma.device.clone()),
        core,
        age_seconds: one.age,
        rpcrdma_version: rdma.and_then(|rdma| rdma.version),
        inline_send_bytes: rdma.map(|rdma| rdma.inline_send as u64),
        inline_receive_bytes: rdma.map(|rdma| rdma.inline_receive as u64),
        credits_granted: rdma.map(|rdma| rdma.granted),
        credits_requested: rdma.map(|rdma| rdma.requested),
        requests_in_flight: one.in_service,
        requests: latency.count(),
        bytes_written: one.bytes_written,
        bytes_read: one.bytes_read,
        exposures: rdma.map_or(0, |rdma| rdma.exposures),
        latency: Latency::of(&latency),
    }
}

/// The data in the reports, by client.
fn moments(reports: &[ReactorReport]) -> HashMap<IpAddr, Moment> {
    let mut moments: HashMap<IpAddr, Moment> = HashMap::new();
    for report in reports {
        for one in &report.connections {
            let moment = moments.entry(one.peer.address).or_default();
            if let Some(rdma) = &one.rdma {
                moment.requested += u64::from(rdma.requested);
                moment.used += u64::from(one.in_service);
                moment.exposures += u64::from(rdma.exposures);
            }
        }
        for (address, waiting) in &report.waiting {
            moments.entry(*address).or_default().waiting += u64::from(*waiting);
        }
    }
    moments
}

fn client(usage: &ClientUsage, moment: Moment) -> ClientStatus {
    let totals = usage.totals;
    ClientStatus {
        address: usage.address.to_string(),
        connections: usage.connections,
        credits_granted: usage.credits,
        credits_requested: moment.requested,
        credits_used: moment.used,
        waiting: moment.waiting,
        exposures: moment.exposures,
        memory_bytes: usage.memory,
        requests: totals.requests,
        bytes_read: totals.bytes_read,
        bytes_written: totals.bytes_written,
        throttled_seconds: totals.throttled.as_secs_f64(),
        limits: RateLimits {
            iops: usage.rates.iops,
            bandwidth_bytes: usage.rates.bandwidth,
        },
    }
}

/// The totals of one procedure over all reactors; none without calls.
fn operation(
    all: &[&ProgramsCounters],
    program: usize,
    number: usize,
    info: &ProgramInfo,
) -> Option<OperationStatus> {
    let procedure = info.procedures.get(number)?;
    let (mut requests, mut errors, mut bytes) = (0, 0, 0);
    let mut latency = HistogramSnapshot::default();
    for counters in all {
        let counted = &counters.programs[program].procedures[number];
        // Errors are read first, so that they never exceed the calls.
        errors += counted.errors.get();
        requests += counted.calls.get();
        latency.merge(&counted.all_latencies());
        bytes += procedure.data.map_or(0, |data| counters.bytes(data));
    }
    (requests > 0).then(|| OperationStatus {
        program: info.name.to_owned(),
        procedure: procedure.name.to_owned(),
        requests,
        errors,
        bytes,
        latency: Latency::of(&latency),
    })
}
