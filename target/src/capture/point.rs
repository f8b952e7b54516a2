//! The place at a connection where its messages are copied.
//!
//! A connection that is not captured pays one test of a flag for each message and each chain of
//! work requests.

use std::cell::{Cell, RefCell};
use std::time::SystemTime;

use millrace_mempool::Slice;
use millrace_reactor::fabric::{Operation, PostError, WorkRequest};

use super::{CaptureSink, CapturedMessage};

/// Where a connection's messages are copied, if they are.
#[derive(Default)]
pub struct CapturePoint {
    is_on: Cell<bool>,
    sink: RefCell<Option<CaptureSink>>,
}

impl CapturePoint {
    /// Whether messages may have to be copied.
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Copies messages to `sink` from now on. False if another capture is in progress.
    pub fn attach(&self, sink: CaptureSink) -> bool {
        let mut place = self.sink.borrow_mut();
        if place.as_ref().is_some_and(|sink| !sink.is_over()) {
            return false;
        }
        *place = Some(sink);
        self.is_on.set(true);
        true
    }

    /// The connection has ended.
    pub fn end(&self) {
        self.is_on.set(false);
        self.sink.take();
    }

    /// Copies a message that was received.
    #[cold]
    pub fn received(&self, message: &[u8]) {
        self.put([CapturedMessage {
            at: SystemTime::now(),
            received: true,
            number: 0,
            invalidate: None,
            solicited: false,
            bytes: message.to_vec(),
        }]);
    }

    /// Posts a chain, and copies its Sends if it was posted.
    ///
    /// # Errors
    /// Those of `post`.
    #[cold]
    pub fn post(
        &self,
        chain: &mut Vec<WorkRequest>,
        post: impl FnOnce(&mut Vec<WorkRequest>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let at = SystemTime::now();
        let sends = chain.iter().filter_map(|request| sent(request, at));
        let sends: Vec<CapturedMessage> = sends.collect();
        post(chain)?;
        self.put(sends);
        Ok(())
    }

    /// Copies messages, or drops the sink when the capture has ended.
    fn put(&self, messages: impl IntoIterator<Item = CapturedMessage>) {
        let mut place = self.sink.borrow_mut();
        for message in messages {
            match &mut *place {
                Some(sink) if !sink.is_over() => sink.put(message),
                _ => break,
            }
        }
        if place.as_ref().is_none_or(CaptureSink::is_over) {
            *place = None;
            self.is_on.set(false);
        }
    }
}

/// The message that a work request sends, if it is a Send.
fn sent(request: &WorkRequest, at: SystemTime) -> Option<CapturedMessage> {
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
    Some(CapturedMessage {
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
    use std::time::{Duration, Instant};

    use super::*;
    use crate::capture::sink::MESSAGES_WAITING;
    use crate::capture::{CaptureEnded, CaptureLimits, CaptureSource, channel};

    fn message(received: bool, length: usize) -> CapturedMessage {
        CapturedMessage {
            at: SystemTime::UNIX_EPOCH,
            received,
            number: 0,
            invalidate: None,
            solicited: false,
            bytes: vec![0; length],
        }
    }

    fn attached(messages: u64) -> (CapturePoint, CaptureSource) {
        let until = Instant::now() + Duration::from_secs(3600);
        let (sink, source) = channel(CaptureLimits { messages, until });
        let point = CapturePoint::default();
        assert!(point.attach(sink));
        (point, source)
    }

    fn numbers(source: &CaptureSource) -> Vec<(bool, u32)> {
        let now = Instant::now();
        let next = || source.next(now).ok().flatten();
        std::iter::from_fn(next)
            .map(|message| (message.received, message.number))
            .collect()
    }

    #[test]
    fn each_direction_is_numbered_up_to_the_bound() {
        let (point, source) = attached(3);
        point.put([message(true, 1), message(false, 1)]);
        assert!(point.is_on());
        point.put([message(true, 1), message(true, 1)]);
        assert!(!point.is_on(), "three are enough");
        assert_eq!(numbers(&source), [(true, 1), (false, 1), (true, 2)]);
        assert_eq!(source.next(Instant::now()), Err(CaptureEnded));
        assert_eq!(source.dropped(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_leaves_a_gap() {
        let (point, source) = attached(u64::MAX);
        let many = MESSAGES_WAITING + 5;
        point.put(std::iter::repeat_with(|| message(true, 1)).take(many));
        assert_eq!(source.dropped(), 5);
        let taken = numbers(&source);
        assert_eq!(taken.len(), MESSAGES_WAITING);
        point.put([message(true, 1)]);
        assert_eq!(numbers(&source), [(true, many as u32 + 1)]);

        point.put(std::iter::repeat_with(|| message(false, 1 << 20)).take(16));
        let taken = numbers(&source).len();
        assert!((8..=9).contains(&taken), "{taken} MiB of 8");
        assert_eq!(source.dropped(), 5 + 16 - taken as u64);
    }

    #[test]
    fn whoever_takes_no_more_ends_it() {
        let (point, source) = attached(u64::MAX);
        drop(source);
        point.put([message(true, 1)]);
        assert!(!point.is_on());

        let (point, source) = attached(u64::MAX);
        point.end();
        assert_eq!(source.next(Instant::now()), Err(CaptureEnded));
    }
}
