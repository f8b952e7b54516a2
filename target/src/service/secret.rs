//! Random numbers that outlive the process: the secret under which file handles are sealed, and the
//! identity of the server.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use millrace_admin::config::Config;

use super::durable_file::write_durably;
use crate::handle::HandleSecrets;

/// The file in the state directory of the secret of file handles.
pub const HANDLE_SECRET: &str = "handle-secret";
/// The file of the server's identity, which NFS version 4 tells clients.
pub const SERVER_IDENTITY: &str = "server-identity";

/// Most secrets of a file: each one takes time for handles that a client made up.
const SECRETS_MOST: usize = 4;

/// The number kept in a file of `directory`, made at the first start; without a directory a new
/// one.
///
/// # Errors
/// The directory or file cannot be used, or the file has another length.
pub fn load(directory: Option<&Path>, file: &str) -> io::Result<[u8; 16]> {
    let Some(directory) = directory else {
        return fresh();
    };
    fs::create_dir_all(directory)?;
    let path = directory.join(file);
    match fs::read(&path) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            let text = format!("{} does not hold 16 bytes; remove it", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = fresh()?;
            write_durably(&path, &secret)?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
}

/// The secrets of file handles.
///
/// # Errors
/// Their file or the state directory cannot be used.
pub fn of_handles(config: &Config) -> io::Result<HandleSecrets> {
    let Some(file) = &config.handle_secret else {
        let present = load(config.state_directory.as_deref(), HANDLE_SECRET)?;
        let others = Vec::new();
        return Ok(HandleSecrets { present, others });
    };
    let secrets = shared(file)?;
    if !secrets.others.is_empty() {
        tracing::info!(
            others = secrets.others.len(),
            "handle_secret: handles of several secrets are accepted, so nothing is delegated"
        );
    }
    Ok(secrets)
}

/// The secrets of file handles of several servers, from a file that an operator made: 32
/// hexadecimal digits in each line, first those that make handles.
///
/// # Errors
/// The file cannot be read, or has something else.
pub fn shared(file: &Path) -> io::Result<HandleSecrets> {
    let text = fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    secrets(&text).map_err(|what| {
        let text = format!("{}{what}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// The secrets of a text, or what is wrong, behind the name of its file.
fn secrets(text: &str) -> Result<HandleSecrets, String> {
    let mut found: Vec<[u8; 16]> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let secret = digits(line).ok_or_else(|| {
            format!(
                ":{} is not 32 hexadecimal digits; make them with `openssl rand -hex 16`",
                at + 1
            )
        })?;
        if found.contains(&secret) {
            return Err(format!(":{} repeats a secret", at + 1));
        }
        found.push(secret);
    }
    if found.len() > SECRETS_MOST {
        return Err(format!(" has more than {SECRETS_MOST} secrets"));
    }
    match found.split_first() {
        Some((&present, others)) => Ok(HandleSecrets {
            present,
            others: others.to_vec(),
        }),
        None => {
            let what =
                " has no line of 32 hexadecimal digits; make one with `openssl rand -hex 16`";
            Err(what.to_owned())
        }
    }
}

fn digits(text: &str) -> Option<[u8; 16]> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut secret = Vec::with_capacity(16);
    for pair in pairs {
        let pair = std::str::from_utf8(pair).ok()?;
        secret.push(u8::from_str_radix(pair, 16).ok()?);
    }
    secret.try_into().ok()
}

fn fresh() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_secrets_are_lines_of_32_digits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let mut told = Vec::new();
        const DIGITS: &str = "00112233445566778899aabbccddeeFF";
        for text in [
            "0",
            "",
            "00112233445566778899aabbccddeef",
            "00112233445566778899aabbccddeefg",
        ] {
            fs::write(&file, text).unwrap();
            told.push(shared(&file).unwrap_err().to_string());
        }
        assert!(told.iter().all(|why| why.contains("32 hexadecimal digits")));
        let of = |text: String| {
            fs::write(&file, text).unwrap();
            shared(&file)
        };
        let secrets = of(format!("{DIGITS}\n")).unwrap();
        let secret = secrets.present;
        assert_eq!((secret[0], secret[1], secret[15]), (0, 0x11, 0xff));
        assert_eq!(secrets.others.len(), 0);
        // The next one below, and then the other way around.
        let (next, number) = ("a".repeat(32), [0xaa; 16]);
        let secrets = of(format!("{DIGITS}\n\n  {next}")).unwrap();
        assert_eq!((secrets.present, secrets.others), (secret, vec![number]));
        let secrets = of(format!("{next}\n{DIGITS}\n")).unwrap();
        assert_eq!((secrets.present, secrets.others), (number, vec![secret]));
        for (text, told) in [
            (format!("{DIGITS}\nx\n"), ":2 is not 32"),
            (format!("{DIGITS}\n{}", DIGITS.to_lowercase()), ":2 repeats"),
            (
                "abcde"
                    .chars()
                    .map(|digit| format!("{}\n", digit.to_string().repeat(32)))
                    .collect(),
                "more than 4",
            ),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let missing = shared(&folder.path().join("missing")).unwrap_err();
        assert!(missing.to_string().contains("missing"), "{missing}");
    }

    #[test]
    fn a_kept_secret_survives_and_a_loose_one_does_not() {
        let directory = std::env::temp_dir().join(format!("millrace-{}", std::process::id()));
        let first = load(Some(&directory), HANDLE_SECRET).unwrap();
        let other = load(Some(&directory), SERVER_IDENTITY).unwrap();
        assert_ne!(other, first);
        assert_eq!(load(Some(&directory), HANDLE_SECRET).unwrap(), first);
        fs::write(directory.join(HANDLE_SECRET), b"short").unwrap();
        let error = load(Some(&directory), HANDLE_SECRET).unwrap_err();
        assert!(error.to_string().contains("does not hold 16 bytes"));
        fs::remove_dir_all(&directory).unwrap();
        assert_ne!(
            load(None, HANDLE_SECRET).unwrap(),
            load(None, HANDLE_SECRET).unwrap()
        );
    }
}
