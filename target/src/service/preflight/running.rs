//! A running server with the same configuration file: `--check` before a reload or a restart does
//! not report its resources as used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::service::memory::Freed;

/// Its program, as the kernel names processes.
const PROGRAM: &str = "millraced";

/// A running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningServer {
    process: u32,
    memory: Freed,
}

impl RunningServer {
    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Its memory.
    pub(in crate::service) fn memory(&self) -> Freed {
        self.memory
    }

    /// Searches the processes below `root` (proc(5)).
    pub fn find(root: &Path, file: &Path) -> Option<Self> {
        let file = fs::canonicalize(file).ok()?;
        let processes = fs::read_dir(root.join("proc")).ok()?;
        let found = processes.flatten().find_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path();
            let is_it = process != std::process::id() && serves_by(&folder, &file);
            is_it.then_some((process, folder))
        });
        found.map(|(process, folder)| Self {
            process,
            memory: memory(&folder),
        })
    }
}

/// Whether this is a server with this configuration.
fn serves_by(process: &Path, file: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
    let checks = words.iter().any(|word| word.starts_with(b"--check"));
    if name.trim_end() != PROGRAM || checks {
        return false;
    }
    let mut named = words.iter().enumerate().filter_map(|(index, word)| {
        let path = match word.strip_prefix(b"--config") {
            Some([]) => words.get(index + 1)?,
            Some([b'=', path @ ..]) => path,
            _ => return None,
        };
        let path = PathBuf::from(OsStr::from_bytes(path));
        // A relative path starts at that process's working directory.
        fs::canonicalize(process.join("cwd").join(path)).ok()
    });
    named.any(|named| named == file)
}

fn memory(process: &Path) -> Freed {
    let text = fs::read_to_string(process.join("status")).unwrap_or_default();
    let bytes = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes << 10)
    };
    Freed {
        // Without mapped files.
        small: bytes("RssAnon:").unwrap_or(0),
        huge: bytes("HugetlbPages:").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Processes(tempfile::TempDir);

    impl Processes {
        fn add(&self, process: &str, name: &str, command: &[&str]) {
            let folder = self.0.path().join("proc").join(process);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), command.join("\0") + "\0").unwrap();
            let status = "RssAnon:\t    2048 kB\nRssFile: 9 kB\nHugetlbPages:\t 4096 kB\n";
            fs::write(folder.join("status"), status).unwrap();
            let _ = std::os::unix::fs::symlink(self.0.path(), folder.join("cwd"));
        }
    }

    #[test]
    fn the_server_of_the_same_file_is_found_by_its_command() {
        let processes = Processes(tempfile::tempdir().unwrap());
        let root = processes.0.path();
        let file = root.join("a.yaml");
        fs::write(&file, "{}").unwrap();
        fs::write(root.join("b.yaml"), "{}").unwrap();
        let absolute = file.to_str().unwrap();
        let own = std::process::id().to_string();
        processes.add("meminfo", "millraced", &["millraced", "--config", absolute]);
        processes.add(&own, "millraced", &["millraced", "--config", absolute]);
        processes.add("4000001", "other", &["millraced", "--config", absolute]);
        processes.add("4000002", "millraced", &["millraced", "--config", "b.yaml"]);
        processes.add(
            "4000003",
            "millraced",
            &["millraced", "--check", "--config", absolute],
        );
        processes.add("4000004", "millraced", &["millraced", "--config"]);
        assert_eq!(RunningServer::find(root, &file), None);
        let memory = Freed {
            small: 2 << 20,
            huge: 4 << 20,
        };
        let found = Some(RunningServer {
            process: 4_000_005,
            memory,
        });
        let equals = format!("--config={absolute}");
        for command in [
            &["millraced", "--config", absolute][..],
            &["/usr/bin/millraced", "--user", "x", "--config", "a.yaml"],
            &["millraced", &equals],
        ] {
            processes.add("4000005", "millraced", command);
            assert_eq!(RunningServer::find(root, &file), found, "{command:?}");
        }
        assert_eq!(RunningServer::find(root, &root.join("c.yaml")), None);
    }
}
