//! Security-relevant files: they are read only if they are regular files, and not through a
//! symbolic link in the last component, which a user with write access to the folder could point at
//! any file that this process can read.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file for reading.
///
/// # Errors
///
/// It cannot be opened, or is a symbolic link, a folder, a pipe, a socket or a device.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    // A pipe in place of the file must not block until there is a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("it is a symbolic link, not a regular file"),
        _ => error,
    })?;
    let about = file.metadata()?;
    match about.is_file() {
        true => Ok((file, about)),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "content").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();

        let mut text = String::new();
        let (mut file, about) = open(&at("file")).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), about.len()), ("content", 7));
        for link in ["link", "dangling"] {
            let error = open(&at(link)).unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{link}: {error}");
        }
        for other in ["folder", "pipe", "socket", "nothing"] {
            assert!(open(&at(other)).is_err(), "{other}");
        }
        // Folders above the file may be links: write access to those is not checked here.
        symlink("folder", at("other")).unwrap();
        std::fs::write(at("folder/inner"), "").unwrap();
        open(&at("other/inner")).unwrap();
    }
}
