//! The server of the connection configuration protocol (RFC 5666 section 6): a call that sets
//! limits of the connection it arrives on.
//!
//! Its calls are intercepted before the service's programs, as only the connection can answer them.
//! They are calls of version one; version two has limits of its own, and RPC over TCP has none:
//! there the program is not available.
//!
//! The agreement applies to this connection only, from the reply on: calls already in service keep
//! the limits they began with. All receives have the longest possible length from the first one on,
//! so nothing has to be posted again before the reply.
//!
//! # Alignment
//!
//! An alignment is announced if RDMA_MSGP is accepted. Receives are then posted at an offset in
//! their buffers that produces it: the header of an RDMA_MSGP without chunks has 36 bytes, so the
//! XDR stream after it begins on a multiple of the alignment, and so does the data that the
//! client's pads have aligned. Buffers have the size of their class even if a receive needs less,
//! so the offset costs no memory if the class has space: 4096 if there is much, else 512. If there
//! is none, as with 4 KiB receives in 4 KiB buffers, the alignment is that of a cache line, and the
//! longest call agreed on is 28 bytes shorter. Buffers of the next class would cost sixteen times
//! the memory.
//!
//! The data of such a WRITE is copied once, from the receive directly to its memory in the store;
//! that copy is the write.

use std::rc::Rc;

use millrace_reactor::fabric::ReadDepths;
use millrace_wire::ccp::{Limits, Procedure, VERSION, Wish};
use millrace_wire::rpc::{Accepted, AuthStatus, CallHeader, ReplyHeader, answer_to};
use millrace_wire::rpcrdma::version1::{PADDING_LENGTH, SHORTEST};
use millrace_wire::rpcrdma::{MIN_INLINE, Version};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

use super::FollowUp;
use crate::call::{Answer, Call, Reply};
use crate::rdma::RdmaConnection;
use crate::rpc::{caller, denied_to};

/// The configuration of the protocol's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccp {
    /// Its program number: 100417, unless early peers use another.
    pub program: u32,
    /// Whether calls with AUTH_NONE may set limits (RFC 5666 section 11).
    pub anonymous: bool,
}

/// Bytes of the header of an RDMA_MSGP without chunks.
const PADDED_HEADER: usize = SHORTEST + PADDING_LENGTH;

/// The offset of receives in their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in crate::rdma) struct ReceiveAlignment {
    /// The alignment of the XDR stream of an RDMA_MSGP without chunks; zero for none.
    pub alignment: usize,
    /// Bytes of the buffer before the receive.
    pub indent: usize,
}

impl ReceiveAlignment {
    /// Useful alignments, best first: a page, a disk block, a cache line.
    const ALIGNMENTS: [usize; 3] = [4096, 512, 64];

    /// The best one for receives of `size` bytes in buffers of `capacity` bytes.
    fn best(size: usize, capacity: usize) -> Self {
        let at = |alignment: usize| Self {
            alignment,
            indent: PADDED_HEADER.next_multiple_of(alignment) - PADDED_HEADER,
        };
        let mut all = Self::ALIGNMENTS.map(at).into_iter();
        let least = at(Self::ALIGNMENTS[2]);
        all.find(|place| size + place.indent <= capacity)
            .unwrap_or(least)
    }
}

/// The changes made by a call of the configuration protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Agreed {
    /// The longest message that may be sent to the client inline, in bytes.
    pub send: usize,
    /// The number of RDMA Reads that the client serves at once.
    pub reads: u16,
    /// The offset of receives from now on.
    pub placement: ReceiveAlignment,
}

impl Agreed {
    /// Applies the changes to everything that begins from now on.
    pub fn begin(&self, connection: &RdmaConnection) {
        connection.limit(self.send, self.reads);
        connection.compat.receive_alignment.set(self.placement);
        tracing::debug!(
            client = %connection.peer().address,
            inline_send = self.send,
            alignment = self.placement.alignment,
            reads = self.reads,
            "client has set limits"
        );
    }
}

/// Answers a call of the configuration protocol; `None` for other calls.
pub(in crate::rdma) fn serve(
    connection: &Rc<RdmaConnection>,
    version: Version,
    call: &Call<'_>,
    reply: &mut Reply,
) -> Option<(Answer, Option<FollowUp>)> {
    let ccp = connection.terms().ccp?;
    // The program follows XID, direction and RPC version (RFC 5531 section 9).
    let program = call.message.get(12..)?.first_chunk()?;
    if u32::from_be_bytes(*program) != ccp.program || version != Version::One {
        return None;
    }
    configure(connection, ccp, call, reply)
}

