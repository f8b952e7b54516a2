//! Keys that only the configuration file, which root owns, may change. They limit what the holder
//! of the token can do through the API.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Ceph, Config, ConfigProblem, KeyPath, Posix, Store};

/// The differences that a change through the API may not make. Reads folders of the host.
pub fn check(before: &Config, next: &Config) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let admin = KeyPath::root().key("admin");
    let (one, other) = (&before.admin, &next.admin);
    for (key, same) in [
        ("token_file", one.token_file == other.token_file),
        ("roles_file", one.roles_file == other.roles_file),
        ("audit_file", one.audit_file == other.audit_file),
        ("socket", one.socket == other.socket),
        (
            "exportable_roots",
            one.exportable_roots == other.exportable_roots,
        ),
    ] {
        if !same {
            let message = "is set in the configuration file only; edit it there, and reload";
            problems.push(ConfigProblem::new(admin.key(key), message));
        }
    }
    let authority = |config: &Config| config.admin.tls.as_ref()?.client_ca.clone();
    if authority(before) != authority(next) {
        let message = "is set in the configuration file only; edit it there, and restart";
        let path = admin.key("tls").key("client_ca");
        problems.push(ConfigProblem::new(path, message));
    }
    if before.hardening != next.hardening {
        let message = "is set in the configuration file only; edit it there, and restart";
        problems.push(ConfigProblem::new(
            KeyPath::root().key("hardening"),
            message,
        ));
    }
    let exports = KeyPath::root().key("exports");
    for (index, export) in next.exports.iter().enumerate() {
        let posix = match &export.store {
            Store::Memory { .. } => continue,
            Store::Posix(posix) => posix,
            Store::Ceph(ceph) => {
                if !knows_cluster(before, ceph) {
                    let path = exports.index(index).key("store");
                    problems.push(ConfigProblem::new(path, UNKNOWN_CLUSTER));
                }
                continue;
            }
        };
        let there = before.exports.iter().any(|known| {
            known.path == export.path
                && matches!(&known.store, Store::Posix(known) if known.root == posix.root)
        });
        if !there && let Err(message) = may_export(posix, before, next) {
            let path = exports.index(index).key("store").key("root");
            problems.push(ConfigProblem::new(path, message));
        }
    }
    problems
}

/// Why a store in a cluster is refused.
const UNKNOWN_CLUSTER: &str = "no export of the configuration file has this `conf`, `user`, \
     `keyring` and `file_system` with a `root` at or above this one; add it there, and reload";

/// Whether an export reaches no more of a cluster than those that are there.
fn knows_cluster(before: &Config, wanted: &Ceph) -> bool {
    before.exports.iter().any(|known| match &known.store {
        Store::Ceph(known) => {
            let access = |one: &Ceph| {
                (
                    one.conf.clone(),
                    one.user.clone(),
                    one.keyring.clone(),
                    one.file_system.clone(),
                )
            };
            access(known) == access(wanted)
                && wanted.root.starts_with(&known.root)
                && (wanted.read_only || !known.read_only)
        }
        Store::Memory { .. } | Store::Posix(_) => false,
    })
}

/// Whether the holder of the token may export a folder, with symbolic links resolved. The folder
/// may be replaced before it is opened, so [`check_opened`] checks again then.
fn may_export(posix: &Posix, before: &Config, next: &Config) -> Result<(), String> {
    let real = resolved(&posix.root)?;
    let roots = &before.admin.exportable_roots;
    if !is_named_within(&posix.root, roots) {
        return Err(outside(&posix.root, &real, roots));
    }
    may_show(&posix.root, &real, before)?;
    may_show(&posix.root, &real, next)
}

/// Checks the folder that was opened under a name. If the name is inside an exportable root, the
/// folder has to be inside one too and must not contain the state directory. Other names can come
/// from the configuration file only, and are not restricted.
///
/// # Errors
/// Why it may not.
pub fn check_opened(config: &Config, named: &Path, opened: &Path) -> Result<(), String> {
    if !is_named_within(named, &config.admin.exportable_roots) {
        return Ok(());
    }
    may_show(named, opened, config)
}

