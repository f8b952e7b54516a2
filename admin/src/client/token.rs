//! The client's side of the token that allows changes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;

/// The most bytes of a file with a token.
const FILE_MAX: u64 = 4096;

/// A token as in the server's `admin.token_file`. It is never shown.
#[derive(Clone)]
pub struct ClientToken(HeaderValue);

/// The file has no usable token.
#[derive(Debug, thiserror::Error)]
pub enum ClientTokenError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its content is no token.
    #[error(
        "{}: no token; the file must have one line of visible ASCII characters, at most {FILE_MAX} \
         bytes", .0.display()
    )]
    Content(PathBuf),
}

impl ClientToken {
    /// Reads the token of a file, without white space around it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is empty or too long, or has characters that are invalid in tokens.
    pub fn read(file: &Path) -> Result<Self, ClientTokenError> {
        let mut text = Vec::new();
        File::open(file)
            .and_then(|opened| opened.take(FILE_MAX + 1).read_to_end(&mut text))
            .map_err(|error| ClientTokenError::Read {
                file: file.to_owned(),
                error,
            })?;
        let token = text.trim_ascii();
        let visible = token.iter().all(u8::is_ascii_graphic);
        if token.is_empty() || !visible || text.len() as u64 > FILE_MAX {
            return Err(ClientTokenError::Content(file.to_owned()));
        }
        let value = [b"Bearer ", token].concat();
        let mut value = HeaderValue::from_bytes(&value)
            .map_err(|_| ClientTokenError::Content(file.to_owned()))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// A text with `[token]` in its place.
    pub(super) fn taken_out(&self, text: &str) -> String {
        let header = self.0.to_str().unwrap_or_default();
        let token = header.strip_prefix("Bearer ").unwrap_or_default();
        match token.is_empty() {
            true => text.to_owned(),
            false => text.replace(token, "[token]"),
        }
    }

    /// The header `Authorization` (RFC 6750 section 2.1).
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}
