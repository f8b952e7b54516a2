//! The same bytes over a plain TCP connection, with nothing around them.
//!
//! Each side reads what has arrived, up to a limit, and writes all that it owes in one call. How
//! much is read at a time, and how many answers are gathered for one write, is for a
//! [`Variant`] to say. Bytes come from, and go to, as much memory as the file and the buffers of
//! the NFS load have.
//!
//! Replies come in the order of requests. With several trips for an operation the order of all
//! messages is therefore known, and no message needs a header: `depth` messages of the first trip,
//! as many of the second, and so on.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use millrace_iwarp::Crc32c;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use super::variant::Variant;
use crate::load::pin;

/// Least memory of one direction.
const MEMORY_MIN: usize = 256 << 10;

/// Bytes that count as a message where messages are longer.
pub const PART: usize = 64 << 10;

/// Most bytes under one check value: FPDUs are no longer (RFC 5044 section 4.1).
const CHECKED_MAX: usize = 64 << 10;

/// A message to the server and its answer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// To the server.
    pub request: usize,
    /// From the server.
    pub reply: usize,
}

/// One exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The trips of an operation, one after the other.
    pub trips: Vec<Trip>,
    /// Operations in flight.
    pub depth: usize,
    /// Bytes of memory that the server reads from or writes to in turn.
    pub footprint: usize,
    /// Both sides compute CRC32c over all bytes, sent and received.
    pub crc: bool,
}

/// What an exchange came to.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct RawRate {
    /// Operations per second.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// Share of the time in which the client had work, 0 to 1.
    pub client_share: f64,
    /// The same of the server.
    pub server_share: f64,
    /// Time in which the client had work, in microseconds per operation.
    pub client_busy_us: f64,
    /// The same of the server.
    pub server_busy_us: f64,
}

/// Memory that is gone through in a circle.
struct Ring {
    bytes: Vec<u8>,
    at: usize,
    crc: bool,
}

impl Ring {
    fn new(length: usize, crc: bool) -> Self {
        let bytes = vec![0x5a; length.max(MEMORY_MIN)];
        Self { bytes, at: 0, crc }
    }

    fn pass(&mut self, count: usize) {
        if self.crc {
            for part in self.bytes[self.at..self.at + count].chunks(CHECKED_MAX) {
                black_box(Crc32c::of(part));
            }
        }
        self.at += count;
        if self.at == self.bytes.len() {
            self.at = 0;
        }
    }

    /// Writes at most `owed` bytes; returns how many went.
    fn send(&mut self, socket: &mut TcpStream, owed: usize) -> std::io::Result<usize> {
        if owed == 0 {
            return Ok(0);
        }
        let end = self.bytes.len().min(self.at + owed);
        let count = would_block(socket.write(&self.bytes[self.at..end]))?;
        self.pass(count);
        Ok(count)
    }

    /// Reads at most `limit` bytes of what has arrived; `None` at the end.
    fn receive(&mut self, socket: &mut TcpStream, limit: usize) -> std::io::Result<Option<usize>> {
        let end = self.bytes.len().min(self.at.saturating_add(limit));
        match socket.read(&mut self.bytes[self.at..end]) {
            Ok(0) => Ok(None),
            result => {
                let count = would_block(result)?;
                self.pass(count);
                Ok(Some(count))
            }
        }
    }
}

fn would_block(result: std::io::Result<usize>) -> std::io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// The messages that arrive at one side, in their order, and what each makes that side owe.
struct Inbound {
    lengths: Vec<usize>,
    owes: Vec<usize>,
    depth: usize,
    trip: usize,
    in_trip: usize,
    partial: usize,
}

/// What bytes that arrived have completed.
#[derive(Default)]
struct Completed {
    messages: usize,
    owed: usize,
    operations: u64,
}

impl Inbound {
    fn at_server(exchange: &Exchange) -> Self {
        Self::new(exchange, |trip| trip.request, |own, _| own.reply)
    }

    fn at_client(exchange: &Exchange) -> Self {
        Self::new(exchange, |trip| trip.reply, |_, next| next.request)
    }

    fn new(
        exchange: &Exchange,
        length: fn(&Trip) -> usize,
        owes: fn(&Trip, &Trip) -> usize,
    ) -> Self {
        let trips = &exchange.trips;
        let next = trips.iter().cycle().skip(1);
        Self {
            lengths: trips.iter().map(length).collect(),
            owes: trips
                .iter()
                .zip(next)
                .map(|(own, next)| owes(own, next))
                .collect(),
            depth: exchange.depth,
            trip: 0,
            in_trip: 0,
            partial: 0,
        }
    }

