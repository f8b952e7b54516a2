//! Sockets that the service manager kept of the process before this one (sd_listen_fds(3)).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// All of them. To be called once, before any other file is opened.
///
/// # Errors
/// If the variables `LISTEN_PID` and `LISTEN_FDS` name descriptors that are not open.
pub fn sockets() -> io::Result<Vec<OwnedFd>> {
    let descriptors = sd_notify::listen_fds()?;
    // SAFETY: the manager has opened these descriptors for this process, whose number it put into
    // LISTEN_PID, and `listen_fds` has found each of them open. Nothing else owns them: `main` calls
    // this once, before it opens anything.
    let own = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(descriptors.map(own).collect())
}
