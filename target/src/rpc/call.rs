//! The seam between transports and programs: one RPC call in, one RPC reply out.
//!
//! A transport (RPC-over-RDMA, TCP) receives a call, makes a [`Reply`] whose limits say what it
//! can carry, and tries [`Serve::serve_at_once`]; a call that may have to wait is served by
//! [`Serve::serve`] in a task. Programs never see chunks, records or queue pairs, and transports
//! never see programs.
//!
//! * Data of a call that is separate from its message (in a read chunk) is listed in
//!   [`Call::bulk`]; the procedure chooses its destination and has the transport put it there
//!   ([`Bulk::pull`]). Data inside the message is simply read from it.
//! * The reply is encoded straight into a pool buffer, behind room that is reserved for the
//!   transport's header. Data of a reply stays in the store's memory: slices beside the message,
//!   with their positions in the message ([`BulkResult`]). The transport places them into a write
//!   chunk, or gathers them in line.
//!
//! No step of this allocates once the reused list of slices has grown.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_wire::xdr::{ITEMS_MAX, Padding};

use super::connection::ConnectionRef;
use super::program::ProcedureInfo;
pub use crate::latency::TurnEnd;

/// Data of a call that is separate from its message: its position and length.
pub use millrace_wire::xdr::Taken as BulkArgument;

/// What carried a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// RPC-over-RDMA.
    Rdma,
    /// Record-marked RPC over TCP (RFC 5531 section 11).
    Tcp,
}

impl TransportKind {
    /// How many there are.
    pub(crate) const COUNT: usize = 2;
}

/// Who called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address; an IPv4-mapped IPv6 address is given as IPv4.
    pub address: IpAddr,
    /// The client's port, which changes with each connection.
    pub port: u16,
    /// What carried the call.
    pub transport: TransportKind,
}

impl Peer {
    /// The peer at a socket address.
    #[must_use]
    pub fn new(address: SocketAddr, transport: TransportKind) -> Self {
        Self {
            address: address.ip().to_canonical(),
            port: address.port(),
            transport,
        }
    }
}

/// One RPC call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The connection that it was received on.
    pub connection: &'a ConnectionRef,
    /// When the call arrived: the time stamp of the reactor's turn.
    pub arrived: Instant,
    /// The RPC message from its XID on, without the items in `bulk`. Not checked in any way.
    pub message: &'a [u8],
    /// The data that was moved from the message into read chunks, one entry for each chunk, by
    /// ascending position.
    pub bulk: &'a [BulkArgument],
    /// The bytes of the only item in `bulk`, if the transport has fetched them before
    /// ([`Serve::fetches_small_data`]).
    pub fetched: Option<&'a [u8]>,
    /// The alignment of a message of type RDMA_MSGP; none otherwise.
    pub padding: Padding,
    /// An attempt to serve it at once has verified who sent it ([`Reply::is_authenticated`]).
    pub is_authenticated: bool,
}

/// The transport failed while a call was served, so no answer can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection ended while the call was served")]
pub struct Broken;

/// Fetches data that is separate from a call's message.
#[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
pub trait Bulk {
    /// Fills `sinks`, in order and to the last byte, from the start of the chunk at `index` of
    /// [`Call::bulk`]. The sinks together are never longer than that chunk. The transport holds
    /// clones of the slices until the fabric no longer uses them, even if this future is dropped.
    async fn pull(&mut self, index: usize, sinks: &[Slice]) -> Result<(), Broken>;
}

/// For transports that never separate data from messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBulk;

impl Bulk for NoBulk {
    async fn pull(&mut self, _: usize, _: &[Slice]) -> Result<(), Broken> {
        Err(Broken)
    }
}

/// Most bytes of each bulk result placed apart from the message: the capacities of the write
/// chunks, which take results in order (RFC 8267 section 4). `None`: the result travels inside the
/// message, padded, and counts there.
pub type ChunkRoom = [Option<u32>; ITEMS_MAX];

