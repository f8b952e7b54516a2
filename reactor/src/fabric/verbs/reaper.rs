//! Communication with the control thread: handles to destroy, and its notices.
//!
//! Destroying a queue pair or a registration is a system call that may take milliseconds, so
//! reactors send the handles to the control thread. A notice reports completion; only then may
//! memory that the device could have accessed be reused.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(test)]
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::device::Device;

/// A descriptor that is readable after a ring.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self(descriptor)))
    }

    pub(super) fn ring(&self) {
        // Fails only if the counter is full, and then the descriptor is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A notice of the control thread to a provider.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The object sent with this token is destroyed.
    Destroyed(u64),
    /// A queue pair is in error without a completion with the reason. All providers are notified;
    /// its owner ends its connection.
    QueuePairFailed {
        /// The device, while it exists.
        device: Weak<Device>,
        /// The queue pair's number on it.
        number: u32,
        /// The library's text.
        reason: &'static str,
    },
    /// A device was removed ([`Device::is_gone`]), or one was added.
    DevicesChanged,
}

/// A command of a reactor to the control thread.
pub(super) enum Command {
    /// Drop this, and report it.
    Destroy {
        remains: Box<dyn Send>,
        token: u64,
        to: Recipient,
    },
    /// Notify this recipient of general events.
    Tell(Recipient),
    /// The last user is gone.
    Stop,
}

/// The destination of one provider's notices.
#[derive(Clone)]
pub(super) struct Recipient {
    notices: Sender<Notice>,
    bell: Arc<Bell>,
}

impl Recipient {
    /// Returns the notice if there is no space now. A dropped provider needs none.
    fn tell(&self, notice: Notice) -> Result<(), Notice> {
        match self.notices.try_send(notice) {
            Err(TrySendError::Full(notice)) => Err(notice),
            Err(TrySendError::Disconnected(_)) => Ok(()),
            Ok(()) => {
                self.bell.ring();
                Ok(())
            }
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bell, &other.bell)
    }
}

/// The channel to the control thread. It outlives the thread, and then drops what is sent.
#[derive(Clone)]
pub(super) struct ControlThreadSender {
    commands: Sender<Command>,
    bell: Arc<Bell>,
}

impl ControlThreadSender {
    /// A channel and its receiver. It is unbounded: it holds existing handles, each at most once.
    pub(super) fn new() -> io::Result<(Self, Receiver<Command>, Arc<Bell>)> {
        let (commands, receiver) = crossbeam_channel::unbounded();
        let bell = Bell::new()?;
        let line = Self {
            commands,
            bell: Arc::clone(&bell),
        };
        Ok((line, receiver, bell))
    }

    pub(super) fn send(&self, command: Command) {
        // Without the thread the command is dropped here, with its content.
        if self.commands.send(command).is_ok() {
            self.bell.ring();
        }
    }
}

/// One provider's connection to the control thread.
pub struct Reaper {
    line: ControlThreadSender,
    me: Recipient,
    notices: Receiver<Notice>,
}

impl Reaper {
    /// With space for `room` unread notices.
    pub(super) fn new(line: &ControlThreadSender, room: usize) -> io::Result<Self> {
        let (sender, notices) = crossbeam_channel::bounded(room.max(1));
        let me = Recipient {
            notices: sender,
            bell: Bell::new()?,
        };
        line.send(Command::Tell(me.clone()));
        Ok(Self {
            line: line.clone(),
            me,
            notices,
        })
    }

    /// Drops `remains` on the control thread (fields of a tuple or structure in order);
    /// [`Notice::Destroyed`] with the token reports completion.
    pub fn destroy(&self, remains: Box<dyn Send>, token: u64) {
        self.line.send(Command::Destroy {
            remains,
            token,
            to: self.me.clone(),
        });
    }

    /// The next notice. Takes no lock.
    pub fn notice(&self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }

    /// Readable when there are notices, until [`Reaper::clear`].
    #[cfg(test)]
    pub fn descriptor(&self) -> RawFd {
        self.me.bell.as_fd().as_raw_fd()
    }

    /// Waits for a notice, with a timeout, and clears.
    pub fn wait(&self, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).ok();
        let mut descriptors = [PollFd::new(&self.me.bell, PollFlags::IN)];
        // However it ends, the caller checks again.
        let _ = poll(&mut descriptors, timeout.as_ref());
        self.clear();
    }

    /// Makes the descriptor unreadable. To be called before notices are taken.
    pub fn clear(&self) {
        self.me.bell.clear();
    }
}

/// Readable when there are notices, until [`Reaper::clear`].
impl AsFd for Reaper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.me.bell.as_fd()
    }
}

/// The control thread's notices that wait for space, in order.
#[derive(Default)]
pub(super) struct Outbox {
    recipients: Vec<Recipient>,
    waiting: VecDeque<(Recipient, Notice)>,
}

