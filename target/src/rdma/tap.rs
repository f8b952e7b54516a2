//! Copies of a connection's messages, for a capture.
//!
//! A connection that is not captured pays one test of a flag for each message and each chain of
//! work requests. One that is gives copies to a channel and never waits: what finds no room is
//! counted and forgotten.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender};
use millrace_mempool::Slice;
use millrace_reactor::fabric::{Operation, PostError, WorkRequest};

use super::Connection;

/// Copies that may wait to be taken.
const MESSAGES_WAITING: usize = 1024;

/// Bytes of copies that may wait to be taken.
const BYTES_WAITING: usize = 8 << 20;

/// A message that was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// When it was received or posted.
    pub at: SystemTime,
    /// Whether it came from the client.
    pub received: bool,
    /// Its number among those of its direction, from one on, those counted that were dropped.
    pub number: u32,
    /// The client's key that it invalidates.
    pub invalidate: Option<u32>,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// What it carries.
    pub bytes: Vec<u8>,
}

/// What both ends of a capture know.
#[derive(Debug, Default)]
struct Common {
    /// Nobody takes copies any more.
    ended: AtomicBool,
    /// Bytes that wait to be taken.
    waiting: AtomicUsize,
    /// Messages that found no room.
    dropped: AtomicU64,
}

/// Bounds of a capture, as a connection keeps to them.
#[derive(Clone, Copy, Debug)]
pub struct TapBounds {
    /// Most messages.
    pub messages: u64,
    /// No messages after this.
    pub until: Instant,
}

/// What a connection puts copies into.
#[derive(Clone, Debug)]
pub struct Tap {
    sender: Sender<Copied>,
    common: Arc<Common>,
    /// Messages that are left.
    left: u64,
    until: Instant,
    /// Messages received and sent.
    seen: [u32; 2],
}

/// Where copies come out. Dropping it ends the capture.
#[derive(Debug)]
pub struct Copies {
    receiver: Receiver<Copied>,
    common: Arc<Common>,
}

/// Both ends of a capture.
#[must_use]
pub fn tap(bounds: TapBounds) -> (Tap, Copies) {
    let (sender, receiver) = crossbeam_channel::bounded(MESSAGES_WAITING);
    let common = Arc::<Common>::default();
    let tap = Tap {
        sender,
        common: Arc::clone(&common),
        left: bounds.messages,
        until: bounds.until,
        seen: [0; 2],
    };
    (tap, Copies { receiver, common })
}

