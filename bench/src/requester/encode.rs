//! From a call to a message in a slot.

use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Class, Slice};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth};
use millrace_wire::xdr::{self, Encode, Encoder, Taken, pad};

use super::call::{Call, CallId, Data, SubmitError};
use super::connection::Connection;
use super::gss::CallProtection;
use super::plan::{Extent, ITEMS_MAX};
use super::slot::{CallSlot, START, Stage};

/// Zero bytes behind the message, for pads; and as many again for pads that a server writes.
const PADS: usize = 8;

/// A message, encoded but for its XID.
struct Encoded {
    buffer: Buffer,
    /// Bytes of the message without its items.
    length: usize,
    /// Bytes of its RPC header.
    header: usize,
    /// The item left out.
    taken: Option<Taken>,
}

/// A call that is made many times: encoded once, and repeated with other data and other values of
/// up to two 64-bit arguments, such as an offset.
#[derive(Clone, Debug)]
pub struct CallTemplate {
    message: Vec<u8>,
    header: usize,
    taken: Option<Taken>,
    largest_reply: usize,
    /// The positions of the arguments.
    arguments: ArrayVec<usize, 2>,
}

/// What differs from call to call of a template.
#[derive(Clone, Copy, Debug)]
pub struct Repetition<'a> {
    /// The caller's own word.
    pub token: u64,
    /// Values of the arguments, as many as the template has.
    pub arguments: [u64; 2],
    /// As [`Call::data`]; none where the template's call has none.
    pub data: Data<'a>,
    /// As [`Call::sinks`].
    pub sinks: &'a [&'a [Slice]],
}

impl Connection {
    /// Takes a call into the queue. The message is encoded at once; slices are kept until the call
    /// has ended.
    ///
    /// # Errors
    /// As [`SubmitError`] tells; then the call is not in the connection's hands.
    pub fn submit<A: Encode>(
        &mut self,
        call: &Call<'_, A>,
        now: Instant,
    ) -> Result<CallId, SubmitError> {
        let (index, xid) = self.next_slot()?;
        let encoded = self.encode(call, xid)?;
        let repetition = Repetition {
            token: call.token,
            arguments: [0; 2],
            data: call.data,
            sinks: call.sinks,
        };
        self.enqueue(index, xid, encoded, call.largest_reply, &repetition, now)
    }

    /// Encodes a call for [`repeat`](Self::repeat). `arguments` are the positions of the arguments
    /// that differ, at most two, in bytes from the first of all arguments.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn template<A: Encode>(
        &self,
        call: &Call<'_, A>,
        arguments: &[usize],
    ) -> Result<CallTemplate, SubmitError> {
        let Encoded {
            buffer,
            length,
            header,
            taken,
        } = self.encode(call, 0)?;
        let arguments: ArrayVec<usize, 2> = arguments.iter().map(|at| header + at).collect();
        if arguments.iter().any(|at| at + 8 > length) {
            return Err(SubmitError::Data);
        }
        Ok(CallTemplate {
            message: buffer[START..START + length].to_vec(),
            header,
            taken,
            largest_reply: call.largest_reply,
            arguments,
        })
    }

    /// As [`submit`](Self::submit), without encoding.
    ///
    /// # Errors
    /// The same.
    pub fn repeat(
        &mut self,
        template: &CallTemplate,
        repetition: &Repetition<'_>,
        now: Instant,
    ) -> Result<CallId, SubmitError> {
        let (index, xid) = self.next_slot()?;
        let length = template.message.len();
        let class = Class::for_size(START + length + PADS).ok_or(SubmitError::TooLong)?;
        let mut buffer = self.pool.try_acquire(class).ok_or(SubmitError::NoMemory)?;
        let message = &mut buffer[START..][..length + PADS];
        message[..length].copy_from_slice(&template.message);
        message[length..].fill(0);
        message[..4].copy_from_slice(&xid.to_be_bytes());
        for (&at, argument) in template.arguments.iter().zip(repetition.arguments) {
            message[at..at + 8].copy_from_slice(&argument.to_be_bytes());
        }
        let encoded = Encoded {
            buffer,
            length,
            header: template.header,
            taken: template.taken,
        };
        self.enqueue(index, xid, encoded, template.largest_reply, repetition, now)
    }

    /// The slot of the next call, and its XID.
    fn next_slot(&self) -> Result<(u32, u32), SubmitError> {
        let &index = self.free.last().ok_or(SubmitError::Full)?;
        let last = self.slots[index as usize].xid;
        Ok((index, last.wrapping_add(1 << self.index_bits)))
    }

    fn enqueue(
        &mut self,
        index: u32,
        xid: u32,
        encoded: Encoded,
        largest_reply: usize,
        repetition: &Repetition<'_>,
        now: Instant,
    ) -> Result<CallId, SubmitError> {
        let Encoded {
            buffer,
            length,
            header,
            taken,
        } = encoded;
        let slot = &mut self.slots[index as usize];
        if let Err(error) = slot.take_data(repetition.data, header, taken) {
            slot.clear();
            return Err(error);
        }
        let capacity = buffer.capacity();
        let message = buffer.into_slice(0..capacity);
        let sinks = repetition.sinks;
        if let Err(error) = slot.take_sinks(sinks, self.settings.room_for_pad, &message) {
            slot.clear();
            return Err(error);
        }
        slot.message = Some(message);
        slot.length = length;
        slot.shape.message = length;
        slot.shape.largest_reply = largest_reply;
        match &self.settings.context {
            None => slot.shape.largest_reply += self.settings.identity.largest_verifier(),
            Some(context) => {
                slot.shape.largest_reply += context.added_to_reply();
                let protection = CallProtection::new(context);
                if !protection.fits(slot.plain_length()) {
                    slot.clear();
                    return Err(SubmitError::TooLong);
                }
                slot.protection = Some(protection);
            }
        }
        slot.xid = xid;
        slot.token = repetition.token;
        self.sequence += 1;
        slot.sequence = self.sequence;
        slot.stage = Stage::Queued;
        let deadline = now + self.settings.timeout;
        slot.deadline = Some(deadline);
        self.note_deadline(Some(deadline));
        self.free.pop();
        self.queue.push_back(index);
        Ok(CallId {
            index,
            sequence: self.sequence,
        })
    }

    /// The message in the smallest buffer that holds it.
    fn encode<A: Encode>(&self, call: &Call<'_, A>, xid: u32) -> Result<Encoded, SubmitError> {
        let (credential, verifier) = match &self.settings.context {
            Some(context) => (context.credential(), context.unsigned()),
            None => (self.settings.identity.auth(), OpaqueAuth::NONE),
        };
        let header = CallHeader {
            xid,
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            credential: Credential::Other(credential),
            verifier,
        };
        for class in Class::ALL {
            let mut buffer = self.pool.try_acquire(class).ok_or(SubmitError::NoMemory)?;
            let end = buffer.capacity() - PADS;
            let mut out = Encoder::new(&mut buffer[START..end]);
            let encoded = header.encode(&mut out).and_then(|()| {
                let header = out.position();
                call.arguments.encode(&mut out).map(|()| header)
            });
            match encoded {
                Ok(header) => {
                    let (length, taken) = (out.position(), out.taken().last().copied());
                    buffer[START + length..][..PADS].fill(0);
                    return Ok(Encoded {
                        buffer,
                        length,
                        header,
                        taken,
                    });
                }
                Err(xdr::Error::Full) => {}
                Err(error) => return Err(SubmitError::Encode(error)),
            }
        }
        Err(SubmitError::TooLong)
    }
}