    /// Bytes of so many of the longest messages, or of so many parts of longer ones; all that
    /// there are for none.
    fn limit(&self, messages: usize) -> usize {
        match (messages, self.lengths.iter().max()) {
            (0, _) | (_, None) => usize::MAX,
            (messages, Some(&longest)) => messages * longest.min(PART),
        }
    }

    fn take(&mut self, count: usize) -> Completed {
        let mut completed = Completed::default();
        self.partial += count;
        while self.partial >= self.lengths[self.trip] {
            self.partial -= self.lengths[self.trip];
            completed.messages += 1;
            completed.owed += self.owes[self.trip];
            completed.operations += u64::from(self.trip + 1 == self.lengths.len());
            self.in_trip += 1;
            if self.in_trip == self.depth {
                self.in_trip = 0;
                self.trip = (self.trip + 1) % self.lengths.len();
            }
        }
        completed
    }
}

/// One side's memory, and its way of reading and writing.
struct Side {
    inward: Ring,
    outward: Ring,
}

/// How one side behaves in one measurement, and how busy it was.
struct Turns<'a> {
    side: &'a mut Side,
    socket: TcpStream,
    inbound: Inbound,
    /// Most bytes of a read.
    limit: usize,
    /// Most bytes of a write.
    write: usize,
    /// Messages whose answers are gathered while more arrives.
    hold: usize,
    spin: bool,
    /// Bytes to be written, and the messages that they answer.
    owed: usize,
    held: usize,
    busy: Duration,
    last: Instant,
}

impl Turns<'_> {
    /// Reads and writes once. `None` at the end of the stream.
    fn turn(&mut self) -> std::io::Result<Option<u64>> {
        let Some(count) = self.side.inward.receive(&mut self.socket, self.limit)? else {
            return Ok(None);
        };
        let completed = self.inbound.take(count);
        self.owed += completed.owed;
        self.held += completed.messages;
        let mut sent = 0;
        if count == 0 || self.held >= self.hold {
            let bytes = self.owed.min(self.write);
            sent = self.side.outward.send(&mut self.socket, bytes)?;
            self.owed -= sent;
            // What did not go is tried again at once.
            self.held = if self.owed > 0 { self.hold } else { 0 };
        }
        let now = Instant::now();
        if count + sent > 0 {
            self.busy += now - self.last;
        } else if self.spin {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
        // Time in which another had the processor is no busy time.
        self.last = if count + sent > 0 || self.spin {
            now
        } else {
            Instant::now()
        };
        Ok(Some(completed.operations))
    }
}

/// Both sides' memory, for one exchange in any number of variants.
pub struct RawExchange {
    exchange: Exchange,
    server_core: Option<usize>,
    client: Side,
    server: Side,
}

impl RawExchange {
    /// Takes memory. The server is to run on a core of its own.
    #[must_use]
    pub fn new(exchange: Exchange, server_core: Option<usize>) -> Self {
        let most = |length: fn(&Trip) -> usize| {
            let lengths = exchange.trips.iter().map(length);
            lengths.max().unwrap_or(0) * exchange.depth
        };
        let ring = |length| Ring::new(length, exchange.crc);
        Self {
            client: Side {
                inward: ring(most(|trip| trip.reply)),
                outward: ring(most(|trip| trip.request)),
            },
            // Whichever direction carries the data uses the memory of a file.
            server: Side {
                inward: ring(exchange.footprint),
                outward: ring(exchange.footprint),
            },
            exchange,
            server_core,
        }
    }

    /// Operations in flight.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.exchange.depth
    }

    /// Bytes of the longest message in either direction.
    #[must_use]
    pub fn longest(&self) -> usize {
        let lengths = self.exchange.trips.iter();
        lengths
            .map(|trip| trip.request.max(trip.reply))
            .max()
            .unwrap_or(0)
    }

    /// Runs for a time. The client is this thread.
    ///
    /// # Errors
    /// If loopback does not work, or there is no such core.
    pub fn measure(&mut self, variant: &Variant, time: Duration) -> Result<RawRate> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (exchange, core) = (&self.exchange, self.server_core);
        let (client, server) = (&mut self.client, &mut self.server);
        thread::scope(|scope| {
            let serving = scope.spawn(move || -> Result<Duration> {
                if let Some(core) = core {
                    pin(core)?;
                }
                let (socket, _) = listener.accept()?;
                Ok(serve(exchange, variant, server, socket)?)
            });
            let socket = TcpStream::connect(address)?;
            let driven = drive(exchange, variant, client, socket, time);
            // Why the server could not run comes first.
            let busy = serving.join().ok().context("the raw server panicked")??;
            Ok(driven?.rate(busy))
        })
    }
}

/// The server's message that it is ready.
const READY: u8 = 1;