impl Tap {
    /// Whether no more is to be copied.
    fn is_over(&self) -> bool {
        self.left == 0 || self.common.ended.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// Copies a message, unless there is no room for it.
    fn put(&mut self, mut copied: Copied) {
        let seen = &mut self.seen[usize::from(copied.received)];
        *seen = seen.wrapping_add(1);
        copied.number = *seen;
        self.left -= 1;
        let (common, length) = (&self.common, copied.bytes.len());
        let waiting = common.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting > BYTES_WAITING || self.sender.try_send(copied).is_err() {
            common.waiting.fetch_sub(length, Ordering::Relaxed);
            common.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Copies {
    /// The next copy; none if there is none until `deadline`.
    ///
    /// # Errors
    /// There will be no more: the connection has ended, or as many as were wanted have been taken.
    pub fn next(&self, deadline: Instant) -> Result<Option<Copied>, Over> {
        use crossbeam_channel::RecvTimeoutError::{Disconnected, Timeout};
        match self.receiver.recv_deadline(deadline) {
            Ok(copied) => {
                let length = copied.bytes.len();
                self.common.waiting.fetch_sub(length, Ordering::Relaxed);
                Ok(Some(copied))
            }
            Err(Timeout) => Ok(None),
            Err(Disconnected) => Err(Over),
        }
    }

    /// Messages that found no room so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.common.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.common.ended.store(true, Ordering::Relaxed);
    }
}

/// A capture has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capture is over")]
pub struct Over;

/// The place of a tap at a connection.
#[derive(Default)]
pub(super) struct Tapped {
    is_on: Cell<bool>,
    tap: RefCell<Option<Tap>>,
}

impl Tapped {
    /// Whether messages may have to be copied.
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// The connection has ended.
    pub fn end(&self) {
        self.is_on.set(false);
        self.tap.take();
    }

    /// Copies messages, or takes the tap away when it is over.
    fn put(&self, messages: impl IntoIterator<Item = Copied>) {
        let mut place = self.tap.borrow_mut();
        for message in messages {
            match &mut *place {
                Some(tap) if !tap.is_over() => tap.put(message),
                _ => break,
            }
        }
        if place.as_ref().is_none_or(Tap::is_over) {
            *place = None;
            self.is_on.set(false);
        }
    }
}

impl Connection {
    /// Copies its messages from now on. False if somebody else has them copied already.
    pub fn capture(&self, tap: Tap) -> bool {
        if self.is_broken() {
            return false;
        }
        let mut place = self.tapped.tap.borrow_mut();
        if place.as_ref().is_some_and(|tap| !tap.is_over()) {
            return false;
        }
        *place = Some(tap);
        self.tapped.is_on.set(true);
        true
    }

    /// Copies a message that was received.
    #[cold]
    pub(super) fn copy_received(&self, message: &[u8]) {
        self.tapped.put([Copied {
            at: SystemTime::now(),
            received: true,
            number: 0,
            invalidate: None,
            solicited: false,
            bytes: message.to_vec(),
        }]);
    }

    /// Posts a chain, and copies its Sends if it was posted.
    #[cold]
    pub(super) fn post_copied(
        &self,
        chain: &mut Vec<WorkRequest>,
        post: impl FnOnce(&mut Vec<WorkRequest>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let at = SystemTime::now();
        let sends = chain.iter().filter_map(|request| sent(request, at));
        let sends: Vec<Copied> = sends.collect();
        post(chain)?;
        self.tapped.put(sends);
        Ok(())
    }
}

/// The message that a work request sends, if it does.
fn sent(request: &WorkRequest, at: SystemTime) -> Option<Copied> {
    let Operation::Send {
        invalidate,
        solicited,
    } = request.operation
    else {
        return None;
    };
    let mut bytes = vec![0; request.local.iter().map(Slice::len).sum()];
    let mut room = &mut bytes[..];
    for slice in &request.local {
        let (part, rest) = room.split_at_mut(slice.len());
        slice.copy_to(0, part);
        room = rest;
    }
    Some(Copied {
        at,
        received: false,
        number: 0,
        invalidate: invalidate.map(|key| key.0),
        solicited,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn message(received: bool, length: usize) -> Copied {
        Copied {
            at: SystemTime::UNIX_EPOCH,
            received,
            number: 0,
            invalidate: None,
            solicited: false,
            bytes: vec![0; length],
        }
    }

    fn tapped(messages: u64) -> (Tapped, Copies) {
        let until = Instant::now() + Duration::from_secs(3600);
        let (tap, copies) = tap(TapBounds { messages, until });
        let tapped = Tapped::default();
        tapped.tap.replace(Some(tap));
        tapped.is_on.set(true);
        (tapped, copies)
    }

    fn numbers(copies: &Copies) -> Vec<(bool, u32)> {
        let now = Instant::now();
        let next = || copies.next(now).ok().flatten();
        std::iter::from_fn(next)
            .map(|copied| (copied.received, copied.number))
            .collect()
    }

    #[test]
    fn each_direction_is_numbered_up_to_the_bound() {
        let (tapped, copies) = tapped(3);
        tapped.put([message(true, 1), message(false, 1)]);
        assert!(tapped.is_on());
        tapped.put([message(true, 1), message(true, 1)]);
        assert!(!tapped.is_on(), "three are enough");
        assert_eq!(numbers(&copies), [(true, 1), (false, 1), (true, 2)]);
        assert_eq!(copies.next(Instant::now()), Err(Over));
        assert_eq!(copies.dropped(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_leaves_a_gap() {
        let (tapped, copies) = tapped(u64::MAX);
        let many = MESSAGES_WAITING + 5;
        tapped.put(std::iter::repeat_with(|| message(true, 1)).take(many));
        assert_eq!(copies.dropped(), 5);
        let taken = numbers(&copies);
        assert_eq!(taken.len(), MESSAGES_WAITING);
        tapped.put([message(true, 1)]);
        assert_eq!(numbers(&copies), [(true, many as u32 + 1)]);

        tapped.put(std::iter::repeat_with(|| message(false, 1 << 20)).take(16));
        let taken = numbers(&copies).len();
        assert!((8..=9).contains(&taken), "{taken} MiB of 8");
        assert_eq!(copies.dropped(), 5 + 16 - taken as u64);
    }

    #[test]
    fn whoever_takes_no_more_ends_it() {
        let (tapped, copies) = tapped(u64::MAX);
        drop(copies);
        tapped.put([message(true, 1)]);
        assert!(!tapped.is_on());

        let (tapped, copies) = self::tapped(u64::MAX);
        tapped.end();
        assert_eq!(copies.next(Instant::now()), Err(Over));
    }
}
