//! The interface of RPC-over-RDMA to the service.

use std::future::Future;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Instant;

use millrace_reactor::fabric::DataPath;
use millrace_wire::rpcrdma::Version;

use super::{RdmaConnection, Responder};
use crate::call::{Serve, TurnEnd};
use crate::rpc::{ConnectionReport, OpenWork, RdmaReport, Transport};

impl<S: Serve, F: Future<Output = ()>> Transport for Responder<S, F> {
    fn refuse(&mut self, _: Instant) {
        self.refuses = true;
        for call in self.calls.take_waiting() {
            self.refuse_call(call);
        }
        for slot in &mut self.fabrics {
            slot.stop_listening();
        }
    }

    /// Connections with refused calls end nevertheless.
    fn resume(&mut self) {
        self.refuses = false;
    }

    fn close_idle(&mut self) {
        for connection in self.connections().filter(|one| one.is_idle()) {
            connection.leave();
        }
    }

    fn close_all(&mut self) {
        self.close_idle();
        for connection in self.connections().filter(|one| !one.is_idle()) {
            connection.close(true);
        }
    }

    fn evict(&mut self, id: u64) -> bool {
        let found = self.connections().find(|one| one.id() == id);
        found.inspect(|connection| connection.close(true)).is_some()
    }

    fn open_work(&self) -> OpenWork {
        let mut open = OpenWork::default();
        for connection in self.connections() {
            let (_, _, in_service) = connection.credits();
            open += OpenWork {
                connections: 1,
                in_flight: in_service as usize,
                exposures: u64::from(connection.compat.exposed_replies()),
            };
        }
        open
    }

    fn report(&self, now: Instant, reports: &mut Vec<ConnectionReport>) {
        reports.extend(self.connections().map(|connection| report(connection, now)));
    }

    fn waiting(&self, waiting: &mut Vec<(IpAddr, u32)>) {
        waiting.extend(self.shared.flow.waiting());
        waiting.extend(self.calls.waiting());
    }

    fn calls(&self) -> usize {
        self.calls.calls()
    }

    fn turned(&mut self, end: &TurnEnd) {
        self.shared.turned(end);
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        let slots = self.fabrics.iter();
        list.extend(slots.filter_map(|slot| slot.fabric.borrow().wake_descriptor()));
    }

    fn arm(&mut self) -> bool {
        let mut slots = self.fabrics.iter();
        slots.all(|slot| slot.fabric.borrow_mut().arm())
    }

    /// When a provider, or a task that waits for a time, next has work.
    fn next_deadline(&self) -> Option<Instant> {
        self.fabrics
            .iter()
            .filter_map(|slot| slot.fabric.borrow().next_deadline())
            .chain(self.shared.clock.next_deadline())
            .chain(self.shared.exposed.next_deadline())
            .chain(self.shared.transfers.next_deadline())
            .chain(self.shared.flow.next_deadline())
            .chain(self.unadmitted.next_deadline())
            .min()
    }
}

fn report(connection: &RdmaConnection, now: Instant) -> ConnectionReport {
    let (requested, granted, _) = connection.credits();
    let version = connection.version();
    let rdma = RdmaReport {
        provider: connection.provider_name(),
        device: connection.device_name(),
        version: version.map(Version::number),
        inline_send: connection.inline().limit(version.unwrap_or(Version::One)),
        inline_receive: connection.terms().receive_size(),
        granted,
        requested,
        exposures: connection.compat.exposed_replies(),
    };
    let in_service = connection.in_service_peak(now);
    ConnectionReport {
        rdma: Some(rdma),
        ..ConnectionReport::new(connection.identity(), in_service, now)
    }
}
