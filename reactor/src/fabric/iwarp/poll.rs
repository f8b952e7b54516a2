//! One turn of the provider: selecting and serving sockets, and deadlines.
//!
//! The kernel reports changes of sockets once (edge-triggered), into flags of the connections.
//! While few connections are busy their sockets are read without polling first, which saves a
//! system call for each turn; idle connections cost nothing in either case.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags};

use super::connection::IwarpPhase;
use super::provider::Iwarp;
use super::shared::LISTENER;
use super::slots::SlotState;
use super::socket::{self, ArrivedSocket};
use super::stream::{BYTES_TURN, BYTES_TURN_SHORT, LIGHT_BELOW};
use crate::accept::{AcceptPause, is_shortage};
use crate::fabric::service::{ServiceAllowance, ServiceUse};
use crate::fabric::{Carrier, ControlPath, Event, Incoming, ListenerId, QueuePairId};

/// The number of busy connections up to which sockets are read without polling.
const DIRECT_READS_MAX: usize = 4;
/// Turns between two polls while sockets are read without polling.
const ASK_EVERY: u32 = 16;
/// The time after which they are polled all the same: where turns are long, a connection that was idle
/// waits for the poll.
const ASK_AFTER: Duration = Duration::from_micros(50);
/// Receive calls without data after which a connection is no longer read without polling.
pub(super) const IDLE_POLLS_MAX: u32 = 256;
/// Changes taken from the kernel at once.
const CHANGES_MAX: usize = 256;
/// Connections accepted at one listener in one turn.
const ACCEPTS_MAX: usize = 64;

impl Iwarp {
    pub(super) fn poll_all(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if events.capacity() == 0 {
            events.reserve(CHANGES_MAX);
        }
        let mut work = 0;
        let few = !self.active.is_empty() && self.active.len() <= DIRECT_READS_MAX;
        self.polls = self.polls.wrapping_add(1);
        let is_due = now.saturating_duration_since(self.asked) >= ASK_AFTER;
        if !few || self.polls.is_multiple_of(ASK_EVERY) || is_due {
            work += self.ask(now, events);
        }
        if self.shared.earliest.is_some_and(|earliest| earliest <= now) {
            self.expire(now);
        }
        work + self.serve(now, events, few)
    }

    /// Makes the next poll query the kernel for changes.
    pub(super) fn asks_next(&mut self) {
        self.polls = ASK_EVERY - 1;
    }

    /// Queries the kernel for changes.
    fn ask(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.has_stale_changes = false;
        self.asked = now;
        let mut changes = arrayvec::ArrayVec::<epoll::Event, CHANGES_MAX>::new();
        let nothing = std::mem::MaybeUninit::<epoll::Event>::uninit();
        let mut space = [nothing; CHANGES_MAX];
        self.shared.counters.ready_calls.add(1);
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if let Ok((ready, _)) = epoll::wait(&self.shared.epoll, &mut space, Some(&zero)) {
            changes.extend(ready.iter().copied());
        }
        let mut work = 0;
        for &change in &changes {
            let data = change.data.u64();
            let index = u32::try_from(data & !LISTENER).unwrap_or(u32::MAX);
            if data & LISTENER != 0 {
                work += self.accept_some(index, now, events);
                continue;
            }
            let flags = change.flags;
            let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            match self.slots.state(index) {
                SlotState::Live(connection) => {
                    connection.readable |= flags.intersects(over | epoll::EventFlags::IN);
                    connection.hung_up |= flags.intersects(over);
                    connection.writable |=
                        flags.contains(epoll::EventFlags::OUT) && connection.send_error.is_none();
                    connection.idle_polls = 0;
                    self.activate(index);
                }
                SlotState::Lingering(_) => self.serve_lingering(index, now, false),
                SlotState::Free => {}
            }
        }
        work
    }