fn total(slices: &[Slice]) -> usize {
    slices.iter().map(Slice::len).sum()
}

/// Appends the slices that have bytes, and says how many.
fn keep(slices: &[Slice], list: &mut Vec<Slice>) -> usize {
    let before = list.len();
    list.extend(slices.iter().filter(|slice| !slice.is_empty()).cloned());
    list.len() - before
}

impl CallSlot {
    /// Keeps the data of a call. Positions count from the XID, behind which the RPC header has
    /// `header` bytes.
    fn take_data(
        &mut self,
        data: Data<'_>,
        header: usize,
        taken: Option<Taken>,
    ) -> Result<(), SubmitError> {
        match (data, taken) {
            (Data::None, None) => Ok(()),
            (Data::One(slices), Some(taken)) => self.take_item(taken, slices),
            (Data::Parts(parts), None) => parts.iter().try_for_each(|part| {
                let taken = Taken {
                    position: part.taken.position + header as u32,
                    ..part.taken
                };
                self.take_item(taken, part.slices)
            }),
            _ => Err(SubmitError::Data),
        }
    }

    fn take_item(&mut self, taken: Taken, slices: &[Slice]) -> Result<(), SubmitError> {
        if total(slices) != taken.length as usize || !taken.position.is_multiple_of(4) {
            return Err(SubmitError::Data);
        }
        self.items
            .try_push(taken)
            .map_err(|_| SubmitError::TooLong)?;
        self.shape.items.push(Extent {
            length: taken.length as usize,
            pieces: keep(slices, &mut self.data),
        });
        Ok(())
    }

    fn take_sinks(
        &mut self,
        sinks: &[&[Slice]],
        room_for_pad: bool,
        message: &Slice,
    ) -> Result<(), SubmitError> {
        if sinks.len() > ITEMS_MAX {
            return Err(SubmitError::TooLong);
        }
        for sink in sinks {
            let mut extent = Extent {
                length: total(sink),
                pieces: keep(sink, &mut self.room),
            };
            let pad = pad(extent.length);
            if room_for_pad && pad > 0 {
                // Four bytes at the buffer's end, which the message does not use.
                self.room
                    .push(message.slice(message.len() - pad..message.len()));
                extent.length += pad;
                extent.pieces += 1;
            }
            self.shape.sinks.push(extent);
        }
        Ok(())
    }
}