/// No room apart from the message.
pub const NO_CHUNKS: ChunkRoom = [None; ITEMS_MAX];

/// Room for the first bulk result only.
#[must_use]
pub const fn one_chunk(bytes: u32) -> ChunkRoom {
    let mut room = NO_CHUNKS;
    room[0] = Some(bytes);
    room
}

/// The limits of a transport for the reply to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the transport keeps in front of the message for its own header.
    pub headroom: usize,
    /// Most bytes of the RPC reply message: what fits in line or in the reply chunk, or the
    /// bound of a record.
    pub message: usize,
    /// Room for bulk results apart from the message, by result.
    pub apart: ChunkRoom,
    /// Whether the transport can report the missing room to the client, which may then offer more.
    /// If so, a call that requests more data than fits into its chunks is refused before it is
    /// executed; otherwise the data is shortened where its protocol allows that.
    pub tells_shortage: bool,
    /// Whether the transport may have to copy data of several slices that goes into the message,
    /// for which it may take a larger buffer.
    pub flattens: bool,
}

/// One result of a reply with data that is separate from its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkResult {
    /// Where in the message the data belongs, counted from the XID without the data of results
    /// before it: behind its length word.
    pub position: usize,
    /// Bytes of data, without XDR padding.
    pub length: usize,
}

/// The bulk results of a reply, in order.
pub type BulkResults = ArrayVec<BulkResult, ITEMS_MAX>;

/// The outcome of a call for its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply is to be sent.
    Send,
    /// Nothing is to be sent: the message was no RPC call, or one repetition too many of a call
    /// that is still being executed.
    Silent,
    /// The answer does not fit the limits, and no shorter one is allowed by its protocol. RDMA
    /// answers `ERR_CHUNK` or `RDMA2_ERR_CANT_REPLY`, TCP closes the connection.
    TooLarge(Shortage),
    /// The transport broke meanwhile.
    Broken,
    /// Nothing is to be sent any more: the client sends call after call that it cannot have signed.
    Disconnect,
}

/// What an answer would have needed that does not fit (draft-cel-nfsv4-rpcrdma-version-two-02
/// section 5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shortage {
    /// Whether the procedure had run when the shortage was found. A repetition of the call is
    /// executed again unless that would do harm; then the answer has been remembered
    /// ([`crate::replay`]).
    pub processed: bool,
    /// Bytes of the RPC reply message without bulk data; zero if that is not known, for example
    /// because it would have fitted.
    pub message: usize,
    /// Bytes of the bulk result, without XDR padding.
    pub bulk: usize,
}

impl Shortage {
    /// That of a reply to an executed call.
    pub(crate) fn of(parts: &ReplyParts) -> Self {
        Self {
            processed: true,
            message: parts.message.len(),
            bulk: parts.bulk.iter().map(|item| item.length).sum(),
        }
    }
}

/// The bytes that a call moved, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Account {
    /// Bytes of file data read.
    pub read: u32,
    /// Bytes of file data written.
    pub written: u32,
}

/// A reply in the making: a message in a pool buffer, and data beside it.
#[derive(Debug)]
pub struct Reply {
    pool: Pool,
    buffer: Buffer,
    limits: Limits,
    length: usize,
    bulk: BulkResults,
    /// A message that does not fit, for those who remember it.
    overlong: Option<Vec<u8>>,
    /// Slices of the bulk argument while the call is served, of the bulk result after it.
    pub(crate) slices: Vec<Slice>,
    pub(crate) account: Account,
    /// The call was for a procedure that is served.
    pub(crate) is_call_valid: bool,
    /// The sender of the call was verified, and its sequence number is used up.
    pub(crate) is_authenticated: bool,
    /// Bytes kept in front of the message and behind it, for what protects it.
    margins: (usize, usize),
}