    /// Accepts connections, as far as they can be reported.
    fn accept_some(&mut self, index: u32, now: Instant, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        while work < ACCEPTS_MAX {
            let Some(Some(listener)) = self.listeners.get(index as usize) else {
                break;
            };
            let (limits, hand_over) = (listener.limits, listener.hand_over);
            if hand_over && events.len() == events.capacity() {
                break;
            }
            let (socket, peer) = match socket::accept(listener.socket.as_fd()) {
                Ok(accepted) => accepted,
                Err(error) => {
                    if is_shortage(&error) {
                        self.pause_listener(index, &error, now);
                    }
                    break;
                }
            };
            work += 1;
            let listener = ListenerId(index);
            if hand_over {
                events.push(Event::Incoming(Incoming {
                    listener,
                    peer,
                    limits,
                    carrier: Carrier::new(self.name(), ArrivedSocket(socket)),
                }));
            } else if self.respond(socket, peer, listener, limits, now).is_err() {
                self.shared.counters.fabric.setups_failed.add(1);
            }
        }
        work
    }

    /// Pauses a listener until a connection has closed, or for a short time.
    #[cold]
    fn pause_listener(&mut self, index: u32, error: &std::io::Error, now: Instant) {
        let Some(Some(listener)) = self.listeners.get_mut(index as usize) else {
            return;
        };
        if listener.pause.begin(now) {
            let address = listener.address;
            tracing::warn!(%address, %error, "no connections can be accepted for a moment");
        }
        self.shared.counters.accept_pauses.add(1);
        self.shared.hear_listener(&listener.socket, index, false);
        if let Some(deadline) = listener.pause.deadline() {
            self.shared.has_deadline(deadline);
        }
    }

    /// Ends the pauses for which `over` returns true; it may end them itself.
    fn resume_listeners(&mut self, mut over: impl FnMut(&mut AcceptPause) -> bool) {
        for (index, listener) in (0..).zip(&mut self.listeners) {
            let Some(listener) = listener else {
                continue;
            };
            if over(&mut listener.pause) {
                self.shared.hear_listener(&listener.socket, index, true);
            } else if let Some(deadline) = listener.pause.deadline() {
                self.shared.has_deadline(deadline);
            }
        }
    }

    /// Serves the active connections, as far as their events can be reported.
    fn serve(&mut self, now: Instant, events: &mut Vec<Event>, unasked: bool) -> usize {
        let mut work = 0;
        self.has_light = false;
        self.active.begin(events.capacity() - events.len());
        while events.len() < events.capacity()
            && let Some((connection, allowance)) = self.active.next()
        {
            let before = events.len();
            let (stays, done, bytes) =
                self.serve_one(connection.id, now, events, allowance, unasked);
            work += done;
            let events = events.len() - before;
            let used = ServiceUse { events, bytes };
            self.active.served(connection, used, stays);
        }
        self.active.end();
        work
    }

    /// Serves one connection; returns whether it stays active, the amount of work, and the number
    /// of bytes received.
    fn serve_one(
        &mut self,
        id: QueuePairId,
        now: Instant,
        events: &mut Vec<Event>,
        allowance: ServiceAllowance,
        unasked: bool,
    ) -> (bool, usize, usize) {
        let Some(connection) = self.slots.get_mut(id) else {
            return (false, 0, 0);
        };
        let shared = &mut self.shared;
        let reported = events.len();
        let (mut work, mut bytes) = (0, 0);
        match connection.phase {
            IwarpPhase::Running | IwarpPhase::Closing { .. } => {
                if !connection.endpoint.has_news() && (connection.readable || unasked) {
                    bytes = connection.receive(now, allowance.bytes, shared);
                    connection.idle_polls = if bytes > 0 {
                        0
                    } else {
                        connection.idle_polls.saturating_add(1)
                    };
                    self.has_stale_changes |= bytes > 0;
                    work += usize::from(bytes > 0);
                } else if !unasked {
                    connection.idle_polls = connection.idle_polls.saturating_add(1);
                }
            }
            IwarpPhase::Terminating(_) | IwarpPhase::Ended(_) => {}
            _ => work += usize::from(connection.set_up(now, shared)),
        }
        let over = connection.report(events, allowance.events, &shared.counters);
        work += events.len() - reported;
        if over {
            let lingers = connection.endpoint.is_terminate_sent();
            let deadline = now + self.shared.config.terminate_wait;
            self.retire(id.index, lingers.then(|| (Vec::new(), deadline)));
            if lingers {
                self.serve_lingering(id.index, now, false);
            }
            return (false, work, bytes);
        }
        self.has_light |= connection.sent_lately < LIGHT_BELOW && !connection.has_unsent();
        if !connection.is_dirty && connection.wants_to_send() {
            connection.is_dirty = true;
            self.dirty.push(id, &connection.sending);
        }
        let stays = connection.has_news()
            || connection.readable
            || (matches!(
                connection.phase,
                IwarpPhase::Running | IwarpPhase::Closing { .. }
            ) && connection.idle_polls < IDLE_POLLS_MAX);
        connection.is_active = stays;
        (stays, work, bytes)
    }

