//! Sends, Writes and Reads between two providers.

use millrace_reactor::fabric::verbs::VerbsConfig;
use millrace_reactor::fabric::{ControlPath, QueuePairLimits};

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
fn sends_go_both_ways() {
    let Some(_alone) = alone() else { return };
    transfer::sends_go_both_ways(plain());
}

#[test]
fn writes_are_placed_before_the_send_behind_them() {
    let Some(_alone) = alone() else { return };
    transfer::writes_are_placed_before_the_send_behind_them(plain());
}

#[test]
fn reads_fill_scattered_memory_and_wait_for_their_turn() {
    let Some(_alone) = alone() else { return };
    transfer::reads_fill_scattered_memory_and_wait_for_their_turn(plain());
}

#[test]
fn reads_fill_memory_that_is_registered_for_them_alone() {
    let Some(_alone) = alone() else { return };
    let pair = with_limits(otherwise(), otherwise(), LIMITS);
    transfer::reads_fill_scattered_memory_and_wait_for_their_turn(pair);
}

#[test]
fn reads_fill_many_pieces() {
    let Some(_alone) = alone() else { return };
    transfer::a_read_fills_many_pieces(plain());
}

#[test]
fn a_send_may_invalidate_a_key() {
    let Some(_alone) = alone() else { return };
    let pair = trusting(LIMITS);
    let invalidation = pair.client.provider.remote_invalidation();
    // Where there are no windows, no key may be invalidated.
    if invalidation.sends && invalidation.receives {
        transfer::a_send_may_invalidate_a_key(pair);
    }
}

#[test]
fn sends_complete_in_order_with_their_lengths() {
    let Some(_alone) = alone() else { return };
    transfer::sends_complete_in_order_with_their_lengths(plain());
}

#[test]
fn sends_fill_shared_receives() {
    let Some(_alone) = alone() else { return };
    let pair = with_limits(otherwise(), otherwise(), LIMITS);
    transfer::sends_complete_in_order_with_their_lengths(pair);
}

#[test]
fn reads_fail_at_once_where_none_are_allowed() {
    let Some(_alone) = alone() else { return };
    let limits = QueuePairLimits { ord: 0, ..LIMITS };
    let config = VerbsConfig::default;
    let pair = with_limits(config(), config(), limits);
    transfer::reads_fail_at_once_where_none_are_allowed(pair);
}

#[test]
fn queues_refuse_what_has_no_room() {
    let Some(_alone) = alone() else { return };
    transfer::queues_refuse_what_has_no_room(plain());
}

#[test]
fn random_work_arrives_and_is_accounted_for() {
    let Some(_alone) = alone() else { return };
    for seed in 1..4 {
        let config = VerbsConfig::default;
        let pair = with_limits(config(), config(), SOAK_LIMITS);
        soak::random_work_arrives_and_is_accounted_for(seed, pair, false);
    }
}

#[test]
fn random_work_arrives_through_windows() {
    let Some(_alone) = alone() else { return };
    soak::random_work_arrives_and_is_accounted_for(5, trusting(SOAK_LIMITS), false);
}

#[test]
fn random_work_arrives_in_shared_receives() {
    let Some(_alone) = alone() else { return };
    let pair = with_limits(otherwise(), otherwise(), SOAK_LIMITS);
    soak::random_work_arrives_and_is_accounted_for(9, pair, true);
}
