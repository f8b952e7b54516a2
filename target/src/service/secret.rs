//! Random numbers that outlive the process: the secret under which file handles are sealed, and the
//! identity of the server.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::durable_file::write_durably;

/// The file in the state directory of the secret of file handles.
pub const HANDLE_SECRET: &str = "handle-secret";
/// The file of the server's identity, which NFS version 4 tells clients.
pub const SERVER_IDENTITY: &str = "server-identity";

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

/// The secret of file handles of several servers, from a file that an operator made: 32 hexadecimal
/// digits.
///
/// # Errors
/// The file cannot be read, or has something else.
pub fn shared(file: &Path) -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    digits(text.trim()).ok_or_else(|| {
        let text = format!(
            "{} does not hold 32 hexadecimal digits; make one with `openssl rand -hex 16`",
            file.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
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
    fn a_shared_secret_is_32_digits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let mut told = Vec::new();
        for text in [
            "0",
            "00112233445566778899aabbccddeef",
            "00112233445566778899aabbccddeefg",
        ] {
            fs::write(&file, text).unwrap();
            told.push(shared(&file).unwrap_err().to_string());
        }
        assert!(told.iter().all(|why| why.contains("32 hexadecimal digits")));
        fs::write(&file, "00112233445566778899aabbccddeeFF\n").unwrap();
        let secret = shared(&file).unwrap();
        assert_eq!((secret[0], secret[1], secret[15]), (0, 0x11, 0xff));
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
