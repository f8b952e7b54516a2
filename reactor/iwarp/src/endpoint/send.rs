//! Making segments of posted work and of the answers to the peer's Reads.
//!
//! One message is sent to its end before the next begins. Between messages, answers and own work
//! take turns: a burst of answers, then one message of the own send queue.

use std::ops::ControlFlow;

use crate::endpoint::{Endpoint, OpenRead, Stop};
use crate::header::{
    Opcode, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE, READ_REQUEST_BYTES, ReadRequest, TAGGED_BYTES,
    Tagged, UNTAGGED_BYTES, Untagged,
};
use crate::memory::Memory;
use crate::mpa::RtrKind;
use crate::outbound::{Payload, Piece, Source, Staging};
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
    /// Stream positions behind the ready-to-receive indication, and the Terminate message, once
    /// they are staged.
    indication_end: Option<u64>,
    terminate_end: Option<u64>,
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
            indication_end: None,
            terminate_end: None,
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
        if self.sending.closed || !self.outbound.has_room() {
            return;
        }
        let Some(parameters) = &self.parameters else {
            return;
        };
        let (ulpdu, gate) = (parameters.ulpdu, &parameters.gate);
        match self.stop {
            Some(Stop::Fault(_)) => self.stage_terminate(),
            Some(Stop::Terminated(_)) => {}
            None if !gate.is_open() => {
                if let Some(kind) = gate.to_send()
                    && self.outbound.bytes_left() == 0
                {
                    self.stage_indication(kind);
                }
            }
            None => {
                while self.outbound.has_room()
                    && self.outbound.bytes_left() < STAGED_BYTES_MAX
                    && self.stage_one(ulpdu)
                {
                    self.counters.frames_out += 1;
                }
            }
        }
    }

    /// Bytes that are staged and not yet accepted.
    #[must_use]
    pub fn bytes_staged(&self) -> u64 {
        self.outbound.bytes_left()
    }

    /// Passes the data to send to `take`, in order, until it breaks.
    pub fn gather<'a>(&'a self, mut take: impl FnMut(Chunk<'a, M::Local>) -> ControlFlow<()>) {
        self.outbound.pieces(|piece| match piece {
            Piece::Bytes(bytes) => take(Chunk::Bytes(bytes)),
            Piece::Memory {
                source,
                offset,
                length,
            } => {
                let local = match source {
                    Source::Work(work) => self.works.get(work).map(|work| &work.local),
                    Source::Exposure(slot) => self.keys.memory(slot),
                };
                let Some(local) = local else {
                    return ControlFlow::Break(());
                };
                take(Chunk::Memory {
                    local,
                    offset,
                    length,
                })
            }
        });
    }

    /// The first `count` bytes of what [`Self::gather`] showed were accepted by the network.
    pub fn accepted(&mut self, count: usize) {
        let position = self.outbound.accept(count);
        self.works.accepted(position);
        while self.sending.responses_staged > 0
            && let Some(response) = self.responses.pop_front_if(|front| front.end <= position)
        {
            self.sending.responses_staged -= 1;
            if let Some(slot) = response.source {
                self.keys.close_read(slot);
            }
        }
        let is_accepted = |end: &mut Option<u64>| end.take_if(|end| *end <= position).is_some();
        if is_accepted(&mut self.sending.indication_end)
            && let Some(parameters) = &mut self.parameters
        {
            parameters.gate.indication_sent();
        }
        self.terminate_sent |= is_accepted(&mut self.sending.terminate_end);
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

    #[inline]
    fn stage_one(&mut self, ulpdu: usize) -> bool {
        let mut current = self.sending.current;
        if current == Current::Nothing {
            current = self.choose();
            self.sending.current = current;
        }
        match current {
            Current::Nothing => false,
            Current::Work => self.stage_work(ulpdu),
            Current::Response => self.stage_response(ulpdu),
        }
    }

    #[inline]
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

    /// Whether the next work request may go.
    #[inline]
    fn work_is_ready(&mut self) -> bool {
        match self.works.next() {
            Some((_, work)) if !work.operation.is_read() => true,
            Some(_) => self.read_is_ready(),
            None => false,
        }
    }

    /// The same for a Read in front. Reads beyond the outbound depth wait, and all behind them;
    /// where there are to be no Reads at all, they end at once (RFC 6581 section 9.1).
    fn read_is_ready(&mut self) -> bool {
        while let Some((id, work)) = self.works.next() {
            let operation = work.operation;
            if !operation.is_read() {
                return true;
            }
            let allowed = self.parameters.as_ref().map_or(0, |parameters| {
                usize::from(parameters.ord.min(self.reads_most))
            });
            let fault = match operation {
                _ if allowed == 0 => WorkFault::NoReads,
                Operation::Read { .. } if self.reads.len() >= allowed => return false,
                Operation::Read { .. } if self.works.whole_read(id).is_some() => return true,
                _ => WorkFault::Length,
            };
            self.works.step_over(1, 0);
            self.works.finish(id, Err(fault));
        }
        false
    }

    fn stage_work(&mut self, ulpdu: usize) -> bool {
        let progress = self.sending.progress;
        let Some((id, work)) = self.works.next() else {
            return false;
        };
        let part = |header: usize| {
            let left = work.length - progress;
            let length = left.min(u32::try_from(ulpdu - header).unwrap_or(u32::MAX));
            let payload = (length > 0).then_some(Payload {
                source: Source::Work(id),
                local: &work.local,
                offset: progress as usize,
                length: length as usize,
            });
            (length, length == left, payload)
        };
        let (length, last) = match work.operation {
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
                let (length, last, payload) = part(UNTAGGED_BYTES);
                let header = untagged.encode(opcode, last);
                self.outbound.fpdu::<M>(&header, payload);
                self.sending.send_sequence = untagged.sequence.wrapping_add(u32::from(last));
                (length, last)
            }
            Operation::Write { key, offset } => {
                let offset = offset.wrapping_add(u64::from(progress));
                let (length, last, payload) = part(TAGGED_BYTES);
                let header = Tagged { key, offset }.encode(Opcode::Write, last);
                self.outbound.fpdu::<M>(&header, payload);
                (length, last)
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
                self.works.step_over(whole.works, 0);
                self.stage_read_request(&request, Some((id, whole.works)));
                self.message_ends();
                return true;
            }
            // The Read before it has passed it, or it has failed.
            Operation::ReadMore => return false,
        };
        self.sending.progress = progress + length;
        if last {
            self.works.step_over(1, self.outbound.staged());
            self.message_ends();
        }
        true
    }

    fn stage_response(&mut self, ulpdu: usize) -> bool {
        let progress = self.sending.progress;
        let Some(response) = self.responses.get_mut(self.sending.responses_staged) else {
            return false;
        };
        let left = response.length - progress;
        let length = left.min(u32::try_from(ulpdu - TAGGED_BYTES).unwrap_or(u32::MAX));
        let last = length == left;
        let tagged = Tagged {
            key: response.sink,
            offset: response.sink_offset.wrapping_add(u64::from(progress)),
        };
        let header = tagged.encode(Opcode::ReadResponse, last);
        let payload = response.source.and_then(|slot| {
            Some(Payload {
                source: Source::Exposure(slot),
                local: self.keys.memory(slot)?,
                offset: usize::try_from(response.source_offset).ok()? + progress as usize,
                length: length as usize,
            })
        });
        self.outbound.fpdu::<M>(&header, payload);
        self.sending.progress += length;
        if last {
            response.end = self.outbound.staged();
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

    fn stage_read_request(&mut self, request: &ReadRequest, work: Option<(WorkId, u32)>) {
        let sequence = self.sending.read_sequence;
        self.sending.read_sequence = sequence.wrapping_add(1);
        let untagged = Untagged {
            invalidate: 0,
            queue: QUEUE_READ,
            sequence,
            offset: 0,
        };
        let mut header = [0; UNTAGGED_BYTES + READ_REQUEST_BYTES];
        let (ddp, rdmap) = header.split_at_mut(UNTAGGED_BYTES);
        ddp.copy_from_slice(&untagged.encode(Opcode::ReadRequest, true));
        rdmap.copy_from_slice(&request.encode());
        self.reads.push_back(OpenRead {
            work: work.map(|(first, _)| first),
            works: work.map_or(0, |(_, works)| works),
            sink: request.sink_key,
            length: request.length,
            received: 0,
            current: 0,
            current_start: 0,
        });
        self.outbound.fpdu::<M>(&header, None);
    }

    /// The ready-to-receive indication (RFC 6581 section 9.2): a message of no bytes.
    fn stage_indication(&mut self, kind: RtrKind) {
        match kind {
            RtrKind::Send => {
                let sequence = self.sending.send_sequence;
                self.sending.send_sequence = sequence.wrapping_add(1);
                let untagged = Untagged {
                    invalidate: 0,
                    queue: QUEUE_SEND,
                    sequence,
                    offset: 0,
                };
                let header = untagged.encode(Opcode::Send, true);
                self.outbound.fpdu::<M>(&header, None);
            }
            RtrKind::Write => {
                let header = Tagged { key: 0, offset: 0 }.encode(Opcode::Write, true);
                self.outbound.fpdu::<M>(&header, None);
            }
            RtrKind::Read => {
                let request = ReadRequest {
                    sink_key: 0,
                    sink_offset: 0,
                    length: 0,
                    source_key: 0,
                    source_offset: 0,
                };
                self.stage_read_request(&request, None);
            }
        }
        self.counters.frames_out += 1;
        self.sending.indication_end = Some(self.outbound.staged());
    }

    /// The last FPDU of all (RFC 5040 section 5.4).
    fn stage_terminate(&mut self) {
        let Some(terminate) = self.terminate.take() else {
            return;
        };
        self.sending.closed = true;
        let untagged = Untagged {
            invalidate: 0,
            queue: QUEUE_TERMINATE,
            sequence: 1,
            offset: 0,
        };
        let mut header = [0; UNTAGGED_BYTES + TERMINATE_BYTES_MAX];
        let end = UNTAGGED_BYTES + terminate.as_bytes().len();
        header[..UNTAGGED_BYTES].copy_from_slice(&untagged.encode(Opcode::Terminate, true));
        header[UNTAGGED_BYTES..end].copy_from_slice(terminate.as_bytes());
        self.outbound.fpdu::<M>(&header[..end], None);
        self.counters.frames_out += 1;
        self.sending.terminate_end = Some(self.outbound.staged());
    }
}
