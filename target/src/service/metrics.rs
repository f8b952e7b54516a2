//! The service's numbers, for a scrape. Nothing here waits for a reactor.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_admin::metrics::{Families, MetricsSource, catalogue};
use millrace_mempool::Class;
use millrace_reactor::Source;
use millrace_reactor::fabric::iwarp::IwarpCounters;

use super::control::{ReactorParts, ServiceControl};
use crate::counters::{MOUNT_PROCEDURES, NFS_PROCEDURES, ProcedureCounters};
use crate::flow::{Cause, VERSIONS};
use crate::rdma::ConnectionCounters;

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
            out.number(&catalogue::REACTOR_MESSAGES, labels, counters.messages());
            out.number(&catalogue::REACTOR_SLEEPS, labels, counters.sleeps());
            for source in Source::ALL {
                let work = counters.work(source);
                out.number(&catalogue::REACTOR_WORK, &[&core, source.name()], work);
            }
            pool(out, &core, parts);
            rdma(out, &core, parts);
            flow(out, &core, parts);
            programs(out, parts);
        }
        for (rules, store) in &self.in_force().exports {
            let usage = store.usage();
            let labels = &[rules.path.as_str()];
            out.number(&catalogue::STORE_CAPACITY, labels, usage.total_bytes);
            out.number(&catalogue::STORE_USED, labels, usage.used_bytes);
            out.number(&catalogue::STORE_FILES, labels, usage.inodes);
        }
    }
}

fn pool(out: &mut Families, core: &str, parts: &ReactorParts) {
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
        (&catalogue::CREDITS_IN_USE, flow.used.get()),
        (&catalogue::REPLIES_WITHHELD, flow.withheld.get()),
        (&catalogue::REPLY_WITHHOLDS, flow.withheld_total.get()),
        (&catalogue::CLIENTS, flow.clients.get()),
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
    let turned_away = flow.turned_away.get();
    out.number(
        &catalogue::CONNECTIONS_REFUSED,
        &["rdma", "client_share"],
        turned_away,
    );
    let stuck = flow.stuck_reads.get();
    out.number(
        &catalogue::CONNECTIONS_CLOSED,
        &["rdma", "stuck_reads"],
        stuck,
    );
}

fn rdma(out: &mut Families, core: &str, parts: &ReactorParts) {
    let counters = &parts.rdma;
    for (direction, kind, count) in [
        ("in", "call", counters.calls.get()),
        ("in", "long_call", counters.calls_long.get()),
        ("in", "optional", counters.optional.get()),
        ("in", "reverse_reply", counters.reverse_replies.get()),
        ("out", "reverse_call", counters.reverse_calls.get()),
        ("out", "reply", counters.replies_inline.get()),
        ("out", "long_reply", counters.replies_long.get()),
    ] {
        out.number(&catalogue::RPCRDMA_MESSAGES, &[direction, kind], count);
    }
    let dropped = ("dropped", counters.dropped.get());
    for (error, count) in counters.errors().into_iter().chain([dropped]) {
        out.number(&catalogue::RPCRDMA_ERRORS, &[error], count);
    }
    for (resource, count) in [
        ("send_queue", counters.send_waits.get()),
        ("reply_buffer", counters.buffer_waits.get()),
        ("exposure", counters.exposure_waits.get()),
    ] {
        out.number(&catalogue::SHORTAGE_WAITS, &[core, resource], count);
    }
    exposures(out, core, counters);
    parts
        .providers
        .each(|provider, counters| fabric(out, core, provider, counters));
    let tcp = &parts.tcp;
    out.number(
        &catalogue::CONNECTIONS_ACCEPTED,
        &["tcp"],
        tcp.accepted.get(),
    );
    out.number(
        &catalogue::CONNECTIONS_CLOSED,
        &["tcp", "ended"],
        tcp.ended.get(),
    );
    out.number(
        &catalogue::CONNECTIONS_REFUSED,
        &["tcp", "full"],
        tcp.refused.get(),
    );
}

