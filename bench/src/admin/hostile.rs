//! Clients of the HTTP API that mean no good.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A pause between two looks at the metrics, ten times a second.
const SCRAPE: Duration = Duration::from_millis(100);

/// Longest wait for the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The behaviour that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostileBehaviour {
    /// Reads the metrics ten times a second.
    Scrape,
    /// Asks for lists as fast as they come.
    Lists,
    /// Sends data that is not HTTP.
    Garbage,
    /// Sends a byte of a header now and then, and never its end.
    Slow,
    /// Asks for changes with wrong tokens.
    Tokens,
}

impl HostileBehaviour {
    /// All that are hostile.
    pub const FLOOD: [Self; 5] = [
        Self::Lists,
        Self::Lists,
        Self::Garbage,
        Self::Slow,
        Self::Tokens,
    ];
}

/// What clients did.
#[derive(Debug, Default)]
pub struct Count {
    /// Requests, or their equivalents in other behaviours.
    pub asked: AtomicU64,
    /// Those that were answered with 200.
    pub served: AtomicU64,
}

/// Repeats a behaviour until `stop` is set, and counts the attempts.
pub fn behave(behaviour: HostileBehaviour, server: SocketAddr, stop: &AtomicBool, count: &Count) {
    while !stop.load(Ordering::Relaxed) {
        // Refusal by the server is the expected outcome.
        let served = once(behaviour, server, stop).unwrap_or(false);
        count.asked.fetch_add(1, Ordering::Relaxed);
        count.served.fetch_add(u64::from(served), Ordering::Relaxed);
        if behaviour == HostileBehaviour::Scrape {
            std::thread::sleep(SCRAPE);
        }
    }
}

fn once(behaviour: HostileBehaviour, server: SocketAddr, stop: &AtomicBool) -> Result<bool> {
    match behaviour {
        HostileBehaviour::Scrape => {
            ask(server, "GET /metrics HTTP/1.0\r\n\r\n").map(|answer| is_good(&answer))
        }
        HostileBehaviour::Lists => {
            ask(server, "GET /api/v1/connections HTTP/1.0\r\n\r\n").map(|answer| is_good(&answer))
        }
        HostileBehaviour::Tokens => {
            let request = "DELETE /api/v1/connections/1 HTTP/1.0\r\n\
                           authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\r\n";
            ask(server, request).map(|answer| is_good(&answer))
        }
        HostileBehaviour::Garbage => {
            ask(server, &"\u{1}\u{7f}".repeat(4096)).map(|answer| is_good(&answer))
        }
        HostileBehaviour::Slow => {
            let mut stream = connect(server)?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: ")?;
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(b"x")?;
                std::thread::sleep(SCRAPE / 10);
            }
            Ok(false)
        }
    }
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, SERVER_TIMEOUT)?;
    stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
    stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
    Ok(stream)
}

/// The server's metrics. After a flood they may have to wait for their turn.
///
/// # Errors
/// If they do not come in time.
pub fn metrics(server: SocketAddr) -> Result<String> {
    let start = Instant::now();
    loop {
        let answer = ask(server, "GET /metrics HTTP/1.0\r\n\r\n")?;
        if is_good(&answer) {
            return Ok(answer);
        }
        if start.elapsed() > SERVER_TIMEOUT {
            let status = answer.lines().next().unwrap_or("nothing");
            bail!("/metrics answers {status}");
        }
        std::thread::sleep(SCRAPE);
    }
}

fn is_good(answer: &str) -> bool {
    answer
        .split_once(' ')
        .is_some_and(|(version, rest)| version.starts_with("HTTP/1.") && rest.starts_with("200"))
}

/// Everything that is answered.
fn ask(server: SocketAddr, request: &str) -> Result<String> {
    let mut stream = connect(server)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    read.context("no whole answer from the management plane")?;
    Ok(answer)
}
