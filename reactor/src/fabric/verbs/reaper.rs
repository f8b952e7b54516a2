//! Talking to the control thread: what is to be destroyed there, and what it tells.
//!
//! Destroying a queue pair or a registration is a system call that may take milliseconds, so
//! reactors send their handles away. The note that it is done comes back, for only then may the
//! memory that the device could have touched be used for something else.

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

/// What the control thread tells a provider.
#[derive(Clone, Debug)]
pub enum Notice {
    /// What was sent with this token is destroyed.
    Destroyed(u64),
    /// A queue pair is in error for a reason that no completion tells. All providers are told;
    /// the one that owns it ends its connection.
    QueuePairFailed {
        /// The device, as long as it is there.
        device: Weak<Device>,
        /// The queue pair's number on it.
        number: u32,
        /// The library's words.
        reason: &'static str,
    },
    /// A device is gone ([`Device::is_gone`]), or one has come.
    DevicesChanged,
}

/// What reactors ask of the control thread.
pub(super) enum Command {
    /// Drop this, and say so.
    Destroy {
        remains: Box<dyn Send>,
        token: u64,
        to: Recipient,
    },
    /// Tell this one of all that concerns everybody.
    Tell(Recipient),
    /// The last user is gone.
    Stop,
}

/// Where notices of one provider go.
#[derive(Clone)]
pub(super) struct Recipient {
    notices: Sender<Notice>,
    bell: Arc<Bell>,
}

impl Recipient {
    /// Gives the notice back if there is no room now. A provider that is gone needs none.
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

/// The line to the control thread. It outlasts the thread, and then drops what it is given.
#[derive(Clone)]
pub(super) struct ControlThreadSender {
    commands: Sender<Command>,
    bell: Arc<Bell>,
}

impl ControlThreadSender {
    /// A line, and its other end. It has no bound of its own: what it holds are handles that exist
    /// anyway, each at most once.
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
        // Without the thread the command is dropped here, and what it holds with it.
        if self.commands.send(command).is_ok() {
            self.bell.ring();
        }
    }
}

/// One provider's door to the control thread.
pub struct Reaper {
    line: ControlThreadSender,
    me: Recipient,
    notices: Receiver<Notice>,
}

impl Reaper {
    /// A door with room for `room` notices that were not taken yet.
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

    /// Drops `remains` on the control thread (a tuple's or structure's fields in their order);
    /// [`Notice::Destroyed`] with the token says when that is done.
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

    /// Waits for a notice, at most so long, and clears.
    pub fn wait(&self, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).ok();
        let mut descriptors = [PollFd::new(&self.me.bell, PollFlags::IN)];
        // However it ends, the caller looks again.
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

/// The control thread's notices that wait for room, in order.
#[derive(Default)]
pub(super) struct Outbox {
    recipients: Vec<Recipient>,
    waiting: VecDeque<(Recipient, Notice)>,
}

impl Outbox {
    /// Tells this one of all that concerns everybody, from here on.
    pub(super) fn add(&mut self, recipient: Recipient) {
        // Ourselves alone: its provider is gone.
        self.recipients
            .retain(|known| Arc::strong_count(&known.bell) > 1);
        self.recipients.push(recipient);
    }

    /// Tells one provider, now or when it has room.
    pub(super) fn tell(&mut self, to: &Recipient, notice: Notice) {
        // Not past what waits already.
        let is_first = !self.waiting.iter().any(|(other, _)| other.is(to));
        let left = if is_first {
            to.tell(notice).err()
        } else {
            Some(notice)
        };
        self.waiting.extend(left.map(|notice| (to.clone(), notice)));
    }

    /// Tells all providers that have room. The others find it out by other ways: they look at
    /// their devices, and at their connections' completions.
    pub(super) fn tell_all(&self, notice: &Notice) {
        for recipient in &self.recipients {
            let _ = recipient.tell(notice.clone());
        }
    }

    /// Tries again what had no room.
    pub(super) fn retry(&mut self) {
        for (to, notice) in std::mem::take(&mut self.waiting) {
            self.tell(&to, notice);
        }
    }

    /// Whether something had no room.
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
