//! Bodies with integrity and privacy (RFC 2203 sections 5.3.2.2 and 5.3.2.3), and the room for what
//! protects a reply.
//!
//! Programs encode plain replies. They leave room around the message for its verifier and its
//! protection, which are added when the call has been served: whatever is remembered of a reply is
//! plain.

use std::ops::Range;
use std::time::Instant;

use millrace_gss::{Progress, Side};
use millrace_mempool::{Buffer, Pool};
use millrace_reactor::task::next_turn;
use millrace_wire::rpc::{AuthStatus, GssService, IntegrityBody, privacy_token, protected_content};
use millrace_wire::xdr::Decoder;

use super::call::{Answer, Reply, Shortage};
use super::credential::denied_to;
use super::encode::refusal;
use super::gss::{GssAuthenticator, GssCall, PLAIN_HEADER, verifier_room, write_header};

/// Bytes of a word: a length, or a sequence number.
const WORD: usize = 4;

/// Why a protected body gives no arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// It is not what its service makes of arguments.
    Damaged,
    /// There was no memory to decrypt it into in time, or its connection has ended.
    NoMemory,
}

/// The arguments of a protected body.
pub(super) enum OpenedBody<'c> {
    /// In the message itself.
    Within(&'c [u8]),
    /// Decrypted, in memory of the call's own.
    Decrypted(Buffer, Range<usize>),
}

impl OpenedBody<'_> {
    /// The sequence number and the arguments behind it.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Within(bytes) => bytes,
            Self::Decrypted(buffer, range) => &buffer[range.clone()],
        }
    }

    /// Reads the arguments.
    pub fn arguments(&self) -> Decoder<'_> {
        let mut input = Decoder::new(self.bytes());
        // Opened bodies have the sequence number.
        let _ = input.u32();
        input
    }
}

/// Leaves room in a reply for what protects it.
pub(super) fn keep_room(call: &GssCall, reply: &mut Reply) {
    let verifier = verifier_room(&call.context);
    match call.body_service() {
        GssService::None => reply.keep_margins(verifier, 0, false),
        GssService::Integrity => {
            let checksum = WORD + call.context.mic_length().next_multiple_of(4);
            reply.keep_margins(verifier + 2 * WORD, checksum, true);
        }
        GssService::Privacy => {
            let (prefix, all) = (call.context.wrap_prefix(), call.context.wrap_overhead());
            // Results are whole words, so that this is the round-up of any token.
            let behind = all.next_multiple_of(4) - prefix;
            reply.keep_margins(verifier + WORD + prefix + WORD, behind, true);
        }
    }
}

/// Adds the verifier to a reply whose results need no more: without protection, or with another
/// status than success, which has no results.
pub(super) fn seal_header(call: &GssCall, reply: &mut Reply, answer: Answer) -> Answer {
    match answer {
        Answer::Send => {}
        Answer::TooLarge(shortage) => return Answer::TooLarge(widened(call, reply, shortage)),
        Answer::Silent | Answer::Broken | Answer::Disconnect => return answer,
    }
    let encoded = reply.message().len();
    let (front, _) = reply.release_margins();
    let room = reply.room();
    let plain = *room[front..]
        .first_chunk::<PLAIN_HEADER>()
        .unwrap_or(&[0; PLAIN_HEADER]);
    let Some(end) = write_header(call, &plain, room) else {
        return unsealed(reply, &plain);
    };
    let results = front + PLAIN_HEADER..front + encoded;
    let length = end + results.len();
    if end != results.start {
        room.copy_within(results, end);
    }
    reply.set_length(length);
    answer
}

/// There is no verifier (RFC 2203 section 5.3.3.4.1).
#[cold]
fn unsealed(reply: &mut Reply, plain: &[u8; PLAIN_HEADER]) -> Answer {
    let [a, b, c, d, ..] = *plain;
    reply.clear();
    let header = denied_to(
        u32::from_be_bytes([a, b, c, d]),
        AuthStatus::GssContextProblem,
    );
    refusal(reply, &header)
}

