//! One TCP connection: records in, replies out, and the reasons to end it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_wire::rpc::{Fragment, RecordError, RecordScanner};

use super::gather::Gather;
use super::records::RecordBudget;
use super::reverse::ReverseCalls;
use super::{RECORD_MAX, TcpConfig};
use crate::flow::InFlightPeak;
use crate::rpc::ConnectionRef;
use crate::transfer::TransferWindow;

/// Bytes of replies copied ahead of the socket.
const STAGED_MAX: usize = 256 << 10;

/// Bytes read from one connection before the others get their turn.
const READ_BUDGET: usize = 1 << 20;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("closed by the peer")]
    Closed,
    #[error("the stream holds no records: {0}")]
    Record(#[from] RecordError),
    #[error("the socket failed: {0}")]
    Socket(#[from] std::io::Error),
    #[error("idle for too long")]
    Idle,
    #[error("a record did not arrive in time")]
    Partial,
    #[error("replies were taken too slowly")]
    Sending,
    #[error("a call could not be answered")]
    Unanswerable,
    #[error("serving a call failed")]
    Failed,
    #[error("evicted")]
    Evicted,
    #[error("another connection needed its place")]
    MadeRoom,
    #[error("no export admits its address")]
    NotAdmitted,
}

pub(super) struct TcpConnection {
    pub identity: ConnectionRef,
    pub socket: TcpStream,
    /// Records handed out whose replies have not entered the stream.
    pub in_flight: usize,
    peak: InFlightPeak,
    /// An export admits its address now.
    pub is_admitted: bool,
    /// One did at some time.
    pub was_admitted: bool,
    /// It has sent a valid call.
    pub has_called: bool,
    scanner: RecordScanner,
    record: Vec<u8>,
    /// Bytes that were read and wait for calls to be answered.
    leftover: Vec<u8>,
    outgoing: VecDeque<Outgoing>,
    /// Calls from here to the client.
    pub reverse: Rc<ReverseCalls>,
    staged: Vec<u8>,
    sent: usize,
    /// The peer will send no more.
    finished: bool,
    heard: Instant,
    partial_since: Option<Instant>,
    /// Bytes of the replies queued since the connection began, and of those that the socket took.
    queued_bytes: u64,
    sent_bytes: u64,
    window: TransferWindow,
}

/// A record to be sent.
enum Outgoing {
    Reply(Gather),
    /// A call from here, with its record mark.
    Call(Vec<u8>),
}

/// What the next step of reading needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// More may be in the socket.
    More,
    /// The socket is empty.
    Empty,
    /// Calls have to be answered first.
    Held,
}

fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX)
}

impl TcpConnection {
    /// A connection from an address that an export admits, or not.
    pub fn new(identity: ConnectionRef, socket: TcpStream, is_admitted: bool) -> Self {
        let now = identity.since();
        Self {
            identity,
            socket,
            in_flight: 0,
            peak: InFlightPeak::new(now),
            is_admitted,
            was_admitted: is_admitted,
            has_called: false,
            scanner: RecordScanner::new(RECORD_MAX),
            record: Vec::new(),
            leftover: Vec::new(),
            outgoing: VecDeque::new(),
            reverse: Rc::default(),
            staged: Vec::new(),
            sent: 0,
            finished: false,
            heard: now,
            partial_since: None,
            queued_bytes: 0,
            sent_bytes: 0,
            window: TransferWindow::default(),
        }
    }

