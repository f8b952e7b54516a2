//! Making segments of posted work and of the answers to the peer's Reads.
//!
//! One message is sent to its end before the next begins. Between messages, answers and own work
//! take turns: a burst of answers, then one message of the own send queue.

use std::ops::ControlFlow;

use crate::endpoint::{Endpoint, OpenRead, Stop};
use crate::header::{
    Model, Opcode, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE, READ_REQUEST_BYTES, ReadRequest,
    Segment, TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged,
};
use crate::memory::Memory;
use crate::mpa::RtrKind;
use crate::outbound::{Finished, Part, Payload, Source, Staging};
use crate::terminate::TERMINATE_BYTES_MAX;
use crate::work::{Operation, WorkFault, WorkId};

/// Answers in a row while own work waits.
const RESPONSES_IN_ROW_MAX: u32 = 4;
/// Bytes on their way at which no more are staged: enough to fill any socket buffer.
const STAGED_BYTES_MAX: u64 = 4 << 20;

/// A piece of the data to send.
#[derive(Debug)]
pub enum Chunk<'a, L> {
    /// Bytes of the stream itself.
    Bytes(&'a [u8]),
    /// Bytes of registered memory.
    Memory {
        /// The memory.
        local: &'a L,
        /// First byte.
        offset: usize,
        /// Bytes from there.
        length: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Nothing,
    Work,
    Response,
}

/// The progress of sending.
#[derive(Debug)]
pub(super) struct Sending {
    current: Current,
    /// Payload bytes of the current message that are staged.
    progress: u32,
    /// Answers, counted from the front, that are staged to their end.
    responses_staged: usize,
    responses_in_row: u32,
    send_sequence: u32,
    read_sequence: u32,
    closed: bool,
}

impl Sending {
    pub(super) const fn new() -> Self {
        Self {
            current: Current::Nothing,
            progress: 0,
            responses_staged: 0,
            responses_in_row: 0,
            send_sequence: 1,
            read_sequence: 1,
            closed: false,
        }
    }
}

impl<M: Memory> Endpoint<M> {
    /// Whether there is something to send, and no storage for it: [`Self::lend`] some.
    pub fn wants_staging(&mut self) -> bool {
        !self.outbound.has_staging() && self.has_something()
    }

    /// Lends storage for bytes on their way.
    pub fn lend(&mut self, staging: Staging) {
        self.outbound.lend(staging);
    }

    /// Takes the storage back, if no bytes are on their way.
    pub fn reclaim(&mut self) -> Option<Staging> {
        self.outbound.reclaim()
    }

    /// Stages as many segments as there is work and room for.
    pub fn stage(&mut self) {
        while self.outbound.has_room()
            && self.outbound.bytes_left() < STAGED_BYTES_MAX
            && self.stage_one()
        {
            self.counters.frames_out += 1;
        }
    }

    /// Bytes that are staged and not yet accepted.
    #[must_use]
    pub fn bytes_staged(&self) -> u64 {
        self.outbound.bytes_left()
    }

    /// Passes the data to send to `take`, in order, until it breaks.
    pub fn gather<'a>(&'a self, mut take: impl FnMut(Chunk<'a, M::Local>) -> ControlFlow<()>) {
        for part in self.outbound.parts() {
            let chunk = match part {
                Part::Bytes { start, length } => Chunk::Bytes(self.outbound.bytes(start, length)),
                Part::Memory {
                    source,
                    offset,
                    length,
                } => {
                    let local = match source {
                        Source::Work(work) => self.works.get(work).map(|work| &work.local),
                        Source::Exposure(slot) => self.keys.memory(slot),
                    };
                    let Some(local) = local else { return };
                    Chunk::Memory {
                        local,
                        offset,
                        length,
                    }
                }
            };
            if take(chunk).is_break() {
                return;
            }
        }
    }

    /// The first `count` bytes of what [`Self::gather`] showed were accepted by the network.
    pub fn accepted(&mut self, count: usize) {
        self.outbound.accept(count);
        let mut works_ended = false;
        while let Some(finished) = self.outbound.finished() {
            match finished {
                Finished::Work(work) => {
                    self.works.mark(work, Ok(()));
                    works_ended = true;
                }
                Finished::Response => {
                    self.sending.responses_staged -= 1;
                    let response = self.responses.pop_front();
                    if let Some(slot) = response.and_then(|response| response.source) {
                        self.keys.close_read(slot);
                    }
                }
                Finished::Indication => {
                    if let Some(parameters) = &mut self.parameters {
                        parameters.gate.indication_sent();
                    }
                }
                Finished::Terminate => self.terminate_sent = true,
            }
        }
        if works_ended {
            self.works.reap();
        }
    }

    fn has_something(&mut self) -> bool {
        if self.sending.closed {
            return false;
        }
        if self.stop.is_some() {
            return self.terminate.is_some();
        }
        let Some(parameters) = &self.parameters else {
            return false;
        };
        if !parameters.gate.is_open() {
            return parameters.gate.to_send().is_some();
        }
        self.sending.current != Current::Nothing || self.choose() != Current::Nothing
    }

    fn stage_one(&mut self) -> bool {
        match self.stop {
            _ if self.sending.closed => return false,
            Some(Stop::Fault(_)) => return self.stage_terminate(),
            Some(Stop::Terminated(_)) => return false,
            None => {}
        }
        let Some(parameters) = &self.parameters else {
            return false;
        };
        if !parameters.gate.is_open() {
            let indication = parameters.gate.to_send();
            let due = indication.filter(|_| self.outbound.bytes_left() == 0);
            if let Some(kind) = due {
                self.stage_indication(kind);
            }
            return due.is_some();
        }
        if self.sending.current == Current::Nothing {
            self.sending.current = self.choose();
        }
        match self.sending.current {
            Current::Nothing => false,
            Current::Work => self.stage_work(),
            Current::Response => self.stage_response(),
        }
    }

    fn choose(&mut self) -> Current {
        let response = self.responses.len() > self.sending.responses_staged;
        if response && self.sending.responses_in_row < RESPONSES_IN_ROW_MAX {
            return Current::Response;
        }
        if self.work_is_ready() {
            return Current::Work;
        }
        if response {
            Current::Response
        } else {
            Current::Nothing
        }
    }

    /// Whether the next work request may go. Reads beyond the outbound depth wait, and all behind
    /// them; where there are to be no Reads at all, they end at once (RFC 6581 section 9.1).
    fn work_is_ready(&mut self) -> bool {
        while let Some((id, work)) = self.works.next() {
            let operation = work.operation;
            if let Operation::Send { .. } | Operation::Write { .. } = operation {
                return true;
            }
            let allowed = self.parameters.as_ref().map_or(0, |parameters| {
                usize::from(parameters.ord.min(self.reads_most))
            });
            let fault = match operation {
                Operation::Read { .. } | Operation::ReadMore if allowed == 0 => WorkFault::NoReads,
                Operation::Read { .. } if self.reads.len() >= allowed => return false,
                Operation::Read { .. } if self.works.whole_read(id).is_some() => return true,
                _ => WorkFault::Length,
            };
            self.works.step();
            self.works.finish(id, Err(fault));
        }
        false
    }

    fn stage_work(&mut self) -> bool {
        let most = self
            .parameters
            .as_ref()
            .map_or(0, |parameters| parameters.ulpdu);
        let progress = self.sending.progress;
        let Some((id, work)) = self.works.next() else {
            return false;
        };
        let (opcode, model, room) = match work.operation {
            Operation::Send {
                invalidate,
                solicited,
            } => {
                let opcode = match (invalidate, solicited) {
                    (None, false) => Opcode::Send,
                    (None, true) => Opcode::SendSolicited,
                    (Some(_), false) => Opcode::SendInvalidate,
                    (Some(_), true) => Opcode::SendSolicitedInvalidate,
                };
                let untagged = Untagged {
                    invalidate: invalidate.unwrap_or(0),
                    queue: QUEUE_SEND,
                    sequence: self.sending.send_sequence,
                    offset: progress,
                };
                (opcode, Model::Untagged(untagged), most - UNTAGGED_BYTES)
            }
            Operation::Write { key, offset } => {
                let offset = offset.wrapping_add(u64::from(progress));
                (
                    Opcode::Write,
                    Model::Tagged(Tagged { key, offset }),
                    most - TAGGED_BYTES,
                )
            }
            Operation::Read { key, offset, sink } => {
                let Some(whole) = self.works.whole_read(id) else {
                    return false;
                };
                let request = ReadRequest {
                    sink_key: sink,
                    sink_offset: 0,
                    length: whole.length,
                    source_key: key,
                    source_offset: offset,
                };
                self.works.step_over(whole.works);
                self.stage_read_request(&request, Some((id, whole.works)), None);
                self.message_ends();
                return true;
            }
            // The Read before it has passed it, or it has failed.
            Operation::ReadMore => return false,
        };
        let left = work.length - progress;
        let length = left.min(u32::try_from(room).unwrap_or(u32::MAX));
        let last = length == left;
        let mut header = [0; UNTAGGED_BYTES];
        let header_length = Segment {
            last,
            opcode,
            model,
        }
        .encode(&mut header);
        let payload = (length > 0).then_some(Payload {
            source: Source::Work(id),
            local: &work.local,
            offset: progress as usize,
            length: length as usize,
        });
        let finished = last.then_some(Finished::Work(id));
        self.outbound
            .fpdu::<M>(&header[..header_length], payload, finished);
        self.sending.progress += length;
        if last {
            self.works.step();
            if opcode != Opcode::Write {
                self.sending.send_sequence = self.sending.send_sequence.wrapping_add(1);
            }
            self.message_ends();
        }
        true
    }

    fn stage_response(&mut self) -> bool {
        let most = self
            .parameters
            .as_ref()
            .map_or(0, |parameters| parameters.ulpdu);
        let progress = self.sending.progress;
        let Some(response) = self.responses.get(self.sending.responses_staged) else {
            return false;
        };
        let left = response.length - progress;
        let length = left.min(u32::try_from(most - TAGGED_BYTES).unwrap_or(u32::MAX));
        let last = length == left;
        let offset = response.sink_offset.wrapping_add(u64::from(progress));
        let model = Model::Tagged(Tagged {
            key: response.sink,
            offset,
        });
        let mut header = [0; TAGGED_BYTES];
        Segment {
            last,
            opcode: Opcode::ReadResponse,
            model,
        }
        .encode(&mut header);
        let payload = response.source.and_then(|slot| {
            Some(Payload {
                source: Source::Exposure(slot),
                local: self.keys.memory(slot)?,
                offset: usize::try_from(response.source_offset).ok()? + progress as usize,
                length: length as usize,
            })
        });
        self.outbound
            .fpdu::<M>(&header, payload, last.then_some(Finished::Response));
        self.sending.progress += length;
        if last {
            self.sending.responses_staged += 1;
            self.message_ends();
        }
        true
    }

    fn message_ends(&mut self) {
        if self.sending.current == Current::Response {
            self.sending.responses_in_row += 1;
        } else {
            self.sending.responses_in_row = 0;
        }
        self.sending.current = Current::Nothing;
        self.sending.progress = 0;
    }

    fn stage_read_request(
        &mut self,
        request: &ReadRequest,
        work: Option<(WorkId, u32)>,
        finished: Option<Finished>,
    ) {
        let sequence = self.sending.read_sequence;
        self.sending.read_sequence = sequence.wrapping_add(1);
        let untagged = Untagged {
            invalidate: 0,
            queue: QUEUE_READ,
            sequence,
            offset: 0,
        };
        let segment = Segment {
            last: true,
            opcode: Opcode::ReadRequest,
            model: Model::Untagged(untagged),
        };
        let mut header = [0; UNTAGGED_BYTES + READ_REQUEST_BYTES];
        let length = segment.encode(&mut header);
        header[length..].copy_from_slice(&request.encode());
        self.reads.push_back(OpenRead {
            work: work.map(|(first, _)| first),
            works: work.map_or(0, |(_, works)| works),
            sink: request.sink_key,
            length: request.length,
            received: 0,
            current: 0,
            current_start: 0,
        });
        self.outbound.fpdu::<M>(&header, None, finished);
    }

    /// The ready-to-receive indication (RFC 6581 section 9.2): a message of no bytes.
    fn stage_indication(&mut self, kind: RtrKind) {
        let finished = Some(Finished::Indication);
        let (opcode, model) = match kind {
            RtrKind::Send => {
                let sequence = self.sending.send_sequence;
                self.sending.send_sequence = sequence.wrapping_add(1);
                let untagged = Untagged {
                    invalidate: 0,
                    queue: QUEUE_SEND,
                    sequence,
                    offset: 0,
                };
                (Opcode::Send, Model::Untagged(untagged))
            }
            RtrKind::Write => (Opcode::Write, Model::Tagged(Tagged { key: 0, offset: 0 })),
            RtrKind::Read => {
                let request = ReadRequest {
                    sink_key: 0,
                    sink_offset: 0,
                    length: 0,
                    source_key: 0,
                    source_offset: 0,
                };
                self.stage_read_request(&request, None, finished);
                return;
            }
        };
        let mut header = [0; UNTAGGED_BYTES];
        let length = Segment {
            last: true,
            opcode,
            model,
        }
        .encode(&mut header);
        self.outbound.fpdu::<M>(&header[..length], None, finished);
    }

    /// The last FPDU of all (RFC 5040 section 5.4).
    fn stage_terminate(&mut self) -> bool {
        let Some(terminate) = self.terminate.take() else {
            return false;
        };
        self.sending.closed = true;
        let untagged = Untagged {
            invalidate: 0,
            queue: QUEUE_TERMINATE,
            sequence: 1,
            offset: 0,
        };
        let segment = Segment {
            last: true,
            opcode: Opcode::Terminate,
            model: Model::Untagged(untagged),
        };
        let mut header = [0; UNTAGGED_BYTES + TERMINATE_BYTES_MAX];
        let ddp = segment.encode(&mut header);
        let end = ddp + terminate.as_bytes().len();
        header[ddp..end].copy_from_slice(terminate.as_bytes());
        self.outbound
            .fpdu::<M>(&header[..end], None, Some(Finished::Terminate));
        true
    }
}
