//! A deterministic simulation: requesters against the responder, over a network that goes wrong,
//! in virtual time. Everything follows from a seed.
//!
//! With `MILLRACE_TEST_FABRIC=verbs:ADDRESS` the same clients and the same server run over RDMA
//! devices, in real time, under the same watch; what goes wrong there are connections that are
//! broken off, receives that come late, and sides that do not look for a while.
//!
//! `MILLRACE_SIM_SEEDS=20000` runs that many seeds instead of the default number,
//! `MILLRACE_SIM_SEED=17` runs one, and `MILLRACE_SIM_FIRST=5000` begins there.

mod client;
mod device;
mod dice;
mod memory;
mod mischief;
mod model;
mod mutant;
mod operation;
mod options;
mod panics;
mod reverse;
mod server;
mod watch;
mod world;

use std::collections::HashSet;

use millrace_reactor::fabric::testing::Wire;
use mutant::Mutant;
use world::{Carries, Grounds, Run, run, run_on};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 1500;
/// The same on devices, where time is real.
const DEVICE_SEEDS: u64 = 25;

fn environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

/// Fails with what was found, and how to have it again.
fn fail(seed: u64, what: &str) -> ! {
    panic!(
        "seed {seed}: {what}\nreplay it with: MILLRACE_SIM_SEED={seed} cargo test -p millrace-bench \
         --test simulation seeds -- --nocapture"
    )
}

#[test]
fn seeds() {
    // In real time there are as many as one can wait for.
    let wire = Wire::new();
    let usual = if wire.is_real() { DEVICE_SEEDS } else { SEEDS };
    let seeds = match environment("MILLRACE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = environment("MILLRACE_SIM_FIRST").unwrap_or(0);
            first..first + environment("MILLRACE_SIM_SEEDS").unwrap_or(usual)
        }
    };
    let grounds = Grounds::new();
    let mut sum = Run::default();
    for seed in seeds.clone() {
        let ran = if wire.is_real() {
            run_on(Carries::Devices(Wire::new()), seed, None, &grounds)
        } else {
            run(seed, None, &grounds)
        };
        sum.add(&ran.unwrap_or_else(|what| fail(seed, &what)));
    }
    println!("{} seeds: {sum:?}", seeds.end - seeds.start);
    if wire.is_real() {
        let some = [sum.connections, sum.resets, sum.injected, sum.calls];
        assert!(some.into_iter().all(|count| count > 0), "{sum:?}");
    } else if seeds.end - seeds.start >= 100 {
        assert!(sum.is_varied(), "{sum:?}");
    }
}

#[test]
fn a_seed_always_runs_the_same() {
    let (first, second) = (Grounds::new(), Grounds::new());
    let mut digests = HashSet::new();
    for seed in 0..40 {
        let runs = [&first, &second].map(|grounds| run(seed, None, grounds));
        assert_eq!(runs[0], runs[1], "seed {seed}");
        digests.extend(runs[0].as_ref().ok().map(|run| run.digest));
    }
    assert_eq!(digests.len(), 40, "seeds differ");
}

#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        let found = (0..SEEDS).find_map(|seed| {
            // Memory that a mutant keeps stays in use, so each has its own.
            let grounds = Grounds::new();
            let wire = Wire::new();
            let ran = if wire.is_real() {
                run_on(Carries::Devices(wire), seed, Some(mutant), &grounds)
            } else {
                run(seed, Some(mutant), &grounds)
            };
            ran.err().map(|what| (seed, what))
        });
        let (seed, what) = found.unwrap_or_else(|| panic!("{mutant:?} is never found"));
        println!("{mutant:?}: seed {seed}: {what}");
    }
}
