//! Malformed messages that need no memory of the requester, word for word, and their answers. The
//! probe sends them to any server; `target/tests/exchanges.rs` includes this file and sends them to
//! the responder in process.

/// The credits that messages wish for.
const WISH: u32 = 16;

/// The expected reaction of a responder to a message.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedAnswer {
    /// Drops it. The connection stays.
    Silence,
    /// Answers with an error of the message's version: the code, without anything behind it.
    Error(u32),
    /// Answers ERR_VERS with the lowest and highest version that it serves.
    Versions,
}

/// A row of the conformance matrix: each message gets the same answer.
#[derive(Debug)]
pub struct ScriptedExchange {
    pub row: &'static str,
    pub title: &'static str,
    /// The version that the connection speaks.
    pub version: u32,
    /// The words behind `rdma_xid`.
    pub messages: &'static [&'static [u32]],
    pub expected: ExpectedAnswer,
}

impl ScriptedExchange {
    /// The messages as they are sent, each with an XID.
    pub fn messages(&self, mut xid: impl FnMut() -> u32) -> impl Iterator<Item = (u32, Vec<u8>)> {
        self.messages.iter().map(move |rest| {
            let xid = xid();
            let words = std::iter::once(&xid).chain(*rest);
            (xid, words.flat_map(|word| word.to_be_bytes()).collect())
        })
    }
}

/// ERR_CHUNK of version one.
const ERR_CHUNK: ExpectedAnswer = ExpectedAnswer::Error(2);
/// RDMA2_ERR_BAD_XDR, RDMA2_ERR_INVAL_PROC and RDMA2_ERR_INVAL_OPTION.
const BAD_XDR: ExpectedAnswer = ExpectedAnswer::Error(2);
const INVAL_PROC: ExpectedAnswer = ExpectedAnswer::Error(4);
const INVAL_OPTION: ExpectedAnswer = ExpectedAnswer::Error(5);

