//! From results to reply messages.

use millrace_wire::xdr::{Encode, Encoder, Taken};

use super::call::{Answer, BulkResult, BulkResults, Reply, Shortage};

/// Bytes that the encoding of an answer that does not fit begins with, and gives up at: no answer
/// without its data is as long.
const OVERLONG_LEAST: usize = 1024;
const OVERLONG_MOST: usize = 256 << 10;

/// Encodes a reply message. Data that the results leave out is in the reply's slices.
pub(super) fn encode(reply: &mut Reply, header: &impl Encode, results: &impl Encode) -> Answer {
    let mut out = Encoder::new(reply.room());
    if header
        .encode(&mut out)
        .and_then(|()| results.encode(&mut out))
        .is_err()
    {
        return too_large(reply, header, results);
    }
    let length = out.position();
    if out.taken().is_empty() {
        reply.set_length(length);
        return Answer::Send;
    }
    let bulk = results_of(out.taken());
    if !reply.takes_bulk(length, &bulk) {
        reply.clear();
        return Answer::TooLarge(Shortage {
            processed: true,
            message: length,
            bulk: bulk.iter().map(|item| item.length).sum(),
        });
    }
    reply.set_length(length);
    reply.set_bulk(bulk);
    Answer::Send
}

/// The results with data that was left out of the message. Empty ones at the end are omitted.
fn results_of(taken: &[Taken]) -> BulkResults {
    let mut before = 0;
    let mut bulk: BulkResults = taken
        .iter()
        .map(|taken| {
            let (position, length) = (taken.position as usize - before, taken.length as usize);
            before += length.next_multiple_of(4);
            BulkResult { position, length }
        })
        .collect();
    while bulk.last().is_some_and(|item| item.length == 0) {
        bulk.pop();
    }
    bulk
}

/// Encodes an answer that does not fit to its end, to know its length and to remember it.
#[cold]
fn too_large(reply: &mut Reply, header: &impl Encode, results: &impl Encode) -> Answer {
    let bulk = reply.slices.iter().map(millrace_mempool::Slice::len).sum();
    let mut bytes = vec![0; 2 * reply.room().len().max(OVERLONG_LEAST)];
    loop {
        let mut out = Encoder::new(&mut bytes);
        let encoded = header
            .encode(&mut out)
            .and_then(|()| results.encode(&mut out));
        if encoded.is_ok() {
            let length = out.position();
            bytes.truncate(length);
            reply.set_overlong(bytes);
            return Answer::TooLarge(Shortage {
                processed: true,
                message: length,
                bulk,
            });
        }
        if bytes.len() >= OVERLONG_MOST {
            reply.clear();
            return Answer::TooLarge(Shortage {
                processed: true,
                ..Shortage::default()
            });
        }
        bytes = vec![0; 4 * bytes.len()];
    }
}

/// Answers a call that no procedure gets to see.
pub(super) fn refusal(reply: &mut Reply, header: &impl Encode) -> Answer {
    match encode(reply, header, &()) {
        Answer::TooLarge(shortage) => Answer::TooLarge(Shortage {
            processed: false,
            ..shortage
        }),
        answer => answer,
    }
}

/// Whether a procedure ran to its end.
pub(super) fn executed(answer: Answer) -> bool {
    match answer {
        Answer::Send => true,
        Answer::TooLarge(shortage) => shortage.processed,
        Answer::Silent | Answer::Broken | Answer::Disconnect => false,
    }
}

/// Sends a remembered reply again.
pub(super) fn repeat(reply: &mut Reply, message: &[u8]) -> Answer {
    match reply.room().get_mut(..message.len()) {
        Some(room) => room.copy_from_slice(message),
        None => {
            return Answer::TooLarge(Shortage {
                processed: true,
                message: message.len(),
                bulk: 0,
            });
        }
    }
    reply.set_length(message.len());
    Answer::Send
}
