//! One end of an RDMAP stream in full operation.
//!
//! `mod.rs` has the interface: posts, queries and completions. `receive` parses the stream, `admit`
//! checks and delivers segments, `send` makes them.

mod admit;
mod receive;
mod send;

use std::collections::VecDeque;

use crate::keys::{Access, Exposed, Keys, Revocation};
use crate::memory::Memory;
use crate::mpa::{Negotiated, StartGate};
use crate::outbound::{Outbound, Staging};
use crate::terminate::{Fault, Terminate, TerminateHeader};
use crate::work::{Completion, Operation, Request, Tally, WorkFault, WorkId, WorkQueue};

pub use receive::{Direct, DirectTarget};
pub use send::Chunk;

/// Sizes that hold from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests posted and not yet reported.
    pub send_depth: usize,
    /// Receives posted and not yet taken.
    pub receive_depth: usize,
    /// Bytes of the largest Send that the peer may make.
    pub receive_size: usize,
    /// Exposures at once.
    pub exposures: u32,
}

/// What connection setup agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Check values are sent and checked; otherwise the field is zero and not looked at.
    pub crc: bool,
    /// The peer wants markers.
    pub markers: bool,
    /// Reads of the peer's to serve at once.
    pub ird: u16,
    /// Reads that may be open at once.
    pub ord: u16,
    /// Longest ULPDU to send.
    pub ulpdu: usize,
    /// Who sends the first FPDU.
    pub gate: StartGate,
}

impl Parameters {
    /// Longest ULPDU sent by default: the length field allows little more.
    pub const ULPDU_DEFAULT: usize = 65_520;
    /// Longest ULPDU sent with markers. A marker's pointer to the start of the FPDU counts markers
    /// too.
    const ULPDU_WITH_MARKERS: usize = 61_440;
    /// Shortest: the longest headers and a little payload.
    const ULPDU_MIN: usize = 128;

    /// As negotiated, with the default ULPDU.
    #[must_use]
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            crc: negotiated.crc,
            markers: negotiated.send_markers,
            ird: negotiated.ird,
            ord: negotiated.ord,
            ulpdu: Self::ULPDU_DEFAULT,
            gate: StartGate::new(negotiated),
        }
    }
}

/// Why a stream takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The peer broke a rule; a Terminate message is on its way to it.
    Fault(Fault),
    /// The peer sent a Terminate message.
    Terminated(Terminate),
}

/// A message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery<R> {
    /// The receive that it fills.
    pub receive: R,
    /// Its length in bytes.
    pub length: u32,
    /// The steering tag that it invalidated.
    pub invalidated: Option<u32>,
}

/// Counters of a stream. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// FPDUs received whole and found good.
    pub frames_in: u64,
    /// FPDUs staged.
    pub frames_out: u64,
    /// FPDUs with a wrong check value.
    pub crc_errors: u64,
    /// First messages that proved the initiator ready, but were not of an agreed kind.
    pub indications_unexpected: u64,
    /// Sends of ours.
    pub sends: Tally,
    /// Writes of ours.
    pub writes: Tally,
    /// Reads of ours.
    pub reads: Tally,
    /// Receives, and the messages that filled them.
    pub receives: Tally,
}

/// A Read of ours that the peer has not answered in full.
#[derive(Debug)]
struct OpenRead {
    /// The first work request that it fills; `None`: the ready-to-receive indication.
    work: Option<WorkId>,
    /// Work requests that it fills.
    works: u32,
    sink: u32,
    length: u32,
    received: u32,
    /// The work request that the next byte goes to, counted from the first, and where in the Read
    /// that one begins.
    current: u32,
    current_start: u32,
}

/// A part of the memory of an open Read: a work request's, where in it, and how many bytes are left
/// there.
struct ReadSink<'a, L> {
    local: &'a L,
    offset: usize,
    left: usize,
}