pub const EXCHANGES: &[ScriptedExchange] = &[
    ScriptedExchange {
        row: "RR1-HDR-06",
        title: "ERR_VERS repeats the version word of its call",
        version: 1,
        messages: &[
            &[0, WISH, 0, 0, 0, 0],
            &[3, WISH, 0, 0, 0, 0],
            &[7, WISH, 0, 0, 0, 0],
            &[u32::MAX, WISH, 0, 0, 0, 0],
        ],
        expected: ExpectedAnswer::Versions,
    },
    ScriptedExchange {
        row: "RR1-HDR-08",
        title: "truncated chunk lists are ERR_CHUNK",
        version: 1,
        messages: &[
            // A read entry that ends in its offset.
            &[1, WISH, 0, 1, 120, 0xa1, 5, 0],
            // A read list that never ends.
            &[1, WISH, 0, 1, 120, 0xa1, 5, 0, 0x1000],
            // A write chunk without its segments.
            &[1, WISH, 0, 0, 1, 2],
            // A Reply chunk cut off in its segment.
            &[1, WISH, 0, 0, 0, 1, 1, 0xc1],
            // No presence word of the Reply chunk.
            &[1, WISH, 0, 0, 1, 1, 0xb1, 0x1000, 0, 0, 0],
        ],
        expected: ERR_CHUNK,
    },
    ScriptedExchange {
        row: "RR1-HDR-13",
        title: "unknown message types are ERR_CHUNK",
        version: 1,
        messages: &[
            &[1, WISH, 5, 0, 0, 0],
            &[1, WISH, 6, 0, 0, 0],
            &[1, WISH, 77, 0, 0, 0],
            &[1, WISH, 0x8000_0000, 0, 0, 0],
            &[1, WISH, u32::MAX, 0, 0, 0],
        ],
        expected: ERR_CHUNK,
    },
    ScriptedExchange {
        row: "RR1-HDR-16",
        title: "an RDMA_ERROR to a server is dropped",
        version: 1,
        messages: &[
            &[1, WISH, 4],
            &[1, WISH, 4, 1],
            &[1, WISH, 4, 1, 1, 1],
            &[1, WISH, 4, 2],
            &[1, WISH, 4, 77],
            &[1, WISH, 4, 77, 1, 2, 3, 4, 5, 6, 7, 8],
            &[9, WISH, 4, 1, 1, 1],
        ],
        expected: ExpectedAnswer::Silence,
    },
    ScriptedExchange {
        row: "RR1-HDR-19",
        title: "presence words are 0 or 1, and counts are bounded",
        version: 1,
        messages: &[
            &[1, WISH, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            &[1, WISH, 0, 0, 2, 0, 0, 0],
            &[1, WISH, 0, 0, u32::MAX, 0, 0, 0],
            &[1, WISH, 0, 0, 0, 2, 0, 0],
            &[1, WISH, 0, 0, 0, u32::MAX],
            // Counts that no message can hold.
            &[1, WISH, 0, 0, 1, u32::MAX, 0, 0, 0, 0, 0, 0],
            &[1, WISH, 0, 0, 0, 1, u32::MAX, 0, 0, 0, 0],
        ],
        expected: ERR_CHUNK,
    },
    ScriptedExchange {
        row: "RR1-HDR-20",
        title: "RDMA_NOMSG without any list is ERR_CHUNK",
        version: 1,
        messages: &[
            &[1, WISH, 1, 0, 0, 0],
            // A Reply chunk alone carries no call either.
            &[1, WISH, 1, 0, 0, 1, 1, 0xc1, 100, 0, 0],
        ],
        expected: ERR_CHUNK,
    },
    ScriptedExchange {
        row: "RR2-HDR-02",
        title: "types that do not exist are INVAL_PROC",
        version: 2,
        messages: &[
            &[2, WISH, 2, 0, 0, 0, 0, 0],
            &[2, WISH, 3, 0, 0, 0, 0, 0],
            &[2, WISH, 6, 0, 0, 0, 0, 0],
            &[2, WISH, 7, 0, 0, 0, 0, 0],
            &[2, WISH, 0x8000_0000, 0, 0, 0, 0, 0],
            &[2, WISH, u32::MAX, 0, 0, 0, 0, 0],
        ],
        expected: INVAL_PROC,
    },
    ScriptedExchange {
        row: "RR2-HDR-03",
        title: "RDMA2_MSG without a message is BAD_XDR",
        version: 2,
        messages: &[
            &[2, WISH, 0, 0, 0, 0, 0, 0],
            &[2, WISH, 0, 0, 0, 0, 0, 0, 1],
        ],
        expected: BAD_XDR,
    },
    ScriptedExchange {
        row: "RR2-HDR-10",
        title: "a direction that does not exist is BAD_XDR",
        version: 2,
        messages: &[
            &[2, WISH, 0, 2, 0, 0, 0, 0, 1, 2],
            &[2, WISH, 0, 77, 0, 0, 0, 0, 1, 2],
            &[2, WISH, 1, 0x100, 0, 0, 0, 0],
            &[2, WISH, 5, 3, 0, 0],
            &[2, WISH, 5, u32::MAX, 0, 0],
        ],
        expected: BAD_XDR,
    },
    ScriptedExchange {
        row: "RR2-ERR-03",
        title: "an unknown procedure is INVAL_PROC, and the connection goes on",
        version: 2,
        // What follows the type has no meaning.
        messages: &[
            &[2, WISH, 6, 0, 0, 0, 0, 0],
            &[2, WISH, 2, u32::MAX, u32::MAX, u32::MAX, u32::MAX],
        ],
        expected: INVAL_PROC,
    },
    ScriptedExchange {
        row: "RR2-ERR-04",
        title: "truncated lists are BAD_XDR",
        version: 2,
        messages: &[
            &[2, WISH, 0, 0, 0, 1, 120, 0xa1, 5, 0],
            &[2, WISH, 0, 0, 0, 0, 1, 2],
            &[2, WISH, 0, 0, 0, 0, 0, 1, 1, 0xc1],
            &[2, WISH, 0, 0, 0, 2, 0, 0, 0, 0],
        ],
        expected: BAD_XDR,
    },
    ScriptedExchange {
        row: "RR2-ERR-13",
        title: "an error is not answered by an error",
        version: 2,
        messages: &[
            &[2, WISH, 4],
            &[2, WISH, 4, 1],
            &[2, WISH, 4, 1, 1, 2],
            &[2, WISH, 4, 2],
            &[2, WISH, 4, 3],
            &[2, WISH, 4, 3, 0, 0, 0],
            &[2, WISH, 4, 3, 7, 1, 1],
            &[2, WISH, 4, 99],
            &[2, WISH, 4, 5, 5, 5, 5],
        ],
        expected: ExpectedAnswer::Silence,
    },
    ScriptedExchange {
        row: "RR2-OPT-02",
        title: "unknown optional operations are INVAL_OPTION",
        version: 2,
        messages: &[
            &[2, WISH, 5, 0, 0, 0],
            &[2, WISH, 5, 0, 1, 0],
            // Three bytes that only the operation would give a meaning.
            &[2, WISH, 5, 0, 9, 3, 0x0102_0300],
            &[2, WISH, 5, 0, u32::MAX, 0],
        ],
        expected: INVAL_OPTION,
    },
    ScriptedExchange {
        row: "RR2-OPT-06",
        title: "an unknown operation in the reply's direction is dropped",
        version: 2,
        messages: &[
            &[2, WISH, 5, 1, 0, 0],
            &[2, WISH, 5, 1, 9, 2, 0x0102_0000],
            &[2, WISH, 5, 1, u32::MAX, 0],
        ],
        expected: ExpectedAnswer::Silence,
    },
    ScriptedExchange {
        row: "RR2-OPT-09",
        title: "an opaque longer than its message is BAD_XDR",
        version: 2,
        messages: &[
            &[2, WISH, 5, 0, 9, 1],
            &[2, WISH, 5, 0, 9, 5, 0],
            &[2, WISH, 5, 0, 9, 400, 0],
            &[2, WISH, 5, 0, 9, 0x7fff_ffff, 0],
            &[2, WISH, 5, 0, 9, u32::MAX, 0],
        ],
        expected: BAD_XDR,
    },
];
