//! Where a service listens: names and port mappers, before any connection is made.
//!
//! The transport itself takes an address and a port and knows no names (RFC 5666 section 9). NFS
//! over RDMA is at a well-known port, or where the port mapper says (RFC 5666 section 10).

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_wire::rpc::{Accepted, CallHeader, Credential, OpaqueAuth};
use millrace_wire::rpcbind::{
    Netid, PROGRAM, RPCBIND_VERSIONS, Registration, RpcbindProcedure, parse_address,
};
use millrace_wire::xdr::{self, Decode, Decoder};

use crate::requester::session::call_over_tcp;
use crate::requester::{Reply, RpcError};

/// A program and how it is to be reached.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// Program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport's name, such as `rdma`. Other networks may have names of their own.
    pub netid: &'a str,
}

/// The name of RDMA transports with addresses of this family (RFC 5666 section 12).
#[must_use]
pub const fn rdma_netid(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => Netid::Rdma.name(),
        IpAddr::V6(_) => Netid::Rdma6.name(),
    }
}

/// The first address of `HOST`, `HOST:PORT`, or an IPv6 address with or without brackets, with
/// `port` where none is given.
///
/// # Errors
/// If there is none.
pub fn resolve(name: &str, port: u16) -> Result<SocketAddr> {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(name).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let addresses = if name.contains(':') {
        name.to_socket_addrs()
    } else {
        (name, port).to_socket_addrs()
    };
    let mut addresses = addresses.with_context(|| format!("`{name}` is no HOST or HOST:PORT"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("`{name}` has no address"),
    }
}

/// A universal address, as GETADDR returns it.
struct UniversalAddress<'a>(&'a [u8]);

impl<'a> Decode<'a> for UniversalAddress<'a> {
    fn decode(input: &mut Decoder<'a>) -> xdr::Result<Self> {
        input.string(256).map(Self)
    }
}

/// Asks the port mapper at `address` for a service by GETADDR, in version 4 and then 3
/// (RFC 1833 section 2.2). Each step may take as long as `timeout`.
///
/// # Errors
/// If it cannot be reached, or knows no such service, or answers what is no address.
pub fn ask_rpcbind(
    address: SocketAddr,
    service: Service<'_>,
    timeout: Duration,
) -> Result<SocketAddr> {
    let Service {
        program,
        version,
        netid,
    } = service;
    let mut refusal = None;
    for rpcbind in RPCBIND_VERSIONS.into_iter().rev() {
        let header = CallHeader {
            xid: rpcbind,
            program: PROGRAM,
            version: rpcbind,
            procedure: RpcbindProcedure::GetAddress.number(),
            credential: Credential::Other(OpaqueAuth::NONE),
            verifier: OpaqueAuth::NONE,
        };
        let asked = Registration {
            program,
            version,
            netid: netid.as_bytes(),
            address: b"",
            owner: b"",
        };
        let reply = call_over_tcp(address, &header, &asked, timeout)
            .with_context(|| format!("no answer from the port mapper at {address}"))?;
        let reply = Reply {
            message: &reply,
            written: &[],
        };
        match reply.results::<UniversalAddress<'_>>() {
            Ok(UniversalAddress(text)) => return found(address, service, text),
            Err(error @ RpcError::Failed(Accepted::ProgramMismatch { .. })) => {
                refusal = Some(error);
            }
            Err(error) => {
                return Err(error).context(format!("no answer from a port mapper at {address}"));
            }
        }
    }
    let refusal = refusal.map_or_else(String::new, |error| format!(": {error}"));
    bail!("the port mapper at {address} speaks no version of ours{refusal}")
}

fn found(mapper: SocketAddr, service: Service<'_>, text: &[u8]) -> Result<SocketAddr> {
    let Service {
        program,
        version,
        netid,
    } = service;
    if text.is_empty() {
        bail!(
            "the port mapper at {mapper} knows no program {program} version {version} on {netid}"
        );
    }
    let Some(mut address) = parse_address(text) else {
        let text = String::from_utf8_lossy(text);
        bail!("the port mapper at {mapper} answers `{text}`, which is no address");
    };
    if address.ip().is_unspecified() {
        // Registered for all addresses of the host that was asked.
        address.set_ip(mapper.ip());
    }
    Ok(address)
}
