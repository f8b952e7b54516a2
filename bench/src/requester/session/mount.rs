//! MOUNT version 3 over TCP: the way to the first file handle (RFC 1813 appendix I).

use std::net::SocketAddr;
use std::time::Duration;

use millrace_wire::mount::{self, MountResults, Path, Procedure};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth};

use super::Error;
use super::tcp::call_over_tcp;
use crate::requester::call::Reply;
use crate::requester::settings::Identity;

/// Mounts an export: the handle of its root. Each step may take as long as `patience`.
///
/// # Errors
/// The connection's; [`Error::Mount`] if the server refuses.
pub fn mount(
    address: SocketAddr,
    path: &str,
    identity: &Identity,
    patience: Duration,
) -> Result<FileHandle, Error> {
    let reply = call(address, Procedure::Mount, path, identity, patience)?;
    let reply = Reply {
        message: &reply,
        written: &[],
    };
    match reply.results::<MountResults>()? {
        MountResults::Ok(mounted) => Ok(mounted.handle),
        MountResults::Err(status) => Err(Error::Mount(status)),
    }
}

/// Tells the server that a mount is over. Each step may take as long as `patience`.
///
/// # Errors
/// The connection's.
pub fn unmount(
    address: SocketAddr,
    path: &str,
    identity: &Identity,
    patience: Duration,
) -> Result<(), Error> {
    let reply = call(address, Procedure::Unmount, path, identity, patience)?;
    let reply = Reply {
        message: &reply,
        written: &[],
    };
    Ok(reply.results::<()>()?)
}

fn call(
    address: SocketAddr,
    procedure: Procedure,
    path: &str,
    identity: &Identity,
    patience: Duration,
) -> Result<Vec<u8>, Error> {
    let header = CallHeader {
        xid: 1,
        program: mount::PROGRAM,
        version: mount::VERSION,
        procedure: procedure.number(),
        credential: Credential::Other(identity.auth()),
        verifier: OpaqueAuth::NONE,
    };
    call_over_tcp(address, &header, &Path(path.as_bytes()), patience)
}
