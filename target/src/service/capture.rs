//! Captures of a connection's messages, as files for network analysers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use millrace_admin::control::{CaptureStream, ControlError};
use millrace_admin::status::CaptureBounds;
use millrace_wire::nfs3::RDMA_PORT;

use super::control::ServiceControl;
use super::worker::ReactorMessage;
use crate::capture::{self, CaptureFile, CaptureLimits, CaptureSource, CapturedMessage};
use crate::rdma::RdmaConnection;

/// The most captures at once.
const CAPTURES_MAX: usize = 4;

/// The most messages of a capture, and its limits in bytes and seconds, whatever is requested.
const MESSAGES_MAX: u64 = 1_000_000;
const BYTES_MAX: u64 = 1 << 30;
const BYTES_LEAST: u64 = 1024;
const SECONDS_MAX: f64 = 3600.0;

/// Approximate size of the pieces in which the file is returned.
const PIECE: usize = 64 << 10;

/// A reactor's answer to a request for a capture.
#[derive(Clone, Copy, Debug)]
pub enum CaptureStart {
    /// There is no such connection here.
    NotHere,
    /// It does not use RPC-over-RDMA.
    NotRdma,
    /// Another capture is in progress.
    Busy,
    /// The capture has started: the client's address, and ours if the provider reports it.
    Yes(SocketAddr, Option<SocketAddr>),
}

impl CaptureStart {
    /// The answer for a connection that is captured.
    pub(super) fn of(connection: &RdmaConnection) -> Self {
        let peer = connection.peer();
        let address = SocketAddr::new(peer.address, peer.port);
        Self::Yes(address, connection.local_address())
    }
}

/// One of the concurrent captures, released on drop.
#[derive(Debug)]
struct CaptureSlot(Arc<AtomicUsize>);

impl CaptureSlot {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count: usize| (count < CAPTURES_MAX).then_some(count + 1);
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Self(Arc::clone(count)))
    }
}

impl Drop for CaptureSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServiceControl {
    pub(super) fn begin_capture(
        &self,
        connection: u64,
        bounds: &CaptureBounds,
    ) -> Result<Option<Box<dyn CaptureStream>>, ControlError> {
        let Some(slot) = CaptureSlot::take(&self.captures) else {
            return Err(ControlError::Conflict(format!(
                "{CAPTURES_MAX} captures are in progress, the most at a time"
            )));
        };
        // NaN is taken as zero.
        let seconds = bounds.seconds.clamp(0.0, SECONDS_MAX).max(0.0);
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let began = SystemTime::now();
        let messages = bounds.messages.clamp(1, MESSAGES_MAX);
        let (sink, source) = capture::channel(CaptureLimits { messages, until });
        let answers =
            self.ask_all(|answer| ReactorMessage::Capture(connection, sink.clone(), answer))?;
        drop(sink);
        let conflict = |what| ControlError::Conflict(format!("connection {connection} {what}"));
        for answer in answers {
            match answer {
                CaptureStart::NotHere => {}
                CaptureStart::NotRdma => {
                    return Err(conflict("is ONC RPC over TCP: only RDMA can be captured"));
                }
                CaptureStart::Busy => return Err(conflict("is captured already")),
                CaptureStart::Yes(client, local) => {
                    let local = local.unwrap_or_else(|| anywhere(client));
                    tracing::info!(connection, %client, "a capture has begun");
                    return Ok(Some(Box::new(Stream {
                        connection,
                        client,
                        file: CaptureFile::new(client, local),
                        source,
                        began: Some(began),
                        until,
                        left: bounds.bytes.clamp(BYTES_LEAST, BYTES_MAX),
                        messages: 0,
                        over: false,
                        _slot: slot,
                    })));
                }
            }
        }
        Ok(None)
    }
}

/// A placeholder for an unknown address.
fn anywhere(client: SocketAddr) -> SocketAddr {
    let address: IpAddr = match client.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, RDMA_PORT)
}

/// A capture in progress.
struct Stream {
    connection: u64,
    client: SocketAddr,
    file: CaptureFile,
    source: CaptureSource,
    /// The start time, until it is written to the file.
    began: Option<SystemTime>,
    until: Instant,
    /// Bytes left in the file.
    left: u64,
    messages: u64,
    over: bool,
    _slot: CaptureSlot,
}

impl Stream {
    /// Appends a message, unless the file would become too long. Returns whether it would.
    fn append(&mut self, message: &CapturedMessage, piece: &mut Vec<u8>) -> bool {
        let length = self.file.bytes_of(message.bytes.len()) as u64;
        if length > self.left {
            return false;
        }
        self.left -= length;
        self.messages += 1;
        self.file.message(message, piece);
        true
    }
}

impl CaptureStream for Stream {
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut piece = Vec::new();
        if let Some(began) = self.began.take() {
            self.file.begin(began, &mut piece);
            self.left = self.left.saturating_sub(piece.len() as u64);
            return Ok(Some(piece));
        }
        let mut wait_until = self.until.min(Instant::now() + timeout);
        while !self.over && piece.len() < PIECE {
            match self.source.next(wait_until) {
                Ok(Some(message)) => self.over = !self.append(&message, &mut piece),
                // Messages copied in time are still returned.
                Ok(None) if Instant::now() < self.until => break,
                Ok(None) | Err(_) => self.over = true,
            }
            // No further waiting once there is data to return.
            wait_until = Instant::now();
        }
        Ok((!self.over || !piece.is_empty()).then_some(piece))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        tracing::info!(
            connection = self.connection,
            client = %self.client,
            messages = self.messages,
            dropped = self.source.dropped(),
            "a capture has ended"
        );
    }
}
