//! Validation of segments before any byte is placed, and delivery of completed messages (RFC 5041
//! section 7.1, RFC 5040 section 7.2).

use crate::endpoint::{Endpoint, Response, Stop};
use crate::header::{
    LENGTH_BYTES, Model, Opcode, READ_REQUEST_BYTES, ReadRequest, Segment, Tagged, UNTAGGED_BYTES,
    Untagged,
};
use crate::keys::{Access, Refusal};
use crate::memory::Memory;
use crate::mpa::{Arrival, FirstFpdu, FirstOperation};
use crate::terminate::{CONTROL_BYTES, Fault, Terminate};

/// Where a payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// No destination: there is none, or the payload is discarded.
    Nowhere,
    /// The next posted receive.
    Receive,
    /// The exposure in this slot.
    Exposure(u32),
    /// The oldest open Read.
    Read,
}

/// The effect of a segment that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing but its data.
    Data,
    Send {
        last: bool,
        length: u32,
        invalidate: Option<u32>,
    },
    ReadRequest(ReadRequest),
    ReadResponse {
        last: bool,
        length: u32,
    },
    Terminate(Terminate),
}

/// A segment that was found good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) sink: Sink,
    /// Where the first payload byte goes in the sink.
    pub(super) offset: usize,
    effect: Effect,
    first: FirstFpdu,
}

/// Next message sequence numbers of the untagged queues.
#[derive(Debug)]
pub(super) struct Sequences {
    send: u32,
    read: u32,
    terminate: u32,
}

impl Sequences {
    pub(super) const fn new() -> Self {
        Self {
            send: 1,
            read: 1,
            terminate: 1,
        }
    }
}

impl<M: Memory> Endpoint<M> {
    /// Checks a segment. `head` is the FPDU up to its payload, which has `payload` bytes.
    pub(super) fn admit(&self, head: &[u8], payload: usize) -> Result<Admission, Fault> {
        let segment = Segment::decode(&head[LENGTH_BYTES..])?;
        let length = u32::try_from(payload).map_err(|_| Fault::Stream)?;
        match segment.model {
            Model::Tagged(tagged) if segment.opcode == Opcode::ReadResponse => {
                self.admit_response(tagged, length, segment.last)
            }
            Model::Tagged(tagged) => self.admit_write(tagged, length, segment.last),
            Model::Untagged(untagged) => {
                let rest = &head[LENGTH_BYTES + UNTAGGED_BYTES..];
                match segment.opcode {
                    Opcode::ReadRequest => {
                        self.admit_read_request(untagged, rest, length, segment.last)
                    }
                    Opcode::Terminate => self.admit_terminate(untagged, rest, length),
                    _ => self.admit_send(&segment, untagged, length),
                }
            }
        }
    }

    #[inline]
    fn admit_write(&self, tagged: Tagged, length: u32, last: bool) -> Result<Admission, Fault> {
        // A segment of no bytes touches nothing: its tag and offset are not looked at (RFC 5041
        // section 5.2).
        let (sink, offset) = if length == 0 {
            (Sink::Nowhere, 0)
        } else {
            let slot = self
                .keys
                .check(tagged.key, tagged.offset, length, Access::RemoteWrite)
                .map_err(|refusal| match refusal {
                    Refusal::Key | Refusal::Rights => Fault::TaggedKey,
                    Refusal::Bounds => Fault::TaggedBounds,
                    Refusal::Wrap => Fault::TaggedWrap,
                })?;
            let offset = usize::try_from(tagged.offset).map_err(|_| Fault::TaggedBounds)?;
            (Sink::Exposure(slot), offset)
        };
        let first = FirstFpdu {
            operation: FirstOperation::Write,
            length: u64::from(length),
            last,
        };
        Ok(Admission {
            sink,
            offset,
            effect: Effect::Data,
            first,
        })
    }

    /// A Read Response is good only as the continuation of the oldest open Read: the tags of sinks
    /// open nothing for Writes, and nothing out of turn.
    #[inline]
    fn admit_response(&self, tagged: Tagged, length: u32, last: bool) -> Result<Admission, Fault> {
        let read = self.reads.front().ok_or(Fault::TaggedKey)?;
        if length > 0 {
            if tagged.key != read.sink {
                return Err(Fault::TaggedKey);
            }
            if tagged.offset != u64::from(read.received) || length > read.length - read.received {
                return Err(Fault::TaggedBounds);
            }
        }
        if last && read.received + length != read.length {
            return Err(Fault::Unspecified);
        }
        Ok(Admission {
            sink: if length > 0 {
                Sink::Read
            } else {
                Sink::Nowhere
            },
            offset: read.received as usize,
            effect: Effect::ReadResponse { last, length },
            first: FirstFpdu {
                operation: FirstOperation::Other,
                length: u64::from(length),
                last,
            },
        })
    }