/// The parts of a finished reply that the transport sends.
#[derive(Debug)]
pub struct ReplyParts {
    /// The buffer: `limits.headroom` bytes of the transport's own, then the message.
    pub buffer: Buffer,
    /// The range of the message in the buffer.
    pub message: Range<usize>,
    /// The data that belongs into the message. Transports that place a result apart send no
    /// padding there; transports that gather it in line add XDR padding.
    pub bulk: BulkResults,
    /// The slices that hold the data, one result behind the other; each ends with a slice. Give
    /// the emptied list to the next reply.
    pub slices: Vec<Slice>,
}

impl Reply {
    /// A reply that begins in `buffer` and takes a larger one from `pool` where it has to.
    /// `slices` is a list to be reused; it is emptied.
    #[must_use]
    pub fn new(pool: &Pool, buffer: Buffer, limits: Limits, mut slices: Vec<Slice>) -> Self {
        slices.clear();
        let pool = pool.clone();
        Self {
            pool,
            buffer,
            limits,
            length: 0,
            bulk: BulkResults::new_const(),
            overlong: None,
            slices,
            account: Account::default(),
            is_call_valid: false,
            is_authenticated: false,
            margins: (0, 0),
        }
    }

    /// Keeps room in front of the message and behind it, which is no longer there for the message.
    /// Data `within` the message has no room apart from it, and the whole fits into one buffer.
    pub(crate) fn keep_margins(&mut self, front: usize, behind: usize, within: bool) {
        let limits = &mut self.limits;
        if within {
            limits.apart = NO_CHUNKS;
            let most = Class::Large.size().saturating_sub(limits.headroom);
            limits.message = limits.message.min(most);
        }
        limits.headroom += front;
        limits.message = limits.message.saturating_sub(front + behind);
        self.margins = (front, behind);
    }

    /// Makes the margins part of the message: the first `length` bytes of the room are it now. What
    /// was encoded begins behind the margin in front.
    pub(crate) fn release_margins(&mut self) -> (usize, usize) {
        let (front, behind) = std::mem::take(&mut self.margins);
        self.limits.headroom -= front;
        self.limits.message += front + behind;
        let shift = front;
        for item in &mut self.bulk {
            item.position += shift;
        }
        self.length += front;
        (front, behind)
    }

    /// Moves the bulk results into the message, and sees to it that the margin behind it is in the
    /// buffer. False if there is no memory for that.
    pub(crate) async fn make_whole(&mut self) -> bool {
        let bulk = self.bulk.iter();
        let within: usize = bulk.map(|item| item.length.next_multiple_of(4)).sum();
        let start = self.limits.headroom;
        let (encoded, end) = (start + self.length, start + self.length + within);
        let wanted = end + self.margins.1;
        if wanted > self.buffer.len() {
            let larger = self.pool.obtain_another(wanted).await.ok();
            let Some(mut larger) = larger.filter(|larger| larger.len() >= wanted) else {
                return false;
            };
            larger[start..encoded].copy_from_slice(&self.buffer[start..encoded]);
            self.buffer = larger;
        }
        let room = &mut self.buffer[start..];
        insert_bulk(room, self.length, &self.bulk, &self.slices, |_| true);
        self.length += within;
        self.bulk.clear();
        self.slices.clear();
        true
    }

    /// The bytes kept in front of the message and behind it.
    pub(crate) fn margins(&self) -> (usize, usize) {
        self.margins
    }

    /// Takes the reply apart for sending (or for reuse, after any other answer).
    #[must_use]
    pub fn into_parts(self) -> ReplyParts {
        let start = self.limits.headroom;
        ReplyParts {
            buffer: self.buffer,
            message: start..start + self.length,
            bulk: self.bulk,
            slices: self.slices,
        }
    }

