//! The program table: the description of each RPC program, and the program that serves its calls.
//!
//! A program is a module of its own. It supplies
//!
//! * a [`ProgramInfo`]: its number, its versions, and for each procedure the facts that the
//!   transports and the dispatcher need ([`ProcedureInfo`]): which arguments may stay in read
//!   chunks, how many results may be placed into write chunks, whether a second execution would do
//!   harm, whether its calls count against limits, and whether it moves file data;
//! * [`Program::serve`], which decodes the arguments ([`ProgramCall::arguments`]), determines the
//!   call's subject, has it admitted ([`ProgramCall::admit`]: repetitions, limits, journal),
//!   executes it, and encodes its results ([`ProgramCall::answer`]);
//! * optionally [`Program::serve_at_once`], for calls that often need not wait.
//!
//! The service lists its programs as nested pairs, `(Nfs3, (Mount3, ()))`, in its `ProgramTable`. A
//! call is handed to its program by comparing numbers, without allocation or dynamic dispatch.
//! Transports see only [`Serve`](super::call::Serve), through which they ask for a
//! [`ProcedureInfo`].

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use millrace_mempool::{Class, Slice};
use millrace_store::Store;
use millrace_wire::rpc::{Accepted, ReplyHeader, answer_to};
use millrace_wire::xdr::{Data, Decode, Decoder, Encode, Error, Result as XdrResult};

use super::admission::{Admission, AdmissionControl, CallSubject, JournalGuard};
use super::call::{Answer, Broken, Bulk, BulkArgument, NoBulk, Reply, scatter};
use super::connection::ConnectionRef;
use super::encode::encode;
use crate::access::{Access, CallIdentity, ServedExports};
use crate::exports::Exports;
use crate::latency::TurnEnd;
use crate::replay::{CallKey, InterruptedCall};

/// Where the words end that stand at fixed places in a call: no data of any item can be before.
pub const FIXED_WORDS: u32 = 24;

/// Bytes of a call that is put together as a whole, whatever its procedure. The longest arguments
/// without bulk data of most are two names or a path (RFC 1813): far below this.
pub const WHOLE: usize = Class::Medium.size();

/// Program, version and procedure of a call, at their fixed places (RFC 5531 section 9).
#[must_use]
pub fn called(message: &[u8]) -> Option<(u32, u32, u32)> {
    let word = |at: usize| {
        let bytes = message.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    Some((word(12)?, word(16)?, word(20)?))
}

/// Which way a procedure moves file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirection {
    /// To the client.
    Read,
    /// From the client.
    Write,
}

/// Arguments that are eligible for direct data placement (RFC 8166 section 3.4.1).
#[derive(Clone, Copy, Debug)]
pub struct EligibleArguments {
    /// Most of them in one call. A call with more read chunks is put together as a whole.
    pub most: usize,
    /// Reads from the beginning of the arguments to where the data of an item begins that ends
    /// them: the data of a long call may then stay in its chunk too. `None` if none ends them.
    pub to_last: Option<fn(&mut Decoder<'_>) -> XdrResult<()>>,
}

/// The table's entry for a procedure.
#[derive(Clone, Copy, Debug)]
pub struct ProcedureInfo {
    /// The word for it in metrics, one of those that the label `procedure` may have.
    pub name: &'static str,
    /// Arguments with data that stays in read chunks until the program chooses its destination. For
    /// procedures without such arguments, the chunks are put back into the message.
    pub arguments: Option<EligibleArguments>,
    /// Most bytes of a call that is put together as a whole, in one buffer of the class that fits.
    pub whole: usize,
    /// Most results that may be placed into write chunks.
    pub results: usize,
    /// Whether a second execution of the same call would do harm or answer something else. Such a
    /// call is answered from the duplicate request cache when it is repeated.
    pub once: bool,
    /// Whether its calls count against the limits of clients and exports.
    pub metered: bool,
    /// Whether [`Program::serve_at_once`] may execute it.
    pub immediate: bool,
    /// The direction of its file data, if any; its latency is then reported by size.
    pub data: Option<DataDirection>,
}

impl ProcedureInfo {
    /// A procedure that may be repeated, counts against limits, and has nothing in chunks.
    #[must_use]
    pub const fn plain(name: &'static str) -> Self {
        Self {
            name,
            arguments: None,
            whole: WHOLE,
            results: 0,
            once: false,
            metered: true,
            immediate: false,
            data: None,
        }
    }

