//! Sends, Writes and Reads between two providers.

use millrace_reactor::fabric::verbs::VerbsConfig;
use millrace_reactor::fabric::{Provider, QueuePairLimits};

use crate::pair::soak::{self, SOAK_LIMITS};
use crate::pair::{LIMITS, transfer};
use crate::{alone, plain, trusting, with_limits};

/// Receives that are shared, and a registration for each Read.
fn otherwise() -> VerbsConfig {
    VerbsConfig {
        shared_receives: true,
        force_read_registrations: true,
        ..VerbsConfig::default()
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn sends_go_both_ways() {
    let _alone = alone();
    transfer::sends_go_both_ways(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn writes_are_placed_before_the_send_behind_them() {
    let _alone = alone();
    transfer::writes_are_placed_before_the_send_behind_them(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn reads_fill_scattered_memory_and_wait_for_their_turn() {
    let _alone = alone();
    transfer::reads_fill_scattered_memory_and_wait_for_their_turn(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn reads_fill_memory_that_is_registered_for_them_alone() {
    let _alone = alone();
    let pair = with_limits(otherwise(), otherwise(), LIMITS);
    transfer::reads_fill_scattered_memory_and_wait_for_their_turn(pair);
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_send_may_invalidate_a_key() {
    let _alone = alone();
    let pair = trusting(LIMITS);
    let invalidation = pair.client.provider.remote_invalidation();
    // Where there are no windows, no key may be invalidated.
    if invalidation.sends && invalidation.receives {
        transfer::a_send_may_invalidate_a_key(pair);
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn sends_complete_in_order_with_their_lengths() {
    let _alone = alone();
    transfer::sends_complete_in_order_with_their_lengths(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn sends_fill_shared_receives() {
    let _alone = alone();
    let pair = with_limits(otherwise(), otherwise(), LIMITS);
    transfer::sends_complete_in_order_with_their_lengths(pair);
}

#[test]
#[ignore = "needs an RDMA device"]
fn reads_fail_at_once_where_none_are_allowed() {
    let _alone = alone();
    let limits = QueuePairLimits { ord: 0, ..LIMITS };
    let config = VerbsConfig::default;
    let pair = with_limits(config(), config(), limits);
    transfer::reads_fail_at_once_where_none_are_allowed(pair);
}

#[test]
#[ignore = "needs an RDMA device"]
fn queues_refuse_what_has_no_room() {
    let _alone = alone();
    transfer::queues_refuse_what_has_no_room(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn random_work_arrives_and_is_accounted_for() {
    let _alone = alone();
    for seed in 1..4 {
        let config = VerbsConfig::default;
        let pair = with_limits(config(), config(), SOAK_LIMITS);
        soak::random_work_arrives_and_is_accounted_for(seed, pair, false);
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn random_work_arrives_through_windows() {
    let _alone = alone();
    soak::random_work_arrives_and_is_accounted_for(5, trusting(SOAK_LIMITS), false);
}

#[test]
#[ignore = "needs an RDMA device"]
fn random_work_arrives_in_shared_receives() {
    let _alone = alone();
    let pair = with_limits(otherwise(), otherwise(), SOAK_LIMITS);
    soak::random_work_arrives_and_is_accounted_for(9, pair, true);
}
