//! Ending connections.
//!
//! The queue pair is put into the error state, and the flushed completions are collected. Not all
//! devices flush everything: siw's does not know requests posted after the error, and unsignalled
//! ones that succeeded before it leave no trace. So the destruction of the queue pair, on the
//! control thread, ends a connection; after it nothing is accessed any more, and the rest is
//! flushed.

use std::io;

use super::common::Common;
use super::connection::VerbsConnection;
use super::device_queues::DeviceQueues;
use super::phase::{Late, VerbsPhase};
use super::sys::{ConnectionId, QueuePair};
use super::token::Token;
use crate::fabric::Ended;

impl VerbsConnection {
    /// Ends it for this reason, unless it is already ending.
    pub(super) fn fail(&mut self, reason: Ended, common: &mut Common) {
        let phase = self.phase();
        if !self.course.fail(reason, common.now, &common.config) {
            return;
        }
        if !self.course.was_running() {
            common.counters.fabric.setups_failed.add(1);
        }
        common.half_open -= usize::from(phase == VerbsPhase::Deciding);
        // The queue pair first, so that nothing moves any more. Either may be ended already.
        if let Some(queue_pair) = &self.queue_pair {
            let _ = queue_pair.fail();
        }
        if let Some(manager) = &self.manager {
            let _ = match phase {
                VerbsPhase::Deciding => manager.reject(&[]),
                VerbsPhase::Accepting | VerbsPhase::Running | VerbsPhase::Closing => {
                    manager.disconnect()
                }
                _ => Ok(()),
            };
        }
        self.set_deadline(common);
    }

    /// Its device was removed.
    pub(super) fn device_lost(&mut self, common: &mut Common) {
        if !self.course.is_ending() {
            common.counters.devices_lost.add(1);
        }
        self.fail(Ended::Network(io::ErrorKind::NotConnected), common);
    }

    /// The application rejects a request.
    pub(super) fn turn_away(&mut self, private_data: &[u8], common: &mut Common) {
        if let Some(manager) = &self.manager
            && manager.reject(private_data).is_err()
        {
            // More than the fabric supports; or the peer is gone.
            let _ = manager.reject(&[]);
        }
        // It has not failed, but gets no more events.
        self.is_known = false;
        if let Some(queue_pair) = &self.queue_pair {
            let _ = queue_pair.fail();
        }
        if self.course.fail(Ended::Local, common.now, &common.config) {
            common.half_open -= 1;
        }
        self.set_deadline(common);
    }

    /// Starts an orderly close.
    pub(super) fn close(&mut self, common: &mut Common) {
        let is_open = self.course.is_open();
        if self.course.close(common.now, &common.config) {
            self.set_deadline(common);
        } else if is_open {
            self.fail(Ended::Local, common);
        }
    }

    /// Continues steps that wait for work to complete: the orderly close, and the end.
    pub(super) fn settle(&mut self, queues: Option<&mut DeviceQueues>, common: &mut Common) {
        if self.phase() == VerbsPhase::Closing && self.send.is_empty() {
            self.course.told_peer();
            let told = self.manager.as_ref().map(ConnectionId::disconnect);
            if !matches!(told, Some(Ok(()))) {
                self.fail(Ended::Local, common);
            }
        }
        if self.phase() == VerbsPhase::Draining {
            let is_lost = queues.as_ref().is_some_and(|queues| queues.is_lost());
            if is_lost || self.is_drained() {
                self.destroy(queues, common);
            }
        }
    }

    /// Whether the device has none of its work.
    fn is_drained(&self) -> bool {
        self.send.outstanding() == 0 && self.receive.outstanding() == 0
    }

    /// Handles a deadline that has passed.
    pub(super) fn expire(&mut self, queues: Option<&mut DeviceQueues>, common: &mut Common) {
        match self.course.late(common.now) {
            None => {}
            Some(Late::Fail(reason)) => {
                self.fail(reason, common);
                self.settle(queues, common);
            }
            Some(Late::Destroy) => {
                if !self.is_drained() {
                    common.counters.undrained.add(1);
                }
                self.destroy(queues, common);
            }
        }
    }

    /// Sends the handles to the control thread for destruction.
    fn destroy(&mut self, queues: Option<&mut DeviceQueues>, common: &Common) {
        if !self.course.destroying() {
            return;
        }
        let exposures = self.exposures.end();
        self.kept = exposures.memory;
        if let Some(shared) = queues.and_then(|queues| queues.shared.as_mut()) {
            let number = self.queue_pair.as_ref().map(QueuePair::number);
            shared.leave(number, &mut self.brought);
        }
        let sinks = std::mem::take(&mut self.sinks);
        // In this order: handles bound to the queue pair, itself, the registrations it used, and
        // last the identifier.
        let remains = (
            exposures.handles,
            self.queue_pair.take(),
            sinks,
            self.manager.take(),
        );
        let token = Token::Connection(self.id).encode();
        common.reaper.destroy(Box::new(remains), token);
    }

    /// Its handles are destroyed: nothing accesses its memory any more.
    pub(super) fn destroyed(&mut self, queues: Option<&mut DeviceQueues>, common: &Common) {
        if !self.course.ended() {
            return;
        }
        self.send.end();
        self.receive.end();
        self.kept.clear();
        if !self.course.was_running() {
            self.filled.clear();
        } else if let Some(reason) = self.course.reason() {
            common.counters.fabric.count_end(reason);
        }
        if let Some(queues) = queues {
            if let Some(place) = self.place.take() {
                queues.leave(place);
            }
            queues.connections -= 1;
        }
    }

    /// Destroys the handles immediately, before the memory, as the provider ends.
    pub(super) fn destroy_now(&mut self) {
        let exposures = self.exposures.end();
        self.kept.extend(exposures.memory);
        drop(exposures.handles);
        drop(self.queue_pair.take());
        self.sinks.clear();
        drop(self.manager.take());
    }
}
