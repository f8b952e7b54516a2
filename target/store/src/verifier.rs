//! The write verifier (RFC 1813 section 3.3.7): clients send unstable data again when it changes.
//!
//! It changes when data may have been lost: at a start after a crash, and when writing back failed.
//! A clean stop saves it in a small file. The next start removes this file first, so that a start
//! after a crash does not find it.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::SystemTime;

use crate::WriteVerifier;

/// The beginning of the file; the number is the version of the layout.
const TITLE: &str = "millrace write verifier 1 ";

/// One volume's verifier.
pub(crate) struct Verifier {
    value: AtomicU64,
    changes: AtomicU64,
}

impl Verifier {
    /// Returns the verifier that a clean stop saved in this file, else a new one.
    pub fn start(state: Option<&Path>) -> Self {
        let kept = state.and_then(|path| {
            take(path).unwrap_or_else(|error| {
                tracing::warn!(
                    "{}: {error}; clients will send uncommitted data again",
                    path.display()
                );
                None
            })
        });
        Self {
            value: AtomicU64::new(kept.unwrap_or_else(fresh)),
            changes: AtomicU64::new(0),
        }
    }

    /// Its current bytes.
    pub fn get(&self) -> WriteVerifier {
        WriteVerifier(self.value.load(SeqCst).to_be_bytes())
    }

    /// Changes it to a value not used since the start.
    pub fn change(&self) {
        self.value.fetch_add(1, SeqCst);
        self.changes.fetch_add(1, SeqCst);
    }

    /// The number of changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Saves it for the next start, atomically and durably.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let mut file = File::create(&new)?;
        writeln!(file, "{TITLE}{:016x}", self.value.load(SeqCst))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_folder(path)
    }
}

/// From time and random numbers: equal to an earlier one as rarely as two random numbers.
fn fresh() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // Its keys come from the system's random numbers.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u128(since.as_nanos());
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// Reads the file and removes it durably. A file that cannot be removed is not used, as the next
/// start might find it after a crash.
fn take(path: &Path) -> io::Result<Option<u64>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    // One byte more than a valid file, to detect longer ones.
    let most = TITLE.len() as u64 + 16 + 2;
    let read = file.take(most).read_to_end(&mut text);
    fs::remove_file(path)?;
    sync_folder(path)?;
    read?;
    match parse(&text) {
        Some(value) => Ok(Some(value)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not the write verifier of a clean stop",
        )),
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(TITLE.as_bytes())?.strip_suffix(b"\n")?;
    let known = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    if digits.len() != 16 || !digits.iter().all(known) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Makes a change of a name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("millrace-verifier-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_clean_stop_keeps_it_for_one_start() {
        let folder = folder("kept");
        let path = folder.join("state");
        let first = Verifier::start(Some(&path));
        first.change();
        first.save(&path).unwrap();
        let second = Verifier::start(Some(&path));
        assert_eq!(second.get(), first.get());
        assert!(!path.exists(), "a crash from here on leaves nothing");
        let third = Verifier::start(Some(&path));
        assert_ne!(third.get(), first.get());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn odd_content_gives_a_new_one() {
        let folder = folder("odd");
        let path = folder.join("state");
        let good = format!("{TITLE}0123456789abcdef\n");
        let odd = [
            String::new(),
            good[..good.len() - 1].to_owned(),
            format!("{good}\n"),
            format!("{TITLE}0123456789abcde\n"),
            format!("{TITLE}+123456789abcdef\n"),
            good.replace("verifier 1", "verifier 2"),
            "\u{fffd}".repeat(30),
            "x".repeat(1 << 20),
        ];
        for text in odd {
            fs::write(&path, &text).unwrap();
            let verifier = Verifier::start(Some(&path));
            assert_ne!(verifier.get().0, 0x0123_4567_89ab_cdef_u64.to_be_bytes());
            assert!(!path.exists());
        }
        fs::write(&path, &good).unwrap();
        let verifier = Verifier::start(Some(&path));
        assert_eq!(verifier.get().0, 0x0123_4567_89ab_cdef_u64.to_be_bytes());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_gives_a_new_one() {
        let folder = folder("folder");
        assert_ne!(
            Verifier::start(Some(&folder)).get(),
            Verifier::start(Some(&folder)).get()
        );
        assert!(folder.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_a_file_that_is_not_there_is_as_good_as_none() {
        let folder = folder("none");
        let file = folder.join("file");
        assert_eq!(take(&file).unwrap(), None);
        fs::write(&file, "").unwrap();
        let below = take(&file.join("state")).unwrap_err();
        assert_eq!(below.kind(), io::ErrorKind::NotADirectory);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_folder_of_the_name_is_synced() {
        sync_folder(Path::new("in the working directory")).unwrap();
        let nowhere = folder("synced").join("nowhere/state");
        let error = sync_folder(&nowhere).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(folder("synced")).unwrap();
    }

    #[test]
    fn starts_and_changes_never_repeat() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let verifier = Verifier::start(None);
            assert!(seen.insert(verifier.get().0));
            verifier.change();
            assert!(seen.insert(verifier.get().0));
            assert_eq!(verifier.changes(), 1);
        }
    }
}
