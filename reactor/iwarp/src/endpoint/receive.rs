//! Parsing of the byte stream into FPDUs, in pieces of any size.
//!
//! An FPDU that is complete in the input is checked first and then placed. An incomplete one is
//! placed as it arrives, so that its rest can be received directly into its memory
//! ([`Endpoint::direct`]); it is delivered only after its check value. With check values nothing is
//! received directly: the checked bytes have to be the placed bytes, and the memory may belong to a
//! file that others write too.

use crate::crc::Crc32c;
use crate::endpoint::admit::{Admission, Sink};
use crate::endpoint::{Endpoint, Stop};
use crate::header::{
    CRC_BYTES, LENGTH_BYTES, READ_REQUEST_BYTES, Segment, UNTAGGED_BYTES, pad_bytes,
};
use crate::memory::Memory;
use crate::terminate::{CONTROL_BYTES, Fault};

/// Longest head: ULPDU length, untagged header, Read Request header.
const HEAD_BYTES_MAX: usize = LENGTH_BYTES + UNTAGGED_BYTES + READ_REQUEST_BYTES;
/// The ULPDU length and the control octets tell how long the head is.
const OPENING_BYTES: usize = LENGTH_BYTES + 2;

/// Where the memory of the current payload is.
#[derive(Debug)]
pub enum DirectTarget<'a, L, R> {
    /// A posted receive.
    Receive(&'a mut R),
    /// The sink of a Read, or an exposure.
    Local(&'a L),
}

/// The rest of the current FPDU's payload, to be received straight into memory.
#[derive(Debug)]
pub struct Direct<'a, L, R> {
    /// The memory.
    pub target: DirectTarget<'a, L, R>,
    /// Where the next byte goes.
    pub offset: usize,
    /// Bytes of it that are missing and go to this memory; others may follow elsewhere.
    pub length: usize,
    /// Bytes that may follow the payload in the memory of the same Read or exposure.
    pub behind: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Payload,
    Tail,
}

/// The FPDU that is coming in.
#[derive(Debug)]
pub(super) struct Inbound {
    check: bool,
    stage: Stage,
    /// ULPDU length and headers.
    head: [u8; HEAD_BYTES_MAX],
    head_length: usize,
    head_needed: usize,
    /// Pad and check value.
    tail: [u8; 3 + CRC_BYTES],
    tail_length: usize,
    tail_needed: usize,
    crc: Option<Crc32c>,
    /// The segment; once it is refused, its bytes go nowhere.
    admission: Result<Admission, Fault>,
    /// Where the next payload byte goes in its sink.
    offset: usize,
    payload_left: usize,
}

impl Inbound {
    pub(super) fn new() -> Self {
        Self {
            check: false,
            stage: Stage::Head,
            head: [0; HEAD_BYTES_MAX],
            head_length: 0,
            head_needed: OPENING_BYTES,
            tail: [0; 3 + CRC_BYTES],
            tail_length: 0,
            tail_needed: CRC_BYTES,
            crc: None,
            admission: Err(Fault::Stream),
            offset: 0,
            payload_left: 0,
        }
    }

    pub(super) fn start(&mut self, check: bool) {
        self.check = check;
    }

    pub(super) fn is_at_boundary(&self) -> bool {
        self.stage == Stage::Head && self.head_length == 0
    }

    /// The slot may not be written any more.
    pub(super) fn cut_off(&mut self, slot: u32) {
        if self.stage == Stage::Payload
            && let Ok(admission) = &self.admission
            && admission.sink == Sink::Exposure(slot)
        {
            self.admission = Err(Fault::TaggedKey);
        }
    }

    fn reset(&mut self) {
        self.stage = Stage::Head;
        self.head_length = 0;
        self.head_needed = OPENING_BYTES;
        self.tail_length = 0;
    }
}