impl OpenRead {
    /// The memory of the Read's byte `offset`, which is not received yet.
    fn sink<'a, L: Default>(
        &self,
        works: &'a WorkQueue<L>,
        offset: usize,
    ) -> Option<ReadSink<'a, L>> {
        let mut work = self.work?.plus(self.current);
        let mut start = self.current_start as usize;
        loop {
            let found = works.get(work)?;
            let end = start + found.length as usize;
            if offset < end {
                return Some(ReadSink {
                    local: &found.local,
                    offset: offset - start,
                    left: end - offset,
                });
            }
            (work, start) = (work.plus(1), end);
        }
    }

    /// The next `length` bytes are where they belong.
    fn advance<L: Default>(&mut self, works: &WorkQueue<L>, length: u32) {
        self.received += length;
        while let Some(work) = self.work
            && self.current + 1 < self.works
            && let Some(found) = works.get(work.plus(self.current))
            && self.received - self.current_start >= found.length
        {
            self.current_start += found.length;
            self.current += 1;
        }
    }
}

/// A Read of the peer's that is not answered in full.
#[derive(Debug)]
struct Response {
    /// The slot that it reads; `None` for a Read of no bytes.
    source: Option<u32>,
    source_offset: u64,
    sink: u32,
    sink_offset: u64,
    length: u32,
    /// Stream position behind its last byte, once it is wholly in segments.
    end: u64,
}

/// A posted receive, and what became of it once a message has filled it.
#[derive(Debug)]
struct PostedReceive<R> {
    receive: R,
    length: u32,
    invalidated: Option<u32>,
}

/// Posted receives: those in front are filled and not yet taken.
#[derive(Debug)]
struct Receives<R> {
    posted: VecDeque<PostedReceive<R>>,
    /// How many of them are filled.
    arrived: usize,
    /// Bytes of the message that is filling the next one.
    filled: u32,
}

impl<R> Receives<R> {
    /// The receive that the next message fills.
    #[inline]
    fn next(&self) -> Option<&R> {
        self.posted.get(self.arrived).map(|next| &next.receive)
    }

    /// The same, to fill it.
    #[inline]
    fn next_mut(&mut self) -> Option<&mut R> {
        let next = self.posted.get_mut(self.arrived);
        next.map(|next| &mut next.receive)
    }

    /// A message has filled the next receive.
    fn arrive(&mut self, length: u32, invalidated: Option<u32>) {
        if let Some(next) = self.posted.get_mut(self.arrived) {
            (next.length, next.invalidated) = (length, invalidated);
            self.arrived += 1;
        }
    }
}

/// One end of an RDMAP stream. `M` is its user's memory.
pub struct Endpoint<M: Memory> {
    limits: Limits,
    parameters: Option<Parameters>,
    keys: Keys<M::Local>,
    works: WorkQueue<M::Local>,
    reads: VecDeque<OpenRead>,
    /// Most of them at once, besides the limit negotiated at connection setup.
    reads_most: u16,
    responses: VecDeque<Response>,
    receives: Receives<M::Receive>,
    inbound: receive::Inbound,
    sequences: admit::Sequences,
    sending: send::Sending,
    outbound: Outbound,
    terminate: Option<TerminateHeader>,
    terminate_sent: bool,
    stop: Option<Stop>,
    counters: Counters,
}

impl<M: Memory> Endpoint<M> {
    /// A stream during connection setup: work may be posted, but nothing is sent. Its queues grow
    /// with the posted work until [`Endpoint::start`], so that a peer that only connects costs
    /// little memory. `secret` is random.
    #[must_use]
    pub fn new(limits: Limits, secret: u32) -> Self {
        Self {
            parameters: None,
            keys: Keys::new(limits.exposures, secret),
            works: WorkQueue::new(limits.send_depth),
            reads: VecDeque::new(),
            reads_most: u16::MAX,
            responses: VecDeque::new(),
            receives: Receives {
                posted: VecDeque::new(),
                arrived: 0,
                filled: 0,
            },
            inbound: receive::Inbound::new(),
            sequences: admit::Sequences::new(),
            sending: send::Sending::new(),
            outbound: Outbound::new(),
            terminate: None,
            terminate_sent: false,
            stop: None,
            counters: Counters::default(),
            limits,
        }
    }

    /// The connection is set up.
    pub fn start(&mut self, mut parameters: Parameters) {
        let most = if parameters.markers {
            Parameters::ULPDU_WITH_MARKERS
        } else {
            Parameters::ULPDU_DEFAULT
        };
        parameters.ulpdu = parameters.ulpdu.clamp(Parameters::ULPDU_MIN, most);
        self.works.reserve();
        let posted = &mut self.receives.posted;
        posted.reserve_exact(self.limits.receive_depth.saturating_sub(posted.len()));
        self.reads.reserve(usize::from(parameters.ord) + 1);
        self.responses.reserve(usize::from(parameters.ird) + 1);
        self.inbound.start(parameters.crc);
        self.outbound.start(parameters.crc, parameters.markers);
        self.parameters = Some(parameters);
    }

