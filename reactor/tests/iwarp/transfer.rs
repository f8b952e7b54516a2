//! Sends, Writes and Reads between two providers.

use millrace_reactor::fabric::QueuePairLimits;
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};
use millrace_reactor::primitives::Counter;

use crate::pair::{LIMITS, Pair, transfer};
use crate::{connected, plain, with_limits};

fn with_crc() -> IwarpConfig {
    IwarpConfig {
        crc: CrcPolicy::Required,
        ..IwarpConfig::default()
    }
}

fn configurations() -> [(IwarpConfig, IwarpConfig); 3] {
    [
        (IwarpConfig::default(), IwarpConfig::default()),
        (with_crc(), IwarpConfig::default()),
        (
            IwarpConfig {
                peer_to_peer: true,
                ..IwarpConfig::default()
            },
            IwarpConfig {
                ulpdu: 1000,
                ..with_crc()
            },
        ),
    ]
}

fn pairs() -> impl Iterator<Item = Pair<Iwarp>> {
    let configurations = configurations().into_iter();
    configurations.map(|(client, server)| connected(client, server))
}

#[test]
fn sends_go_both_ways() {
    pairs().for_each(transfer::sends_go_both_ways);
}

#[test]
fn writes_are_placed_before_the_send_behind_them() {
    pairs().for_each(transfer::writes_are_placed_before_the_send_behind_them);
}

#[test]
fn reads_fill_scattered_memory_and_wait_for_their_turn() {
    pairs().for_each(transfer::reads_fill_scattered_memory_and_wait_for_their_turn);
}

#[test]
fn one_read_fills_many_pieces() {
    for pair in pairs() {
        let pair = transfer::a_read_fills_many_pieces(pair);
        let counters = pair.server.provider.counters();
        let reads = &counters.fabric.work[2];
        let [posted, completed, bytes] =
            [&reads.posted, &reads.completed, &reads.bytes].map(Counter::get);
        assert_eq!((posted, completed), (1, 1));
        assert_eq!(bytes, 4089 + 15 * 4096 + 14 * 65_536 + 8);
    }
}

#[test]
fn a_send_may_invalidate_a_key() {
    transfer::a_send_may_invalidate_a_key(plain());
}

#[test]
fn rr1_hdr_31_sends_complete_in_order_with_their_lengths() {
    transfer::sends_complete_in_order_with_their_lengths(plain());
}

#[test]
fn mpa_ird_15_reads_fail_at_once_where_none_are_allowed() {
    let limits = QueuePairLimits { ord: 0, ..LIMITS };
    let config = IwarpConfig::default;
    let pair = with_limits(config(), config(), limits);
    transfer::reads_fail_at_once_where_none_are_allowed(pair);
}

#[test]
fn queues_refuse_what_has_no_room() {
    transfer::queues_refuse_what_has_no_room(plain());
}
