//! The data path over a socket: many frames in each system call, payloads directly from and to
//! registered memory.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Instant;

use millrace_iwarp::Chunk;

use super::connection::{IwarpConnection, IwarpPhase};
use super::memory::{Scatter, gather};
use super::shared::IwarpShared;
use crate::fabric::Ended;
use crate::gather::GatheredWrite;

/// A payload of which at least this many bytes are missing is received directly into its memory, and
/// any payload with as much memory behind it, which more of a long transfer will fill. Otherwise one
/// call that returns the bytes with the frames behind them, and a copy out of the cache, are cheaper.
/// Receiving the heads of large payloads by themselves, so that nothing of them is copied, was no
/// faster at 64 KiB and 4 % slower at 32 KiB: the kernel then copies to memory that is in no cache.
const DIRECT_MIN: usize = 16 * 1024;
/// Bytes of the common buffer that a direct receive offers for the data after the payload: enough
/// for the next header, little enough that the next payload is received directly as well.
const DIRECT_TAIL: usize = 256;
/// Bytes received for a client, and bytes sent for it, in one turn; more is no faster. It takes some
/// 100 us, for which messages from other threads wait.
pub(super) const BYTES_TURN: usize = 512 << 10;
/// Bytes sent for a client in one turn while another one is active that receives little, and waits
/// for its turn. It takes some 25 us. Clients that all receive much data have the longer turns, which
/// cost less.
pub(super) const BYTES_TURN_SHORT: usize = 128 << 10;
/// Bytes sent in a turn to a connection that receives little.
pub(super) const LIGHT_BELOW: usize = 64 << 10;

impl IwarpConnection {
    /// Receives available data, about `most` bytes of it. Returns the number of bytes.
    pub(super) fn receive(&mut self, now: Instant, most: usize, shared: &mut IwarpShared) -> usize {
        let mut total = 0;
        while total < most && matches!(self.phase, IwarpPhase::Running | IwarpPhase::Closing { .. })
        {
            match self.receive_once(now, shared) {
                Ok(0) => {
                    self.stream_ended(shared);
                    return total + 1;
                }
                Ok(count) => {
                    total += count;
                    if !self.readable {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    if let Some(kind) = self.send_error {
                        self.end(Ended::Network(kind), shared);
                        return total + 1;
                    }
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end(
                        Ended::Network(self.send_error.unwrap_or(error.kind())),
                        shared,
                    );
                    return total + 1;
                }
            }
            if self.endpoint.has_news() {
                break;
            }
        }
        if total > 0 {
            self.count(shared);
        }
        total
    }

    fn receive_once(&mut self, now: Instant, shared: &mut IwarpShared) -> io::Result<usize> {
        let mut scatter = Scatter::new();
        let mut straight = 0;
        let mut offered = shared.scratch.len();
        if let Some(direct) = self.endpoint.direct()
            && (direct.length >= DIRECT_MIN || direct.behind >= DIRECT_MIN)
        {
            straight = direct.length;
            offered = DIRECT_TAIL;
            scatter.add_direct(direct);
        }
        scatter.add_bytes(&mut shared.scratch[..offered]);
        let room = scatter.bytes();
        shared.counters.receive_calls.add(1);
        let count = scatter.receive(self.socket.as_fd())?;
        shared.counters.bytes_in.add(count as u64);
        // Less than offered: the socket is empty, and reports when that changes.
        self.readable = count == room || self.hung_up;
        let placed = count.min(straight);
        if placed > 0 {
            shared.counters.bytes_direct.add(placed as u64);
            self.endpoint.placed(placed);
        }
        if let Err(stop) = self.endpoint.receive(&shared.scratch[..count - placed]) {
            self.stopped(stop, now, shared);
        }
        Ok(count)
    }

    /// The peer has closed its direction.
    fn stream_ended(&mut self, shared: &mut IwarpShared) {
        let reason = match (&self.phase, self.send_error) {
            (_, Some(kind)) => Ended::Network(kind),
            (IwarpPhase::Closing { .. }, None) => Ended::Local,
            _ if self.endpoint.is_at_boundary() => Ended::Peer,
            _ => Ended::Network(io::ErrorKind::UnexpectedEof),
        };
        self.end(reason, shared);
    }

    /// Sends pending data, as far as the socket accepts it, and about `most` bytes. Returns the
    /// number of bytes.
    pub(super) fn send(&mut self, most: usize, shared: &mut IwarpShared) -> usize {
        let mut total = 0;
        while self.writable && total < most {
            if self.endpoint.wants_staging() {
                let staging = shared.staging();
                self.endpoint.lend(staging);
            }
            self.endpoint.stage();
            if self.endpoint.bytes_staged() == 0 {
                break;
            }
            match self.send_once(most - total, shared) {
                Ok(count) => total += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Received data may contain the reason, so it is received first.
                    self.send_error = Some(error.kind());
                    (self.writable, self.readable, self.hung_up) = (false, true, true);
                }
            }
        }
        shared.give_back(self.endpoint.reclaim());
        if total > 0 {
            // The rest of much data may be little.
            self.sent_lately = total.max(self.sent_lately / 2);
            self.count(shared);
            if self.endpoint.is_indication_sent() {
                self.announcements.extend(self.established.take());
            }
        }
        self.after_sending(shared);
        total
    }

    /// Sends at most this number of bytes.
    fn send_once(&mut self, most: usize, shared: &IwarpShared) -> io::Result<usize> {
        let mut write = GatheredWrite::new(most);
        self.endpoint.gather(|chunk| {
            let fits = match chunk {
                Chunk::Bytes(bytes) => write.add_bytes(bytes),
                Chunk::Memory {
                    local,
                    offset,
                    length,
                } => gather(&mut write, local, offset, length),
            };
            if fits {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let offered = write.bytes();
        shared.counters.send_calls.add(1);
        let count = write.send(self.socket.as_fd())?;
        shared.counters.bytes_out.add(count as u64);
        if count < offered {
            self.writable = false;
        }
        self.endpoint.accepted(count);
        Ok(count)
    }

    /// Whether there is something to send, once the socket accepts it.
    pub(super) fn has_unsent(&mut self) -> bool {
        matches!(
            self.phase,
            IwarpPhase::Running | IwarpPhase::Closing { .. } | IwarpPhase::Terminating(_)
        ) && (self.endpoint.bytes_staged() > 0 || self.endpoint.wants_staging())
    }

    /// Whether there is something to send that the socket accepts.
    pub(super) fn wants_to_send(&mut self) -> bool {
        self.writable && self.has_unsent()
    }
}