    /// Limits open Reads to `reads`, besides the limit negotiated at connection setup. Reads that
    /// are already open continue; with zero, the others end at once.
    pub const fn limit_reads(&mut self, reads: u16) {
        self.reads_most = reads;
    }

    /// Work requests that may be posted.
    #[must_use]
    pub fn send_room(&self) -> usize {
        self.works.room()
    }

    /// Posts a work request.
    ///
    /// # Errors
    /// The request itself if there is no room.
    pub fn post(&mut self, mut request: Request<M::Local>) -> Result<(), Request<M::Local>> {
        let Request {
            token,
            operation,
            ref mut local,
            signalled,
        } = request;
        if self.post_from(token, operation, local, signalled) {
            Ok(())
        } else {
            Err(request)
        }
    }

    /// Posts a work request as [`Self::post`] does, but takes its memory out of `local`, so that
    /// it is moved only once. `false`, and nothing is taken, if there is no room.
    #[inline]
    pub fn post_from(
        &mut self,
        token: u64,
        operation: Operation,
        local: &mut M::Local,
        signalled: bool,
    ) -> bool {
        if self.works.room() == 0 {
            return false;
        }
        let length = u32::try_from(M::length(local)).ok();
        let place = self.works.push(token, operation, length, signalled);
        M::hand_over(local, place);
        true
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The receive itself if there is no room.
    pub fn post_receive(&mut self, receive: M::Receive) -> Result<(), M::Receive> {
        if self.receives.posted.len() >= self.limits.receive_depth {
            return Err(receive);
        }
        self.receives.posted.push_back(PostedReceive {
            receive,
            length: 0,
            invalidated: None,
        });
        self.counters.receives.posted += 1;
        Ok(())
    }

    /// Lets more receives be posted than there was room for so far.
    pub fn deepen_receives(&mut self, receive_depth: usize) {
        self.limits.receive_depth = self.limits.receive_depth.max(receive_depth);
    }

    /// Exposes memory to the peer; `random` makes the key unpredictable.
    ///
    /// # Errors
    /// The memory itself if no exposure is free, or it is 4 GiB or longer.
    pub fn expose(
        &mut self,
        local: M::Local,
        access: Access,
        random: u32,
    ) -> Result<Exposed, M::Local> {
        match u32::try_from(M::length(&local)) {
            Ok(length) => self.keys.expose(local, length, access, random),
            Err(_) => Err(local),
        }
    }

    /// Ends an exposure. Data that the peer writes under the key is no longer placed, and breaks
    /// the stream; data that is already being read for the peer is still sent.
    pub fn revoke(&mut self, key: u32) -> Revocation<M::Local> {
        let (revocation, slot) = self.keys.revoke(key);
        if let Some(slot) = slot {
            self.inbound.cut_off(slot);
        }
        revocation
    }

    /// A key with its memory, after its postponed revocation has taken effect.
    pub fn take_revoked(&mut self) -> Option<(u32, M::Local)> {
        self.keys.take_revoked()
    }

    /// The oldest work request, if it has ended and has to be reported.
    pub fn take_completion(&mut self) -> Option<Completion<M::Local>> {
        let (token, result) = self.completion()?;
        let mut local = M::Local::default();
        self.take_completed(&mut local);
        Some(Completion {
            token,
            result,
            local,
        })
    }

    /// The token and result of that request. [`Self::take_completed`] has to follow.
    #[must_use]
    pub fn completion(&self) -> Option<(u64, Result<(), WorkFault>)> {
        self.works.completion()
    }

    /// Moves the memory of the request that [`Self::completion`] gave to `local`, which has none.
    pub fn take_completed(&mut self, local: &mut M::Local) {
        self.works.take_completed(|from| M::hand_over(from, local));
    }

    /// The oldest message that arrived.
    pub fn take_delivery(&mut self) -> Option<Delivery<M::Receive>> {
        self.receives.arrived = self.receives.arrived.checked_sub(1)?;
        let PostedReceive {
            receive,
            length,
            invalidated,
        } = self.receives.posted.pop_front()?;
        self.counters.receives.complete(length);
        Some(Delivery {
            receive,
            length,
            invalidated,
        })
    }

    /// Whether one of the `take_` calls has something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.receives.arrived > 0 || self.works.has_completion() || self.keys.has_revoked()
    }

