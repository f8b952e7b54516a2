//! The segment of a call that is too short for its reply (version two draft section 5.2.4).

use millrace_wire::rpcrdma::{Lists, Refusal, WriteChunk};
use millrace_wire::xdr::round_up;

use crate::call::Shortage;

/// Refuses a call whose reply does not fit. The segment named is the last one of its chunk with any
/// space, as all before it would be filled: a call with only that one longer, by exactly the
/// difference, has enough space.
///
/// No segment is named if the call has none that could be longer: then the length, if it is known,
/// is that of the missing Reply chunk.
pub fn refusal(lists: &Lists<'_>, shortage: Shortage) -> Refusal {
    let (segment, needed) = find(lists, shortage).unwrap_or_default();
    Refusal::CannotReply {
        processed: shortage.processed,
        segment,
        needed,
    }
}

fn find(lists: &Lists<'_>, shortage: Shortage) -> Option<(u32, u32)> {
    let bulk = shortage.bulk as u64;
    let first = lists.writes.iter().next().filter(|chunk| !chunk.is_empty());
    let within = match first {
        Some(chunk) if bulk > chunk.total() => return lacking(lists, Some(0), bulk),
        Some(_) => 0,
        None => round_up(bulk),
    };
    if shortage.message == 0 {
        return None;
    }
    let message = shortage.message as u64 + within;
    match lists.reply {
        Some(chunk) if !chunk.is_empty() => lacking(lists, None, message),
        _ => Some((0, u32::try_from(message).ok()?)),
    }
}

/// Number and required length of the segment that is too short for `bytes`, in a chunk of the write
/// list or in the Reply chunk.
fn lacking(lists: &Lists<'_>, number: Option<usize>, bytes: u64) -> Option<(u32, u32)> {
    let before = lists.writes.iter().take(number.unwrap_or(usize::MAX));
    let before: usize = before.map(|chunk| chunk.len()).sum();
    let chunk: WriteChunk<'_> = match number {
        Some(number) => lists.writes.iter().nth(number)?,
        None => lists.reply?,
    };
    let missing = bytes.checked_sub(chunk.total()).filter(|&more| more > 0)?;
    let with_room = chunk.iter().enumerate().filter(|(_, s)| s.length > 0);
    let (at, segment) = with_room
        .last()
        .or_else(|| chunk.iter().enumerate().next())?;
    let needed = u32::try_from(u64::from(segment.length) + missing).ok()?;
    Some((u32::try_from(before + at + 1).ok()?, needed))
}

#[cfg(test)]
mod tests {
    use millrace_wire::rpcrdma::{Body, CallChunks, Header, Outgoing, Rules, Segment, Version};
    use millrace_wire::xdr::Encoder;
    use millrace_wire::{rpc, rpcrdma};

    use super::*;

    fn segments(lengths: &[u32]) -> Vec<Segment> {
        let segment = |&length: &u32| Segment {
            handle: 7,
            length,
            offset: 0,
        };
        lengths.iter().map(segment).collect()
    }

    fn with<T>(writes: &[&[u32]], reply: Option<&[u32]>, then: impl Fn(&Lists<'_>) -> T) -> T {
        let writes: Vec<_> = writes.iter().map(|lengths| segments(lengths)).collect();
        let writes: Vec<&[Segment]> = writes.iter().map(|chunk| &chunk[..]).collect();
        let reply = reply.map(segments);
        let chunks = CallChunks {
            reads: &[],
            writes: &writes,
            reply: reply.as_deref(),
        };
        let outgoing = Outgoing {
            version: Version::Two,
            xid: 1,
            credits: 1,
            inline: false,
            direction: rpc::MessageType::Call,
            invalidate: 0,
        };
        let mut bytes = [0; 1024];
        let mut out = Encoder::new(&mut bytes);
        rpcrdma::encode_header(&mut out, &outgoing, &chunks).unwrap();
        let length = out.position();
        match Header::parse(&bytes[..length], &Rules::default())
            .unwrap()
            .body
        {
            Body::NoMessage { lists } => then(&lists),
            other => panic!("{other:?}"),
        }
    }

    fn found(writes: &[&[u32]], reply: Option<&[u32]>, message: usize, bulk: usize) -> (u32, u32) {
        let shortage = Shortage {
            processed: true,
            message,
            bulk,
        };
        with(writes, reply, |lists| match refusal(lists, shortage) {
            Refusal::CannotReply {
                processed,
                segment,
                needed,
            } => {
                assert!(processed);
                (segment, needed)
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn rr2_err_07_segments_are_counted_through_the_write_list_and_the_reply_chunk() {
        // Two write chunks of two segments and a Reply chunk: one to five.
        let writes: &[&[u32]] = &[&[10, 0], &[10, 0]];
        let reply = Some(&[10][..]);
        let lack = |number, bytes| with(writes, reply, |lists| lacking(lists, number, bytes));
        assert_eq!(lack(Some(0), 11), Some((1, 11)));
        assert_eq!(lack(Some(1), 12), Some((3, 12)));
        assert_eq!(lack(None, 13), Some((5, 13)));
        let writes: &[&[u32]] = &[&[10, 5], &[10, 5]];
        let lack = |number, bytes| with(writes, reply, |lists| lacking(lists, number, bytes));
        assert_eq!(lack(Some(0), 16), Some((2, 6)));
        assert_eq!(lack(Some(1), 100), Some((4, 90)));
        // Sufficient space is no shortage.
        assert_eq!(lack(Some(0), 15), None);
    }

    #[test]
    fn rr2_err_08_the_length_is_that_of_the_whole_segment() {
        let writes: &[&[u32]] = &[&[10, 5]];
        assert_eq!(found(writes, None, 100, 20), (2, 10));
        assert_eq!(found(writes, Some(&[50, 30]), 100, 15), (4, 50));
        assert_eq!(found(&[], Some(&[50, 0]), 100, 0), (1, 100));
        assert_eq!(found(&[], Some(&[0, 0]), 100, 0), (1, 100));
        // Data without a chunk of its own is in the message, with its round-up.
        assert_eq!(found(&[], Some(&[50]), 100, 5), (1, 108));
        assert_eq!(found(&[&[]], Some(&[50]), 100, 5), (1, 108));
        // The first is named if both are short.
        assert_eq!(found(writes, Some(&[50]), 100, 20), (2, 10));
    }

    #[test]
    fn rr2_err_07_no_segment_is_named_where_there_is_none() {
        assert_eq!(found(&[], None, 100, 0), (0, 100));
        assert_eq!(found(&[&[5]], None, 100, 5), (0, 100));
        assert_eq!(found(&[], Some(&[]), 100, 3), (0, 104));
        assert_eq!(found(&[], None, 0, 0), (0, 0));
        // Nor is a length that no segment can have.
        assert_eq!(found(&[&[5]], None, 0, usize::MAX), (0, 0));
    }
}