    /// Whether the sender of the call was verified, so that its sequence number is used up.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// The limits of the transport.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The pool of this reactor.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where to encode the message: as much of the buffer as the transport can carry.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        let buffer = &mut self.buffer[..];
        let start = self.limits.headroom.min(buffer.len());
        let behind = &mut buffer[start..];
        let length = behind.len().min(self.limits.message);
        &mut behind[..length]
    }

    /// The bytes of [`room`](Self::room).
    #[inline]
    #[must_use]
    pub fn room_length(&self) -> usize {
        let behind = self.buffer.len().saturating_sub(self.limits.headroom);
        behind.min(self.limits.message)
    }

    /// Whether a message of `length` bytes may take a larger buffer before it is sent, as `within`
    /// bytes of its data go into it.
    #[must_use]
    pub fn may_take_buffer(&self, length: usize, within: usize) -> bool {
        let whole = self.limits.headroom + length + within;
        let is_in_parts = within > 0 && self.slices.len() > 1;
        self.limits.flattens && is_in_parts && whole > self.buffer.len()
    }

    /// The message as far as it was encoded.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.buffer[self.limits.headroom..self.limits.headroom + self.length]
    }

    /// Sets the length of the message that was encoded into [`Reply::room`].
    ///
    /// # Panics
    /// If it is more than the room.
    pub fn set_length(&mut self, length: usize) {
        assert!(
            length <= self.room_length(),
            "a reply must not leave its buffer"
        );
        self.length = length;
    }

    /// Keeps a message that does not fit as what this call would have been answered.
    pub(crate) fn set_overlong(&mut self, message: Vec<u8>) {
        self.clear();
        self.overlong = Some(message);
    }

    /// The reply message, including one that was too long to be sent.
    pub(crate) fn remembered(&self) -> &[u8] {
        self.overlong.as_deref().unwrap_or_else(|| self.message())
    }

    /// Adds memory to the reply's slices.
    pub fn add_slice(&mut self, slice: Slice) {
        self.slices.push(slice);
    }

    /// Makes the reply's slices its bulk results.
    pub fn set_bulk(&mut self, bulk: BulkResults) {
        debug_assert_eq!(
            self.slices.iter().map(Slice::len).sum::<usize>(),
            bulk.iter().map(|item| item.length).sum::<usize>(),
        );
        self.bulk = bulk;
    }

    /// Discards the encoded reply, so that another one can be encoded.
    pub fn clear(&mut self) {
        self.length = 0;
        self.bulk.clear();
        self.overlong = None;
        self.slices.clear();
    }

    /// Whether bulk results fit beside or into the message; `around` is the number of its other
    /// bytes.
    #[must_use]
    pub fn takes_bulk(&self, mut around: usize, bulk: &BulkResults) -> bool {
        bulk.iter()
            .zip(self.limits.apart)
            .all(|(item, room)| match room {
                Some(room) => item.length <= room as usize,
                None => {
                    around = around.saturating_add(item.length.next_multiple_of(4));
                    around <= self.limits.message
                }
            })
    }

    /// Most bytes of the bulk result with this index, given the bytes of the message around it.
    #[must_use]
    pub fn bulk_room(&self, index: usize, around: usize) -> usize {
        match self.limits.apart.get(index) {
            Some(Some(room)) => *room as usize,
            _ => self.limits.message.saturating_sub(around) & !3,
        }
    }

    /// A part of what was encoded into [`Reply::room`], and the slices beside it.
    pub(crate) fn encoded(&self, range: Range<usize>) -> (&[u8], &[Slice]) {
        let message = &self.buffer[self.limits.headroom..];
        (&message[range], &self.slices)
    }

    /// Makes [`Reply::room`] at least `bytes` long as [`Reply::reserve`] does, and keeps its first
    /// `encoded` bytes.
    pub(crate) async fn extend(&mut self, encoded: usize, bytes: usize) {
        let start = self.limits.headroom;
        let wanted = start + bytes.min(self.limits.message);
        let class = Class::for_size(wanted).unwrap_or(Class::Large);
        if wanted > self.buffer.len()
            && class.size() > self.buffer.len()
            && let Ok(mut larger) = self.pool.obtain_another(class.size()).await
        {
            let end = start + encoded;
            larger[start..end].copy_from_slice(&self.buffer[start..end]);
            self.buffer = larger;
        }
    }

    /// Makes [`Reply::room`] at least `bytes` long as far as the limits and the largest class of
    /// buffers allow, and discards the encoded reply. Waits for a larger buffer if necessary; if it
    /// gets none, the room is unchanged.
    pub async fn reserve(&mut self, bytes: usize) {
        self.clear();
        let wanted = self.limits.headroom + bytes.min(self.limits.message);
        if wanted <= self.buffer.len() {
            return;
        }
        let class = Class::for_size(wanted).unwrap_or(Class::Large);
        if class.size() > self.buffer.len()
            && let Ok(larger) = self.pool.obtain_another(class.size()).await
        {
            self.buffer = larger;
        }
    }
}