fn gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn prepare(socket: &TcpStream, variant: &Variant) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    if let Some(bytes) = variant.socket_buffer {
        set_socket_send_buffer_size(socket, bytes)?;
        set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

/// Serves until the client goes; returns the time in which there was work.
fn serve(
    exchange: &Exchange,
    variant: &Variant,
    side: &mut Side,
    mut socket: TcpStream,
) -> std::io::Result<Duration> {
    prepare(&socket, variant)?;
    socket.write_all(&[READY])?;
    socket.set_nonblocking(true)?;
    let inbound = Inbound::at_server(exchange);
    let mut turns = Turns {
        limit: inbound.limit(variant.server_receive),
        write: variant.write_bytes(),
        hold: variant.server_hold,
        spin: variant.spin,
        side,
        socket,
        inbound,
        owed: 0,
        held: 0,
        busy: Duration::ZERO,
        last: Instant::now(),
    };
    loop {
        match turns.turn() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(turns.busy),
            // The client goes in the middle of the exchange.
            Err(error) if gone(&error) => return Ok(turns.busy),
            Err(error) => return Err(error),
        }
    }
}

/// The client's measurements.
struct Driven {
    operations: u64,
    elapsed: Duration,
    busy: Duration,
    latencies: Histogram<u64>,
}

impl Driven {
    fn rate(&self, server_busy: Duration) -> RawRate {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let each = 1e6 / self.operations.max(1) as f64;
        let (client, server) = (self.busy.as_secs_f64(), server_busy.as_secs_f64());
        RawRate {
            rate: self.operations as f64 / seconds,
            p50_us: self.latencies.value_at_quantile(0.5) as f64 / 1000.0,
            client_share: client / seconds,
            server_share: server / seconds,
            client_busy_us: client * each,
            server_busy_us: server * each,
        }
    }
}

fn drive(
    exchange: &Exchange,
    variant: &Variant,
    side: &mut Side,
    mut socket: TcpStream,
    time: Duration,
) -> Result<Driven> {
    prepare(&socket, variant)?;
    socket.read_exact(&mut [0])?;
    socket.set_nonblocking(true)?;
    let inbound = Inbound::at_client(exchange);
    let first = exchange.trips.first().map_or(0, |trip| trip.request);
    let start = Instant::now();
    let mut turns = Turns {
        limit: inbound.limit(variant.client_receive),
        write: variant.write_bytes(),
        hold: variant.client_hold,
        spin: variant.spin,
        side,
        socket,
        inbound,
        owed: first * exchange.depth,
        held: 0,
        busy: Duration::ZERO,
        last: start,
    };
    let mut operations = 0;
    let mut latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let mut begun = start;
    loop {
        let done = turns.turn()?.context("the raw server has gone")?;
        if done > 0 {
            operations += done;
            // Of more than one operation in flight, the rate tells the mean.
            if exchange.depth == 1 {
                latencies.saturating_record((turns.last - begun).as_nanos() as u64);
                begun = turns.last;
            }
        }
        let elapsed = turns.last - start;
        if elapsed >= time {
            return Ok(Driven {
                operations,
                elapsed,
                busy: turns.busy,
                latencies,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(exchange: Exchange) {
        let mut raw = RawExchange::new(exchange, None);
        let time = Duration::from_millis(50);
        let measured = raw.measure(&Variant::PLAIN, time).expect("loopback works");
        assert!(measured.rate > 0.0, "{measured:?}");
        assert!(measured.client_busy_us > 0.0, "{measured:?}");
        assert!(measured.server_busy_us > 0.0, "{measured:?}");
    }

    const READ: Trip = Trip {
        request: 100,
        reply: 4200,
    };

    #[test]
    fn an_exchange_moves_messages() {
        moves(Exchange {
            trips: vec![READ],
            depth: 8,
            footprint: 1 << 20,
            crc: true,
        });
    }

    #[test]
    fn two_trips_alternate_by_the_depth() {
        let write = Trip {
            request: 4096,
            reply: 30,
        };
        let exchange = Exchange {
            trips: vec![READ, write],
            depth: 2,
            footprint: 1 << 20,
            crc: false,
        };
        let mut server = Inbound::at_server(&exchange);
        let done = server.take(200);
        assert_eq!((done.messages, done.owed, done.operations), (2, 8400, 0));
        let done = server.take(4096 + 4095);
        assert_eq!((done.messages, done.owed, done.operations), (1, 30, 1));
        let done = server.take(1 + 99);
        assert_eq!((done.messages, done.owed, done.operations), (1, 30, 1));
        assert_eq!(server.take(1).owed, 4200);
        let mut client = Inbound::at_client(&exchange);
        assert_eq!(client.take(8400).owed, 2 * 4096);
        let done = client.take(60);
        assert_eq!((done.owed, done.operations), (200, 2));
        moves(exchange);
    }
}
