//! Answers to clients about their data, compared with the preceding system calls.

use std::ops::Range;

use crate::Stability;
use crate::posix::sys::record::{CallRecord, FileId, RecordedCall};

/// An answer.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub asked: u64,
    pub answered: u64,
    pub what: Promised,
}

#[derive(Clone, Copy, Debug)]
pub enum Promised {
    /// These bytes were written with this durability.
    Written {
        offset: u64,
        length: u64,
        stability: Stability,
    },
    /// Everything answered before the request is durable.
    Committed,
}

/// Panics if an answer about a file was not true when it was given.
pub fn require_kept(file: FileId, calls: &[CallRecord], promises: &[Promise]) {
    for promise in promises {
        match promise.what {
            Promised::Written {
                offset,
                length,
                stability,
            } => {
                let range = offset..offset + length;
                let writes = writes_of(file, calls, promise, &range);
                let mut reached = range.start;
                for write in writes {
                    let RecordedCall::Write { offset, length, .. } = write.call else {
                        unreachable!("they are writes");
                    };
                    assert!(offset <= reached, "{promise:?}: a gap before {write:?}");
                    reached = reached.max(offset + length);
                    assert!(
                        is_durable(write, stability, calls, promise.answered),
                        "{promise:?}: answered before a sync of {write:?}"
                    );
                }
                assert!(reached >= range.end, "{promise:?}: not written");
            }
            Promised::Committed => {
                let before = promises.iter().filter(|it| it.answered < promise.asked);
                for written in before {
                    let Promised::Written { offset, length, .. } = written.what else {
                        continue;
                    };
                    for write in writes_of(file, calls, written, &(offset..offset + length)) {
                        assert!(
                            is_durable(write, Stability::FileSync, calls, promise.answered),
                            "{promise:?}: {write:?} was not synced"
                        );
                    }
                }
            }
        }
    }
}

/// The system calls of an answered write, ordered by offset.
fn writes_of<'a>(
    file: FileId,
    calls: &'a [CallRecord],
    promise: &Promise,
    range: &Range<u64>,
) -> Vec<&'a CallRecord> {
    let is_of = |call: &CallRecord| match call.call {
        RecordedCall::Write { offset, length, .. } => {
            call.file == file
                && call.done
                && call.began > promise.asked
                && call.ended.is_some_and(|ended| ended < promise.answered)
                && offset < range.end
                && range.start < offset + length
        }
        _ => false,
    };
    let mut writes: Vec<_> = calls.iter().filter(|call| is_of(call)).collect();
    writes.sort_by_key(|write| match write.call {
        RecordedCall::Write { offset, .. } => offset,
        _ => unreachable!("they are writes"),
    });
    writes
}

/// Whether a completed write was durable at some time.
fn is_durable(write: &CallRecord, stability: Stability, calls: &[CallRecord], by: u64) -> bool {
    let RecordedCall::Write { flags, .. } = write.call else {
        unreachable!("it is a write");
    };
    let enough = match stability {
        Stability::Unstable => return true,
        Stability::DataSync => libc::RWF_DSYNC | libc::RWF_SYNC,
        Stability::FileSync => libc::RWF_SYNC,
    };
    let ended = write.ended.expect("it has ended");
    flags & enough != 0 || is_synced(write.file, calls, ended, by)
}

/// Whether a file was synced as a whole between two times.
pub fn is_synced(file: FileId, calls: &[CallRecord], after: u64, by: u64) -> bool {
    calls.iter().any(|call| {
        call.syncs(file)
            && call.done
            && call.began > after
            && call.ended.is_some_and(|ended| ended < by)
    })
}