    /// Why the stream takes no more bytes, if it does not.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Whether nothing is left to be sent or awaited, so that the stream may be closed in order.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.works.is_settled() && self.responses.is_empty() && self.outbound.bytes_left() == 0
    }

    /// Whether the stream is between two FPDUs, where it may end in an orderly way.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.inbound.is_at_boundary()
    }

    /// Ends the stream from this side because of a fault: the next and last FPDU is a Terminate
    /// message.
    pub fn fail(&mut self, fault: Fault) {
        self.break_off(fault, &[]);
    }

    /// Whether a Terminate message of ours has been accepted to its last byte.
    #[must_use]
    pub fn is_terminate_sent(&self) -> bool {
        self.terminate_sent
    }

    /// Whether the initiator's ready-to-receive indication, if one was agreed, has been accepted
    /// to its last byte.
    #[must_use]
    pub fn is_indication_sent(&self) -> bool {
        self.parameters
            .as_ref()
            .is_some_and(|parameters| parameters.gate.to_send().is_none())
    }

    /// Ends all work that has not ended; it is collected with [`Self::take_completion`]. Nothing
    /// can be gathered any more. If the peer refused the source of a Read, that Read says so.
    pub fn flush(&mut self) -> Option<Staging> {
        if let Some(Stop::Terminated(Terminate {
            layer: 0, kind: 1, ..
        })) = self.stop
            && let Some(OpenRead {
                work: Some(work), ..
            }) = self.reads.front()
        {
            self.works.finish(*work, Err(WorkFault::RemoteAccess));
        }
        self.works.flush();
        self.outbound.abandon()
    }

    /// The counters of the stream.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let [sends, writes, reads] = self.works.tallies();
        Counters {
            sends,
            writes,
            reads,
            ..self.counters
        }
    }

    /// The stream is over: says why to the peer, once. `head` is the offending FPDU up to its
    /// payload.
    fn break_off(&mut self, fault: Fault, head: &[u8]) {
        if self.stop.is_some() {
            return;
        }
        if fault == Fault::Crc {
            self.counters.crc_errors += 1;
        }
        self.terminate = Some(TerminateHeader::new(fault, head));
        self.stop = Some(Stop::Fault(fault));
    }
}

impl<M: Memory> std::fmt::Debug for Endpoint<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("limits", &self.limits)
            .field("stop", &self.stop)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::{Role, RtrKinds};

    struct Nothing;

    impl Memory for Nothing {
        type Local = ();
        type Receive = ();

        fn length((): &()) -> usize {
            0
        }

        fn place((): &(), _: usize, _: &[u8]) {}

        fn fetch((): &(), _: usize, _: &mut [u8]) {}

        fn capacity((): &()) -> usize {
            4096
        }

        fn fill((): &mut (), _: usize, _: &[u8]) {}
    }

    #[test]
    fn queues_have_their_memory_from_the_start_of_the_stream_on() {
        let limits = Limits {
            send_depth: 1000,
            receive_depth: 2000,
            receive_size: 4096,
            exposures: 0,
        };
        let mut endpoint = Endpoint::<Nothing>::new(limits, 1);
        assert!(endpoint.post_receive(()).is_ok());
        let sizes = |endpoint: &Endpoint<Nothing>| {
            let receives = &endpoint.receives;
            let works = endpoint.works.capacity();
            [works, receives.posted.capacity()]
        };
        let before = sizes(&endpoint);
        assert!(before.iter().all(|size| *size < 10), "{before:?}");
        endpoint.start(Parameters::new(&Negotiated {
            role: Role::Responder,
            revision: 1,
            enhanced: false,
            crc: false,
            send_markers: false,
            ird: 1,
            ord: 1,
            peer: None,
            peer_to_peer: false,
            rtr_to_send: None,
            rtr_expected: RtrKinds::NONE,
            private_data: Vec::new(),
        }));
        assert!(
            sizes(&endpoint)
                .iter()
                .zip([1000, 2000])
                .all(|(size, most)| *size >= most)
        );
        assert_eq!(endpoint.receives.posted.len(), 1);
    }
}
