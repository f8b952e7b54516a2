//! One TCP connection: received records, replies, and reasons to end it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_reactor::gather::GatheredWrite;
use millrace_wire::rpc::{Fragment, RecordError, RecordScanner};

use super::records::RecordBudget;
use super::reply_record::ReplyRecord;
use super::reverse::ReverseCalls;
use super::{RECORD_MAX, TcpConfig};
use crate::flow::InFlightPeak;
use crate::rpc::ConnectionRef;
use crate::transfer::TransferWindow;

/// If at least this much of a record is missing, it is read directly into its place. Below, one
/// call that returns many records and a copy out of the cache is cheaper.
const DIRECT_MIN: usize = 16 << 10;

/// The most bytes read into a record at a time: its memory grows with the data received, not with
/// the announced length.
const DIRECT_MAX: usize = 128 << 10;

/// Bytes sent in a turn to a connection that receives little.
const LIGHT_BELOW: usize = 64 << 10;

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("closed by the peer")]
    Closed,
    #[error("the stream has no valid records: {0}")]
    Record(#[from] RecordError),
    #[error("the socket failed: {0}")]
    Socket(#[from] std::io::Error),
    #[error("one call after the other had a wrong verifier")]
    Unsigned,
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
    #[error("evicted for another connection")]
    MadeRoom,
    #[error("no export admits its address")]
    NotAdmitted,
}

pub(super) struct TcpConnection {
    pub identity: ConnectionRef,
    pub socket: TcpStream,
    /// Records passed on whose replies have not entered the stream.
    pub in_flight: usize,
    peak: InFlightPeak,
    /// An export admits its address now.
    pub is_admitted: bool,
    /// An export admitted it at some time.
    pub was_admitted: bool,
    /// It has sent a valid call.
    pub has_called: bool,
    scanner: RecordScanner,
    record: Vec<u8>,
    /// Bytes read that wait for calls to be answered.
    leftover: Vec<u8>,
    outgoing: VecDeque<Outgoing>,
    /// Reverse calls to the client.
    pub reverse: Rc<ReverseCalls>,
    /// The peer has closed its sending side.
    finished: bool,
    heard: Instant,
    partial_since: Option<Instant>,
    /// Bytes of the replies queued since the connection was made, and of those accepted by the
    /// socket.
    queued_bytes: u64,
    sent_bytes: u64,
    /// Bytes sent in the latest turn; of more bytes in an earlier one a half for each turn since.
    sent_lately: usize,
    this_turn: MovedInTurn,
    window: TransferWindow,
}

/// A record to be sent.
enum Outgoing {
    Reply(ReplyRecord),
    /// A reverse call, with its record mark, and the number of bytes sent.
    Call(Vec<u8>, usize),
}

impl Outgoing {
    fn gather<'a>(&'a self, write: &mut GatheredWrite<'a>) -> bool {
        match self {
            Self::Reply(reply) => reply.gather(write),
            Self::Call(record, sent) => write.add_bytes(&record[*sent..]),
        }
    }

    /// As [`ReplyRecord::sent`].
    fn sent(&mut self, count: usize) -> Option<usize> {
        match self {
            Self::Reply(reply) => reply.sent(count),
            Self::Call(record, sent) => {
                let left = record.len() - *sent;
                *sent += count.min(left);
                count.checked_sub(left)
            }
        }
    }
}

/// Bytes that a connection has moved in a turn of the reactor.
#[derive(Debug, Default)]
struct MovedInTurn {
    turn: u64,
    sent: usize,
    read: usize,
}