    /// The same, not to be executed twice. Its remembered reply holds no data of chunks, so it has
    /// no results there; a table that says otherwise does not compile.
    #[must_use]
    pub const fn once(self) -> Self {
        assert!(self.results == 0, "a repeated reply has no data in chunks");
        Self { once: true, ..self }
    }

    /// The same, free of limits.
    #[must_use]
    pub const fn free(self) -> Self {
        Self {
            metered: false,
            ..self
        }
    }

    /// The same, possibly without waiting.
    #[must_use]
    pub const fn immediate(self) -> Self {
        Self {
            immediate: true,
            ..self
        }
    }

    /// The same, with longer calls put together as a whole.
    #[must_use]
    pub const fn with_whole(self, bytes: usize) -> Self {
        assert!(bytes >= WHOLE && bytes <= Class::Large.size());
        Self {
            whole: bytes,
            ..self
        }
    }

    /// The same, with so many results that may be placed into write chunks.
    #[must_use]
    pub const fn with_results(self, results: usize) -> Self {
        assert!(!self.once, "a repeated reply has no data in chunks");
        Self { results, ..self }
    }
}

/// The table's entry for a program.
#[derive(Debug)]
pub struct ProgramInfo {
    /// Its number (RFC 5531 section 8.2).
    pub number: u32,
    /// The word for it in metrics. Where they count its calls, the label `program` may have it.
    pub name: &'static str,
    /// The versions served.
    pub versions: RangeInclusive<u32>,
    /// Its procedures, by number; those of all versions.
    pub procedures: &'static [ProcedureInfo],
    /// Whether metrics count its calls by procedure.
    pub counted: bool,
}

impl ProgramInfo {
    /// The entry for a procedure of this program, if it has that procedure.
    #[must_use]
    pub fn procedure(&self, called: (u32, u32, u32)) -> Option<&'static ProcedureInfo> {
        let here = called.0 == self.number && self.versions.contains(&called.1);
        let procedures = if here { self.procedures } else { &[] };
        procedures.get(called.2 as usize)
    }
}

/// The end of a call that a program has served.
#[derive(Clone, Copy, Debug)]
pub struct ProgramAnswer {
    /// The action for the transport.
    pub answer: Answer,
    /// Whether its status was success.
    pub success: bool,
    /// Whether an export did not admit the client, or not with this security.
    pub turned_away: bool,
}

impl ProgramAnswer {
    /// The answer of a call that no export refused.
    #[must_use]
    pub const fn new(answer: Answer, success: bool) -> Self {
        Self {
            answer,
            success,
            turned_away: false,
        }
    }
}

/// Why a program did not execute a call.
#[derive(Clone, Debug)]
pub enum Unserved {
    /// Its arguments do not decode.
    Garbage,
    /// The program is not served to this peer.
    NoProgram,
    /// There is no such procedure in this version.
    NoProcedure,
    /// The transport broke meanwhile.
    Broken,
    /// It was executed before, and answered with this message.
    Replay(Arc<[u8]>),
    /// It is answered with silence.
    Silent,
}

impl From<Error> for Unserved {
    fn from(_: Error) -> Self {
        Self::Garbage
    }
}

impl From<Broken> for Unserved {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// What stays the same when a request of a session is sent again. A client may encode it anew for
/// that, with another highest slot (Linux does so for its next connection).
#[derive(Clone, Copy, Debug, Default)]
pub struct RepeatableRequest<'a> {
    /// The session, the slot and its sequence number.
    pub slot: &'a [u8],
    /// The operations, which another request may have as well.
    pub body: &'a [u8],
}

/// A call with a sound header, as its program sees it.
pub struct ProgramCall<'c, B> {
    /// The connection that it was received on.
    pub connection: &'c ConnectionRef,
    /// When the call arrived.
    pub arrived: Instant,
    /// Its transaction identifier.
    pub xid: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure.
    pub number: u32,
    /// The table's entry for the procedure.
    pub procedure: &'static ProcedureInfo,
    /// Who calls.
    pub identity: CallIdentity<'c>,
    /// The whole message, from the XID on; of a call whose arguments are protected, what its body
    /// holds.
    pub message: &'c [u8],
    /// Its data in chunks.
    pub bulk: &'c mut B,
    pub(super) taken: &'c [BulkArgument],
    /// The bytes of the only one of these, if they were fetched before.
    pub(super) fetched: Option<&'c [u8]>,
    /// Behind the header; the arguments are read from a copy.
    pub(super) input: Decoder<'c>,
    pub(super) program: u32,
    pub(super) control: &'c AdmissionControl,
    pub(super) is_admitted: bool,
    /// Of a call that must not be executed twice.
    pub(super) admission: Option<Admission<'c>>,
    /// Of an operation that uses names, and may be executed twice.
    pub(super) names_in_use: Option<JournalGuard<'c>>,
}