/// Whether a name is inside one of these roots, by its text.
fn is_named_within(named: &Path, roots: &[PathBuf]) -> bool {
    let mut roots = roots.iter();
    roots.any(|root| named.starts_with(root) || real(root).is_some_and(|r| named.starts_with(r)))
}

/// A root that does not exist contains nothing.
fn real(root: &Path) -> Option<PathBuf> {
    fs::canonicalize(root).ok()
}

/// Whether a folder is in an exportable root, and neither in the state directory nor above it.
fn may_show(named: &Path, folder: &Path, config: &Config) -> Result<(), String> {
    let roots = &config.admin.exportable_roots;
    let mut allowed = roots.iter().filter_map(|one| real(one));
    if !allowed.any(|allowed| folder.starts_with(allowed)) {
        return Err(outside(named, folder, roots));
    }
    let Some(state) = &config.state_directory else {
        return Ok(());
    };
    let state = fs::canonicalize(state).unwrap_or_else(|_| state.clone());
    if folder.starts_with(&state) || state.starts_with(folder) {
        return Err(format!(
            "`{}` would show state_directory ({}) to clients",
            named.display(),
            state.display()
        ));
    }
    Ok(())
}

fn outside(named: &Path, folder: &Path, roots: &[PathBuf]) -> String {
    let list: Vec<String> = roots.iter().map(|one| one.display().to_string()).collect();
    let list = match list.as_slice() {
        [] => "there are none".to_owned(),
        list => list.join(", "),
    };
    let real = match folder == named {
        true => String::new(),
        false => format!(" (which is {})", folder.display()),
    };
    format!(
        "`{}`{real} is in none of admin.exportable_roots of the configuration file ({list}); list \
         a folder above it there and reload, or add the export with its real path to the file",
        named.display()
    )
}

