//! The connection configuration protocol's server (RFC 5666 section 6): a call that tells the
//! limits of the very connection that it comes by.
//!
//! Its calls are caught before the programs of the service see them, as nobody but the connection
//! can answer. They are calls of version one; version two has limits of its own, and RPC over TCP
//! has none: there the program is not available.
//!
//! What was agreed holds for this connection alone, from the reply on: calls that are in service
//! meanwhile end by the limits that they began with. All receives are as long as the longest that
//! can be agreed on from the first one on, so nothing has to be posted anew before the reply.
//!
//! # Alignment
//!
//! An alignment is announced where RDMA_MSGP is understood, and receives are then posted at a
//! place in their buffers that makes it true: the header of an RDMA_MSGP without chunks has 36
//! bytes, so behind it the XDR stream begins on a multiple of the alignment, and with it the data
//! that the client's pads have brought to one. Buffers have the size of their class however little
//! of it a receive asks for, so the place costs no memory where the class has room: 4096 if it has
//! much, else 512. Where it has none, as with 4 KiB receives in 4 KiB buffers, the alignment is a
//! cache line's, and the longest call that is agreed on ends 28 bytes earlier. Taking buffers of
//! the next class would cost sixteen times the memory.
//!
//! The data of such a WRITE is copied once, from the receive straight to the memory where the
//! store has it live; that copy is the storing.

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

/// How the configuration protocol is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccp {
    /// Its program number: 100417, unless early peers have chosen another.
    pub program: u32,
    /// Whether calls with AUTH_NONE may set limits (RFC 5666 section 11).
    pub anonymous: bool,
}

/// Bytes of the header of an RDMA_MSGP without chunks.
const PADDED_HEADER: usize = SHORTEST + PADDING_LENGTH;

/// Where in their buffers receives begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in crate::rdma) struct ReceiveAlignment {
    /// The alignment of the XDR stream of an RDMA_MSGP without chunks; zero for none.
    pub alignment: usize,
    /// Bytes of the buffer before the receive.
    pub indent: usize,
}

impl ReceiveAlignment {
    /// Alignments that are worth a place, best first: a page, a block of a disk, a cache line.
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

/// What a call of the configuration protocol has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Agreed {
    /// Longest message that may be sent to the client inline, in bytes.
    pub send: usize,
    /// RDMA Reads that the client serves at once.
    pub reads: u16,
    /// Where receives begin from now on.
    pub placement: ReceiveAlignment,
}

impl Agreed {
    /// Takes it up, for all that begins from now on.
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

/// Answers a call of the configuration protocol; `None` for every other call.
pub(in crate::rdma) fn serve(
    connection: &Rc<RdmaConnection>,
    version: Version,
    call: &Call<'_>,
    reply: &mut Reply,
) -> Option<(Answer, Option<FollowUp>)> {
    let ccp = connection.terms().ccp?;
    // The program stands behind XID, direction and RPC version (RFC 5531 section 9).
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
    // What is no call at all, or of another version of RPC, is answered as for any program.
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

/// What a wish comes to.
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
    // The client keeps its own Reads to this number, and with zero it would offer no read chunks
    // either. Without replies by read chunks it has nothing to read, so the number is that of ours.
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

/// Encodes an answer, which is far shorter than what every peer takes.
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
        // Chunks that the call offers for nothing leave no room.
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
