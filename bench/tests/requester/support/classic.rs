//! What the scripted server does to answer by read chunks.

use millrace_mempool::Class;
use millrace_reactor::fabric::{Access, DataPath, Key, Revoked};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment, Segment, Version};

use super::Raw;

/// A reply with all three lists; without `rpc` an RDMA_NOMSG.
pub fn classic(
    xid: u32,
    credits: u32,
    reads: &[ReadSegment],
    writes: &[Vec<Segment>],
    reply: Option<&[Segment]>,
    rpc: Option<&[u8]>,
) -> Vec<u8> {
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let chunks = CallChunks {
        reads,
        writes: &writes,
        reply,
    };
    super::with_chunks(Version::One, xid, credits, &chunks, rpc)
}

/// Entries of one position.
pub fn at(position: u32, segments: &[Segment]) -> Vec<ReadSegment> {
    let entry = |&segment| ReadSegment { position, segment };
    segments.iter().map(entry).collect()
}

impl Raw {
    /// Bytes that the client may read, at most 1 MiB.
    pub fn reveal(&mut self, bytes: &[u8]) -> Segment {
        let class = Class::for_size(bytes.len()).expect("not too long");
        let mut buffer = self.server_pool.try_acquire(class).expect("free");
        buffer[..bytes.len()].copy_from_slice(bytes);
        let local = std::iter::once(buffer.into_slice(0..bytes.len())).collect();
        let queue_pair = self.queue_pair.expect("connected");
        let exposure = self
            .server
            .expose(queue_pair, local, Access::RemoteRead)
            .expect("room");
        Segment {
            handle: exposure.key.0,
            length: exposure.length,
            offset: exposure.offset,
        }
    }

    /// The same in segments of these lengths.
    pub fn reveal_in(&mut self, mut bytes: &[u8], lengths: &[usize]) -> Vec<Segment> {
        let mut segments = Vec::new();
        for &length in lengths {
            let (now, later) = bytes.split_at(length);
            segments.push(self.reveal(now));
            bytes = later;
        }
        assert!(bytes.is_empty(), "all is in a segment");
        segments
    }

    /// Takes the memory back, as after an RDMA_DONE or a window that has passed.
    pub fn conceal(&mut self, segment: &Segment) {
        let queue_pair = self.queue_pair.expect("connected");
        let revoked = self.server.revoke(queue_pair, Key(segment.handle));
        assert!(matches!(revoked, Revoked::Now(_)));
    }

    /// The RDMA_DONE for a call is the next message, and is what it has to be.
    pub fn expect_done(&mut self, xid: u32) {
        let done = self.next();
        assert_eq!(done.bytes.len(), 16);
        assert_eq!((done.xid, done.kind), (xid, 3));
        assert_eq!(done.bytes[4..8], [0, 0, 0, 1], "version one");
    }
}