    fn admit_terminate(
        &self,
        untagged: Untagged,
        rest: &[u8],
        length: u32,
    ) -> Result<Admission, Fault> {
        if untagged.sequence != self.sequences.terminate {
            return Err(Fault::Sequence);
        }
        let control: &[u8; CONTROL_BYTES] = rest.first_chunk().ok_or(Fault::Unspecified)?;
        let length = u64::from(length);
        Ok(Admission {
            sink: Sink::Nowhere,
            offset: 0,
            effect: Effect::Terminate(Terminate::decode(*control)),
            first: FirstFpdu {
                operation: FirstOperation::Other,
                length,
                last: true,
            },
        })
    }

    fn admit_send(
        &self,
        segment: &Segment,
        untagged: Untagged,
        length: u32,
    ) -> Result<Admission, Fault> {
        if untagged.sequence != self.sequences.send {
            return Err(Fault::Sequence);
        }
        let filled = self.receives.filled;
        if untagged.offset != filled {
            return Err(Fault::MessageOffset);
        }
        let last = segment.last;
        let plain = matches!(segment.opcode, Opcode::Send | Opcode::SendSolicited);
        let operation = if plain {
            FirstOperation::Send
        } else {
            FirstOperation::Other
        };
        let first = FirstFpdu {
            operation,
            length: u64::from(length),
            last,
        };
        let end = filled.checked_add(length).ok_or(Fault::TooLong)?;
        match self.receives.next() {
            Some(receive) if end as usize > M::capacity(receive).min(self.limits.receive_size) => {
                return Err(Fault::TooLong);
            }
            Some(_) => {}
            // A ready-to-receive indication needs no receive.
            None if self.is_indication(first) => {}
            None => return Err(Fault::NoBuffer),
        }
        Ok(Admission {
            sink: if length > 0 {
                Sink::Receive
            } else {
                Sink::Nowhere
            },
            offset: filled as usize,
            effect: Effect::Send {
                last,
                length,
                invalidate: segment.opcode.invalidates().then_some(untagged.invalidate),
            },
            first,
        })
    }

    fn admit_read_request(
        &self,
        untagged: Untagged,
        rest: &[u8],
        more: u32,
        last: bool,
    ) -> Result<Admission, Fault> {
        if untagged.sequence != self.sequences.read {
            return Err(Fault::Sequence);
        }
        if untagged.offset != 0 {
            return Err(Fault::MessageOffset);
        }
        if more > 0 {
            return Err(Fault::TooLong);
        }
        let header: &[u8; READ_REQUEST_BYTES] = rest.first_chunk().ok_or(Fault::Unspecified)?;
        if !last {
            return Err(Fault::Unspecified);
        }
        let depth = self
            .parameters
            .as_ref()
            .map_or(0, |parameters| parameters.ird);
        if self.responses.len() >= usize::from(depth) {
            return Err(Fault::NoBuffer);
        }
        let request = ReadRequest::decode(header);
        let length = u64::from(request.length);
        Ok(Admission {
            sink: Sink::Nowhere,
            offset: 0,
            effect: Effect::ReadRequest(request),
            first: FirstFpdu {
                operation: FirstOperation::ReadRequest,
                length,
                last,
            },
        })
    }

    /// The fast path of most FPDUs: accepts a Send in one segment that is the next of its queue,
    /// fits the next receive and invalidates nothing that it may not, and tagged data that may be
    /// placed. `fpdu` is a complete FPDU without its pad. Any other FPDU, valid or not, is left to
    /// [`Self::admit`].
    pub(super) fn is_accepted(&mut self, fpdu: &[u8]) -> bool {
        let gate_passed = self
            .parameters
            .as_ref()
            .is_some_and(|parameters| !parameters.gate.awaits_first());
        gate_passed && (self.is_send_accepted(fpdu) || self.is_data_accepted(fpdu))
    }

    #[inline]
    fn is_send_accepted(&mut self, fpdu: &[u8]) -> bool {
        let Some((head, payload)) = fpdu.split_first_chunk() else {
            return false;
        };
        let Some((sequence, invalidate)) = Segment::only_send(head) else {
            return false;
        };
        if sequence != self.sequences.send || self.receives.filled > 0 {
            return false;
        }
        let Some(receive) = self.receives.next_mut() else {
            return false;
        };
        if payload.len() > M::capacity(receive).min(self.limits.receive_size) {
            return false;
        }
        let Ok(length) = u32::try_from(payload.len()) else {
            return false;
        };
        if invalidate.is_some_and(|key| !self.keys.invalidate(key)) {
            return false;
        }
        if length > 0 {
            M::fill(receive, 0, payload);
        }
        self.sequences.send = self.sequences.send.wrapping_add(1);
        self.receives.arrive(length, invalidate);
        true
    }

