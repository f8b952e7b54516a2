//! A message as the server saw it.

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Body, Header, ReadSegment, Rules, Segment};

#[derive(Clone, Debug)]
pub struct Seen {
    /// All bytes.
    pub bytes: Vec<u8>,
    pub xid: u32,
    pub credits: u32,
    pub kind: u32,
    pub version: u32,
    pub direction: Option<MessageType>,
    /// The nominated key, or the repetition of one.
    pub invalidate: u32,
    pub reads: Vec<ReadSegment>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
    /// The RPC message, if it is inline.
    pub rpc: Vec<u8>,
}

impl Seen {
    pub fn read(bytes: &[u8]) -> Self {
        let rules = Rules {
            segments_per_chunk: 1000,
            read_chunks: 100,
            write_chunks: 100,
            read_bytes: u64::MAX,
            ..Rules::default()
        };
        let header = Header::parse_call(bytes, &rules).expect("a good message");
        let lists = header.lists();
        let rpc = match header.body {
            Body::Message { message, .. } => message.to_vec(),
            _ => Vec::new(),
        };
        Self {
            bytes: bytes.to_vec(),
            xid: header.words.xid,
            credits: header.words.credits,
            kind: header.words.kind,
            version: header.words.version,
            direction: header.direction(),
            invalidate: header.invalidate,
            reads: lists.reads.iter().collect(),
            writes: lists
                .writes
                .iter()
                .map(|chunk| chunk.iter().collect())
                .collect(),
            reply: lists.reply.map(|chunk| chunk.iter().collect()),
            rpc,
        }
    }

    pub fn read_segments(&self) -> Vec<Segment> {
        self.reads.iter().map(|entry| entry.segment).collect()
    }

    pub fn positions(&self) -> Vec<u32> {
        self.reads.iter().map(|entry| entry.position).collect()
    }

    /// All words of a message without anything but words.
    pub fn words(&self) -> Vec<u32> {
        let words = self.bytes.chunks_exact(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// Bytes of the transport header.
    pub fn header(&self) -> usize {
        self.bytes.len() - self.rpc.len()
    }
}