/// The same shortage with all that the reply has around its results.
fn widened(call: &GssCall, reply: &Reply, shortage: Shortage) -> Shortage {
    let (front, behind) = reply.margins();
    let message = match (shortage.message, call.body_service()) {
        (0, _) => 0,
        (message, GssService::None) => message + front + behind,
        (message, _) => message + front + behind + shortage.bulk.next_multiple_of(4),
    };
    let bulk = match call.body_service() {
        GssService::None => shortage.bulk,
        GssService::Integrity | GssService::Privacy => 0,
    };
    Shortage {
        message,
        bulk,
        ..shortage
    }
}

impl GssAuthenticator {
    /// Verifies or decrypts the body of a call.
    pub(super) async fn open<'c>(
        &self,
        call: &GssCall,
        mut input: Decoder<'c>,
        pool: &Pool,
    ) -> Result<OpenedBody<'c>, Unopened> {
        let opened = match call.service {
            GssService::None => return Err(Unopened::Damaged),
            GssService::Integrity => {
                let body = IntegrityBody::decode_all(&mut input).map_err(|_| Unopened::Damaged)?;
                self.verify(call, &body).await?;
                OpenedBody::Within(body.covered)
            }
            GssService::Privacy => {
                let token = privacy_token(&mut input).map_err(|_| Unopened::Damaged)?;
                self.decrypt(call, token, pool).await?
            }
        };
        let bytes = opened.bytes();
        let received = &self.counters().received_bytes[call.service as usize - 1];
        received.add(bytes.len() as u64);
        match protected_content(bytes) {
            Ok((sequence, _)) if sequence == call.sequence => Ok(opened),
            _ => Err(Unopened::Damaged),
        }
    }

    async fn verify(&self, call: &GssCall, body: &IntegrityBody<'_>) -> Result<(), Unopened> {
        let mut mic = call.context.mic_in_parts(Side::Initiator);
        let mut parts = body.covered.chunks(self.slice());
        loop {
            let done = self.timed(|| {
                parts.next().is_none_or(|part| {
                    mic.update(part);
                    parts.len() == 0
                })
            });
            if done {
                break;
            }
            next_turn().await;
        }
        match mic.verify(body.checksum) {
            true => Ok(()),
            false => Err(Unopened::Damaged),
        }
    }

    async fn decrypt<'c>(
        &self,
        call: &GssCall,
        token: &[u8],
        pool: &Pool,
    ) -> Result<OpenedBody<'c>, Unopened> {
        let obtained = pool.obtain_another(token.len()).await;
        let mut buffer = obtained.map_err(|_| Unopened::NoMemory)?;
        let copy = buffer.get_mut(..token.len()).ok_or(Unopened::Damaged)?;
        copy.copy_from_slice(token);
        let mut unwrapping = call
            .context
            .unwrapping(copy)
            .map_err(|_| Unopened::Damaged)?;
        loop {
            let step = self.timed(|| unwrapping.step(copy, self.slice()));
            match step.map_err(|_| Unopened::Damaged)? {
                Progress::Done(range) => return Ok(OpenedBody::Decrypted(buffer, range)),
                Progress::More => next_turn().await,
            }
        }
    }

    /// Adds verifier and protection to the reply of a call.
    pub(super) async fn seal(&self, call: &GssCall, reply: &mut Reply, answer: Answer) -> Answer {
        let is_success = |message: &[u8]| message.get(20..PLAIN_HEADER) == Some(&[0; WORD]);
        if call.body_service() == GssService::None
            || answer != Answer::Send
            || !is_success(reply.message())
        {
            return seal_header(call, reply, answer);
        }
        if !reply.make_whole().await {
            let shortage = Shortage {
                processed: true,
                message: reply.message().len(),
                bulk: reply.slices.iter().map(millrace_mempool::Slice::len).sum(),
            };
            return Answer::TooLarge(widened(call, reply, shortage));
        }
        let encoded = reply.message().len();
        let (front, _) = reply.release_margins();
        let room = reply.room();
        let plain = *room[front..]
            .first_chunk::<PLAIN_HEADER>()
            .unwrap_or(&[0; PLAIN_HEADER]);
        let Some(end) = write_header(call, &plain, room) else {
            return unsealed(reply, &plain);
        };
        let results = front + PLAIN_HEADER..front + encoded;
        let length = match call.service {
            GssService::Privacy => self.encrypt(call, room, end, results).await,
            GssService::Integrity | GssService::None => self.sign(call, room, end, results).await,
        };
        match length {
            Some(length) => {
                reply.set_length(length);
                Answer::Send
            }
            None => {
                tracing::error!(
                    service = ?call.service,
                    "the results of a call could not be protected, and are not sent"
                );
                self.counters().damaged_bodies.add(1);
                Answer::Silent
            }
        }
    }

    /// Makes results a body with integrity, in place. Returns where it ends.
    async fn sign(
        &self,
        call: &GssCall,
        room: &mut [u8],
        header: usize,
        results: Range<usize>,
    ) -> Option<usize> {
        let covered = results.start - WORD..results.end;
        put(room, header, covered.len())?;
        room.get_mut(covered.start..results.start)?
            .copy_from_slice(&call.sequence.to_be_bytes());
        let mut mic = call.context.mic_in_parts(Side::Acceptor);
        let bytes = room.get(covered.clone())?;
        self.sent(call, bytes.len());
        for (index, part) in bytes.chunks(self.slice()).enumerate() {
            if index > 0 {
                next_turn().await;
            }
            self.timed(|| mic.update(part));
        }
        let checksum = covered.end + WORD;
        let length = mic.finish(room.get_mut(checksum..)?);
        put(room, covered.end, length)?;
        (length > 0)
            .then(|| padded(room, checksum + length))
            .flatten()
    }

    /// Makes results a body with privacy, in place. Returns where it ends.
    async fn encrypt(
        &self,
        call: &GssCall,
        room: &mut [u8],
        header: usize,
        results: Range<usize>,
    ) -> Option<usize> {
        let context = &call.context;
        let plain = results.start - WORD..results.end;
        room.get_mut(plain.start..results.start)?
            .copy_from_slice(&call.sequence.to_be_bytes());
        self.sent(call, plain.len());
        let start = header + WORD;
        debug_assert_eq!(start + context.wrap_prefix(), plain.start);
        let end = start + plain.len() + context.wrap_overhead();
        put(room, header, end - start)?;
        let token = room.get_mut(start..end)?;
        let mut wrapping = context.wrapping(plain.len());
        loop {
            let step = self.timed(|| wrapping.step(token, self.slice()));
            match step.ok()? {
                Progress::Done(range) if range == (0..token.len()) => break,
                Progress::Done(_) => return None,
                Progress::More => next_turn().await,
            }
        }
        padded(room, end)
    }

    fn sent(&self, call: &GssCall, bytes: usize) {
        let sent = &self.counters().sent_bytes[call.service as usize - 1];
        sent.add(bytes as u64);
    }

    /// Does one slice of work, and counts its time.
    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters().crypto_nanoseconds.add(took);
        done
    }
}

/// Writes a length.
fn put(room: &mut [u8], at: usize, length: usize) -> Option<()> {
    let word = u32::try_from(length).ok()?.to_be_bytes();
    room.get_mut(at..at + WORD)?.copy_from_slice(&word);
    Some(())
}

/// Rounds up with zeros. Returns where that ends.
fn padded(room: &mut [u8], end: usize) -> Option<usize> {
    let rounded = end.next_multiple_of(4);
    room.get_mut(end..rounded)?.fill(0);
    Some(rounded)
}
