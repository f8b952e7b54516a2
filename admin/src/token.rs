//! The token: the content of a file, which allows changes through the API.
//!
//! The file is read at each change, so a new token is valid at once. Neither the token nor the
//! file's content is ever shown: only a hash is kept, and errors describe its form only.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::Config;
use crate::regular;

/// The fewest characters of a token.
pub const TOKEN_MIN: usize = 16;

/// The most bytes of a token's file.
const FILE_MAX: u64 = 4096;

/// The most bytes of the file of roles.
const ROLES_MAX: u64 = 1 << 20;

/// A token, as its hash.
pub struct Token([u8; 32]);

impl Token {
    /// Whether `said` is the token. Takes the same time for all wrong ones of the same length.
    pub fn is(&self, said: &[u8]) -> bool {
        let said: [u8; 32] = Sha256::digest(said).into();
        self.0.ct_eq(&said).into()
    }
}

/// The content of a token's file, and its readers.
pub struct TokenFile {
    /// The token.
    pub token: Token,
    /// Whether every user of the host can read the file.
    pub exposed: bool,
}

/// The token cannot be read; changes are refused until it can.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not contain a token.
    #[error("{} does not hold a token: {reason}", file.display())]
    NoToken {
        /// The file.
        file: PathBuf,
        /// The error.
        reason: &'static str,
    },
    /// A line of the file of roles is not valid.
    #[error("{}, line {line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line.
        line: usize,
        /// The error.
        reason: &'static str,
    },
}

/// Reads a token's file, without white space around the token.
///
/// # Errors
///
/// The file cannot be read, or its content is too short or not visible ASCII.
pub fn read(file: &Path) -> Result<TokenFile, TokenError> {
    let unreadable = |source| TokenError::Unreadable {
        file: file.to_owned(),
        source,
    };
    let no_token = |reason| TokenError::NoToken {
        file: file.to_owned(),
        reason,
    };
    let (bytes, mode) = open(file, FILE_MAX).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(no_token("it is longer than 4096 bytes"));
    }
    let token = bytes.trim_ascii();
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(no_token(
            "a token is one word of visible ASCII characters, and nothing else may be in the file",
        ));
    }
    if token.len() < TOKEN_MIN {
        return Err(no_token(
            "a token has 16 characters or more; `openssl rand -hex 32` makes a good one",
        ));
    }
    Ok(TokenFile {
        token: Token(Sha256::digest(token).into()),
        exposed: mode & 0o004 != 0,
    })
}

/// The content of the file of roles.
///
/// # Errors
///
/// It cannot be read, is too long, or not UTF-8.
pub fn text(file: &Path) -> Result<String, TokenError> {
    let unreadable = |source| TokenError::Unreadable {
        file: file.to_owned(),
        source,
    };
    let (bytes, _) = open(file, ROLES_MAX).map_err(unreadable)?;
    if bytes.len() as u64 > ROLES_MAX {
        return Err(unreadable(io::Error::other("it is too long")));
    }
    String::from_utf8(bytes).map_err(|_| unreadable(io::ErrorKind::InvalidData.into()))
}

/// The content, up to one byte beyond the limit, and the permissions.
fn open(path: &Path, most: u64) -> io::Result<(Vec<u8>, u32)> {
    let (file, about) = regular::open(path)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes, about.mode()))
}

/// The problem with the token's file of a configuration; `None` without a file or a problem. Reads
/// the file.
pub fn note(config: &Config) -> Option<String> {
    let file = config.admin.token_file.as_deref()?;
    match read(file) {
        Ok(TokenFile { exposed: false, .. }) => None,
        Ok(TokenFile { exposed: true, .. }) => Some(format!(
            "admin.token_file: every user of this host can read {0}, and so change the \
             configuration; run `chmod o-r {0}`",
            file.display()
        )),
        Err(error) => Some(format!(
            "admin.token_file: {error}; changes through the API are refused until then"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = "0123456789abcdef!~";

    fn with(content: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        (folder, file)
    }

    #[test]
    fn white_space_around_a_token_does_not_count() {
        for content in [
            GOOD.to_owned(),
            format!("{GOOD}\n"),
            format!(" \t{GOOD}\r\n\n"),
        ] {
            let (_folder, file) = with(content.as_bytes(), 0o600);
            let read = read(&file).unwrap();
            assert!(!read.exposed);
            assert!(read.token.is(GOOD.as_bytes()));
            for wrong in ["", " ", "0123456789abcdef!", "0123456789abcdef!~\n"] {
                assert!(!read.token.is(wrong.as_bytes()), "{wrong:?}");
            }
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        let long = "x".repeat(4097);
        for (content, words) in [
            ("", "16 characters"),
            ("short-secret", "16 characters"),
            ("two words of secret", "one word"),
            ("not-ascii-secret-\u{e9}", "one word"),
            ("nul-secret-\0-nul-secret", "one word"),
            (long.as_str(), "longer than 4096"),
        ] {
            let (_folder, file) = with(content.as_bytes(), 0o600);
            let error = read(&file).err().unwrap().to_string();
            assert!(
                error.contains(words) && !error.contains("secret"),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let (_target, good) = with(GOOD.as_bytes(), 0o600);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(good, &link).unwrap();
        for file in [folder.path().join("none"), folder.path().to_owned(), link] {
            let error = read(&file).err().unwrap().to_string();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    #[test]
    fn a_file_for_everybody_is_noted() {
        let (_folder, file) = with(GOOD.as_bytes(), 0o644);
        let mut config = Config::default();
        assert_eq!(note(&config), None);
        config.admin.token_file = Some(file.clone());
        let note_now = note(&config).unwrap();
        assert!(
            note_now.contains("chmod o-r") && !note_now.contains(GOOD),
            "{note_now}"
        );
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(note(&config), None);
        fs::remove_file(&file).unwrap();
        assert!(note(&config).unwrap().contains("cannot be read"));
    }
}