/// The next step of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// More may be in the socket.
    More,
    /// The socket is empty.
    Empty,
    /// Calls must be answered first.
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
            finished: false,
            heard: now,
            partial_since: None,
            queued_bytes: 0,
            sent_bytes: 0,
            sent_lately: 0,
            this_turn: MovedInTurn::default(),
            window: TransferWindow::default(),
        }
    }

    /// Begins a turn of the reactor, unless it has begun.
    pub fn begin_turn(&mut self, turn: u64) {
        if self.this_turn.turn != turn {
            self.this_turn = MovedInTurn {
                turn,
                ..MovedInTurn::default()
            };
        }
    }

    /// Reads available data, about `most` bytes of it in a turn, and passes complete records to `take`
    /// while that returns true. It may exchange the record for other memory, and gets the number in
    /// flight.
    pub fn read(
        &mut self,
        most: usize,
        scratch: &mut [u8],
        now: Instant,
        records: &Rc<RecordBudget>,
        take: &mut dyn FnMut(&mut Vec<u8>, usize) -> bool,
    ) -> Result<Reading, Ended> {
        let leftover = std::mem::take(&mut self.leftover);
        let mut held = self.scan(&leftover, now, records, take)?;
        let mut budget = most.saturating_sub(self.this_turn.read);
        while !held && !self.finished {
            if budget == 0 {
                return Ok(Reading::More);
            }
            let direct = self.scanner.left();
            let (offered, read) = if direct >= DIRECT_MIN {
                let offered = direct.min(budget).min(DIRECT_MAX);
                (offered, self.read_direct(offered))
            } else {
                (scratch.len(), self.socket.read(scratch))
            };
            match read {
                Ok(0) => self.finished = true,
                Ok(length) => {
                    self.heard = now;
                    budget = budget.saturating_sub(length);
                    self.this_turn.read += length;
                    let bytes = if direct >= DIRECT_MIN {
                        self.scanner.skip(length);
                        &[]
                    } else {
                        &scratch[..length]
                    };
                    held = self.scan(bytes, now, records, take)?;
                    // The socket reports when there is more.
                    if length < offered {
                        break;
                    }
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

    /// Reads up to `most` bytes of the current record directly into it.
    fn read_direct(&mut self, most: usize) -> std::io::Result<usize> {
        let begin = self.record.len();
        self.record.resize(begin + most, 0);
        let read = self.socket.read(&mut self.record[begin..]);
        let length = *read.as_ref().unwrap_or(&0);
        self.record.truncate(begin + length);
        read
    }

    /// Returns whether `take` refused to continue; the rest is then left over.
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
                    // Each record has its own time limit.
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

    /// Handles the record if it answers a reverse call. Returns whether it does.
    fn takes_reply(&mut self, records: &Rc<RecordBudget>) -> bool {
        let record = &mut self.record;
        self.reverse.take_reply(record, records, &self.identity)
    }

    /// Queues a reply.
    pub fn queue(&mut self, reply: ReplyRecord) {
        self.queued_bytes += reply.left() as u64;
        self.outgoing.push_back(Outgoing::Reply(reply));
    }

    /// Queues the record of a call to the client.
    pub fn queue_call(&mut self, record: Vec<u8>) {
        self.queued_bytes += record.len() as u64;
        self.outgoing.push_back(Outgoing::Call(record, 0));
    }

    /// Sends what the socket accepts, up to `most` bytes in a turn. `done` gets each reply that was
    /// completely accepted. Returns whether the socket may accept more.
    pub fn send(&mut self, most: usize, done: &mut dyn FnMut(ReplyRecord)) -> Result<bool, Ended> {
        let before = self.sent_bytes;
        let outcome = self.send_some(most.saturating_sub(self.this_turn.sent), done);
        let sent = (self.sent_bytes - before) as usize;
        self.this_turn.sent += sent;
        if sent > 0 {
            // The rest of much data may be little.
            self.sent_lately = sent.max(self.sent_lately / 2);
        }
        outcome
    }

    fn send_some(
        &mut self,
        mut budget: usize,
        done: &mut dyn FnMut(ReplyRecord),
    ) -> Result<bool, Ended> {
        while !self.outgoing.is_empty() {
            let mut write = GatheredWrite::new(budget);
            for record in &self.outgoing {
                if !record.gather(&mut write) {
                    break;
                }
            }
            let offered = write.bytes();
            if offered == 0 {
                return Ok(true);
            }
            let count = match write.send(self.socket.as_fd()) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.sent_bytes += count as u64;
            budget -= count;
            self.sent(count, done);
            if count < offered {
                break;
            }
        }
        Ok(false)
    }

    /// Records the number of bytes that the socket accepted.
    fn sent(&mut self, mut count: usize, done: &mut dyn FnMut(ReplyRecord)) {
        while let Some(front) = self.outgoing.front_mut()
            && let Some(beyond) = front.sent(count)
        {
            count = beyond;
            if let Some(Outgoing::Reply(reply)) = self.outgoing.pop_front() {
                self.in_flight -= 1;
                done(reply);
            }
        }
    }

    /// The most calls in flight at once in the latest one to two seconds before `now`.
    pub fn in_flight_peak(&self, now: Instant) -> u32 {
        self.peak.most(now, count(self.in_flight))
    }

    /// Whether it waits for little, if for anything.
    pub fn is_light(&self) -> bool {
        !self.is_sending() && self.sent_lately < LIGHT_BELOW
    }

    /// Bytes that wait for the socket.
    pub fn bytes_waiting(&self) -> u64 {
        self.queued_bytes - self.sent_bytes
    }

    /// Whether bytes wait for the socket.
    pub fn is_sending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// When data was last received.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Whether there may be more to read.
    pub fn is_open(&self) -> bool {
        !self.finished
    }

    /// Stops reading, as if the peer had closed its sending side: the connection ends when all its
    /// calls are answered.
    pub fn stop_reading(&mut self) {
        self.finished = true;
        self.leftover = Vec::new();
    }

    /// Checks the peer's time limits at time `now`.
    pub fn check(&mut self, config: &TcpConfig, now: Instant) -> Result<(), Ended> {
        let late = |since: Option<Instant>, limit: Duration| {
            since.is_some_and(|since| now.saturating_duration_since(since) > limit)
        };
        if self.finished && self.in_flight == 0 && !self.is_sending() {
            return Err(Ended::Closed);
        }
        let waiting = self.bytes_waiting();
        if (self.window).is_too_slow(self.sent_bytes, waiting, now, &config.transfers) {
            return Err(Ended::Sending);
        }
        // A record that we do not continue to read is not late.
        if self.leftover.is_empty() && late(self.partial_since, config.record_deadline) {
            return Err(Ended::Partial);
        }
        if !self.was_admitted && late(Some(self.identity.since()), config.unadmitted_deadline) {
            return Err(Ended::NotAdmitted);
        }
        // A client may be idle for long and then continue, so connections in use stay until they
        // are evicted for others.
        let may_idle = self.has_called && self.is_admitted;
        if self.in_flight == 0 && !may_idle && late(Some(self.heard), config.idle_deadline) {
            return Err(Ended::Idle);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
    use millrace_reactor::Clock;

    use super::*;
    use crate::call::{Peer, TransportKind};
    use crate::flow::Flow;

    const MOST: usize = 128 << 10;

    /// A connection, and its client's end.
    fn connect() -> (TcpConnection, TcpStream, Flow) {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let clock = Clock::new(Instant::now());
        let flow = Flow::of_one_reactor(&pool, Class::Control, &clock);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, address) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let peer = Peer::new(address, TransportKind::Tcp);
        let share = flow.join_tcp(peer.address);
        let identity = ConnectionRef::new(&flow, share, peer, clock.now());
        (TcpConnection::new(identity, near, true), far, flow)
    }

    #[test]
    fn others_have_their_turn_before_all_is_sent() {
        let (mut connection, mut far, _flow) = connect();
        let length = 32 * MOST;
        connection.queue_call(vec![7; length]);
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).map(|_| received)
        });
        let mut turn = 0;
        while connection.is_sending() {
            let before = connection.sent_bytes;
            turn += 1;
            for _ in 0..2 {
                connection.begin_turn(turn);
                connection.send(MOST, &mut drop).unwrap();
            }
            let sent = connection.sent_bytes - before;
            assert!(sent <= MOST as u64, "{sent} bytes in one turn");
            std::thread::yield_now();
        }
        drop(connection);
        assert_eq!(reader.join().unwrap().unwrap(), vec![7; length]);
    }

    #[test]
    fn others_have_their_turn_before_a_long_record_is_read() {
        let (mut connection, mut far, flow) = connect();
        let records = RecordBudget::new(&flow, RECORD_MAX);
        let length = 6 * MOST;
        let writer = std::thread::spawn(move || {
            far.write_all(&((1 << 31) | length as u32).to_be_bytes())?;
            far.write_all(&vec![7; length])
        });
        let mut scratch = vec![0; 64 << 10];
        let (mut turn, mut complete) = (0, Vec::new());
        while complete.is_empty() {
            let before = connection.record.len();
            turn += 1;
            for _ in 0..2 {
                connection.begin_turn(turn);
                let take = &mut |record: &mut Vec<u8>, _| {
                    complete.clone_from(record);
                    true
                };
                let now = Instant::now();
                let read = connection.read(MOST, &mut scratch, now, &records, take);
                read.unwrap();
            }
            let read = connection.record.len().saturating_sub(before);
            assert!(read <= MOST + scratch.len(), "{read} bytes in one turn");
            std::thread::yield_now();
        }
        assert_eq!(complete, vec![7; length]);
        writer.join().unwrap().unwrap();
    }
}
