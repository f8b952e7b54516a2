//! Passing a connection's work to its device.

use arrayvec::ArrayVec;

use super::common::{Common, LIST_MAX};
use super::completion::{Queue, RequestName};
use super::connection::VerbsConnection;
use super::device::ReadSink;
use super::device_queues::DeviceQueues;
use super::exposures::Exposures;
use super::send_queue::{Handed, Hold, Work};
use super::sys::{PostFailed, Range, Region, SendKind, SendRequest};
use crate::fabric::{Ended, Operation, SLICES_MAX};

/// Local memory of one request, in the device's form.
type Ranges = ArrayVec<Range, SLICES_MAX>;

impl VerbsConnection {
    /// Passes all work that the device accepts now. Returns the amount of work done.
    pub(super) fn flush(&mut self, queues: &mut DeviceQueues, common: &mut Common) -> usize {
        let mut work = 0;
        if !self.course.is_ending() {
            work += self.flush_receives(queues, common);
        }
        if self.course.sends() {
            work += self.flush_sends(queues, common);
        }
        work
    }

    /// Passes receives.
    pub(super) fn flush_receives(
        &mut self,
        queues: &mut DeviceQueues,
        common: &mut Common,
    ) -> usize {
        let mut work = 0;
        while self.receive.has_waiting()
            && let Some(queue_pair) = &self.queue_pair
        {
            let first = self.name(Queue::Receive, 0);
            let (keys, list) = (&mut queues.keys, &mut common.receives);
            let count = self.receive.hand_over(LIST_MAX, |number, buffer| {
                let Some(key) = keys.local_key(buffer.region()) else {
                    return false;
                };
                list.push(
                    RequestName { number, ..first }.encode(),
                    Range::of_buffer(buffer, key),
                );
                true
            });
            if count == 0 {
                // The device does not have this memory.
                self.fail(Ended::Network(std::io::ErrorKind::Unsupported), common);
                break;
            }
            common.counters.receive_doorbells.add(1);
            // SAFETY: `self.receive` owns the buffers of the list. It releases one when the device
            // has completed it, and the rest in `end`, after the queue pair is destroyed.
            let posted = unsafe { queue_pair.post_receive(list) };
            if let Err(PostFailed { posted, error }) = posted {
                list.clear();
                self.receive.not_handed(count - posted);
                self.fail(Ended::Network(error.kind()), common);
                break;
            }
            work += count;
        }
        work
    }

    fn flush_sends(&mut self, queues: &mut DeviceQueues, common: &mut Common) -> usize {
        let mut work = 0;
        loop {
            let Some(queue_pair) = &self.queue_pair else {
                return work;
            };
            let first = self.send.next();
            let name = self.name(Queue::Send, 0);
            let mut hands = Hands {
                name,
                inline_max: u64::from(queue_pair.inline_max()),
                exposures: &self.exposures,
                sinks: &mut self.sinks,
                queues: &mut *queues,
                common: &mut *common,
            };
            let (count, hold) = self.send.hand_over(LIST_MAX, |handed| hands.push(&handed));
            let is_broken = self.send.is_broken();
            if count > 0 && !is_broken {
                common.counters.send_doorbells.add(1);
                // SAFETY: `self.send` owns the slices of the list, and `self.sinks` the regions of
                // its Reads, until the device has completed them or the queue pair is destroyed; a
                // slice gives no references to its bytes. Windows and regions of bindings belong to
                // `self.exposures`, which has not changed since they were put in the list.
                let posted = unsafe { queue_pair.post_send(&mut common.sends) };
                if let Err(PostFailed { posted, error }) = posted {
                    common.sends.clear();
                    self.send.not_handed(first + posted as u64);
                    self.fail(Ended::Network(error.kind()), common);
                    return work;
                }
                work += count;
            }
            if is_broken {
                // Nothing of the list was passed.
                common.sends.clear();
                self.send.not_handed(first);
                self.fail(Ended::Network(std::io::ErrorKind::Unsupported), common);
                return work;
            }
            let is_held = hold == Hold::Room && count < LIST_MAX;
            if is_held && !self.is_held {
                common.counters.send_queue_waits.add(1);
            }
            self.is_held = is_held;
            if count < LIST_MAX {
                return work;
            }
        }
    }
}