    #[inline]
    fn is_data_accepted(&mut self, fpdu: &[u8]) -> bool {
        let Some((head, payload)) = fpdu.split_first_chunk() else {
            return false;
        };
        let Some((opcode, tagged, last)) = Segment::only_tagged(head) else {
            return false;
        };
        let Ok(length) = u32::try_from(payload.len()) else {
            return false;
        };
        let is_response = opcode == Opcode::ReadResponse;
        let admission = if is_response {
            self.admit_response(tagged, length, last)
        } else {
            self.admit_write(tagged, length, last)
        };
        let Ok(admission) = admission else {
            return false;
        };
        self.place(admission.sink, admission.offset, payload);
        if is_response {
            self.deliver_response(last, length);
        }
        true
    }

    fn is_indication(&self, first: FirstFpdu) -> bool {
        self.parameters.as_ref().is_some_and(|parameters| {
            let mut gate = parameters.gate;
            matches!(gate.first(first), Arrival::Indication(_))
        })
    }

    /// The whole FPDU is here and intact.
    pub(super) fn deliver(&mut self, admission: Admission) -> Result<(), Fault> {
        let is_indication = self.pass_gate(admission.first);
        match admission.effect {
            Effect::Data => Ok(()),
            Effect::Send {
                last,
                length,
                invalidate,
            } => self.deliver_send(last, length, invalidate, is_indication),
            Effect::ReadRequest(request) => self.deliver_read_request(&request),
            Effect::ReadResponse { last, length } => {
                self.deliver_response(last, length);
                Ok(())
            }
            Effect::Terminate(terminate) => {
                self.stop = Some(Stop::Terminated(terminate));
                Ok(())
            }
        }
    }

    /// Notes the first FPDU; says whether it was an indication.
    fn pass_gate(&mut self, first: FirstFpdu) -> bool {
        let Some(parameters) = &mut self.parameters else {
            return false;
        };
        if !parameters.gate.awaits_first() {
            return false;
        }
        let arrival = parameters.gate.first(first);
        if parameters.gate.was_unexpected() {
            self.counters.indications_unexpected += 1;
        }
        matches!(arrival, Arrival::Indication(_))
    }

    fn deliver_send(
        &mut self,
        last: bool,
        length: u32,
        invalidate: Option<u32>,
        is_indication: bool,
    ) -> Result<(), Fault> {
        self.receives.filled += length;
        if !last {
            return Ok(());
        }
        self.sequences.send = self.sequences.send.wrapping_add(1);
        let length = std::mem::take(&mut self.receives.filled);
        if is_indication {
            return Ok(());
        }
        if let Some(key) = invalidate
            && !self.keys.invalidate(key)
        {
            return Err(Fault::Invalidate);
        }
        self.receives.arrive(length, invalidate);
        Ok(())
    }

    fn deliver_read_request(&mut self, request: &ReadRequest) -> Result<(), Fault> {
        self.sequences.read = self.sequences.read.wrapping_add(1);
        let &ReadRequest {
            source_key,
            source_offset,
            length,
            ..
        } = request;
        // A Read of no bytes is answered whatever its source says (RFC 5040 section 5.2.1).
        let source = if length == 0 {
            None
        } else {
            let access = Access::RemoteRead;
            let slot = self
                .keys
                .check(source_key, source_offset, length, access)
                .map_err(|refusal| match refusal {
                    Refusal::Key => Fault::ReadKey,
                    Refusal::Bounds => Fault::ReadBounds,
                    Refusal::Wrap => Fault::ReadWrap,
                    Refusal::Rights => Fault::ReadRights,
                })?;
            if request.sink_offset.checked_add(u64::from(length)).is_none() {
                return Err(Fault::ReadWrap);
            }
            self.keys.open_read(slot);
            Some(slot)
        };
        self.responses.push_back(Response {
            source,
            source_offset,
            sink: request.sink_key,
            sink_offset: request.sink_offset,
            length,
            end: 0,
        });
        Ok(())
    }

    fn deliver_response(&mut self, last: bool, length: u32) {
        let Some(read) = self.reads.front_mut() else {
            return;
        };
        read.advance(&self.works, length);
        if last
            && let Some(read) = self.reads.pop_front()
            && let Some(work) = read.work
        {
            for number in 0..read.works {
                self.works.mark(work.plus(number), Ok(()));
            }
            self.works.reap();
        }
    }
}
