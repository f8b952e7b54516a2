//! MOUNT version 3 over TCP: the way to the first file handle (RFC 1813 appendix I).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_wire::mount::{self, MountResults, Path, Procedure};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth, RecordMark};
use millrace_wire::xdr::{Encode, Encoder};

use super::Error;
use crate::requester::call::Reply;
use crate::requester::settings::Identity;

/// Longest reply taken.
const REPLY_MAX: usize = 64 << 10;

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
    let mut message = [0; 4 + 2048];
    let mut out = Encoder::new(&mut message);
    out.u32(0)?;
    let header = CallHeader {
        xid: 1,
        program: mount::PROGRAM,
        version: mount::VERSION,
        procedure: procedure.number(),
        credential: Credential::Other(identity.auth()),
        verifier: OpaqueAuth::NONE,
    };
    header.encode(&mut out)?;
    Path(path.as_bytes()).encode(&mut out)?;
    let length = out.position();
    let mark = RecordMark::whole(length - 4).ok_or(Error::Memory)?;
    message[..4].copy_from_slice(&mark.to_bytes());

    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(&message[..length])?;
    let mut reply = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = RecordMark::from_bytes(mark);
        let start = reply.len();
        if start + mark.length as usize > REPLY_MAX {
            return Err(Error::Io(std::io::Error::other(
                "the MOUNT reply is too long",
            )));
        }
        reply.resize(start + mark.length as usize, 0);
        stream.read_exact(&mut reply[start..])?;
        if mark.last {
            return Ok(reply);
        }
    }
}
