//! The API on a Unix socket, with peer credentials from the kernel.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Permissions to connect: the server's own user and group.
const MODE: u32 = 0o660;

/// A listening Unix socket; its file is removed on drop.
#[derive(Debug)]
pub struct AdminSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

/// The peer's credentials from the kernel (unix(7), `SO_PEERCRED`); an extension of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
}

impl PeerCredentials {
    /// Whether it is root or the server's own user, which can control the server in any case.
    pub fn may_change(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Its name in records.
    pub fn name(self) -> String {
        match self.uid {
            0 => "root".to_owned(),
            uid => format!("uid {uid}"),
        }
    }
}

impl AdminSocket {
    /// Listens at a path, for the server's own user and group. A socket left by an earlier server
    /// is replaced.
    ///
    /// # Errors
    ///
    /// Another server listens there, the path is not a socket, or the folder cannot be written.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(io::Error::other("the path exists and is no socket"));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(io::Error::from(ErrorKind::AddrInUse)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Under another name first, so that no client connects before the permissions are set.
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(MODE))?;
        fs::rename(&new, path)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // It may already be removed, with the folder.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        drop(UnixListener::bind(&path).unwrap());
        let socket = AdminSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let refused = AdminSocket::bind(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(AdminSocket::bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