    /// Reads what is there and hands complete records to `take` while that returns true. It may
    /// exchange the record for other memory, and is told how many are in flight now.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        now: Instant,
        records: &Rc<RecordBudget>,
        take: &mut dyn FnMut(&mut Vec<u8>, usize) -> bool,
    ) -> Result<Reading, Ended> {
        let leftover = std::mem::take(&mut self.leftover);
        let mut held = self.scan(&leftover, now, records, take)?;
        let mut budget = READ_BUDGET;
        while !held && !self.finished {
            if budget == 0 {
                return Ok(Reading::More);
            }
            match self.socket.read(scratch) {
                Ok(0) => self.finished = true,
                Ok(length) => {
                    self.heard = now;
                    budget = budget.saturating_sub(length);
                    held = self.scan(&scratch[..length], now, records, take)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.partial_since = if self.scanner.between_records() {
            None
        } else {
            self.partial_since.or(Some(now))
        };
        Ok(if held { Reading::Held } else { Reading::Empty })
    }

    /// Whether `take` refused to go on; the rest is then left over.
    fn scan(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        records: &Rc<RecordBudget>,
        take: &mut dyn FnMut(&mut Vec<u8>, usize) -> bool,
    ) -> Result<bool, Ended> {
        while let Some(fragment) = self.scanner.next(&mut bytes)? {
            match fragment {
                Fragment::Bytes(part) => self.record.extend_from_slice(part),
                Fragment::End if self.takes_reply(records) => {
                    self.partial_since = None;
                    self.record.clear();
                }
                Fragment::End => {
                    self.peak.note(now, count(self.in_flight));
                    self.in_flight += 1;
                    // The time allowed for a record begins anew with each.
                    self.partial_since = None;
                    let more = take(&mut self.record, self.in_flight);
                    self.record.clear();
                    if !more {
                        self.leftover.extend_from_slice(bytes);
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Takes the record if it answers a call from here. Whether it does.
    fn takes_reply(&mut self, records: &Rc<RecordBudget>) -> bool {
        let record = &mut self.record;
        self.reverse.take_reply(record, records, &self.identity)
    }

    /// Queues a reply.
    pub fn queue(&mut self, reply: Gather) {
        self.queued_bytes += reply.length() as u64;
        self.outgoing.push_back(Outgoing::Reply(reply));
    }

    /// Queues the record of a call to the client.
    pub fn queue_call(&mut self, record: Vec<u8>) {
        self.queued_bytes += record.len() as u64;
        self.outgoing.push_back(Outgoing::Call(record));
    }

    /// Sends what the socket takes. `done` gets each reply that has entered the stream whole.
    pub fn send(&mut self, done: &mut dyn FnMut(Gather)) -> Result<usize, Ended> {
        let mut total = 0;
        loop {
            while self.staged.len() < STAGED_MAX
                && let Some(next) = self.outgoing.front_mut()
            {
                let room = STAGED_MAX - self.staged.len();
                let is_whole = match next {
                    Outgoing::Reply(reply) => reply.fill(&mut self.staged, room),
                    Outgoing::Call(record) => {
                        self.staged.append(record);
                        true
                    }
                };
                if is_whole && let Some(Outgoing::Reply(reply)) = self.outgoing.pop_front() {
                    self.in_flight -= 1;
                    done(reply);
                }
            }
            if self.staged.is_empty() {
                return Ok(total);
            }
            match self.socket.write(&self.staged[self.sent..]) {
                Ok(0) => return Err(Ended::Closed),
                Ok(length) => {
                    self.sent_bytes += length as u64;
                    self.sent += length;
                    total += length;
                    if self.sent == self.staged.len() {
                        self.staged.clear();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(total);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The most calls in flight at once in the latest one to two seconds before `now`.
    pub fn in_flight_peak(&self, now: Instant) -> u32 {
        self.peak.most(now, count(self.in_flight))
    }

    /// Whether bytes wait for the socket.
    pub fn is_sending(&self) -> bool {
        !self.staged.is_empty()
    }

    /// When bytes came last.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Whether reading makes sense.
    pub fn is_open(&self) -> bool {
        !self.finished
    }

    /// Reads no more, as if the peer had said that it sends no more: the connection ends when all
    /// its calls are answered.
    pub fn stop_reading(&mut self) {
        self.finished = true;
        self.leftover = Vec::new();
    }

    /// Checks what the peer has to keep to at time `now`.
    pub fn check(&mut self, config: &TcpConfig, now: Instant) -> Result<(), Ended> {
        let late = |since: Option<Instant>, limit: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) > limit)
        };
        if self.finished && self.in_flight == 0 && !self.is_sending() {
            return Err(Ended::Closed);
        }
        let waiting = self.queued_bytes - self.sent_bytes;
        if (self.window).is_too_slow(self.sent_bytes, waiting, now, &config.transfers) {
            return Err(Ended::Sending);
        }
        // A record that we do not read on is not late.
        if self.leftover.is_empty() && late(self.partial_since, config.record_deadline) {
            return Err(Ended::Partial);
        }
        if !self.was_admitted && late(Some(self.identity.since()), config.unadmitted_deadline) {
            return Err(Ended::NotAdmitted);
        }
        // A client may leave a connection alone for long and come back to it, so those that are in
        // use stay until their place is needed.
        let may_idle = self.has_called && self.is_admitted;
        if self.in_flight == 0 && !may_idle && late(Some(self.heard), config.idle_deadline) {
            return Err(Ended::Idle);
        }
        Ok(())
    }
}