#[cold]
fn configure(
    connection: &Rc<RdmaConnection>,
    ccp: Ccp,
    call: &Call<'_>,
    reply: &mut Reply,
) -> Option<(Answer, Option<FollowUp>)> {
    let mut input = Decoder::new(call.message).padded(call.padding);
    // A message that is no call, or of another RPC version, is answered as for any program.
    let header = CallHeader::decode(&mut input).ok()?;
    let status = |status| (answer_to(header.xid, status), None);
    let procedure = Procedure::from_number(header.procedure);
    let (header, limits) = match procedure {
        _ if header.version != VERSION => status(Accepted::ProgramMismatch {
            low: VERSION,
            high: VERSION,
        }),
        None => status(Accepted::ProcedureUnavailable),
        Some(Procedure::Null) => status(Accepted::Success),
        Some(Procedure::Configure) => match caller(header.credential) {
            Err(denied) => (denied_to(header.xid, denied), None),
            Ok(None) if !ccp.anonymous => (denied_to(header.xid, AuthStatus::TooWeak), None),
            Ok(_) => match Wish::decode(&mut input) {
                Ok(wish) => {
                    let agreed = agree(connection, &wish);
                    (answer_to(header.xid, Accepted::Success), Some(agreed))
                }
                Err(_) => status(Accepted::GarbageArguments),
            },
        },
    };
    let answer = encode(reply, &header, limits.map(|(limits, _)| limits));
    let follow_up = limits.map(|(_, agreed)| FollowUp::Agreed(Box::new(agreed)));
    Some((answer, follow_up))
}

/// The result of a request for limits.
fn agree(connection: &RdmaConnection, wish: &Wish) -> (Limits, Agreed) {
    let settings = connection.terms();
    let capacity = connection.receive_class().size();
    let placement = if settings.rules.padding {
        ReceiveAlignment::best(settings.receive_size(), capacity)
    } else {
        ReceiveAlignment::default()
    };
    let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
    let most = settings.inline.min(capacity - placement.indent);
    // The client limits its own Reads to this number, and with zero it would offer no read chunks
    // either. Without read-chunk replies it has nothing to read, so the number is that of our
    // Reads.
    let reads = match connection.depths() {
        ReadDepths { ird: 0, ord, .. } => ord,
        ReadDepths { ird, .. } => ird,
    };
    let limits = Limits {
        call_size: size(wish.call_size).clamp(MIN_INLINE, most) as u32,
        alignment: placement.alignment as u32,
        reads: u32::from(reads),
    };
    let agreed = Agreed {
        send: size(wish.reply_size).clamp(MIN_INLINE, settings.inline),
        reads: u16::try_from(wish.reads).unwrap_or(u16::MAX),
        placement,
    };
    (limits, agreed)
}

/// Encodes an answer, which is far shorter than the minimum that every peer accepts.
fn encode(reply: &mut Reply, header: &ReplyHeader<'_>, limits: Option<Limits>) -> Answer {
    let mut out = Encoder::new(reply.room());
    let encoded = header
        .encode(&mut out)
        .and_then(|()| limits.map_or(Ok(()), |limits| limits.encode(&mut out)));
    match encoded {
        Ok(()) => {
            let length = out.position();
            reply.set_length(length);
            Answer::Send
        }
        // Unused chunks of the call leave no space.
        Err(_) => Answer::TooLarge(crate::call::Shortage::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_begin_on_the_alignment_and_receives_end_in_their_buffers() {
        for (size, capacity, alignment) in [
            (4096, 4096, 64),
            (4068, 4096, 64),
            (3620, 4096, 512),
            (1024, 4096, 512),
            (8192, 65536, 4096),
            (61_476, 65536, 4096),
            (61_477, 65536, 512),
            (65536, 65536, 64),
        ] {
            let place = ReceiveAlignment::best(size, capacity);
            assert_eq!(place.alignment, alignment, "{size} in {capacity}");
            assert_eq!((place.indent + PADDED_HEADER) % alignment, 0);
            assert!(place.indent < alignment);
            if alignment > 64 {
                assert!(place.indent + size <= capacity);
            }
        }
    }
}
