//! One connection from its first packet to its last event.
//!
//! `connection` has its states and events, `setup` the negotiation, `stream` the data path.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use millrace_iwarp::mpa::{Fallback, Initiator, InitiatorConfig, Negotiated, Responder};
use millrace_iwarp::{Counters, Endpoint, Fault, Limits, Stop, WorkFault};

use super::counters::{IwarpCounters, add_tally};
use super::memory::Registered;
use super::shared::IwarpShared;
use super::socket;
use crate::fabric::service::ServiceAccount;
use crate::fabric::{
    Ended, Event, Key, ListenerId, QueuePairId, QueuePairLimits, ReadDepths, Slices, Terminate,
    WorkError,
};

/// The state of a connection.
pub(super) enum IwarpPhase {
    /// TCP is connecting.
    Connecting(Box<Connector>),
    /// The request is being sent or its reply awaited.
    Initiating(Box<Connector>, Box<Initiator>),
    /// The request is awaited; the application is not informed yet.
    Responding(Box<Responder>),
    /// Waiting for the application's decision.
    Deciding(Box<Responder>),
    /// The accepting reply is being sent.
    Replying(Box<Responder>, Box<Negotiated>),
    /// FPDUs are exchanged.
    Running,
    /// Posted work is being sent; after that the outgoing direction is `shut`, and the peer's end
    /// awaited.
    Closing { shut: bool },
    /// The Terminate message is being sent.
    Terminating(Fault),
    /// Only events remain.
    Ended(Ended),
}

/// The parameters of connecting, possibly once more.
pub(super) struct Connector {
    pub(super) config: InitiatorConfig,
    pub(super) fallback: Fallback,
}

pub(super) struct IwarpConnection {
    pub(super) id: QueuePairId,
    pub(super) socket: OwnedFd,
    pub(super) peer: SocketAddr,
    pub(super) listener: Option<ListenerId>,
    pub(super) limits: QueuePairLimits,
    pub(super) endpoint: Endpoint<Registered>,
    pub(super) phase: IwarpPhase,
    pub(super) deadline: Option<Instant>,
    /// There may be bytes to receive.
    pub(super) readable: bool,
    /// The end of the stream or an error follows the bytes to receive.
    pub(super) hung_up: bool,
    /// The socket accepts bytes.
    pub(super) writable: bool,
    /// The network failed while sending; bytes that arrived before are still received.
    pub(super) send_error: Option<std::io::ErrorKind>,
    /// Consecutive receive calls without data.
    pub(super) idle_polls: u32,
    /// In the provider's queue of connections to serve.
    pub(super) is_active: bool,
    /// Bytes sent in the latest turn; of more bytes in an earlier one a half for each turn since.
    pub(super) sent_lately: usize,
    /// In the provider's queue of connections to flush.
    pub(super) is_dirty: bool,
    /// Its client's account of the first queue.
    pub(super) receiving: Rc<ServiceAccount>,
    /// Its client's account of the second one.
    pub(super) sending: Rc<ServiceAccount>,
    /// The application knows this connection.
    pub(super) is_known: bool,
    /// The indication must be sent before the application is informed of the connection.
    pub(super) established: Option<Event>,
    /// Events other than completions.
    pub(super) announcements: VecDeque<Event>,
    /// The stream's counters already added to the provider's.
    pub(super) counted: Counters,
}

impl IwarpConnection {
    pub(super) fn new(
        id: QueuePairId,
        socket: OwnedFd,
        peer: SocketAddr,
        limits: QueuePairLimits,
        phase: IwarpPhase,
        accounts: [Rc<ServiceAccount>; 2],
        shared: &mut IwarpShared,
    ) -> Self {
        let [receiving, sending] = accounts;
        let endpoint_limits = Limits {
            send_depth: limits.send_depth as usize,
            receive_depth: limits.receive_depth as usize,
            receive_size: limits.receive_size as usize,
            exposures: limits.exposures,
        };
        Self {
            id,
            socket,
            peer,
            listener: None,
            limits,
            endpoint: Endpoint::new(endpoint_limits, shared.random()),
            phase,
            deadline: None,
            readable: false,
            hung_up: false,
            writable: false,
            send_error: None,
            idle_polls: 0,
            is_active: false,
            sent_lately: 0,
            is_dirty: false,
            receiving,
            sending,
            is_known: false,
            established: None,
            announcements: VecDeque::new(),
            counted: Counters::default(),
        }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>, shared: &mut IwarpShared) {
        self.deadline = deadline;
        if let Some(deadline) = deadline {
            shared.has_deadline(deadline);
        }
    }

