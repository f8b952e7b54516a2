//! Checks whether this machine can serve a configuration, without allocating resources: one list
//! for `millraced --check` and for its start.

mod listeners;
mod paths;
mod running;

use std::path::Path;

use millrace_admin::config::{Config, ConfigProblem, Cores, KeyPath};

use super::change::LogFilter;
use super::memory::{self, Freed};
use super::{InheritedListeners, clusters, devices, folders, gss, hardening};

pub use running::RunningServer;

/// All problems. Resources of a running server with the same configuration file, which this one
/// would replace, count as free, as do addresses of inherited listeners. Blocks for at most a few
/// seconds for each folder.
#[must_use]
pub fn problems(
    config: &Config,
    running: Option<&RunningServer>,
    inherited: &InheritedListeners,
) -> Vec<ConfigProblem> {
    let allowed = millrace_reactor::allowed_cores();
    let mut problems = file_problems(config);
    let cores = cores(&config.reactors.cores, &allowed);
    if cores.is_empty() {
        let reactors = config.reactors.cores.resolve(&allowed).len();
        let freed = running.map_or_else(Freed::default, RunningServer::memory);
        problems.extend(memory::check_start(config, reactors, freed).err());
    }
    problems.extend(cores);
    problems.extend(hardening::problems(config));
    problems.extend(gss::problems(config));
    problems.extend(folders::unserved(config));
    problems.extend(clusters::unreadable(config));
    problems.extend(folders::unentitled(config));
    if running.is_none() {
        problems.extend(listeners::problems(config, inherited));
    }
    problems.extend(paths::problems(config, running.is_some()));
    problems
}

/// Problems on any machine: those of this program.
#[must_use]
pub fn file_problems(config: &Config) -> Vec<ConfigProblem> {
    let mut problems = devices::unserved(config);
    problems.extend(clusters::unbuilt(config));
    if let Err(message) = LogFilter::parse(&config.log) {
        problems.push(ConfigProblem::new(KeyPath::root().key("log"), message));
    }
    problems
}

/// Requested cores that may not be used, or that there is none.
pub(super) fn cores(cores: &Cores, allowed: &[usize]) -> Vec<ConfigProblem> {
    let path = KeyPath::root().key("reactors").key("cores");
    match cores {
        Cores::List(cores) => {
            let bad = cores.iter().enumerate();
            let bad = bad.filter(|(_, core)| !allowed.contains(core));
            bad.map(|(index, core)| {
                let message =
                    format!("core {core} cannot be used; this process may use cores {allowed:?}");
                ConfigProblem::new(path.index(index), message)
            })
            .collect()
        }
        Cores::Auto if allowed.is_empty() => {
            vec![ConfigProblem::new(
                path,
                "this process may use no core at all",
            )]
        }
        Cores::Auto => Vec::new(),
    }
}

/// The running server with a configuration file, if there is one visible to this process.
#[must_use]
pub fn running_by(file: &Path) -> Option<RunningServer> {
    RunningServer::find(Path::new("/"), file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_may_not_be_used_are_named_by_their_place() {
        let list = Cores::List(vec![1, 7, 2, 9]);
        let problems = cores(&list, &[0, 1, 2]);
        let told: Vec<_> = problems
            .iter()
            .map(|problem| problem.path.to_string())
            .collect();
        assert_eq!(told, ["reactors.cores[1]", "reactors.cores[3]"]);
        assert!(problems[0].message.starts_with("core 7 cannot be used"));
        assert_eq!(cores(&Cores::Auto, &[0]), []);
        let none = cores(&Cores::Auto, &[]);
        assert_eq!(none[0].path.to_string(), "reactors.cores");
    }
}
