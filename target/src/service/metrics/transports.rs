//! Metrics of RPC-over-RDMA, of its providers, and of RPC over TCP.

use millrace_admin::metrics::{Families, catalogue};
use millrace_reactor::fabric::counters::{ENDINGS, FAILURES, FabricCounters, WORK_KINDS};
use millrace_reactor::fabric::iwarp::IwarpCounters;

use crate::rdma::ConnectionCounters;
use crate::service::control::ReactorParts;
#[cfg(feature = "verbs")]
use crate::service::metrics::verbs;
use crate::service::providers::ProviderKindCounters;

pub(super) fn rdma(out: &mut Families, core: &str, parts: &ReactorParts) {
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
    let invalidations = counters.invalidations.get();
    out.number(&catalogue::RPCRDMA_INVALIDATIONS, &[], invalidations);
    exposures(out, core, counters);
    parts.providers.each(|provider, counters| {
        fabric(out, core, provider, counters.fabric());
        match counters {
            ProviderKindCounters::Iwarp(counters) => iwarp(out, provider, counters),
            #[cfg(feature = "verbs")]
            ProviderKindCounters::Verbs(counters) => verbs::of_provider(out, core, counters),
        }
    });
    let tcp = &parts.tcp;
    out.number(
        &catalogue::CONNECTIONS_ACCEPTED,
        &["tcp"],
        tcp.accepted.get(),
    );
    // Parts are read before their total, so that they never exceed it.
    let (misbehaved, evicted) = (tcp.misbehaved.get(), tcp.evicted.get());
    let ended = tcp.ended.get();
    let open = tcp.accepted.get().saturating_sub(ended);
    out.number(&catalogue::CONNECTIONS, &[core, "tcp"], open);
    for (reason, count) in [
        ("misbehaved", misbehaved),
        ("evicted", evicted),
        ("ended", ended.saturating_sub(misbehaved + evicted)),
    ] {
        out.number(&catalogue::CONNECTIONS_CLOSED, &["tcp", reason], count);
    }
    out.number(
        &catalogue::CONNECTIONS_REFUSED,
        &["tcp", "full"],
        tcp.refused.get(),
    );
    let pauses = tcp.accept_pauses.get();
    out.number(&catalogue::ACCEPT_PAUSES, &["tcp"], pauses);
}

fn exposures(out: &mut Families, core: &str, counters: &ConnectionCounters) {
    // Ended ones are read first, so that they never exceed the begun ones.
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

fn fabric(out: &mut Families, core: &str, provider: &str, counters: &FabricCounters) {
    out.number(
        &catalogue::CONNECTIONS,
        &[core, provider],
        counters.connections.get(),
    );
    out.number(
        &catalogue::CONNECTIONS_ACCEPTED,
        &[provider],
        counters.established.get(),
    );
    let failed = counters.setups_failed.get();
    out.number(
        &catalogue::CONNECTIONS_REFUSED,
        &[provider, "setup"],
        failed,
    );
    for (operation, work) in WORK_KINDS.iter().zip(&counters.work) {
        for (family, number) in [
            (&catalogue::RDMA_OPERATIONS, &work.completed),
            (&catalogue::RDMA_POSTED, &work.posted),
            (&catalogue::RDMA_BYTES, &work.bytes),
        ] {
            out.number(family, &[provider, operation], number.get());
        }
    }
    for (status, count) in FAILURES.iter().zip(&counters.failures) {
        out.number(&catalogue::RDMA_FAILURES, &[provider, status], count.get());
    }
    for (reason, count) in ENDINGS.iter().zip(&counters.ended) {
        let labels = &[provider, reason];
        out.number(&catalogue::CONNECTIONS_CLOSED, labels, count.get());
    }
}

fn iwarp(out: &mut Families, provider: &str, counters: &IwarpCounters) {
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
        out.number(&catalogue::FABRIC_FRAMES, labels, frames.get());
        out.number(&catalogue::FABRIC_BYTES, labels, bytes.get());
        out.number(&catalogue::FABRIC_TERMINATES, labels, terminates.get());
    }
    let pauses = counters.accept_pauses.get();
    out.number(&catalogue::ACCEPT_PAUSES, &["iwarp"], pauses);
    let direct = counters.bytes_direct.get();
    out.number(&catalogue::FABRIC_DIRECT_BYTES, &[provider], direct);
    out.number(
        &catalogue::FABRIC_CRC_ERRORS,
        &[provider],
        counters.crc_errors.get(),
    );
    let unexpected = counters.indications_unexpected.get();
    out.number(&catalogue::FABRIC_INDICATIONS, &[provider], unexpected);
    for (call, count) in [
        ("receive", &counters.receive_calls),
        ("send", &counters.send_calls),
        ("ready", &counters.ready_calls),
    ] {
        out.number(
            &catalogue::FABRIC_SYSTEM_CALLS,
            &[provider, call],
            count.get(),
        );
    }
}