/// Moves bulk results to their positions in a message of `length` bytes, which begins `bytes`, and
/// rounds each up. Those that are not `within` stay apart.
pub(crate) fn insert_bulk(
    bytes: &mut [u8],
    length: usize,
    bulk: &BulkResults,
    slices: &[Slice],
    within: impl Fn(usize) -> bool,
) {
    let inserted = bulk.iter().enumerate().filter(|(index, _)| within(*index));
    let all: usize = inserted
        .map(|(_, item)| item.length.next_multiple_of(4))
        .sum();
    let (mut from, mut to) = (length, length + all);
    let mut last = slices.len();
    // From the last to the first, so that no data is overwritten before it is moved.
    for (index, item) in bulk.iter().enumerate().rev() {
        let mut first = last;
        let mut left = item.length;
        while left > 0 {
            first -= 1;
            left -= slices[first].len();
        }
        if within(index) {
            to -= from - item.position;
            bytes.copy_within(item.position..from, to);
            from = item.position;
            let behind = to;
            to -= item.length.next_multiple_of(4);
            let mut filled = to;
            for slice in &slices[first..last] {
                slice.copy_to(0, &mut bytes[filled..filled + slice.len()]);
                filled += slice.len();
            }
            bytes[filled..behind].fill(0);
        }
        last = first;
    }
}

/// Copies data to where the store wants it.
pub(crate) fn scatter(mut bytes: &[u8], sinks: &[Slice]) {
    for sink in sinks {
        let (part, rest) = bytes.split_at(sink.len().min(bytes.len()));
        sink.copy_from(0, part);
        bytes = rest;
    }
}

/// The programs of this service, as transports see them. One value serves one reactor.
#[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
pub trait Serve: Clone + 'static {
    /// Serves one call: everything from the RPC header on, errors included.
    ///
    /// When its connection ends meanwhile, the transport lets the call run to its end all the same
    /// ([`Bulk::pull`] then fails at once): the client will repeat it on another connection, and a
    /// call that must not be executed twice has to be remembered ([`crate::replay`]). A call that
    /// has not begun yet need not run ([`ConnectionRef::has_ended`]).
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer;

    /// Serves a call that has all of its data if it has to wait for nothing. `None` if it may have to:
    /// it has had no effect then, and is to be served by [`serve`](Self::serve), with another reply,
    /// and with [`Call::is_authenticated`] as this one leaves it.
    fn serve_at_once(&self, _call: Call<'_>, _reply: &mut Reply) -> Option<Answer> {
        None
    }

    /// Whether transports should fetch little data of a call before they have it served: some calls
    /// are served at once then, and others copy it to its place.
    fn fetches_small_data(&self) -> bool {
        false
    }

    /// Whether a call message may be served at once. Others need not be tried.
    fn is_immediate(&self, message: &[u8]) -> bool {
        let procedure = self.procedure(message);
        procedure.is_some_and(|procedure| procedure.immediate)
    }

    /// The program table's entry for the procedure of a call message, read from the words at fixed
    /// offsets; `None` if the table has no such procedure.
    fn procedure(&self, _message: &[u8]) -> Option<&'static ProcedureInfo> {
        None
    }

    /// Whether a client at this address may use anything that is served. Others are answered, but
    /// get little room and time.
    fn admits(&self, _client: IpAddr) -> bool {
        true
    }

    /// The reactor has come to the end of a turn: a time to do once what calls would do each.
    fn turned(&self, _end: &TurnEnd) {}
}
