use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const PLENTY: Inputs = Inputs {
    wish: 32,
    most: 128,
    share: u32::MAX,
    window: None,
    pressure: Pressure::NONE,
    ceiling: u32::MAX,
    owed: 0,
    exposures: 0,
};

fn grant(inputs: &Inputs) -> Grant {
    match decide(inputs) {
        ReplyDecision::Reply(grant) => grant,
        ReplyDecision::Withhold => panic!("held back: {inputs:?}"),
    }
}

fn pressure() -> impl Strategy<Value = Pressure> {
    (0_u64..1000, 0_u64..1000, 0_u64..3).prop_map(|(free, total, waiters)| Pressure {
        free,
        total,
        waiters,
    })
}

fn any_inputs() -> impl Strategy<Value = Inputs> {
    let small = prop_oneof![0_u32..12, any::<u32>()];
    (
        (small.clone(), small.clone(), small.clone()),
        (proptest::option::of(small.clone()), pressure(), small),
        (0_u32..6, 0_u32..12),
    )
        .prop_map(
            |((wish, most, share), (window, pressure, ceiling), (owed, exposures))| Inputs {
                wish,
                most,
                share,
                window: window.map(|calls| (calls, Cause::ExportLimit)),
                pressure,
                ceiling,
                owed,
                exposures,
            },
        )
}

#[test]
fn rr1_cred_25_wishes_are_clamped() {
    let at = |wish| grant(&Inputs { wish, ..PLENTY }).credits;
    assert_eq!((at(0), at(1), at(128), at(u32::MAX)), (1, 1, 128, 128));
}

#[test]
fn the_receives_posted_at_accept_cover_a_grant_of_one() {
    assert_eq!(FIRST_RECEIVES, receives_for(1, 0));
}

#[test]
fn rr1_cred_18_pending_dones_are_subtracted_from_the_credits() {
    let at = |exposures| {
        grant(&Inputs {
            wish: 8,
            exposures,
            ..PLENTY
        })
    };
    assert_eq!(at(0).credits, 8);
    assert_eq!(at(4).credits, 4);
    assert_eq!(at(4).cause, Some(Cause::Exposures));
    assert_eq!(at(7).credits, 1);
}

#[test]
fn rr1_cred_20_the_last_reply_is_held_back_when_exposures_hold_all_credits() {
    let at = |owed, exposures| {
        decide(&Inputs {
            wish: 4,
            owed,
            exposures,
            ..PLENTY
        })
    };
    assert_eq!(at(0, 4), ReplyDecision::Withhold);
    assert_eq!(at(0, 9), ReplyDecision::Withhold);
    // While another reply is owed, that one announces new credits to the client.
    assert!(matches!(
        at(1, 4),
        ReplyDecision::Reply(Grant { credits: 1, .. })
    ));
    assert!(matches!(
        at(0, 3),
        ReplyDecision::Reply(Grant { credits: 1, .. })
    ));
}

#[test]
fn credits_fall_in_proportion_once_less_than_an_eighth_is_free() {
    let most = |free, waiters| {
        let pressure = Pressure {
            free,
            total: 800,
            waiters,
        };
        pressure.most(40)
    };
    let free = [0, 1, 25, 99, 100];
    assert_eq!(free.map(|free| most(free, 0)), [1, 1, 10, 39, u32::MAX]);
    assert_eq!(most(800, 1), 1);
}

#[test]
fn a_cut_has_the_cause_of_the_lowest_bound_and_no_other_grant_has_one() {
    let window = |calls| Some((calls, Cause::ClientLimit));
    let low = |free| Pressure {
        free,
        total: 800,
        waiters: 0,
    };
    let cause = |share, window, pressure| {
        let grant = grant(&Inputs {
            share: share + SPARE_RECEIVES,
            window,
            pressure,
            ..PLENTY
        });
        grant.cause
    };
    // Of equal ones, the first in this order; 8 of 32 are granted when a quarter is free.
    assert_eq!(cause(8, window(8), low(25)), Some(Cause::Share));
    assert_eq!(cause(9, window(8), low(25)), Some(Cause::ClientLimit));
    assert_eq!(cause(9, window(9), low(25)), Some(Cause::PoolPressure));
    assert_eq!(cause(32, window(33), Pressure::NONE), None);
}

#[test]
fn a_cut_is_over_once_more_could_be_granted_than_is_wished_for() {
    let ceiling = |calls| {
        let grant = grant(&Inputs {
            window: Some((calls, Cause::ClientLimit)),
            ..PLENTY
        });
        assert_eq!(grant.credits, 32);
        grant.ceiling
    };
    assert_eq!((ceiling(32), ceiling(33)), (32, u32::MAX));
}

