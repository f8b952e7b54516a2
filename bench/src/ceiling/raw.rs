//! The ceiling: the same bytes over a plain TCP connection, with nothing around them.
//!
//! Each side reads all that has arrived in one call and writes all that it owes in one call, so
//! that one call carries many messages. Bytes come from, and go to, as much memory as the file
//! and the buffers of the NFS load have.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::load::pin;

/// One exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Bytes of a request.
    pub request: usize,
    /// Bytes of its reply.
    pub reply: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Bytes of memory that the server reads from or writes to in turn.
    pub footprint: usize,
    /// How long.
    pub time: Duration,
}

/// Memory that is gone through in a circle.
struct Ring {
    bytes: Vec<u8>,
    at: usize,
}

impl Ring {
    fn new(length: usize) -> Self {
        Self {
            bytes: vec![0x5a; length],
            at: 0,
        }
    }

    fn pass(&mut self, count: usize) {
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

    /// Reads what has arrived; `None` at the end.
    fn receive(&mut self, socket: &mut TcpStream) -> std::io::Result<Option<usize>> {
        match socket.read(&mut self.bytes[self.at..]) {
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

/// Operations per second, with the server on a core of its own. The client is this thread.
///
/// # Errors
/// If loopback does not work, or there is no such core.
pub fn measure(exchange: Exchange, server_core: Option<usize>) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let server = scope.spawn(move || -> Result<()> {
            if let Some(core) = server_core {
                pin(core)?;
            }
            let (socket, _) = listener.accept()?;
            match serve(exchange, socket) {
                // The client goes in the middle of the exchange.
                Err(error) if gone(&error) => Ok(()),
                result => Ok(result?),
            }
        });
        let rate = drive(exchange, TcpStream::connect(address)?);
        server.join().ok().context("the raw server panicked")??;
        Ok(rate?)
    })
}

/// What the server says when it is ready.
const READY: u8 = 1;

fn gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn serve(exchange: Exchange, mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    // Whichever direction carries the data uses the memory of a file.
    let mut inward = Ring::new(exchange.footprint.max(256 << 10));
    let mut outward = Ring::new(exchange.footprint.max(256 << 10));
    // All memory is there: now time may count.
    socket.write_all(&[READY])?;
    socket.set_nonblocking(true)?;
    let (mut partial, mut owed) = (0, 0);
    loop {
        let Some(count) = inward.receive(&mut socket)? else {
            return Ok(());
        };
        partial += count;
        owed += partial / exchange.request * exchange.reply;
        partial %= exchange.request;
        let sent = outward.send(&mut socket, owed)?;
        owed -= sent;
        if count + sent == 0 {
            thread::yield_now();
        }
    }
}

fn drive(exchange: Exchange, mut socket: TcpStream) -> std::io::Result<f64> {
    socket.set_nodelay(true)?;
    let mut outward = Ring::new((exchange.request * exchange.depth).max(256 << 10));
    let mut inward = Ring::new((exchange.reply * exchange.depth).max(256 << 10));
    let (mut partial, mut done) = (0, 0_u64);
    let mut owed = exchange.request * exchange.depth;
    socket.read_exact(&mut [0])?;
    socket.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        let sent = outward.send(&mut socket, owed)?;
        owed -= sent;
        let count = inward.receive(&mut socket)?.unwrap_or(0);
        partial += count;
        let replies = partial / exchange.reply;
        partial %= exchange.reply;
        done += replies as u64;
        owed += replies * exchange.request;
        let elapsed = start.elapsed();
        if elapsed >= exchange.time {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
        if count + sent == 0 {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_moves_messages() {
        let exchange = Exchange {
            request: 100,
            reply: 4200,
            depth: 8,
            footprint: 1 << 20,
            time: Duration::from_millis(50),
        };
        assert!(measure(exchange, None).expect("loopback works") > 0.0);
    }
}