fn exposures(out: &mut Families, core: &str, counters: &ConnectionCounters) {
    // What has ended is read first, so that it is never more than what has begun.
    let ended = counters.exposures_ended.get();
    let opened = counters.exposures.get();
    let revoked = counters.revoked_bytes.get();
    let exposed = counters.exposed_bytes.get();
    let stray = counters.dones_stray.get();
    let awaited = counters.dones.get().saturating_sub(stray);
    for (family, count) in [
        (&catalogue::EXPOSURES, opened.saturating_sub(ended)),
        (&catalogue::EXPOSURES_OPENED, opened),
        (
            &catalogue::EXPOSURES_EXPIRED,
            counters.exposures_expired.get(),
        ),
        (
            &catalogue::EXPOSURES_REFUSED,
            counters.exposures_refused.get(),
        ),
        (&catalogue::EXPOSED_BYTES, exposed.saturating_sub(revoked)),
    ] {
        out.number(family, &[core], count);
    }
    for (outcome, count) in [("awaited", awaited), ("stray", stray)] {
        out.number(&catalogue::RDMA_DONES, &[core, outcome], count);
    }
}

fn fabric(out: &mut Families, core: &str, provider: &str, counters: &IwarpCounters) {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    out.number(
        &catalogue::CONNECTIONS,
        &[core, provider],
        read(&counters.connections),
    );
    out.number(
        &catalogue::CONNECTIONS_ACCEPTED,
        &[provider],
        read(&counters.established),
    );
    let failed = read(&counters.setups_failed);
    out.number(
        &catalogue::CONNECTIONS_REFUSED,
        &[provider, "setup"],
        failed,
    );
    for (direction, frames, bytes, terminates) in [
        (
            "in",
            &counters.frames_in,
            &counters.bytes_in,
            &counters.terminates_received,
        ),
        (
            "out",
            &counters.frames_out,
            &counters.bytes_out,
            &counters.terminates_sent,
        ),
    ] {
        let labels = &[provider, direction];
        out.number(&catalogue::FABRIC_FRAMES, labels, read(frames));
        out.number(&catalogue::FABRIC_BYTES, labels, read(bytes));
        out.number(&catalogue::FABRIC_TERMINATES, labels, read(terminates));
    }
    let direct = read(&counters.bytes_direct);
    out.number(&catalogue::FABRIC_DIRECT_BYTES, &[provider], direct);
    out.number(
        &catalogue::FABRIC_CRC_ERRORS,
        &[provider],
        read(&counters.crc_errors),
    );
    for (call, count) in [
        ("receive", &counters.receive_calls),
        ("send", &counters.send_calls),
        ("ready", &counters.ready_calls),
    ] {
        out.number(
            &catalogue::FABRIC_SYSTEM_CALLS,
            &[provider, call],
            read(count),
        );
    }
}

fn programs(out: &mut Families, parts: &ReactorParts) {
    let counters = &parts.programs;
    for (name, procedure) in NFS_PROCEDURES.iter().zip(&counters.nfs) {
        self::procedure(out, "nfs", name, procedure);
    }
    for (name, procedure) in MOUNT_PROCEDURES.iter().zip(&counters.mount) {
        self::procedure(out, "mount", name, procedure);
    }
    out.number(
        &catalogue::RPC_DATA,
        &["nfs", "read"],
        counters.bytes_read.get(),
    );
    out.number(
        &catalogue::RPC_DATA,
        &["nfs", "write"],
        counters.bytes_written.get(),
    );
    for (reason, count) in [
        ("not_a_call", counters.not_calls.get()),
        ("rpc_mismatch", counters.rpc_mismatch.get()),
        ("auth_error", counters.auth_errors.get()),
        ("program_unavailable", counters.program_unavailable.get()),
        ("program_mismatch", counters.program_mismatch.get()),
        (
            "procedure_unavailable",
            counters.procedure_unavailable.get(),
        ),
        ("garbage_arguments", counters.garbage_arguments.get()),
        ("not_admitted", counters.not_admitted.get()),
        ("too_large", counters.too_large.get()),
    ] {
        out.number(&catalogue::RPC_REJECTED, &[reason], count);
    }
    out.number(
        &catalogue::RPC_DUPLICATES,
        &["replayed"],
        counters.replayed.get(),
    );
}

fn procedure(out: &mut Families, program: &str, name: &str, counters: &ProcedureCounters) {
    let labels = &[program, name];
    out.number(&catalogue::RPC_REQUESTS, labels, counters.calls.get());
    out.number(
        &catalogue::RPC_ERRORS,
        &[program, name, "error"],
        counters.errors.get(),
    );
    out.histogram(
        &catalogue::RPC_DURATION,
        labels,
        &counters.latency.snapshot(),
    );
}
