//! COMPOUNDs by both versions of RPC-over-RDMA.

use millrace_wire::nfs4::StateId;
use millrace_wire::rpcrdma::{CallChunks, Version};
use millrace_wire::xdr::Bulk;

use super::data::{bytes, read, write_at};
use crate::support;
use crate::support::message::{inline, parse, reads, speak};
use crate::support::nfs4::{Bench4, put};
use crate::support::raw::{Options, World};

#[test]
fn v4_ulb_19_both_versions_of_the_transport_carry_the_same_compounds() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut world = World::new(bench.programs.clone(), Options::default());
    let mut answers = Vec::new();
    for (version, first) in [(Version::One, 1), (Version::Two, 2)] {
        speak(version);
        let client = world.connect();
        let data = [&[first], &bytes(8999)[..]].concat();
        let apart = write_at(StateId::ANONYMOUS, 0, Bulk::apart(9000));
        let call = bench.compound_message(&[bench.next_sequence(), put(&file), apart]);
        let source = world.source(client, &data);
        let entries = reads(call.len(), &[source.whole()]);
        let chunks = CallChunks {
            reads: &entries,
            ..CallChunks::default()
        };
        let written = parse(&world.exchange(client, &inline(&chunks, &call)));
        // The first READ has the first chunk, and the second one the second.
        let sinks = [world.sink(client, 4000), world.sink(client, 5000)];
        let segments = sinks.each_ref().map(|sink| [sink.whole()]);
        let chunks = CallChunks {
            writes: &[&segments[0], &segments[1]],
            ..CallChunks::default()
        };
        let call = bench.compound_message(&[
            bench.next_sequence(),
            put(&file),
            read(0, 4000),
            read(4000, 5000),
        ]);
        let found = parse(&world.exchange(client, &inline(&chunks, &call)));
        assert_eq!(sinks.map(|sink| sink.bytes()).concat(), data);
        // SEQUENCE's numbers differ.
        answers.push([written, found].map(|reply| support::results(&reply.message)[56..].to_vec()));
    }
    assert_eq!(answers[0], answers[1]);
    world.check_clean();
}
