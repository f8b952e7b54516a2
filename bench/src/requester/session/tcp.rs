//! Single calls over TCP, for the services that lead to NFS (RFC 5531 section 11).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_wire::rpc::{CallHeader, RecordMark};
use millrace_wire::xdr::{Encode, Encoder};

use super::Error;

/// Longest call sent, and longest reply taken.
const CALL_MAX: usize = 2048;
const REPLY_MAX: usize = 64 << 10;

/// Makes one call on a connection of its own: the reply from its XID on. Each step may take as
/// long as `patience`.
///
/// # Errors
/// The connection's; [`Error::Io`] if the reply is too long.
pub(crate) fn call_over_tcp(
    address: SocketAddr,
    header: &CallHeader<'_>,
    arguments: &impl Encode,
    patience: Duration,
) -> Result<Vec<u8>, Error> {
    let mut message = [0; 4 + CALL_MAX];
    let mut out = Encoder::new(&mut message);
    out.u32(0)?;
    header.encode(&mut out)?;
    arguments.encode(&mut out)?;
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
            return Err(Error::Io(std::io::Error::other("the reply is too long")));
        }
        reply.resize(start + mark.length as usize, 0);
        stream.read_exact(&mut reply[start..])?;
        if mark.last {
            return Ok(reply);
        }
    }
}