#[test]
fn a_claim_gets_its_weight_of_a_level() {
    let at = |weight, level| {
        let claim = Claim {
            held: 0,
            demand: 0,
            weight,
        };
        claim.at(level)
    };
    assert_eq!((at(WEIGHT, 100), at(WEIGHT / 4, 100)), (100, 25));
    assert_eq!(at(2 * WEIGHT, u32::MAX), u32::MAX);
}

proptest! {
    #[test]
    fn rr1_cred_03_a_grant_is_never_zero(inputs in any_inputs()) {
        match decide(&inputs) {
            ReplyDecision::Reply(grant) => {
                prop_assert!(grant.credits >= 1);
                prop_assert!(grant.credits <= inputs.wish.min(inputs.most).max(1));
                prop_assert!(grant.ceiling >= 1);
            }
            // Only for an event that occurs by itself: the end of an exposure.
            ReplyDecision::Withhold => prop_assert!(inputs.exposures > 0 && inputs.owed == 0),
        }
    }

    #[test]
    fn rr1_cred_09_a_grant_never_exceeds_what_receives_cover(
        inputs in any_inputs(), covered in FIRST_RECEIVES..100_000, dones in 0_u32..100,
    ) {
        if let ReplyDecision::Reply(grant) = decide(&inputs) {
            let announced = announced(grant.credits, covered + dones, dones);
            prop_assert!(announced >= 1);
            prop_assert!(announced + SPARE_RECEIVES + dones <= covered + dones);
            prop_assert!(announced <= grant.credits);
        }
    }

    #[test]
    fn rr1_cred_16_receives_for_dones_are_beyond_the_grant(
        credits in 1_u32..100_000, dones in 0_u32..1000,
    ) {
        let covered = receives_for(credits, dones);
        prop_assert_eq!(announced(credits, covered, dones), credits);
        prop_assert!(covered >= credits + dones);
    }

    #[test]
    fn a_cut_is_in_force_with_the_next_reply_and_no_share_is_overdrawn(inputs in any_inputs()) {
        if let ReplyDecision::Reply(grant) = decide(&inputs) {
            prop_assert!(grant.credits <= inputs.share.saturating_sub(SPARE_RECEIVES).max(1));
            prop_assert!(grant.credits <= inputs.window.map_or(u32::MAX, |(calls, _)| calls).max(1));
            if inputs.pressure.waiters > 0 {
                prop_assert_eq!(grant.credits, 1);
            }
        }
    }

    #[test]
    fn grants_rise_in_small_steps_to_the_wish_once_nothing_is_short(
        wish in 1_u32..5000, cut in 1_u32..5000,
    ) {
        let mut inputs = Inputs { wish, most: 4096, window: Some((cut, Cause::ClientLimit)), ..PLENTY };
        let mut last = grant(&inputs);
        let limit = wish.min(4096);
        prop_assert_eq!(last.credits, limit.min(cut));
        inputs.window = None;
        let mut replies = 0;
        while last.credits < limit {
            inputs.ceiling = last.ceiling;
            let next = grant(&inputs);
            prop_assert!(next.credits > last.credits);
            prop_assert!(next.credits - last.credits <= (limit / RECOVERY_STEPS).max(1));
            last = next;
            replies += 1;
            prop_assert!(replies <= 2 * RECOVERY_STEPS, "{} of {}", last.credits, limit);
        }
        // And stays there.
        inputs.ceiling = last.ceiling;
        prop_assert_eq!(grant(&inputs).credits, limit);
    }

    #[test]
    fn less_free_memory_never_grants_more(
        wish in 1_u32..5000, total in 0_u64..10_000, free in 0_u64..10_000, less in 0_u64..10_000,
    ) {
        let at = |free| {
            let pressure = Pressure { free, total, waiters: 0 };
            grant(&Inputs { wish, pressure, ..PLENTY }).credits
        };
        prop_assert!(at(free.min(less)) <= at(free));
    }

    #[test]
    fn shares_fit_the_memory_and_leave_one_for_who_comes_next(
        budget in 0_u32..100_000,
        claims in proptest::collection::vec((0_u32..2000, 0_u32..5000, 1..=WEIGHT), 0..20),
    ) {
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|(held, demand, weight)| Claim { held, demand, weight })
            .collect();
        let level = level(budget, &claims);
        let held: u64 = claims.iter().map(|claim| u64::from(claim.held)).sum();
        let taken: u64 = claims.iter().map(|claim| claim.takes(level)).sum();
        prop_assert!(level == 0 || taken + u64::from(level) <= u64::from(budget));
        // One more would not fit, so nothing is unused.
        let more: u64 = claims.iter().map(|claim| claim.takes(level + 1)).sum();
        prop_assert!(more + u64::from(level) + 1 > u64::from(budget) || level == budget);
        prop_assert!(level > 0 || held + claims.len() as u64 + 1 > u64::from(budget));
    }

    /// Clients join, take their grants with each of their replies, and leave; the remaining ones
    /// end with equal shares, whatever was held before.
    #[test]
    fn shares_become_equal_whatever_was_before(
        budget in 1000_u32..50_000, greedy in 1_usize..12, modest in 0_usize..5, before in 0_u32..50_000,
    ) {
        let mut claims = vec![Claim { held: 0, demand: 60_000, weight: WEIGHT }; greedy];
        claims[0].held = before.min(budget / 2);
        let few = Claim { held: 0, demand: 10, weight: WEIGHT };
        claims.extend(std::iter::repeat_n(few, modest));
        for _ in 0..40 {
            for index in 0..claims.len() {
                let level = level(budget, &claims);
                prop_assert!(level >= budget / 2_u32.pow(1 + greedy as u32) / 4, "{level}");
                let claim = &mut claims[index];
                claim.held = claim.demand.min(claim.at(level));
            }
        }
        let level = level(budget, &claims);
        let fair = (budget - 10 * modest as u32) / (greedy as u32 + 1);
        for claim in &claims {
            let expected = claim.demand.min(fair);
            prop_assert!(claim.held.abs_diff(expected) <= 1 + expected / 50, "{claims:?} {level}");
        }
        let total: u64 = claims.iter().map(|claim| u64::from(claim.held)).sum();
        prop_assert!(total <= u64::from(budget));
    }
}

