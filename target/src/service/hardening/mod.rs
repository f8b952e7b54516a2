//! Rights that this process drops permanently before the first connection (`hardening` of the
//! configuration), without a service manager.
//!
//! | module | rights dropped |
//! | --- | --- |
//! | `capabilities` | capabilities that the configuration does not need, and root's for `--user` |
//! | `seccomp` | system calls that no thread of a kind makes |
//! | `landlock` | files that the configuration does not name (`places`) |
//!
//! All of it applies to the calling thread and its later children, so [`confine`] comes before
//! there are others. [`confine_thread`] drops further rights at the start of each kind of thread.
//! Threads share memory: the narrower limits of one kind stop mistakes and attacks within one
//! thread, and those of the process stop the rest.

mod capabilities;
mod landlock;
mod places;
mod seccomp;

use std::path::Path;
use std::sync::OnceLock;

use millrace_admin::config::{Config, ConfigProblem, HardeningLevel, KeyPath, Store};

pub use capabilities::kept_by_user;
pub use landlock::outside;
pub use seccomp::{ThreadKind, confine_thread};

/// The result of one key of `hardening`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardeningOutcome {
    /// The key.
    pub key: &'static str,
    /// Whether the configuration requests it.
    pub wanted: bool,
    /// Whether it is in force.
    pub in_force: bool,
    /// Its effect, or why it is not in force.
    pub detail: String,
}

static OUTCOMES: OnceLock<Vec<HardeningOutcome>> = OnceLock::new();

/// The results of [`confine`]; empty before.
#[must_use]
pub fn outcomes() -> &'static [HardeningOutcome] {
    OUTCOMES.get().map_or(&[], Vec::as_slice)
}

/// Drops the rights that a server of this configuration, read from `file`, does not need. To be
/// called once, while there is no other thread.
///
/// # Errors
/// The kernel does not support what the configuration requires. The process should then end, as
/// rights already dropped cannot be regained.
pub fn confine(config: &Config, file: &Path) -> Result<(), ConfigProblem> {
    let wanted = &config.hardening;
    let mut outcomes = Vec::new();
    // In this order: folders are opened for Landlock with all capabilities, and seccomp is last as
    // it refuses calls that the others need.
    let mut give_up = |key, level: HardeningLevel, act: &dyn Fn() -> Result<String, String>| {
        let outcome = match level.is_wanted() {
            true => act(),
            false => Err("switched off".to_owned()),
        };
        if let (HardeningLevel::Required, Err(why)) = (level, &outcome) {
            return Err(unavailable(key, why));
        }
        outcomes.push(HardeningOutcome {
            key,
            wanted: level.is_wanted(),
            in_force: outcome.is_ok(),
            detail: outcome.unwrap_or_else(|why| why),
        });
        Ok(())
    };
    give_up("no_new_privileges", wanted.no_new_privileges, &|| {
        let set = rustix::thread::set_no_new_privs(true);
        set.map(|()| "in force".to_owned())
            .map_err(|error| error.to_string())
    })?;
    give_up("landlock", wanted.landlock, &|| {
        landlock::restrict(config, file)
    })?;
    give_up("capabilities", wanted.capabilities, &|| {
        capabilities::reduce(config, file)
    })?;
    give_up("seccomp", wanted.seccomp, &|| {
        seccomp::install(may_serve_folders(config))
    })?;
    let _ = OUTCOMES.set(outcomes);
    Ok(())
}

/// Logs what is in force, and what is not.
pub fn log() {
    for HardeningOutcome {
        key,
        wanted,
        in_force,
        detail,
    } in outcomes()
    {
        match (wanted, in_force) {
            (true, false) => tracing::warn!("hardening.{key}: not in force: {detail}"),
            _ => tracing::info!("hardening.{key}: {detail}"),
        }
    }
}

/// Requested features that this kernel lacks. Drops nothing.
#[must_use]
pub fn notes(config: &Config) -> Vec<String> {
    let missing = missing(config).into_iter();
    let missing = missing.filter(|(_, level, _)| *level == HardeningLevel::On);
    let note = |(key, _, why)| format!("hardening.{key}: would not be in force: {why}");
    missing.map(note).collect()
}

/// Required features that this kernel lacks. Drops nothing.
#[must_use]
pub fn problems(config: &Config) -> Vec<ConfigProblem> {
    let missing = missing(config).into_iter();
    let missing = missing.filter(|(_, level, _)| *level == HardeningLevel::Required);
    missing
        .map(|(key, _, why)| unavailable(key, &why))
        .collect()
}

fn missing(config: &Config) -> Vec<(&'static str, HardeningLevel, String)> {
    let wanted = &config.hardening;
    let seccomp = seccomp::missing().map(|why| ("seccomp", wanted.seccomp, why));
    let landlock = landlock::missing(config).map(|why| ("landlock", wanted.landlock, why));
    seccomp.into_iter().chain(landlock).collect()
}

fn unavailable(key: &'static str, why: &str) -> ConfigProblem {
    let path = KeyPath::root().key("hardening").key(key);
    ConfigProblem::new(path, format!("required, but not possible: {why}"))
}

/// Whether a server started with this configuration may serve folders later.
fn may_serve_folders(config: &Config) -> bool {
    let mut exports = config.exports.iter();
    !config.admin.exportable_roots.is_empty()
        || exports.any(|export| matches!(export.store, Store::Posix(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_admin::config;

    #[test]
    fn what_this_kernel_lacks_is_noted_or_a_problem_by_how_much_it_is_wanted() {
        // No kernel can grant the root file system alone.
        let config = |level: &str| {
            let text =
                format!("admin: {{ exportable_roots: [/] }}\nhardening: {{ landlock: {level} }}");
            config::parse(&text, "test").unwrap()
        };
        let told = |level: &str| {
            let (notes, problems) = (notes(&config(level)), problems(&config(level)));
            let problems = problems.iter().map(|one| one.path.to_string());
            (notes, problems.collect::<Vec<_>>())
        };
        let nothing = (Vec::new(), Vec::new());
        assert_eq!(told("off"), nothing);
        assert_eq!(told("required").1, ["hardening.landlock"]);
        assert!(told("required").0.is_empty());
        let (notes, problems) = told("on");
        let [note] = notes.as_slice() else {
            panic!("{notes:?}");
        };
        let begin = "hardening.landlock: would not be in force: ";
        assert!(
            note.len() > begin.len() && note.starts_with(begin),
            "{note}"
        );
        assert!(problems.is_empty());
    }
}
