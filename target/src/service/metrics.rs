//! The service's metrics, for a scrape. Nothing here waits for a reactor.

pub mod client_state;
pub mod clients;
#[cfg(feature = "ceph")]
mod clusters;
mod folders;
mod gss;
mod programs;
mod transports;
#[cfg(feature = "verbs")]
mod verbs;

use std::time::{Duration, Instant};

use millrace_admin::control::Control;
use millrace_admin::metrics::{Families, MetricsSource, catalogue};
use millrace_admin::status::Readiness;
use millrace_mempool::Class;
use millrace_reactor::WorkSource;

use super::control::{ReactorParts, ServiceControl};
use super::gateways::GatewayMember;
use crate::export_counters::{ExportCall, ExportTotals};
use crate::exports::ExportId;
use crate::flow::{Cause, VERSIONS};
use folders::folder;
use programs::{programs, replay};
use transports::rdma;

/// Sources for which a worker of the service counts work.
const SOURCES: [WorkSource; 4] = [
    WorkSource::Fabric,
    WorkSource::Records,
    WorkSource::Tasks,
    WorkSource::Store,
];

impl MetricsSource for ServiceControl {
    fn collect(&self, out: &mut Families) {
        let stalled = self.stalled();
        for (reactor, parts) in self.reactors.iter().zip(&self.parts) {
            let core = reactor
                .core()
                .map_or_else(|| "-".to_owned(), |core| core.to_string());
            let counters = reactor.counters();
            let labels = &[core.as_str()];
            let seconds = Duration::from_nanos;
            out.number(&catalogue::REACTOR_TURNS, labels, counters.loops());
            out.seconds(
                &catalogue::REACTOR_BUSY,
                labels,
                seconds(counters.busy_ns()),
            );
            let idle = seconds(counters.idle_ns() + counters.sleep_ns());
            out.seconds(&catalogue::REACTOR_IDLE, labels, idle);
            let longest = seconds(counters.longest_loop_ns());
            out.seconds(&catalogue::REACTOR_LONGEST_TURN, labels, longest);
            let stuck = stalled.iter().any(|stall| stall.name == reactor.name());
            out.number(&catalogue::REACTOR_STALLED, labels, u64::from(stuck));
            let age = reactor.last_turn_age();
            out.seconds(&catalogue::REACTOR_LAST_TURN, labels, age);
            let waiting = reactor.messages_waiting() as u64;
            out.number(&catalogue::REACTOR_MAILBOX, labels, waiting);
            out.number(&catalogue::REACTOR_MESSAGES, labels, counters.messages());
            out.number(&catalogue::REACTOR_SLEEPS, labels, counters.sleeps());
            for source in SOURCES {
                let work = counters.work(source);
                out.number(&catalogue::REACTOR_WORK, &[&core, source.name()], work);
            }
            pool(out, &core, parts);
            rdma(out, &core, parts);
            flow(out, &core, parts);
            programs(out, parts);
            out.number(&catalogue::OTHER_HANDLES, &[], parts.other_handles.get());
            if let Some(gauges) = &parts.client_state {
                client_state::client_state(out, gauges);
            }
        }
        #[cfg(feature = "verbs")]
        if let Some(devices) = self.devices.get() {
            verbs::of_devices(out, devices);
        }
        if let Some(contexts) = &self.gss {
            gss::gss(out, &contexts.0);
        }
        self.exports(out);
        replay(out, &self.replay);
        let gateway = self.gateway.as_ref();
        if let Some(journals) = gateway.and_then(GatewayMember::replies) {
            out.number(&catalogue::REPLAY_UNSHARED, &[], journals.unshared());
        }
        let most = self.config().admin.client_series as usize;
        let usage = self.client_usage();
        self.class_latencies(out);
        self.client_series
            .collect(out, &usage, most, Instant::now());
        let state = self.readiness();
        for (family, holds) in [
            (&catalogue::READY, state == Readiness::Ready),
            (&catalogue::DRAINING, state == Readiness::Draining),
        ] {
            out.number(family, &[], u64::from(holds));
        }
    }
}

impl ServiceControl {
    /// The totals of calls on an export. Queries no reactor.
    pub(super) fn export_totals(&self, export: ExportId) -> ExportTotals {
        let mut totals = ExportTotals::default();
        for parts in &self.parts {
            totals.add(&parts.exports.get(export));
        }
        totals
    }