/// One connection between a client that keeps to its grant and the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ConnectionModel {
    most: u32,
    granted: u32,
    /// Calls that the server has and is not about to withhold.
    calls: u32,
    withheld: u32,
    /// Replies sent that wait for RDMA_DONE.
    exposures: u32,
}

impl ConnectionModel {
    /// The possible next events. RDMA_DONE and the end of its window are one: the exposure ends.
    fn next(self) -> Vec<Self> {
        let mut next = Vec::new();
        if self.calls + self.withheld < self.granted {
            let calls = self.calls + 1;
            next.push(Self { calls, ..self });
        }
        if self.calls > 0 {
            let left = Self {
                calls: self.calls - 1,
                ..self
            };
            let answer = |own: u32| match left.decide() {
                ReplyDecision::Reply(grant) => Self {
                    granted: grant.credits,
                    exposures: left.exposures + own,
                    ..left
                },
                ReplyDecision::Withhold => Self {
                    withheld: left.withheld + 1,
                    ..left
                },
            };
            next.extend([answer(0), answer(1)]);
        }
        if self.exposures > 0 {
            let mut after = Self {
                exposures: self.exposures - 1,
                ..self
            };
            if after.withheld > 0 {
                let owing = Self {
                    withheld: after.withheld - 1,
                    ..after
                };
                if let ReplyDecision::Reply(grant) = owing.decide() {
                    after = Self {
                        granted: grant.credits,
                        ..owing
                    };
                }
            }
            next.push(after);
        }
        next.extend((1..=4).map(|most| Self { most, ..self }));
        next
    }

    fn decide(&self) -> ReplyDecision {
        decide(&Inputs {
            wish: 4,
            most: self.most,
            owed: self.calls + self.withheld,
            exposures: self.exposures,
            ..PLENTY
        })
    }
}

#[test]
fn rr1_cred_19_the_client_can_always_go_on_or_is_owed_a_reply() {
    // Every reachable state with grants and exposures up to four, and those reachable by live
    // changes of the configuration only.
    let mut seen = HashSet::new();
    let mut open: Vec<ConnectionModel> = (1..=4)
        .map(|most| ConnectionModel {
            most,
            granted: 1,
            calls: 0,
            withheld: 0,
            exposures: 0,
        })
        .collect();
    while let Some(state) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        let client_may_call = state.calls + state.withheld < state.granted;
        let server_may_answer = state.calls > 0;
        assert!(
            client_may_call || server_may_answer || state.withheld > 0,
            "the client waits for a credit that nothing brings: {state:?}"
        );
        // A withheld reply waits only for an exposure, which ends by itself.
        assert!(state.withheld <= 1, "{state:?}");
        assert!(state.withheld == 0 || state.exposures > 0, "{state:?}");
        assert!(state.exposures <= 4 + 4, "bounded exposure: {state:?}");
        open.extend(state.next());
    }
    assert!(seen.len() > 300, "{}", seen.len());
    let all = |calls, withheld, exposures| {
        let found = |state: &&ConnectionModel| {
            (state.calls, state.withheld, state.exposures) == (calls, withheld, exposures)
        };
        seen.iter().any(|state| found(&state))
    };
    assert!(all(0, 1, 4) && all(3, 0, 1) && all(0, 0, 4));
}
