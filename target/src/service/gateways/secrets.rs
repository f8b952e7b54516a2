//! Which secrets of file handles each gateway has: a client that comes from another gateway has that
//! one's handles.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::folder::GatewayFolder;
use crate::handle::HandleSecrets;
use crate::service::durable_file::write_durably;

/// The file with the marks of a gateway's secrets, one in each line, in the folder of its name.
const SECRETS: &str = "handle-secrets";

/// A gateway whose clients would have stale handles at another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StaleHandles {
    /// Handles of that gateway here.
    Here(String),
    /// Handles of this gateway there.
    There(String),
}

/// Tells other gateways which secrets this one has. Returns those with which it does not fit. To be
/// called while no other one does the same.
///
/// # Errors
/// Those of the file system.
pub(super) fn compare(
    folder: &GatewayFolder,
    secrets: &HandleSecrets,
) -> io::Result<Vec<StaleHandles>> {
    let own = secrets.marks();
    let text: String = own.iter().map(|mark| format!("{mark:016x}\n")).collect();
    write_durably(&file(&folder.own()), text.as_bytes())?;
    let mut found = Vec::new();
    for (name, there) in folder.others()? {
        let Some(theirs) = marks(&there) else {
            continue;
        };
        let (present, theirs_present) = (own.first(), theirs.first());
        if !theirs_present.is_some_and(|mark| own.contains(mark)) {
            found.push(StaleHandles::Here(name));
        } else if !present.is_some_and(|mark| theirs.contains(mark)) {
            found.push(StaleHandles::There(name));
        }
    }
    Ok(found)
}

fn file(of: &Path) -> PathBuf {
    of.join(SECRETS)
}

/// The marks of a gateway, if it has told any.
fn marks(of: &Path) -> Option<Vec<u64>> {
    let text = fs::read_to_string(file(of)).ok()?;
    let number = |line| u64::from_str_radix(line, 16).ok();
    text.lines().map(number).collect()
}

/// Warns of gateways whose handles do not fit.
pub(super) fn warn_of(stale: &[StaleHandles]) {
    for one in stale {
        match one {
            StaleHandles::Here(gateway) => tracing::warn!(
                gateway,
                "handle_secret: this gateway does not accept the handles of that one, so its clients \
                 would have to mount again here; the first line there has to be a line here"
            ),
            StaleHandles::There(gateway) => tracing::warn!(
                gateway,
                "handle_secret: that gateway did not accept the handles of this one when it started; \
                 clients of this one would have to mount again there"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_admin::config;

    use super::*;

    #[test]
    fn gateways_tell_whose_handles_are_stale_where() {
        let shared = tempfile::tempdir().unwrap();
        let folders = ["a", "b"]
            .map(|name| GatewayFolder::open(&config::Gateways::new(name, shared.path())).unwrap());
        let secrets = |present: u8, others: &[u8]| HandleSecrets {
            present: [present; 16],
            others: others.iter().map(|&other| [other; 16]).collect(),
        };
        let told = |at: usize, secrets: &HandleSecrets| compare(&folders[at], secrets).unwrap();
        let (here, there) = (
            |name: &str| vec![StaleHandles::Here(name.to_owned())],
            |name: &str| vec![StaleHandles::There(name.to_owned())],
        );
        assert_eq!(told(0, &secrets(7, &[])), []);
        assert_eq!(told(1, &secrets(8, &[])), here("a"));
        // A secret that is used before all accept it, and in the right order.
        assert_eq!(told(1, &secrets(8, &[7])), there("a"));
        assert_eq!(told(1, &secrets(7, &[8])), []);
        assert_eq!(told(0, &secrets(7, &[8])), []);
        assert_eq!(told(1, &secrets(8, &[7])), []);
        assert_eq!(told(0, &secrets(8, &[7])), []);
        assert_eq!(told(0, &secrets(8, &[])), []);
        // A file that says nothing is that of a gateway which says nothing.
        fs::write(shared.path().join("b/handle-secrets"), "?").unwrap();
        assert_eq!(told(0, &secrets(9, &[])), []);
        let text = fs::read_to_string(shared.path().join("a/handle-secrets")).unwrap();
        assert!(!text.contains(&"09".repeat(8)), "{text}");
    }
}
