//! A simulation of gateways of one file system and their clients, in virtual time. Everything follows
//! from a seed.
//!
//! `MILLRACE_GATEWAY_SEEDS=5000` runs that many seeds instead of the default number, and
//! `MILLRACE_GATEWAY_SEEDS=17..18` runs those of a range.

mod client;
mod control;
mod dice;
mod disk;
mod figures;
mod gateway;
mod judge;
mod rules;
mod shared_files;
mod world;

use std::ops::Range;

use super::*;
use dice::GatewayDice;
use figures::GatewayFigures;
use rules::BrokenRule;
use world::{GatewayWorld, WorldSize};

/// Short, so that grace periods are.
const LEASE: Duration = Duration::from_secs(20);

/// Seeds of an ordinary test run.
const SEEDS: u64 = 40;

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
        pause: 10_000,
        fault_pause: 20_000,
        faults: 600_000,
    };
    let began = std::time::Instant::now();
    let figures = GatewayWorld::new(1, size, None).run();
    println!("{figures:?} in {:?}", began.elapsed());
    assert!(figures.is_ok_and(|figures| figures.grants > 1_000 && figures.reclaims > 100));
}

/// Rules whose breach a few seeds show. `MILLRACE_GATEWAY_SEEDS=5000` with `--nocapture` tells of the
/// others, too, for most of which it takes hundreds or thousands.
const QUICKLY_FOUND: [BrokenRule; 5] = [
    BrokenRule::EnforcesBeforeHolding,
    BrokenRule::ResumesUnasked,
    BrokenRule::TrustsLostSession,
    BrokenRule::StopsWithoutWaiting,
    BrokenRule::GoesOnReplaced,
];

#[test]
fn broken_rules_are_found() {
    let mut found = Vec::new();
    let wants_all = std::env::var_os("MILLRACE_GATEWAY_SEEDS").is_some();
    let all: &[BrokenRule] = match wants_all {
        true => &BrokenRule::ALL,
        false => &QUICKLY_FOUND,
    };
    for &rule in all {
        let first = seeds().find_map(|seed| {
            let outcome = GatewayWorld::new(seed, size(seed), Some(rule)).run();
            outcome.err().map(|what| (seed, what))
        });
        match first {
            Some((seed, what)) => {
                println!("{rule:?}: seed {seed}: {what}");
                found.push(rule);
            }
            None => println!("{rule:?}: not found"),
        }
    }
    assert!(wants_all || found == QUICKLY_FOUND, "{found:?}");
}
