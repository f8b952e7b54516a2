//! The channel between a captured connection and the reader of the capture. It is bounded and the
//! connection never waits: messages that find no room are counted and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use super::CapturedMessage;

/// Messages that may wait to be taken.
pub(super) const MESSAGES_WAITING: usize = 1024;

/// Bytes of messages that may wait to be taken.
const BYTES_WAITING: usize = 8 << 20;

/// State that both ends share.
#[derive(Debug, Default)]
struct ChannelState {
    /// The receiving end is gone.
    ended: AtomicBool,
    /// Bytes that wait to be taken.
    waiting: AtomicUsize,
    /// Messages that found no room.
    dropped: AtomicU64,
}

/// Bounds of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureLimits {
    /// Most messages.
    pub messages: u64,
    /// No messages after this.
    pub until: Instant,
}

/// The sending end, at the connection.
#[derive(Clone, Debug)]
pub struct CaptureSink {
    sender: Sender<CapturedMessage>,
    common: Arc<ChannelState>,
    /// Messages that are left.
    left: u64,
    until: Instant,
    /// Messages received and sent.
    seen: [u32; 2],
}

/// The receiving end. Dropping it ends the capture.
#[derive(Debug)]
pub struct CaptureSource {
    receiver: Receiver<CapturedMessage>,
    common: Arc<ChannelState>,
}

/// Both ends of a capture.
#[must_use]
pub fn channel(limits: CaptureLimits) -> (CaptureSink, CaptureSource) {
    let (sender, receiver) = crossbeam_channel::bounded(MESSAGES_WAITING);
    let common = Arc::<ChannelState>::default();
    let sink = CaptureSink {
        sender,
        common: Arc::clone(&common),
        left: limits.messages,
        until: limits.until,
        seen: [0; 2],
    };
    (sink, CaptureSource { receiver, common })
}

impl CaptureSink {
    /// Whether no more messages are to be copied.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0 || self.common.ended.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// Passes a message on, unless there is no room for it.
    pub(super) fn put(&mut self, mut message: CapturedMessage) {
        let seen = &mut self.seen[usize::from(message.received)];
        *seen = seen.wrapping_add(1);
        message.number = *seen;
        self.left -= 1;
        let (common, length) = (&self.common, message.bytes.len());
        let waiting = common.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting > BYTES_WAITING || self.sender.try_send(message).is_err() {
            common.waiting.fetch_sub(length, Ordering::Relaxed);
            common.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl CaptureSource {
    /// The next message; `None` if none arrives until `deadline`.
    ///
    /// # Errors
    /// There will be no more: the connection has ended, or the requested number has been captured.
    pub fn next(&self, deadline: Instant) -> Result<Option<CapturedMessage>, CaptureEnded> {
        use crossbeam_channel::RecvTimeoutError::{Disconnected, Timeout};
        match self.receiver.recv_deadline(deadline) {
            Ok(message) => {
                let length = message.bytes.len();
                self.common.waiting.fetch_sub(length, Ordering::Relaxed);
                Ok(Some(message))
            }
            Err(Timeout) => Ok(None),
            Err(Disconnected) => Err(CaptureEnded),
        }
    }

    /// Messages that found no room so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.common.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for CaptureSource {
    fn drop(&mut self) {
        self.common.ended.store(true, Ordering::Relaxed);
    }
}

/// A capture has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capture is over")]
pub struct CaptureEnded;