impl<'c, B: Bulk> ProgramCall<'c, B> {
    /// The client's address.
    #[must_use]
    pub fn client(&self) -> IpAddr {
        self.connection.address()
    }

    /// The call's view of exports.
    pub(crate) fn access<S: Store>(
        &self,
        served: &'c ServedExports<S>,
        exports: &'c Exports<S>,
    ) -> Access<'c, S> {
        Access {
            served,
            exports,
            client: self.client(),
            identity: self.identity,
        }
    }

    /// Reads the arguments, for programs that decode them part by part.
    #[must_use]
    pub fn input(&self) -> Decoder<'c> {
        self.input
    }

    /// Bytes of the whole call message with its data in place, whether these come in chunks, which
    /// leave out the pad, or not.
    #[must_use]
    pub fn length(&self) -> usize {
        let padded = |taken: &BulkArgument| (taken.length as usize).next_multiple_of(4);
        let apart = self.taken.iter().map(padded);
        self.message.len() + apart.sum::<usize>()
    }

    /// Decodes the arguments completely: all data in chunks has to belong to them.
    ///
    /// # Errors
    /// [`Unserved::Garbage`].
    pub fn arguments<T: Decode<'c>>(&self) -> Result<T, Unserved> {
        let mut input = self.input;
        let arguments = T::decode(&mut input)?;
        input.finish()?;
        Ok(arguments)
    }

    /// Whether the call is admitted already: its procedure may be repeated, and neither its client
    /// nor any export is limited.
    /// Then there is nothing to [`admit`](Self::admit), and no need to determine its subject.
    pub fn is_admitted_at_once(&mut self) -> bool {
        let waits = self.procedure.once
            || (self.procedure.metered && self.control.may_wait(self.connection));
        self.is_admitted |= !waits;
        !waits
    }

    /// Admits the call, which is required before it is executed: detects a repetition of a call
    /// that must not be executed twice, waits for the limits of the client and of the export, and
    /// records the call in the journal. Returns the known facts about the call if an earlier
    /// process may have executed it.
    ///
    /// # Errors
    /// The call must not be executed.
    pub async fn admit(
        &mut self,
        subject: CallSubject<'_>,
    ) -> Result<Option<InterruptedCall>, Unserved> {
        self.is_admitted = true;
        if self.procedure.once {
            let key = self.key(self.xid, [self.input.rest(), &[]]);
            let ticket = self.control.enter(key, self.arrived).await?;
            self.admission = Some(Admission::new(ticket));
        }
        if self.procedure.metered {
            self.control.pass(self.connection, &subject).await?;
        }
        let Some(admission) = &mut self.admission else {
            return Ok(None);
        };
        let again = admission.record(self.control, &subject);
        self.control.written(&subject).await;
        Ok(again)
    }

    fn key(&self, xid: u32, arguments: [&[u8]; 2]) -> CallKey {
        let call = (self.program, self.version, self.number);
        let replay = &self.control.replay;
        replay.key(self.client(), xid, call, &self.identity, arguments)
    }

    /// The key of a request of a session.
    fn request_key(&self, request: &RepeatableRequest<'_>) -> CallKey {
        self.key(self.xid, [request.slot, request.body])
    }

    /// The key of the next request with the same operations.
    fn next_request_key(&self, request: &RepeatableRequest<'_>) -> CallKey {
        self.key(0, [&[], request.body])
    }

    /// Admits a change of names that others than the cache keep from being executed twice, but not
    /// beyond the end of the process: it is recorded in the journal if it outlives the process.
    /// The client repeats its operations in another request, once it knows that the process has
    /// ended. Returns the known facts about it if an earlier process may have executed
    /// it. The first change of a call has such a record; of others only the names are noted.
    ///
    /// # Errors
    /// The call must not be executed.
    pub async fn begin_change(
        &mut self,
        subject: &CallSubject<'_>,
        request: &RepeatableRequest<'_>,
    ) -> Result<Option<InterruptedCall>, Unserved> {
        if self.admission.is_some() {
            self.begin_use(subject).await;
            return Ok(None);
        }
        if !subject.lasting || self.control.journal.get().is_none() {
            return Ok(None);
        }
        let (key, replay) = (self.request_key(request), &self.control.replay);
        if replay.has_interrupted() {
            replay.reassign(&self.next_request_key(request), key);
        }
        let ticket = self.control.enter(key, self.arrived).await?;
        let admission = self.admission.insert(Admission::new(ticket));
        let again = admission.record(self.control, subject);
        self.control.written(subject).await;
        Ok(again)
    }

    /// Records the names that an operation uses, until [`end_use`](Self::end_use).
    pub async fn begin_use(&mut self, subject: &CallSubject<'_>) {
        if subject.lasting && self.control.journal.get().is_some() {
            // It is no call's, as none has such an identifier and no arguments.
            let key = self.key(self.xid, [&[]; 2]);
            self.names_in_use = self.control.note_use(&key, subject);
            self.control.written(subject).await;
        }
    }

    /// The operation has ended.
    pub fn end_use(&mut self) {
        if let Some(names) = self.names_in_use.take() {
            names.done(&[]);
        }
    }

    /// The change of names that [`begin_change`](Self::begin_change) admitted was put off, and the
    /// client sends the same operations in another request later. What is known of it holds for
    /// that one.
    pub fn put_off_change(&mut self, request: &RepeatableRequest<'_>) {
        if let Some(admission) = self.admission.take() {
            admission.void();
            let (key, next) = (self.request_key(request), self.next_request_key(request));
            self.control.replay.reassign(&key, next);
        }
    }

    /// The reply that an earlier process gave to this call. If that process was executing the call,
    /// the next request of the client with the same operations is known as its repetition.
    #[must_use]
    pub fn earlier_reply(&self, request: &RepeatableRequest<'_>) -> Option<Arc<[u8]>> {
        let (key, next) = (self.request_key(request), self.next_request_key(request));
        self.control.replay.retire(&key, next)
    }

    /// Fetches the data that belongs at a position of the message.
    ///
    /// # Errors
    /// There is no such data, or the transport failed.
    pub async fn pull(&mut self, position: u32, sinks: &[Slice]) -> Result<(), Unserved> {
        let index = self
            .taken
            .iter()
            .position(|taken| taken.position == position);
        let index = index.ok_or(Unserved::Garbage)?;
        if let Some(bytes) = self.fetched {
            scatter(bytes, sinks);
            return Ok(());
        }
        Ok(self.bulk.pull(index, sinks).await?)
    }

    /// The bytes of an argument, if they came in the message or were fetched before.
    #[must_use]
    pub fn bytes(&self, data: Data<'c>) -> Option<&'c [u8]> {
        match (data, self.taken) {
            (Data::Inline(bytes), _) => Some(bytes),
            (Data::Apart(position), [taken]) if taken.position == position => self.fetched,
            (Data::Apart(_), _) => None,
        }
    }

    /// The header of a reply with results.
    #[must_use]
    pub fn header(&self) -> ReplyHeader<'static> {
        answer_to(self.xid, Accepted::Success)
    }

    /// Encodes results. Data that they leave out is in the reply's slices.
    pub fn answer(&self, reply: &mut Reply, results: &impl Encode, success: bool) -> ProgramAnswer {
        ProgramAnswer::new(encode(reply, &self.header(), results), success)
    }
}

