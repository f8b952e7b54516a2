//! Checks that the server can use its files.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use millrace_admin::config::{Config, ConfigProblem, KeyPath};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::service::lock::StateLock;
use crate::service::secret;

/// `replaces`: a running server uses the state directory, and will have ended then.
pub fn problems(config: &Config, replaces: bool) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    if let Some(directory) = &config.state_directory {
        let refused = state_directory(directory, replaces).err();
        let path = KeyPath::root().key("state_directory");
        problems.extend(refused.map(|why| ConfigProblem::new(path, why)));
    }
    if let Some(gateways) = &config.gateways {
        let refused = shared_directory(&gateways.directory).err();
        let path = KeyPath::root().key("gateways").key("directory");
        problems.extend(refused.map(|why| ConfigProblem::new(path, why)));
    }
    if let Some(file) = &config.handle_secret {
        let refused = secret::shared(file).err();
        let path = KeyPath::root().key("handle_secret");
        problems.extend(refused.map(|why| ConfigProblem::new(path, why.to_string())));
    }
    if let Some(file) = &config.admin.audit_file {
        let path = KeyPath::root().key("admin").key("audit_file");
        problems.extend(
            audit_file(file)
                .err()
                .map(|why| ConfigProblem::new(path, why)),
        );
    }
    problems
}

fn state_directory(directory: &Path, replaces: bool) -> Result<(), String> {
    // Missing folders are made at start.
    let existing = directory
        .ancestors()
        .find(|folder| fs::symlink_metadata(folder).is_ok());
    let existing = existing.unwrap_or(Path::new("."));
    writable_folder(existing)?;
    if existing == directory && !replaces {
        StateLock::look(directory).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The folder that gateways share is not made here: a missing one is likely a missing mount.
fn shared_directory(directory: &Path) -> Result<(), String> {
    writable_folder(directory)
}

fn audit_file(file: &Path) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(format!("{} is a folder", file.display())),
        Ok(_) => may(file, Access::WRITE_OK),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = file.parent().filter(|folder| *folder != Path::new(""));
            writable_folder(folder.unwrap_or(Path::new(".")))
        }
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn writable_folder(folder: &Path) -> Result<(), String> {
    let found = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if !found.is_dir() {
        return Err(format!("{} is no folder", folder.display()));
    }
    may(folder, Access::WRITE_OK | Access::EXEC_OK)
}

fn may(path: &Path, access: Access) -> Result<(), String> {
    // With the rights used for opening: those of the effective user, and capabilities.
    accessat(CWD, path, access, AtFlags::EACCESS).map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let why = io::Error::from(error);
        format!("{} cannot be written by user {user}: {why}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(config: &Config, replaces: bool) -> Vec<String> {
        let problems = problems(config, replaces);
        problems
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn a_state_directory_is_a_folder_or_can_become_one_and_is_used_by_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        let mut at = |path: &str, replaces| {
            config.state_directory = Some(folder.path().join(path));
            told(&config, replaces)
        };
        assert_eq!(at("", false), [""; 0]);
        assert_eq!(at("not/yet/there", false), [""; 0]);
        assert!(!folder.path().join("not").exists(), "looking makes nothing");
        fs::write(folder.path().join("file"), "").unwrap();
        for path in ["file", "file/below"] {
            let lines = at(path, false);
            let end = format!("{} is no folder", folder.path().join("file").display());
            assert_eq!(lines, [format!("state_directory: {end}")]);
        }
        let lock = StateLock::take(folder.path()).unwrap();
        let lines = at("", false);
        assert!(lines[0].contains("used by another millraced"), "{lines:?}");
        assert_eq!(at("", true), [""; 0]);
        drop(lock);
        assert_eq!(at("", false), [""; 0]);
        StateLock::take(folder.path()).expect("looking takes nothing");
    }

    #[test]
    fn an_audit_file_is_a_file_or_can_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        let mut at = |path: &str| {
            config.admin.audit_file = Some(folder.path().join(path));
            told(&config, false)
        };
        assert_eq!(at("audit.jsonl"), [""; 0]);
        assert!(
            !folder.path().join("audit.jsonl").exists(),
            "looking makes nothing"
        );
        fs::write(folder.path().join("audit.jsonl"), "").unwrap();
        assert_eq!(at("audit.jsonl"), [""; 0]);
        for (path, words) in [
            ("", " is a folder"),
            ("none/audit.jsonl", "No such file or directory"),
            ("audit.jsonl/below", "Not a directory"),
        ] {
            let lines = at(path);
            assert!(lines[0].starts_with("admin.audit_file: "), "{lines:?}");
            assert!(lines[0].contains(words), "{lines:?}");
        }
    }
}
