//! Where the parts of a reply with read chunks go: the decision alone, without I/O.

use arrayvec::ArrayVec;
use millrace_wire::rpcrdma::{ReadChunk, ReadList};
use millrace_wire::xdr::round_up;

use super::plan::{ITEMS_MAX, Shape};

/// Bytes in each write chunk, as the reply tells them.
pub(super) type Written = ArrayVec<Option<u32>, ITEMS_MAX>;

/// A range of the stream that is put together: where it begins, and its bytes without pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insert {
    pub at: usize,
    pub length: usize,
}

impl Insert {
    /// Where the stream goes on.
    pub const fn end(self) -> usize {
        self.at + rounded(self.length)
    }
}

/// How a reply is put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Each chunk is the result that belongs into the sink of this index; the message is inline.
    Sinks(ArrayVec<usize, ITEMS_MAX>),
    /// The chunks are put back into the stream, which has so many bytes then.
    Whole { inserts: Vec<Insert>, length: usize },
}

/// The message that the chunks are parts of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base<'a> {
    /// An inline message.
    Inline(&'a [u8]),
    /// The message at position zero, of so many bytes.
    Zero(usize),
}

impl Base<'_> {
    const fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Zero(length) => *length,
        }
    }

    /// Whether the length word of such a chunk is before `at`.
    fn announces(&self, at: usize, length: usize) -> bool {
        let Self::Inline(bytes) = self else {
            return false;
        };
        let word = at.checked_sub(4).and_then(|from| bytes.get(from..at));
        let word = word.and_then(|word| word.first_chunk().copied());
        word.map(u32::from_be_bytes).is_some_and(|word| {
            word as usize == length || round_up(u64::from(word)) == length as u64
        })
    }
}

/// Decides where the chunks of a reply go. As many chunks as there are results still missing are
/// those results, in order. Otherwise all are put back into the stream, so that a server may send
/// any item as a chunk, as servers without a binding did (RFC 5666 section 3.4). `None` if a
/// position cannot be, or if there is more than the call can have as its reply.
pub(super) fn arrange(
    reads: &ReadList<'_>,
    base: Base<'_>,
    shape: &Shape,
    written: &Written,
) -> Option<Arrangement> {
    // Results that went into write chunks count in positions, but are not in the stream here.
    let elsewhere: ArrayVec<usize, ITEMS_MAX> = written
        .iter()
        .map(|bytes| rounded(bytes.unwrap_or(0) as usize))
        .collect();
    let (mut passed, mut before) = (0, 0);
    let (mut inserted, mut from) = (0, 0);
    let mut announced = true;
    let mut inserts = Vec::new();
    for chunk in reads.chunks().filter(|chunk| chunk.position > 0) {
        let length = length(&chunk)?;
        let position = chunk.position as usize;
        // The first place that has the chunk's length word before it; any place will do if all of
        // the stream is here.
        let place = |before: usize| position.checked_sub(inserted + before);
        let mut at = place(before)?;
        while !base.announces(at, length) && passed < elsewhere.len() {
            before += elsewhere[passed];
            passed += 1;
            at = place(before)?;
        }
        let known = base.announces(at, length);
        if at < from || at > base.len() || (before > 0 && !known) {
            return None;
        }
        announced &= known;
        inserts.push(Insert {
            at: at + inserted,
            length,
        });
        inserted += rounded(length);
        from = at;
    }
    if announced && let Some(sinks) = sinks(&inserts, shape, written) {
        return Some(Arrangement::Sinks(sinks));
    }
    let results: usize = shape.sinks.iter().map(|sink| rounded(sink.length)).sum();
    let length = base.len().checked_add(inserted)?;
    (length <= rounded(shape.largest_reply) + results)
        .then_some(Arrangement::Whole { inserts, length })
}

/// The sinks that chunks fill, if they are as many as the results that are missing, and fit.
fn sinks(
    inserts: &[Insert],
    shape: &Shape,
    written: &Written,
) -> Option<ArrayVec<usize, ITEMS_MAX>> {
    let missing = |sink: &usize| matches!(written.get(*sink), None | Some(None | Some(0)));
    let sinks: ArrayVec<usize, ITEMS_MAX> = (0..shape.sinks.len()).filter(missing).collect();
    let fits = |(sink, insert): (&usize, &Insert)| {
        // The chunk may have its pad within (RFC 5666 section 3.7).
        insert.length <= rounded(shape.sinks[*sink].length)
    };
    let all = !sinks.is_empty() && sinks.len() == inserts.len();
    (all && sinks.iter().zip(inserts).all(fits)).then_some(sinks)
}

/// Bytes of a chunk, if it is no larger than anything that could be fetched.
pub(super) fn length(chunk: &ReadChunk<'_>) -> Option<usize> {
    u32::try_from(chunk.length())
        .ok()
        .map(|bytes| bytes as usize)
}

const fn rounded(length: usize) -> usize {
    length.next_multiple_of(4)
}
