//! Waking of a reactor that may be asleep.
//!
//! The word works like a parking token. The thread that brings work publishes it first and then
//! rings; ringing leaves a note, and writes to the eventfd only if it finds the reactor asleep. The
//! reactor goes to sleep only by replacing "awake" with "asleep", which fails if a note was left
//! since it last cleared one, and it clears notes *before* it checks for work. So work that is
//! published before a ring is seen either by the turn after the note, or by the wake-up.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const NOTED: u32 = 2;

/// Wakes a reactor. Clones wake the same one; the call is cheap while the reactor is awake.
#[derive(Clone, Debug)]
pub struct Alarm {
    shared: Arc<AlarmState>,
}

#[derive(Debug)]
struct AlarmState {
    state: AtomicU32,
    descriptor: OwnedFd,
}

impl Alarm {
    /// An alarm of a reactor that is awake.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            shared: Arc::new(AlarmState {
                state: AtomicU32::new(AWAKE),
                descriptor,
            }),
        })
    }

    /// Makes the reactor check for work that the caller has just published. From any thread.
    pub fn ring(&self) {
        self.shared.ring();
    }

    /// A waker that calls [`Alarm::ring`].
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.shared))
    }

    /// Readable when a sleeping reactor was rung.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.shared.descriptor.as_raw_fd()
    }

    /// Declares the reactor asleep. False if it was rung since the last call of
    /// [`Alarm::awake`]: then it must check for work once more.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.shared
            .state
            .compare_exchange(AWAKE, ASLEEP, SeqCst, SeqCst)
            .is_ok()
    }

    /// Clears notes; work published before them is visible to the caller from here on.
    pub(crate) fn awake(&self) {
        self.shared.state.swap(AWAKE, SeqCst);
    }

    /// Makes the descriptor unreadable, after a sleep. A late ring of that sleep may make it
    /// readable again, which only ends the next sleep at once.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.descriptor, &mut count);
    }
}

impl AlarmState {
    fn ring(&self) {
        // An existing note covers this ring too: it is cleared before the reactor checks for work,
        // and our publication comes before that in the total order of SeqCst.
        if self.state.load(SeqCst) != NOTED && self.state.swap(NOTED, SeqCst) == ASLEEP {
            // Fails only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }
}

impl Wake for AlarmState {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::Alarm;

    fn readable(alarm: &Alarm) -> bool {
        let mut descriptors = [rustix::event::PollFd::new(
            &alarm.shared.descriptor,
            rustix::event::PollFlags::IN,
        )];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut descriptors, Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_ring_while_awake_only_prevents_the_next_sleep() {
        let alarm = Alarm::new().unwrap();
        alarm.ring();
        alarm.ring();
        assert!(!readable(&alarm));
        assert!(!alarm.fall_asleep());
        alarm.awake();
        assert!(alarm.fall_asleep());
    }

    #[test]
    fn a_ring_while_asleep_pokes_once_and_is_cleared() {
        let alarm = Alarm::new().unwrap();
        assert!(alarm.fall_asleep());
        assert!(!readable(&alarm));
        alarm.waker().wake();
        assert!(readable(&alarm));
        alarm.awake();
        alarm.clear();
        assert!(!readable(&alarm));
        assert!(alarm.fall_asleep());
    }
}
