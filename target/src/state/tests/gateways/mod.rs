//! A simulation of gateways of one file system and their clients, in virtual time. Everything follows
//! from a seed.
//!
//! `MILLRACE_GATEWAY_SEEDS=5000` runs that many seeds instead of the default number, and
//! `MILLRACE_GATEWAY_SEEDS=17..18` runs those of a range.

mod client;
mod control;
mod dice;
mod disk;
mod faults;
mod figures;
mod gateway;
mod judge;
mod outcomes;
mod rules;
mod shared_files;
mod world;

use std::ops::Range;

use super::*;
use dice::GatewayDice;
use figures::GatewayFigures;
use rules::BrokenRule;
use shared_files::BYTES;
use world::{GatewayWorld, WorldSize};

/// Short, so that grace periods are.
const LEASE: Duration = Duration::from_secs(20);

/// Seeds of an ordinary test run.
const SEEDS: u64 = 80;

/// Seeds that are tried to find a broken rule.
const SEARCHED: u64 = 5_000;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("MILLRACE_GATEWAY_SEEDS") else {
        return 0..SEEDS;
    };
    let number = |text: &str| -> u64 {
        let wrong = |_| panic!("MILLRACE_GATEWAY_SEEDS is neither a number nor a range: {text}");
        text.parse().unwrap_or_else(wrong)
    };
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

/// A small world, as a seed wants it.
fn size(seed: u64) -> WorldSize {
    let mut dice = GatewayDice::new(!seed);
    let gateways = dice.between(2, 5);
    WorldSize {
        gateways: usize::try_from(gateways).expect("few"),
        clients: usize::try_from(dice.between(3, 8)).expect("few"),
        files: u32::try_from(dice.between(1, 2)).expect("few"),
        bytes: [2, 4, BYTES][dice.index(3)],
        pause: [100, 300, 1_000][dice.index(3)],
        fault_pause: dice.between(2_000, 20_000),
        faults: 200_000,
    }
}

/// Runs a seed without a fault in the rules.
fn run(seed: u64) -> GatewayFigures {
    GatewayWorld::new(seed, size(seed), None).run().unwrap_or_else(|what| {
        panic!(
            "seed {seed}: {what}\nreplay it with: MILLRACE_GATEWAY_SEEDS={seed}..{} cargo test -p \
             millrace --lib state::tests::gateways::seeds_keep -- --nocapture",
            seed + 1
        )
    })
}

#[test]
fn seeds_keep_locks_apart_and_serve_everybody() {
    let mut sum = GatewayFigures::default();
    for seed in seeds() {
        sum.add(&run(seed));
    }
    println!("{sum:?}");
}

#[test]
fn many_gateways_and_clients() {
    let size = WorldSize {
        gateways: 64,
        clients: 10_000,
        files: 4_000,
        bytes: BYTES,
        pause: 10_000,
        fault_pause: 20_000,
        faults: 600_000,
    };
    let figures = GatewayWorld::new(1, size, None).run();
    println!("{figures:?}");
    let is_varied = |figures: GatewayFigures| figures.grants > 10_000 && figures.reclaims > 100;
    assert!(figures.clone().is_ok_and(is_varied), "{figures:?}");
}

/// What a seed finds of a broken rule.
fn find(rule: BrokenRule, seed: u64) -> Option<String> {
    let outcome = GatewayWorld::new(seed, size(seed), Some(rule)).run();
    outcome.err()
}

#[test]
fn each_broken_rule_is_found() {
    for (rule, seed) in BrokenRule::FOUND_BY {
        let known = find(rule, seed).map(|what| (seed, what));
        // Any change may lead the seed elsewhere.
        let found = known.or_else(|| {
            let mut others = 0..SEARCHED;
            others.find_map(|seed| Some((seed, find(rule, seed)?)))
        });
        let (by, what) = found.unwrap_or_else(|| panic!("{rule:?} is not found"));
        if by != seed {
            println!("{rule:?} is found by seed {by} now, and no longer by {seed}: {what}");
        }
    }
}
