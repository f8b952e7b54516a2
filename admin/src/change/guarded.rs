//! What only the configuration file may say, which root owns: whoever has the token changes the
//! server within these bounds, and not the bounds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Config, KeyPath, Posix, Problem, Store};

/// What a change through the API would have to leave to the file. Looks at the folders of the host.
pub fn check(before: &Config, next: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let admin = KeyPath::root().key("admin");
    let (one, other) = (&before.admin, &next.admin);
    for (key, same) in [
        ("token_file", one.token_file == other.token_file),
        ("audit_file", one.audit_file == other.audit_file),
        ("socket", one.socket == other.socket),
        (
            "exportable_roots",
            one.exportable_roots == other.exportable_roots,
        ),
    ] {
        if !same {
            let message = "is set in the configuration file only; edit it there, and reload";
            problems.push(Problem::new(admin.key(key), message));
        }
    }
    let exports = KeyPath::root().key("exports");
    for (index, export) in next.exports.iter().enumerate() {
        let Store::Posix(posix) = &export.store else {
            continue;
        };
        let there = before.exports.iter().any(|known| {
            known.path == export.path
                && matches!(&known.store, Store::Posix(known) if known.root == posix.root)
        });
        if !there && let Err(message) = may_export(posix, before, next) {
            let path = exports.index(index).key("store").key("root");
            problems.push(Problem::new(path, message));
        }
    }
    problems
}

/// Whether a folder may be exported by whoever has the token, wherever links lead to.
fn may_export(posix: &Posix, before: &Config, next: &Config) -> Result<(), String> {
    let shown = posix.root.display();
    let root = resolved(&posix.root)?;
    let roots = &before.admin.exportable_roots;
    // A root that is not there has nothing in it.
    let mut allowed = roots.iter().filter_map(|one| fs::canonicalize(one).ok());
    if !allowed.any(|allowed| root.starts_with(allowed)) {
        let list: Vec<String> = roots.iter().map(|one| one.display().to_string()).collect();
        let list = match list.as_slice() {
            [] => "there are none".to_owned(),
            list => list.join(", "),
        };
        let real = match root == posix.root {
            true => String::new(),
            false => format!(" (which is {})", root.display()),
        };
        return Err(format!(
            "`{shown}`{real} is in none of admin.exportable_roots of the configuration file \
             ({list}); list a folder above it there and reload, or write the export into the file"
        ));
    }
    for state in [&before.state_directory, &next.state_directory] {
        let Some(state) = state else { continue };
        let state = fs::canonicalize(state).unwrap_or_else(|_| state.clone());
        if root.starts_with(&state) || state.starts_with(&root) {
            return Err(format!(
                "`{shown}` would show state_directory ({}) to clients",
                state.display()
            ));
        }
    }
    Ok(())
}

fn resolved(root: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(root)
        .map_err(|error| format!("`{}` cannot be looked at: {error}", root.display()))
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
            ("srv-not", "cannot be looked at"),
            ("srv/state", "state_directory"),
            ("srv/state/in", "state_directory"),
            ("srv", "state_directory"),
        ] {
            let message = refused(&before, at(root)).unwrap();
            assert!(message.contains(words), "{root}: {message}");
        }
        assert!(refused(&before, "/".into()).unwrap().contains("in none of"));
        // What the file exports already is no matter of a change.
        let mut there = before.clone();
        there.exports.push(export(&at("other")));
        let mut next = there.clone();
        next.exports[0].access = crate::config::Access::Ro;
        assert_eq!(check(&there, &next), []);
    }
}
