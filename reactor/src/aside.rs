//! Keeping other threads out of the reactors' way.

use std::fmt;
use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The nice value of threads that have to share a core with a reactor: the reactor gets about nine
/// tenths of it when both want all of it.
const NICE: i32 = 10;

/// Where a thread that is no reactor's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// On these cores, which no reactor uses.
    Cores(Vec<usize>),
    /// On all cores that the process may use, as reactors have all of them, with this nice value.
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

/// Takes this thread off the cores of reactors or, where they have all that it may use, lowers its
/// priority. Threads that it starts from now on inherit either.
///
/// # Errors
/// What the kernel says; the thread runs as before then.
pub fn step_aside(reactors: &[usize]) -> io::Result<Aside> {
    let mut others = sched_getaffinity(None)?;
    for &core in reactors.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
        others.unset(core);
    }
    if others.count() == 0 {
        // Without a process, it is this thread that is meant.
        let nice = getpriority_process(None)?.max(NICE);
        setpriority_process(None, nice)?;
        return Ok(Aside::Nice(nice));
    }
    sched_setaffinity(None, &others)?;
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| others.is_set(core));
    Ok(Aside::Cores(cores.collect()))
}