    /// Sends all pending data.
    pub(super) fn flush_all(&mut self) -> usize {
        let mut work = 0;
        let is_shared = self.active.clients() > 1 && self.has_light;
        self.dirty.set_quantum(match is_shared {
            true => BYTES_TURN_SHORT,
            false => BYTES_TURN,
        });
        self.dirty.begin(usize::MAX);
        while let Some((queued, allowance)) = self.dirty.next() {
            let id = queued.id;
            let Some(connection) = self.slots.get_mut(id) else {
                self.dirty.served(queued, ServiceUse::default(), false);
                continue;
            };
            let sends = matches!(
                connection.phase,
                IwarpPhase::Running | IwarpPhase::Closing { .. } | IwarpPhase::Terminating(_)
            );
            let mut used = ServiceUse::default();
            if sends {
                used.bytes = connection.send(allowance.bytes, &mut self.shared);
                work += usize::from(used.bytes > 0);
            }
            let more = sends && connection.wants_to_send();
            let news = connection.has_news() || connection.readable;
            connection.is_dirty = more;
            if news {
                self.activate(id.index);
            }
            self.dirty.served(queued, used, more);
        }
        self.dirty.end();
        work
    }

    /// Handles deadlines and finds the next one.
    fn expire(&mut self, now: Instant) {
        self.shared.earliest = None;
        self.resume_listeners(|pause| pause.expire(now));
        for index in 0..self.slots.len() {
            match self.slots.state(index) {
                SlotState::Live(connection) => {
                    connection.expire(now, &mut self.shared);
                    if let Some(deadline) = connection.deadline {
                        self.shared.has_deadline(deadline);
                    } else if connection.has_news() {
                        self.activate(index);
                    }
                }
                SlotState::Lingering(_) => self.serve_lingering(index, now, true),
                SlotState::Free => {}
            }
        }
    }

    /// Ends the identifier of a connection.
    pub(super) fn retire(&mut self, index: u32, lingering: Option<(Vec<u8>, Instant)>) {
        if let Some((_, deadline)) = lingering {
            self.shared.has_deadline(deadline);
        } else {
            self.shared.counters.fabric.connections.sub(1);
        }
        let lingers = lingering.is_some();
        self.slots.retire(index, lingering);
        if !lingers {
            // A descriptor is free again.
            self.resume_listeners(AcceptPause::end);
        }
    }

    /// Sends the remaining bytes of a lingering socket, then waits for the peer's end.
    pub(super) fn serve_lingering(&mut self, index: u32, now: Instant, expires: bool) {
        let SlotState::Lingering(lingering) = self.slots.state(index) else {
            return;
        };
        let over = (expires && lingering.deadline <= now) || lingering_ends(lingering);
        if over {
            self.slots.release(index);
            self.shared.counters.fabric.connections.sub(1);
            self.resume_listeners(AcceptPause::end);
        } else {
            let deadline = lingering.deadline;
            self.shared.has_deadline(deadline);
        }
    }
}

/// Whether a lingering socket has nothing left to wait for.
fn lingering_ends(lingering: &mut super::slots::Lingering) -> bool {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    while !lingering.output.is_empty() {
        match rustix::net::send(&lingering.socket, &lingering.output, flags) {
            Ok(count) => drop(lingering.output.drain(..count)),
            Err(rustix::io::Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    socket::shut_down(lingering.socket.as_fd());
    let mut nothing = [0; 16 * 1024];
    // A peer that keeps sending has time until the deadline.
    for _ in 0..16 {
        match rustix::net::recv(&lingering.socket, &mut nothing, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return true,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}