    fn exports(&self, out: &mut Families) {
        for (rules, volume) in &self.in_force().exports {
            let path = rules.path.as_str();
            let labels = &[path];
            let id = ExportId::of(path);
            let waiting = u64::from(self.clients.export_waiting(id));
            out.number(&catalogue::EXPORT_WAITING, labels, waiting);
            if let Some(usage) = self.usage_of(id, volume) {
                for (family, number) in [
                    (&catalogue::EXPORT_CAPACITY, usage.total_bytes),
                    (&catalogue::EXPORT_USED, usage.used_bytes),
                    (&catalogue::EXPORT_FILES, usage.inodes),
                ] {
                    out.number(family, labels, number);
                }
                if let Some(most) = usage.total_inodes {
                    out.number(&catalogue::EXPORT_CAPACITY_FILES, labels, most);
                }
            }
            if let Some(volume) = volume.posix() {
                folder(out, path, volume);
            }
            #[cfg(feature = "ceph")]
            if let millrace_store::any::AnyVolume::Ceph(volume) = volume {
                clusters::cluster(out, path, volume);
            }
            let done = self.export_totals(id);
            out.number(&catalogue::EXPORT_REQUESTS, labels, done.requests);
            out.number(&catalogue::EXPORT_ERRORS, labels, done.errors);
            for (way, bytes) in [("read", done.bytes_read), ("write", done.bytes_written)] {
                out.number(&catalogue::EXPORT_DATA, &[path, way], bytes);
            }
            self.export_latencies(out, path, id);
        }
    }

    fn class_latencies(&self, out: &mut Families) {
        for class in self.clients.classes() {
            for parts in &self.parts {
                // Those without clients on a reactor have nothing there.
                let Some(histograms) = parts.classes.get(&class) else {
                    continue;
                };
                for call in ExportCall::ALL {
                    let took = histograms.of(call).snapshot();
                    let labels = &[&*class, call.name()];
                    out.histogram(&catalogue::CLIENT_CLASS_DURATION, labels, &took);
                }
            }
        }
    }

    fn export_latencies(&self, out: &mut Families, path: &str, export: ExportId) {
        for call in ExportCall::ALL {
            for parts in &self.parts {
                let took = parts.exports.get(export).latency(call).snapshot();
                out.histogram(&catalogue::EXPORT_DURATION, &[path, call.name()], &took);
            }
        }
    }
}

fn pool(out: &mut Families, core: &str, parts: &ReactorParts) {
    let page_size = parts.page_size.to_string();
    let labels = &[core, page_size.as_str()];
    out.number(&catalogue::POOL_MEMORY, labels, parts.pool.bytes());
    for class in Class::ALL {
        let gauges = parts.pool.class(class);
        let labels = &[core, class.name()];
        out.number(&catalogue::POOL_BUFFERS, labels, gauges.capacity());
        out.number(&catalogue::POOL_BUFFERS_IN_USE, labels, gauges.in_use());
        out.number(
            &catalogue::POOL_BUFFERS_HIGH_WATER,
            labels,
            gauges.high_water(),
        );
        out.number(&catalogue::POOL_WAITERS, labels, gauges.waiters());
        out.number(&catalogue::POOL_WAITS, labels, gauges.waits_total());
    }
}

fn flow(out: &mut Families, core: &str, parts: &ReactorParts) {
    let flow = &parts.flow;
    for (family, number) in [
        (&catalogue::CREDITS_GRANTED, flow.granted.get()),
        (&catalogue::CREDITS_REQUESTED, flow.requested.get()),
        (&catalogue::CREDITS_IN_USE, flow.used_peak.get()),
        (&catalogue::REPLIES_WITHHELD, flow.withheld.get()),
        (&catalogue::REPLY_WITHHOLDS, flow.withheld_total.get()),
        (&catalogue::CLIENTS, flow.clients.get()),
        (&catalogue::REACTOR_TASKS, flow.tasks.get()),
        (&catalogue::REACTOR_BACKLOG, flow.backlog.get()),
        (&catalogue::REACTOR_TASK_PANICS, flow.panics.get()),
        (&catalogue::CONNECTIONS_TURNED_AWAY, flow.turned_away.get()),
        (&catalogue::CONNECTIONS_STUCK, flow.stuck_reads.get()),
        (&catalogue::CONNECTIONS_UNTAKEN, flow.stuck_sends.get()),
    ] {
        out.number(family, &[core], number);
    }
    for cause in Cause::ALL {
        let labels = &[core, cause.name()];
        out.seconds(&catalogue::THROTTLED, labels, flow.throttled(cause));
        out.number(&catalogue::CREDIT_CUTS, labels, flow.cuts(cause));
    }
    for (version, count) in VERSIONS.into_iter().zip(flow.versions()) {
        let version = version.number().to_string();
        out.number(&catalogue::RPCRDMA_CONNECTIONS, &[core, &version], count);
    }
}