fn resolved(root: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(root)
        .map_err(|error| format!("`{}` cannot be examined: {error}", root.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::Export;

    fn export(root: &Path) -> Export {
        let text = format!(
            "exports: [{{ path: /data, store: {{ kind: posix, root: {} }} }}]",
            root.display()
        );
        crate::config::parse(&text, "").unwrap().exports.remove(0)
    }

    #[test]
    fn what_is_named_in_an_exportable_root_has_to_be_there_when_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| folder.join(name);
        for name in ["srv", "srv/data", "srv/state", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("srv", at("by-link")).unwrap();
        let mut config = Config {
            state_directory: Some(at("srv/state")),
            ..Config::default()
        };
        let opened = |config: &Config, named: &str, opened: &str| {
            check_opened(config, &at(named), &at(opened))
        };
        assert_eq!(opened(&config, "srv/data", "other"), Ok(()), "the file's");
        config.admin.exportable_roots = vec![at("by-link")];
        assert_eq!(opened(&config, "srv/data", "srv/data"), Ok(()));
        assert_eq!(opened(&config, "by-link/data", "srv/data"), Ok(()));
        assert_eq!(opened(&config, "other", "other"), Ok(()), "the file's");
        for named in ["srv/data", "by-link/data"] {
            let why = opened(&config, named, "other").unwrap_err();
            assert!(why.contains("in none of"), "{why}");
            let why = opened(&config, named, "srv/state").unwrap_err();
            assert!(why.contains("state_directory"), "{why}");
        }
    }

    #[test]
    fn folders_are_exported_where_the_file_says_wherever_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| folder.join(name);
        for name in [
            "srv",
            "srv/data",
            "srv/state",
            "srv/state/in",
            "srv/big",
            "other",
        ] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("../other", at("srv/out")).unwrap();
        symlink("srv", at("by-link")).unwrap();
        symlink("../srv/state", at("other/state")).unwrap();
        symlink("../srv/data", at("other/in")).unwrap();
        let mut before = Config {
            state_directory: Some(at("other/state")),
            ..Config::default()
        };
        let refused = |before: &Config, root: PathBuf| {
            let mut next = before.clone();
            next.exports.push(export(&root));
            let problems = check(before, &next);
            assert!(problems.len() < 2, "{problems:?}");
            problems.into_iter().next().map(|problem| {
                assert_eq!(problem.path.to_string(), "exports[0].store.root");
                problem.message
            })
        };
        assert!(
            refused(&before, at("srv/data"))
                .unwrap()
                .contains("there are none")
        );
        before.admin.exportable_roots = vec![at("by-link"), at("nowhere")];
        assert_eq!(refused(&before, at("srv/data")), None);
        assert_eq!(refused(&before, at("by-link/data")), None);
        for (root, words) in [
            ("srv/out", "in none of"),
            ("other", "in none of"),
            // The owner of that folder can change the target before it is opened.
            ("other/in", "in none of"),
            ("srv-not", "cannot be examined"),
            ("srv/state", "state_directory"),
            ("srv/state/in", "state_directory"),
            ("srv", "state_directory"),
        ] {
            let message = refused(&before, at(root)).unwrap();
            assert!(message.contains(words), "{root}: {message}");
            // Its real path, unless that is its name.
            let is_elsewhere = message.contains("(which is ");
            assert_eq!(
                is_elsewhere,
                ["srv/out", "other/in"].contains(&root),
                "{message}"
            );
        }
        assert!(refused(&before, "/".into()).unwrap().contains("in none of"));
        // Existing exports of the file are not checked.
        let mut there = before.clone();
        there.exports.push(export(&at("other")));
        let mut next = there.clone();
        next.exports[0].access = crate::config::Access::Ro;
        assert_eq!(check(&there, &next), []);
        // Another folder at its path is, and so is its folder at another path.
        next.exports[0] = export(&at("srv/out"));
        assert_eq!(check(&there, &next).len(), 1);
        next.exports[0] = there.exports[0].clone();
        next.exports[0].path = "/more".to_owned();
        assert_eq!(check(&there, &next).len(), 1);
    }

    #[test]
    fn no_more_of_a_cluster_is_exported_than_the_file_names() {
        let export = |store: &str| {
            let text = format!("exports: [{{ path: /data, store: {{ kind: ceph, {store} }} }}]");
            crate::config::parse(&text, "").unwrap().exports.remove(0)
        };
        let config = |exports: Vec<Export>| Config {
            exports,
            ..Config::default()
        };
        let known = "user: gateway, file_system: shared, root: /projects";
        for (there, wanted, is_refused) in [
            (known, known, false),
            (
                known,
                "user: gateway, file_system: shared, root: /projects/one",
                false,
            ),
            (
                known,
                "user: gateway, file_system: shared, root: /projectsone",
                true,
            ),
            (known, "user: gateway, file_system: shared, root: /", true),
            (
                known,
                "user: admin, file_system: shared, root: /projects",
                true,
            ),
            (
                known,
                "user: gateway, file_system: other, root: /projects",
                true,
            ),
            (known, "user: gateway, root: /projects", true),
            (
                "user: gateway, root: /, read_only: true",
                "user: gateway, root: /",
                true,
            ),
            (
                "user: gateway, root: /, read_only: true",
                "user: gateway, root: /, read_only: true",
                false,
            ),
            (
                "user: gateway, root: /",
                "user: gateway, root: /, read_only: true",
                false,
            ),
        ] {
            let before = config(vec![export(there)]);
            let next = config(vec![export(wanted)]);
            let problems = check(&before, &next);
            let paths: Vec<_> = problems.iter().map(|one| one.path.to_string()).collect();
            let expected: &[&str] = if is_refused {
                &["exports[0].store"]
            } else {
                &[]
            };
            assert_eq!(paths, expected, "{there}, then {wanted}");
        }
        assert_eq!(
            check(&config(Vec::new()), &config(vec![export(known)])).len(),
            1
        );
    }
}