/// How many bytes of the FPDU go before the payload, told from its first four; the header of a
/// Read Request and the control word of a Terminate count as such.
fn head_bytes(opening: [u8; OPENING_BYTES]) -> Result<usize, Fault> {
    let [high, low, control, rdmap] = opening;
    let ulpdu = usize::from(u16::from_be_bytes([high, low]));
    let ddp = Segment::ddp_bytes(control);
    if ulpdu < ddp {
        return Err(Fault::Stream);
    }
    let more = match (ddp == UNTAGGED_BYTES, rdmap & 0x0f) {
        (true, 1) => READ_REQUEST_BYTES,
        (true, 7) => CONTROL_BYTES,
        _ => 0,
    };
    Ok(LENGTH_BYTES + ulpdu.min(ddp + more))
}

impl<M: Memory> Endpoint<M> {
    /// Takes the next bytes of the stream, all of them.
    ///
    /// # Errors
    /// Why the stream takes no more bytes; the same ever after.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Stop> {
        while self.stop.is_none() && !bytes.is_empty() {
            let taken = match self.inbound.stage {
                Stage::Head if self.inbound.head_length == 0 => match self.whole(bytes) {
                    Some(taken) => taken,
                    None => self.head(bytes),
                },
                Stage::Head => self.head(bytes),
                Stage::Payload => self.payload(bytes),
                Stage::Tail => self.tail(bytes),
            };
            bytes = &bytes[taken..];
        }
        self.stop.map_or(Ok(()), Err)
    }

    /// Processes an FPDU that is complete in `bytes`.
    fn whole(&mut self, bytes: &[u8]) -> Option<usize> {
        let opening: &[u8; OPENING_BYTES] = bytes.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([opening[0], opening[1]]));
        let checked = LENGTH_BYTES + length + pad_bytes(length);
        let frame = bytes.get(..checked + CRC_BYTES)?;
        let (body, crc) = frame.split_at(checked);
        if self.inbound.check && Crc32c::of(body) != *crc {
            self.break_off(Fault::Crc, &[]);
            return Some(frame.len());
        }
        if self.is_accepted(&body[..LENGTH_BYTES + length]) {
            self.counters.frames_in += 1;
            return Some(frame.len());
        }
        let (done, head) = match head_bytes(*opening) {
            Ok(head_length) => {
                let (head, payload) = body[..LENGTH_BYTES + length].split_at(head_length);
                let done = self.admit(head, payload.len()).and_then(|admission| {
                    self.place(admission.sink, admission.offset, payload);
                    self.deliver(admission)
                });
                (done, head)
            }
            Err(fault) => (Err(fault), &bytes[..0]),
        };
        match done {
            Ok(()) => self.counters.frames_in += 1,
            Err(fault) => self.break_off(fault, head),
        }
        Some(frame.len())
    }

    fn head(&mut self, bytes: &[u8]) -> usize {
        let inbound = &mut self.inbound;
        let have = inbound.head_length;
        let taken = bytes.len().min(inbound.head_needed - have);
        inbound.head[have..have + taken].copy_from_slice(&bytes[..taken]);
        inbound.head_length += taken;
        if inbound.head_length < inbound.head_needed {
            return taken;
        }
        let [high, low, control, rdmap, ..] = inbound.head;
        if inbound.head_length == OPENING_BYTES {
            let opening = [high, low, control, rdmap];
            // A ULPDU that is too short for its headers is refused below.
            if let Ok(needed) = head_bytes(opening) {
                inbound.head_needed = needed;
            }
            if inbound.head_length < inbound.head_needed {
                return taken;
            }
        }
        let ulpdu = usize::from(u16::from_be_bytes([high, low]));
        let (head, length) = (inbound.head, inbound.head_length);
        let checked = LENGTH_BYTES + ulpdu + pad_bytes(ulpdu);
        inbound.payload_left = (LENGTH_BYTES + ulpdu).saturating_sub(length);
        inbound.tail_needed = checked - length - inbound.payload_left + CRC_BYTES;
        inbound.crc = inbound.check.then(|| {
            let mut crc = Crc32c::new();
            crc.update(&head[..length]);
            crc
        });
        inbound.stage = if inbound.payload_left > 0 {
            Stage::Payload
        } else {
            Stage::Tail
        };
        let admission = match head_bytes([high, low, control, rdmap]) {
            Ok(_) => self.admit(&head[..length], self.inbound.payload_left),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = admission
            && !self.inbound.check
        {
            self.break_off(fault, &head[..length]);
            return taken;
        }
        // With check values a refusal waits for the end of the FPDU: it may be damaged only.
        self.inbound.offset = admission.map_or(0, |admission| admission.offset);
        self.inbound.admission = admission;
        taken
    }

    fn payload(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.inbound.payload_left);
        let bytes = &bytes[..taken];
        if let Some(crc) = &mut self.inbound.crc {
            crc.update(bytes);
        }
        if let Ok(admission) = self.inbound.admission {
            self.place(admission.sink, self.inbound.offset, bytes);
        }
        self.placed(taken);
        taken
    }

    fn tail(&mut self, bytes: &[u8]) -> usize {
        let inbound = &mut self.inbound;
        let have = inbound.tail_length;
        let taken = bytes.len().min(inbound.tail_needed - have);
        inbound.tail[have..have + taken].copy_from_slice(&bytes[..taken]);
        inbound.tail_length += taken;
        if inbound.tail_length < inbound.tail_needed {
            return taken;
        }
        let (pad, crc) =
            inbound.tail[..inbound.tail_needed].split_at(inbound.tail_needed - CRC_BYTES);
        let intact = inbound.crc.take().is_none_or(|mut computed| {
            computed.update(pad);
            computed.octets() == *crc
        });
        let (head, length) = (inbound.head, inbound.head_length);
        let admission = std::mem::replace(&mut inbound.admission, Err(Fault::Stream));
        inbound.reset();
        if !intact {
            self.break_off(Fault::Crc, &[]);
            return taken;
        }
        match admission.and_then(|admission| self.deliver(admission)) {
            Ok(()) => self.counters.frames_in += 1,
            Err(fault) => self.break_off(fault, &head[..length]),
        }
        taken
    }

    /// The memory for the next bytes of the stream, if they may be received directly into it. Bytes
    /// received there are reported with [`Self::placed`].
    pub fn direct(&mut self) -> Option<Direct<'_, M::Local, M::Receive>> {
        let Inbound {
            stage: Stage::Payload,
            crc: None,
            offset,
            payload_left: length,
            ..
        } = self.inbound
        else {
            return None;
        };
        let admission = self.inbound.admission.as_ref().ok()?;
        let (mut offset, mut length) = (offset, length);
        let end = offset + length;
        let (target, memory) = match admission.sink {
            Sink::Nowhere => return None,
            Sink::Receive => (DirectTarget::Receive(self.receives.next_mut()?), 0),
            Sink::Exposure(slot) => {
                let local = self.keys.memory(slot)?;
                (DirectTarget::Local(local), M::length(local))
            }
            Sink::Read => {
                let read = self.reads.front()?;
                let sink = read.sink(&self.works, offset)?;
                (offset, length) = (sink.offset, length.min(sink.left));
                (DirectTarget::Local(sink.local), read.length as usize)
            }
        };
        Some(Direct {
            target,
            offset,
            length,
            behind: memory.saturating_sub(end),
        })
    }

    /// The next `count` bytes of the payload are where [`Self::direct`] said.
    pub fn placed(&mut self, count: usize) {
        let count = count.min(self.inbound.payload_left);
        self.inbound.offset += count;
        self.inbound.payload_left -= count;
        if self.inbound.payload_left == 0 && self.inbound.stage == Stage::Payload {
            self.inbound.stage = Stage::Tail;
        }
    }

    pub(super) fn place(&mut self, sink: Sink, offset: usize, bytes: &[u8]) {
        match sink {
            Sink::Nowhere => {}
            Sink::Receive => {
                if let Some(receive) = self.receives.next_mut() {
                    M::fill(receive, offset, bytes);
                }
            }
            Sink::Exposure(slot) => {
                if let Some(local) = self.keys.memory(slot) {
                    M::place(local, offset, bytes);
                }
            }
            Sink::Read => {
                let Some(read) = self.reads.front() else {
                    return;
                };
                let (mut offset, mut rest) = (offset, bytes);
                while !rest.is_empty()
                    && let Some(sink) = read.sink(&self.works, offset)
                {
                    let (now, later) = rest.split_at(rest.len().min(sink.left));
                    M::place(sink.local, sink.offset, now);
                    offset += now.len();
                    rest = later;
                }
            }
        }
    }
}
