//! Sleeping on descriptors: the only module of the loop that handles raw ones.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fabric::DataPath;

/// Sleeps until a provider has work or the time has passed, for programs that poll one without a
/// reactor. Returns at once if it has to be polled.
pub fn await_work(provider: &mut (impl DataPath + ?Sized), most: Duration) {
    if let Some(descriptor) = provider.wake_descriptor()
        && provider.arm()
    {
        until_readable(&[descriptor], &mut Vec::new(), Some(most));
    }
}

/// Sleeps until one of `descriptors` is readable, `timeout` passes, or a signal arrives.
/// `scratch` saves allocations.
pub(crate) fn until_readable(
    descriptors: &[RawFd],
    scratch: &mut Vec<PollFd<'static>>,
    timeout: Option<Duration>,
) {
    scratch.clear();
    for &descriptor in descriptors {
        // SAFETY: the borrow ends with this call, which clears the list. The worker lists only
        // descriptors that it holds open; were one closed, poll(2) would answer POLLNVAL.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        scratch.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // However it ends, the loop checks for work.
    let _ = poll(scratch, timeout.as_ref());
    scratch.clear();
}
