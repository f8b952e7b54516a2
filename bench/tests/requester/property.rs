//! Properties over random calls and random servers.

use millrace_bench::requester::plan::{CallLimits, Extent, Form, HEADER_MAX, Merge, Shape};
use millrace_bench::requester::{Call, Settings, plan};
use millrace_reactor::fabric::SLICES_MAX;
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpcrdma::Version;
use proptest::prelude::*;

use crate::VERSION;
use crate::chunk::{pattern, write_arguments};
use crate::support::{Peer, Raw, SHORTEST, settings, small_sizes, stale};

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0_usize..3_000_000, 1_usize..300).prop_map(|(length, pieces)| Extent {
        length,
        pieces: pieces.min(length),
    });
    prop::collection::vec(extent, 0..3)
}

proptest! {
    /// No plan ever sends too much, or leaves a reply without room.
    #[test]
    fn rr1_hdr_21_rr1_long_12_23_plans_keep_all_limits(
        message in (10_usize..2000).prop_map(|words| words * 4),
        largest_reply in 32_usize..9000,
        items in extents(),
        sinks in extents(),
        send in prop::sample::select(vec![1024_usize, 2048, 4096]),
        receive in prop::sample::select(vec![1024_usize, 2048, 4096]),
        segments in 1_usize..40,
        group in 1_usize..=SLICES_MAX,
        chunk_above in prop::sample::select(vec![0, 500, usize::MAX]),
    ) {
        let limits =
            CallLimits { shortest: SHORTEST, send, receive, segments, reply_segments: 1, group, chunk_above, long_calls: false, whole: false, offer_results: true, read_chunks: true };
        let shape = Shape {
            message,
            items: items.iter().copied().collect(),
            sinks: sinks.iter().copied().collect(),
            largest_reply,
            reply_room: 0,
        };
        let Some(plan) = plan(&shape, &limits) else {
            // Only too many bytes for so few segments, or too many chunks for the header, fail.
            let bytes: usize = items.iter().chain(&sinks).map(|extent| extent.length).sum();
            prop_assert!((bytes + message) >> 20 >= segments.min(6) || segments > 10);
            return Ok(());
        };
        prop_assert!(!matches!(plan.merge, Merge::Pieces(pieces) if pieces > group));
        let data: usize = items.iter().map(|item| item.length.next_multiple_of(4)).sum();
        let inline = match plan.form {
            Form::Inline => message + data,
            Form::Chunked => message,
            Form::Long => 0,
        };
        prop_assert!(plan.header + inline <= send);
        prop_assert!(plan.header <= HEADER_MAX);
        let results: usize = sinks.iter().map(|sink| sink.length.next_multiple_of(4)).sum();
        let reply = largest_reply + if plan.offer_writes { 0 } else { results };
        prop_assert!(plan.reply_chunk >= reply || SHORTEST + reply <= receive);
        if plan.reply_chunk == 0 && plan.offer_writes {
            let lists: usize = sinks.iter().map(|s| 8 + 16 * plan.merge.segments(*s)).sum();
            prop_assert!(SHORTEST + lists + reply <= receive);
        }
    }

}

proptest! {
    // Each case sets up a whole connection.
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Scatter lists of any number of pieces arrive whole at a limit of 1024 bytes.
    #[test]
    fn rr1_long_23_scatter_lists_are_merged_until_the_header_fits(
        pieces in 1_usize..300,
        length in 1_usize..40,
    ) {
        let mine = Settings { private_data: small_sizes(), segments: 64, ..settings() };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let total = pieces * length;
        let memory = raw.memory(total);
        let data: Vec<_> =
            (0..pieces).map(|at| memory.slice(at * length..(at + 1) * length)).collect();
        let call = Call::nfs3(1, Procedure::Write, write_arguments(total as u32), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        prop_assert!(call.bytes.len() <= 1024);
        let sent = if call.reads.is_empty() {
            let from = call.rpc.len() - total.next_multiple_of(4);
            call.rpc[from..from + total].to_vec()
        } else {
            raw.fetch_all(&call.read_segments())
        };
        prop_assert_eq!(sent, pattern(total));
        raw.answer(&call, 8, &stale());
        prop_assert_eq!(raw.tokens(), vec![1]);
    }

    /// The same for rooms: what the server writes arrives in the pieces, in order.
    #[test]
    fn rr1_long_23_rooms_in_many_pieces_are_filled_in_order(
        pieces in 1_usize..300,
        length in 4_usize..60,
    ) {
        let mine = Settings { private_data: small_sizes(), chunk_above: 0, ..settings() };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let total = pieces * length;
        let memory = raw.memory(total);
        memory.fill_zero(0..total);
        let room: Vec<_> =
            (0..pieces).map(|at| memory.slice(at * length..(at + 1) * length)).collect();
        let arguments = crate::chunk::read_arguments(total as u32);
        let call = Call::nfs3(1, Procedure::Read, arguments, 0);
        raw.submit(&call.with_sinks(&[&room]));
        let call = raw.next();
        prop_assert!(call.bytes.len() <= 1024);
        let filled = raw.place_all(&call.writes[0], &pattern(total));
        let rpc = crate::support::success(call.xid, &crate::chunk::read_ok(total as u32));
        raw.send(&crate::support::message(call.xid, 8, &[filled], None, Some(&rpc)));
        prop_assert!(raw.done[0].result.is_ok());
        let mut bytes = vec![0; total];
        memory.copy_to(0, &mut bytes);
        prop_assert_eq!(bytes, pattern(total));
    }

    /// A whole connection against a server with random grants.
    #[test]
    fn rr1_cred_02_a_connection_never_exceeds_random_grants(
        grants in prop::collection::vec(0_u32..20, 30),
        errors in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut raw = Raw::new(settings(), Peer::default());
        for token in 0..30 {
            raw.getattr(token);
        }
        // Version two has had a reply already, to its first message.
        let (mut limit, mut open) = (1, VERSION == Version::Two);
        for (&grant, &error) in grants.iter().zip(&errors) {
            prop_assert!(!raw.inbox.is_empty(), "locked up");
            prop_assert!(raw.inbox.len() <= limit);
            let call = raw.next();
            let left = raw.inbox.len();
            if error {
                raw.answer_error(call.xid, grant, &[2]);
            } else {
                raw.answer(&call, grant, &stale());
                open = true;
            }
            if open {
                // Calls that are out already are not taken back.
                limit = (grant.min(16) as usize).max(left).max(1);
            }
        }
        prop_assert_eq!(raw.done.len(), 30);
        prop_assert_eq!(raw.connection.pending(), 0);
    }
}
