//! Moving other threads off the reactors' cores.

use std::fmt;
use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The nice value of threads that share a core with a reactor: the reactor gets about nine tenths
/// of it when both are busy.
const NICE: i32 = 10;

/// Where a thread other than a reactor runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// On these cores, without reactors.
    Cores(Vec<usize>),
    /// On all cores that the process may use, as all have reactors, with this nice value.
    Nice(i32),
}

impl fmt::Display for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(cores) => {
                f.write_str(if cores.len() == 1 { "core" } else { "cores" })?;
                cores.iter().try_for_each(|core| write!(f, " {core}"))
            }
            Self::Nice(nice) => write!(f, "the reactors' cores, nice {nice}"),
        }
    }
}

/// The cores of threads that work for reactors: of those that the process may use (`allowed`), those
/// without a reactor, if they are at least as many as the reactors. Otherwise all, as they could not
/// do the work.
#[must_use]
pub fn helper_cores(allowed: &[usize], reactors: &[usize]) -> Vec<usize> {
    let mut others = allowed.to_vec();
    others.retain(|core| !reactors.contains(core));
    if others.len() < reactors.len() {
        return allowed.to_vec();
    }
    others
}

/// Runs this thread, and threads that it starts later, on these cores only. A thread that a reactor
/// starts would run on the reactor's core otherwise.
///
/// # Errors
/// Errors of the kernel; the thread then runs as before.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    let mut wanted = CpuSet::new();
    for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
        wanted.set(core);
    }
    Ok(sched_setaffinity(None, &wanted)?)
}

/// Moves this thread off the reactors' cores or, if reactors have all cores that it may use, lowers
/// its priority. Threads that it starts later inherit this.
///
/// # Errors
/// Errors of the kernel; the thread then runs as before.
pub fn step_aside(reactors: &[usize]) -> io::Result<Aside> {
    let mut others = sched_getaffinity(None)?;
    for &core in reactors.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
        others.unset(core);
    }
    if others.count() == 0 {
        // Without a process, it applies to this thread.
        let nice = getpriority_process(None)?.max(NICE);
        setpriority_process(None, nice)?;
        return Ok(Aside::Nice(nice));
    }
    sched_setaffinity(None, &others)?;
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| others.is_set(core));
    Ok(Aside::Cores(cores.collect()))
}