/// The resources for adding device requests to a list.
struct Hands<'a> {
    name: RequestName,
    inline_max: u64,
    exposures: &'a Exposures,
    sinks: &'a mut std::collections::VecDeque<(u64, Region)>,
    queues: &'a mut DeviceQueues,
    common: &'a mut Common,
}

impl Hands<'_> {
    /// Adds one request to the list. False if the device does not have its memory.
    fn push(&mut self, handed: &Handed<'_>) -> bool {
        let mut solicited = false;
        let at = |remote: &crate::fabric::RemoteAddress| {
            (remote.key.0, remote.offset.wrapping_add(handed.skipped))
        };
        let kind = match handed.work {
            Work::Request { operation, .. } => match operation {
                Operation::Send {
                    invalidate,
                    solicited: wakes,
                } => {
                    solicited = *wakes;
                    match invalidate {
                        Some(key) => SendKind::SendInvalidate(key.0),
                        None => SendKind::Send,
                    }
                }
                Operation::Write(remote) => {
                    let (key, address) = at(remote);
                    SendKind::Write { key, address }
                }
                Operation::Read(remote) => {
                    let (key, address) = at(remote);
                    SendKind::Read { key, address }
                }
                // The send queue handles these itself.
                Operation::ReadMore => return false,
            },
            Work::Bind(slot) => match self.exposures.binding(*slot) {
                Some(kind) => kind,
                None => return false,
            },
            Work::Invalidate(slot) => match self.exposures.ending(*slot) {
                Some(kind) => kind,
                None => return false,
            },
        };
        let is_read = matches!(kind, SendKind::Read { .. });
        let Some((ranges, bytes)) = self.ranges(handed, is_read) else {
            return false;
        };
        let carries = matches!(
            kind,
            SendKind::Send | SendKind::SendInvalidate(_) | SendKind::Write { .. }
        );
        let inline = carries && bytes > 0 && bytes <= self.inline_max;
        if inline {
            self.common.counters.inlined.add(1);
        }
        let name = RequestName {
            number: handed.number,
            ..self.name
        };
        let request = SendRequest {
            id: name.encode(),
            kind,
            signalled: handed.signalled,
            inline,
            solicited,
            fence: false,
        };
        self.common.sends.push(request, ranges);
        true
    }

    /// The memory of a request, and its length.
    fn ranges(&mut self, handed: &Handed<'_>, is_read: bool) -> Option<(Ranges, u64)> {
        let mut ranges = Ranges::new();
        let mut bytes = 0;
        for slice in handed.local.iter().filter(|slice| !slice.is_empty()) {
            let key = if is_read && self.queues.sink == ReadSink::PerRead {
                let region = self.queues.device.register_sink(slice).ok()?;
                self.common.counters.registrations.add(1);
                let key = region.local_key();
                self.sinks.push_back((handed.number + 1, region));
                key
            } else {
                self.queues.keys.local_key(slice.region())?
            };
            bytes += slice.len() as u64;
            ranges.push(Range::of_slice(slice, key));
        }
        Some((ranges, bytes))
    }
}

impl DeviceQueues {
    /// Passes receives of the shared queue. Returns the amount of work done.
    pub(super) fn flush_shared(&mut self, common: &mut Common) -> usize {
        let Some(shared) = &mut self.shared else {
            return 0;
        };
        let mut work = 0;
        while shared.has_waiting() {
            let (keys, list) = (&mut self.keys, &mut common.receives);
            let count = shared.hand_over(LIST_MAX, |number, buffer| {
                let Some(key) = keys.local_key(buffer.region()) else {
                    return false;
                };
                let name = RequestName {
                    queue: Queue::Shared,
                    slot: 0,
                    generation: 0,
                    number,
                };
                list.push(name.encode(), Range::of_buffer(buffer, key));
                true
            });
            if count == 0 {
                break;
            }
            common.counters.receive_doorbells.add(1);
            // SAFETY: `shared` owns the buffers of the list. It releases one when the device has
            // completed it, and the rest when the device queues are taken apart: the provider keeps
            // them until the control thread has destroyed the queue.
            if unsafe { shared.queue().post(list) }.is_err() {
                // Only a broken device refuses: its connections end by their own events.
                list.clear();
                break;
            }
            work += count;
        }
        work
    }
}