/// One RPC program of the service.
#[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
pub trait Program: 'static {
    /// Its entry in the table.
    const INFO: &'static ProgramInfo;

    /// Whether it is served now; else its calls are answered `PROG_UNAVAIL`.
    fn is_served(&self) -> bool {
        true
    }

    /// Whether a client at this address may use what it serves, as far as it knows about that.
    fn admits(&self, _client: IpAddr) -> bool {
        false
    }

    /// Serves one call.
    ///
    /// # Errors
    /// The call was not executed.
    async fn serve<B: Bulk>(
        &self,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved>;

    /// Whether some calls with little data are served at once if that has been fetched
    /// ([`Serve::fetches_small_data`](super::call::Serve::fetches_small_data)).
    fn fetches_small_data(&self) -> bool {
        false
    }

    /// Executes one call that is admitted and has all of its data, if it has to wait for nothing.
    /// `None` if it may have to, or does not decode: it has had no effect then, and
    /// [`serve`](Self::serve) serves it.
    fn serve_at_once(
        &self,
        _call: &mut ProgramCall<'_, NoBulk>,
        _reply: &mut Reply,
    ) -> Option<ProgramAnswer> {
        None
    }

    /// A turn of the reactor ends: the replies of its calls have been handed to the fabric.
    fn turned(&self, _end: &TurnEnd) {}
}