    /// Whether work may be posted.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.phase,
            IwarpPhase::Connecting(_)
                | IwarpPhase::Initiating(..)
                | IwarpPhase::Deciding(_)
                | IwarpPhase::Replying(..)
                | IwarpPhase::Running
        )
    }

    /// Whether only events remain.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, IwarpPhase::Ended(_))
    }

    /// Starts an orderly close.
    pub(super) fn close(&mut self, now: Instant, shared: &mut IwarpShared) {
        match self.phase {
            IwarpPhase::Running => {
                self.phase = IwarpPhase::Closing { shut: false };
                self.set_deadline(Some(now + shared.config.close_wait), shared);
            }
            IwarpPhase::Closing { .. } | IwarpPhase::Terminating(_) | IwarpPhase::Ended(_) => {}
            _ => self.end(Ended::Local, shared),
        }
    }

    /// Ends everything but the events.
    pub(super) fn end(&mut self, reason: Ended, shared: &mut IwarpShared) {
        if self.is_ended() {
            return;
        }
        shared.give_back(self.endpoint.flush());
        self.count(shared);
        self.established = None;
        self.deadline = None;
        if matches!(
            self.phase,
            IwarpPhase::Running | IwarpPhase::Closing { .. } | IwarpPhase::Terminating(_)
        ) {
            shared.counters.fabric.count_end(&reason);
        }
        self.phase = IwarpPhase::Ended(reason);
    }

    /// The peer violated the protocol or ended the stream.
    pub(super) fn stopped(&mut self, stop: Stop, now: Instant, shared: &mut IwarpShared) {
        match stop {
            Stop::Fault(fault) => {
                self.phase = IwarpPhase::Terminating(fault);
                self.set_deadline(Some(now + shared.config.terminate_wait), shared);
            }
            Stop::Terminated(terminate) => {
                shared.counters.terminates_received.add(1);
                self.end(Ended::TerminateReceived(convert(terminate)), shared);
            }
        }
    }

    /// Handles a deadline that has passed.
    pub(super) fn expire(&mut self, now: Instant, shared: &mut IwarpShared) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        match &self.phase {
            IwarpPhase::Connecting(_) => {
                self.setup_failed(Ended::TimedOut("TCP connect"), shared);
            }
            IwarpPhase::Initiating(..) => {
                self.setup_failed(Ended::TimedOut("the reply to the request"), shared);
            }
            IwarpPhase::Responding(_) => self.setup_failed(Ended::TimedOut("the request"), shared),
            IwarpPhase::Deciding(_) => {
                self.setup_failed(Ended::TimedOut("the decision on the request"), shared);
            }
            IwarpPhase::Replying(..) => {
                self.setup_failed(Ended::TimedOut("sending the reply"), shared);
            }
            IwarpPhase::Closing { .. } => self.end(Ended::Local, shared),
            IwarpPhase::Terminating(fault) => {
                let terminate = convert(fault.terminate());
                self.end(Ended::TerminateSent(terminate), shared);
            }
            IwarpPhase::Running | IwarpPhase::Ended(_) => {}
        }
    }

    pub(super) fn setup_failed(&mut self, reason: Ended, shared: &mut IwarpShared) {
        shared.counters.fabric.setups_failed.add(1);
        self.end(reason, shared);
    }

    /// Continues closing and terminating after bytes were sent.
    pub(super) fn after_sending(&mut self, shared: &mut IwarpShared) {
        match self.phase {
            IwarpPhase::Closing { shut: false } if self.endpoint.is_drained() => {
                socket::shut_down(self.socket.as_fd());
                self.phase = IwarpPhase::Closing { shut: true };
            }
            IwarpPhase::Terminating(fault) if self.endpoint.is_terminate_sent() => {
                shared.counters.terminates_sent.add(1);
                self.end(Ended::TerminateSent(convert(fault.terminate())), shared);
            }
            _ => {}
        }
    }

    /// Whether there is something to report.
    pub(super) fn has_news(&self) -> bool {
        !self.announcements.is_empty() || self.endpoint.has_news() || self.is_ended()
    }

    /// Reports events, limited by the spare capacity of `events`, and by `most`. `true` once the
    /// last event is reported.
    pub(super) fn report(
        &mut self,
        events: &mut Vec<Event>,
        most: usize,
        counters: &IwarpCounters,
    ) -> bool {
        let queue_pair = self.id;
        let end = events.capacity().min(events.len().saturating_add(most));
        while events.len() < end
            && let Some(event) = self.announcements.pop_front()
        {
            events.push(event);
        }
        while events.len() < end
            && let Some((token, result)) = self.endpoint.completion()
        {
            let result = result.map_err(work_error);
            if let Err(error) = result {
                counters.fabric.count_failure(error);
            }
            // Its memory is moved in place, as a list of slices is expensive to move.
            events.push(Event::Completed {
                queue_pair,
                token,
                result,
                local: Slices::new(),
            });
            if let Some(Event::Completed { local, .. }) = events.last_mut() {
                self.endpoint.take_completed(local);
            }
        }
        while events.len() < end
            && let Some(delivery) = self.endpoint.take_delivery()
        {
            events.push(Event::Received {
                queue_pair,
                buffer: delivery.receive,
                length: delivery.length,
                invalidated: delivery.invalidated.map(Key),
            });
        }
        while events.len() < end
            && let Some((key, local)) = self.endpoint.take_revoked()
        {
            events.push(Event::Revoked {
                queue_pair,
                key: Key(key),
                local,
            });
        }
        match &self.phase {
            IwarpPhase::Ended(reason) if events.len() < end => {
                if self.is_known {
                    events.push(Event::Disconnected {
                        queue_pair,
                        reason: reason.clone(),
                    });
                }
                true
            }
            _ => false,
        }
    }

    /// Adds the stream's new counts to the provider's.
    pub(super) fn count(&mut self, shared: &IwarpShared) {
        let now = self.endpoint.counters();
        if now == self.counted {
            return;
        }
        let before = std::mem::replace(&mut self.counted, now);
        let counters = &shared.counters;
        counters.frames_in.add(now.frames_in - before.frames_in);
        counters.frames_out.add(now.frames_out - before.frames_out);
        counters.crc_errors.add(now.crc_errors - before.crc_errors);
        let unexpected = now.indications_unexpected - before.indications_unexpected;
        counters.indications_unexpected.add(unexpected);
        let [sends, writes, reads, receives] = &counters.fabric.work;
        add_tally(sends, now.sends, before.sends);
        add_tally(writes, now.writes, before.writes);
        add_tally(reads, now.reads, before.reads);
        add_tally(receives, now.receives, before.receives);
    }
}

pub(super) fn convert(terminate: millrace_iwarp::Terminate) -> Terminate {
    let millrace_iwarp::Terminate { layer, kind, code } = terminate;
    Terminate { layer, kind, code }
}

pub(super) fn depths(negotiated: &Negotiated) -> ReadDepths {
    ReadDepths {
        peer_ird: negotiated.peer_ird(),
        peer_ord: negotiated.peer_ord(),
        ird: negotiated.ird,
        ord: negotiated.ord,
    }
}

fn work_error(fault: WorkFault) -> WorkError {
    match fault {
        WorkFault::Flushed => WorkError::Flushed,
        WorkFault::RemoteAccess => WorkError::RemoteAccess,
        WorkFault::Length => WorkError::LocalLength,
        WorkFault::NoReads => WorkError::NoReads,
    }
}