impl Outbox {
    /// Adds a recipient of general events.
    pub(super) fn add(&mut self, recipient: Recipient) {
        // The only other reference is gone: its provider is dropped.
        self.recipients
            .retain(|known| Arc::strong_count(&known.bell) > 1);
        self.recipients.push(recipient);
    }

    /// Notifies one provider, now or when it has space.
    pub(super) fn tell(&mut self, to: &Recipient, notice: Notice) {
        // Not before earlier waiting ones.
        let is_first = !self.waiting.iter().any(|(other, _)| other.is(to));
        let left = if is_first {
            to.tell(notice).err()
        } else {
            Some(notice)
        };
        self.waiting.extend(left.map(|notice| (to.clone(), notice)));
    }

    /// Notifies all providers with space. The others detect the change in other ways: they check
    /// their devices, and their connections' completions.
    pub(super) fn tell_all(&self, notice: &Notice) {
        for recipient in &self.recipients {
            let _ = recipient.tell(notice.clone());
        }
    }

    /// Retries waiting notices.
    pub(super) fn retry(&mut self) {
        for (to, notice) in std::mem::take(&mut self.waiting) {
            self.tell(&to, notice);
        }
    }

    /// Whether notices wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(bell: &impl AsFd) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut descriptors = [PollFd::new(bell, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&now)).unwrap() == 1
    }

    fn tokens(reaper: &Reaper) -> Vec<u64> {
        let notices = std::iter::from_fn(|| reaper.notice());
        let tokens = notices.map(|notice| match notice {
            Notice::Destroyed(token) => token,
            other => panic!("{other:?}"),
        });
        tokens.collect()
    }

    fn recipient(commands: &Receiver<Command>) -> Recipient {
        match commands.try_recv() {
            Ok(Command::Tell(recipient)) => recipient,
            _ => panic!("each provider makes itself known"),
        }
    }

    #[test]
    fn a_request_rings_there_and_its_note_rings_here() {
        let (line, commands, bell) = ControlThreadSender::new().unwrap();
        let reaper = Reaper::new(&line, 4).unwrap();
        recipient(&commands);
        bell.clear();
        assert!(!rung(&*bell) && !rung(&*reaper.me.bell));
        let handle = Arc::new(());
        reaper.destroy(Box::new(Arc::clone(&handle)), 7);
        assert!(rung(&*bell));
        let Ok(Command::Destroy { remains, token, to }) = commands.try_recv() else {
            panic!("sent");
        };
        drop(remains);
        assert_eq!(Arc::strong_count(&handle), 1);
        let mut outbox = Outbox::default();
        outbox.tell(&to, Notice::Destroyed(token));
        assert!(rung(&*reaper.me.bell));
        reaper.clear();
        assert!(!rung(&*reaper.me.bell));
        assert_eq!(tokens(&reaper), [7]);
    }

    #[test]
    fn notes_wait_for_room_in_their_order() {
        let (line, commands, _bell) = ControlThreadSender::new().unwrap();
        let slow = Reaper::new(&line, 2).unwrap();
        let quick = Reaper::new(&line, 10).unwrap();
        let (to_slow, to_quick) = (recipient(&commands), recipient(&commands));
        let mut outbox = Outbox::default();
        for token in 0..5 {
            outbox.tell(&to_slow, Notice::Destroyed(token));
            outbox.tell(&to_quick, Notice::Destroyed(token));
        }
        assert_eq!(tokens(&quick), [0, 1, 2, 3, 4]);
        let mut seen = Vec::new();
        while outbox.is_waiting() {
            let found = tokens(&slow);
            assert!(found.len() <= 2);
            seen.extend(found);
            outbox.retry();
        }
        seen.extend(tokens(&slow));
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_provider_that_is_gone_keeps_nobody_waiting() {
        let (line, commands, _bell) = ControlThreadSender::new().unwrap();
        let gone = Reaper::new(&line, 1).unwrap();
        let mut outbox = Outbox::default();
        let to_gone = recipient(&commands);
        outbox.add(to_gone.clone());
        drop(gone);
        for token in 0..3 {
            outbox.tell(&to_gone, Notice::Destroyed(token));
        }
        assert!(!outbox.is_waiting());
        drop(to_gone);
        let stays = Reaper::new(&line, 1).unwrap();
        outbox.add(recipient(&commands));
        assert_eq!(outbox.recipients.len(), 1);
        outbox.tell_all(&Notice::DevicesChanged);
        assert!(matches!(stays.notice(), Some(Notice::DevicesChanged)));
    }

    #[test]
    fn without_the_thread_handles_are_dropped_at_once() {
        let (line, commands, _bell) = ControlThreadSender::new().unwrap();
        let reaper = Reaper::new(&line, 1).unwrap();
        drop(commands);
        let handle = Arc::new(());
        reaper.destroy(Box::new(Arc::clone(&handle)), 1);
        assert_eq!(Arc::strong_count(&handle), 1);
    }
}