/// The result of looking up a program's number and version.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The program at this place in the list.
    Found(usize, &'static ProgramInfo),
    /// It is served in these versions only.
    Versions(RangeInclusive<u32>),
    /// It is not served.
    Unknown,
}

/// The programs of the service: `()`, or a program and the others.
#[allow(async_fn_in_trait)] // As [`Program`].
pub trait Programs: 'static {
    /// Appends the entry for each program, in the order of the list.
    fn infos(list: &mut Vec<&'static ProgramInfo>);

    /// Finds a version of a program.
    fn find(&self, number: u32, version: u32) -> Lookup;

    /// Whether any of them admits a client at this address.
    fn admits(&self, client: IpAddr) -> bool;

    /// Whether any of them wants that ([`Program::fetches_small_data`]).
    fn fetches_small_data(&self) -> bool;

    /// Has the program at a place in the list serve a call.
    ///
    /// # Errors
    /// The call was not executed.
    async fn serve<B: Bulk>(
        &self,
        index: usize,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved>;

    /// The same for a call that has to wait for nothing ([`Program::serve_at_once`]).
    fn serve_at_once(
        &self,
        index: usize,
        call: &mut ProgramCall<'_, NoBulk>,
        reply: &mut Reply,
    ) -> Option<ProgramAnswer>;

    /// Tells all of them that a turn of the reactor ends ([`Program::turned`]).
    fn turned(&self, end: &TurnEnd);
}

impl Programs for () {
    fn infos(_: &mut Vec<&'static ProgramInfo>) {}

    fn find(&self, _: u32, _: u32) -> Lookup {
        Lookup::Unknown
    }

    fn admits(&self, _: IpAddr) -> bool {
        false
    }

    fn fetches_small_data(&self) -> bool {
        false
    }

    async fn serve<B: Bulk>(
        &self,
        _: usize,
        _: &mut ProgramCall<'_, B>,
        _: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        Err(Unserved::NoProcedure)
    }

    fn serve_at_once(
        &self,
        _: usize,
        _: &mut ProgramCall<'_, NoBulk>,
        _: &mut Reply,
    ) -> Option<ProgramAnswer> {
        None
    }

    fn turned(&self, _: &TurnEnd) {}
}

impl<P: Program, O: Programs> Programs for (P, O) {
    fn infos(list: &mut Vec<&'static ProgramInfo>) {
        list.push(P::INFO);
        O::infos(list);
    }

    fn find(&self, number: u32, version: u32) -> Lookup {
        let here = number == P::INFO.number && self.0.is_served();
        if here && P::INFO.versions.contains(&version) {
            return Lookup::Found(0, P::INFO);
        }
        match self.1.find(number, version) {
            Lookup::Found(index, info) => Lookup::Found(index + 1, info),
            // Two versions of a program may be in rooms of their own.
            Lookup::Versions(others) if here => {
                let (own, low) = (&P::INFO.versions, *others.start());
                Lookup::Versions(low.min(*own.start())..=*others.end().max(own.end()))
            }
            Lookup::Unknown if here => Lookup::Versions(P::INFO.versions.clone()),
            lookup => lookup,
        }
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.0.admits(client) || self.1.admits(client)
    }

    fn fetches_small_data(&self) -> bool {
        self.0.fetches_small_data() || self.1.fetches_small_data()
    }

    async fn serve<B: Bulk>(
        &self,
        index: usize,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        match index {
            0 => self.0.serve(call, reply).await,
            _ => self.1.serve(index - 1, call, reply).await,
        }
    }

    #[inline]
    fn serve_at_once(
        &self,
        index: usize,
        call: &mut ProgramCall<'_, NoBulk>,
        reply: &mut Reply,
    ) -> Option<ProgramAnswer> {
        match index {
            0 => self.0.serve_at_once(call, reply),
            _ => self.1.serve_at_once(index - 1, call, reply),
        }
    }

    fn turned(&self, end: &TurnEnd) {
        self.0.turned(end);
        self.1.turned(end);
    }
}
