//! Answers of the port mapper, without I/O but for the clock.
//!
//! Nothing can be registered from outside, and nothing is called on behalf of others. Lists are
//! returned over TCP only: a datagram's sender may be forged, and an answer much longer than its
//! question would allow amplification attacks.

use std::net::IpAddr;

use millrace_wire::rpc::{Accepted, CallHeader, answer_to};
use millrace_wire::rpcbind::{
    AddressEntry, AddressText, Mapping, Netid, PORTMAP_VERSION, PROGRAM, PortmapProcedure,
    RPCBIND_VERSIONS, Registration, RpcbindProcedure, TCP, UDP, universal_address,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder, Error, encode_list};

use super::offers::{Offer, Offers, towards};

/// Who asks, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub address: IpAddr,
    /// Over a connection.
    pub stream: bool,
}

/// Encodes the answer to a message on a connection of any kind, and returns its length; `None` for
/// no answer.
pub(crate) fn answer(
    offers: &Offers,
    address: IpAddr,
    message: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let stream = true;
    respond(offers, Asker { address, stream }, message, out)
}

/// Encodes the answer to a message and returns its length; `None` for silence.
pub(super) fn respond(
    offers: &Offers,
    asker: Asker,
    message: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let mut input = Decoder::new(message);
    let mut out = Encoder::new(out);
    let header = match CallHeader::decode(&mut input) {
        Ok(header) => header,
        Err(error) => {
            error.answer()?.encode(&mut out).ok()?;
            return Some(out.position());
        }
    };
    let [low, high] = RPCBIND_VERSIONS;
    let status = match (header.program, header.version) {
        (PROGRAM, PORTMAP_VERSION) => portmap(offers, asker, &header, &mut input, &mut out),
        (PROGRAM, version) if version == low || version == high => {
            rpcbind(offers, asker, &header, &mut input, &mut out)
        }
        (PROGRAM, _) => Err(Accepted::ProgramMismatch {
            low: PORTMAP_VERSION,
            high,
        }
        .into()),
        _ => Err(Accepted::ProgramUnavailable.into()),
    };
    match status {
        Ok(()) => {}
        Err(RpcbindRefused::Silently) => return None,
        Err(RpcbindRefused::Status(status)) => {
            out.rewind(0);
            answer_to(header.xid, status).encode(&mut out).ok()?;
        }
    }
    Some(out.position())
}

enum RpcbindRefused {
    Status(Accepted),
    Silently,
}

impl From<Accepted> for RpcbindRefused {
    fn from(status: Accepted) -> Self {
        Self::Status(status)
    }
}

impl From<Error> for RpcbindRefused {
    fn from(error: Error) -> Self {
        Self::Status(match error {
            Error::Full => Accepted::SystemError,
            _ => Accepted::GarbageArguments,
        })
    }
}

/// Port mapper version 2 (RFC 1833 section 3).
fn portmap(
    offers: &Offers,
    asker: Asker,
    header: &CallHeader<'_>,
    input: &mut Decoder<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), RpcbindRefused> {
    let success = answer_to(header.xid, Accepted::Success);
    match PortmapProcedure::from_number(header.procedure) {
        Some(PortmapProcedure::Null) => success.encode(out)?,
        Some(PortmapProcedure::Set | PortmapProcedure::Unset) => {
            Mapping::decode(input)?;
            success.encode(out)?;
            out.bool(false)?;
        }
        Some(PortmapProcedure::GetPort) => {
            let wanted = Mapping::decode(input)?;
            let netid = match wanted.protocol {
                TCP => Some(Netid::Tcp),
                UDP => Some(Netid::Udp),
                _ => None,
            };
            let offer =
                netid.and_then(|netid| offers.find(wanted.program, wanted.version, netid, false));
            success.encode(out)?;
            out.u32(offer.map_or(0, |offer| u32::from(offer.address.port())))?;
        }
        Some(PortmapProcedure::Dump) if asker.stream => {
            success.encode(out)?;
            encode_list(offers.iter().filter_map(mapping), out)?;
        }
        Some(PortmapProcedure::CallIt) => return Err(RpcbindRefused::Silently),
        Some(PortmapProcedure::Dump) | None => return Err(Accepted::ProcedureUnavailable.into()),
    }
    Ok(())
}

fn mapping(offer: &Offer) -> Option<Mapping> {
    let protocol = match offer.netid {
        Netid::Tcp => TCP,
        Netid::Udp => UDP,
        _ => return None,
    };
    let port = u32::from(offer.address.port());
    Some(Mapping {
        program: offer.program,
        version: offer.version,
        protocol,
        port,
    })
}

/// rpcbind versions 3 and 4 (RFC 1833 section 2).
fn rpcbind(
    offers: &Offers,
    asker: Asker,
    header: &CallHeader<'_>,
    input: &mut Decoder<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), RpcbindRefused> {
    let success = answer_to(header.xid, Accepted::Success);
    let newest = header.version == 4;
    match RpcbindProcedure::from_number(header.procedure) {
        Some(RpcbindProcedure::Null) => success.encode(out)?,
        Some(RpcbindProcedure::Set | RpcbindProcedure::Unset) => {
            Registration::decode(input)?;
            success.encode(out)?;
            out.bool(false)?;
        }
        Some(RpcbindProcedure::GetAddress) => {
            let wanted = Registration::decode(input)?;
            success.encode(out)?;
            out.opaque(find(offers, asker, &wanted, false).as_bytes())?;
        }
        Some(RpcbindProcedure::GetVersionAddress) if newest => {
            let wanted = Registration::decode(input)?;
            success.encode(out)?;
            out.opaque(find(offers, asker, &wanted, true).as_bytes())?;
        }
        Some(RpcbindProcedure::GetTime) => {
            success.encode(out)?;
            // The protocol's word ends in 2106.
            out.u32(millrace_store::Time::now().seconds as u32)?;
        }
        Some(RpcbindProcedure::Dump) if asker.stream => {
            success.encode(out)?;
            for offer in offers.iter() {
                let address = universal_address(offer.address);
                out.bool(true)?;
                registration(offer, &address).encode(out)?;
            }
            out.bool(false)?;
        }
        Some(RpcbindProcedure::GetAddressList) if newest && asker.stream => {
            let wanted = Registration::decode(input)?;
            success.encode(out)?;
            let same =
                |offer: &&Offer| (offer.program, offer.version) == (wanted.program, wanted.version);
            for offer in offers.iter().filter(same) {
                let address = universal_address(towards(offer.address, asker.address));
                out.bool(true)?;
                entry(offer, &address).encode(out)?;
            }
            out.bool(false)?;
        }
        Some(RpcbindProcedure::CallIt) => return Err(RpcbindRefused::Silently),
        _ => return Err(Accepted::ProcedureUnavailable.into()),
    }
    Ok(())
}

/// The universal address that is asked for; empty if there is none.
fn find(offers: &Offers, asker: Asker, wanted: &Registration<'_>, exact: bool) -> AddressText {
    Netid::from_name(wanted.netid)
        .and_then(|netid| offers.find(wanted.program, wanted.version, netid, exact))
        .map(|offer| universal_address(towards(offer.address, asker.address)))
        .unwrap_or_default()
}

/// An offer as rpcbind registers it.
pub(super) fn registration<'a>(offer: &Offer, address: &'a AddressText) -> Registration<'a> {
    Registration {
        program: offer.program,
        version: offer.version,
        netid: offer.netid.name().as_bytes(),
        address: address.as_bytes(),
        owner: b"superuser",
    }
}

fn entry<'a>(offer: &Offer, address: &'a AddressText) -> AddressEntry<'a> {
    let protocol: &[u8] = match offer.netid {
        Netid::Tcp | Netid::Tcp6 => b"tcp",
        Netid::Udp | Netid::Udp6 => b"udp",
        Netid::Rdma | Netid::Rdma6 => b"rdma",
    };
    AddressEntry {
        address: address.as_bytes(),
        netid: offer.netid.name().as_bytes(),
        semantics: if protocol == b"udp" { 1 } else { 3 },
        family: if offer.netid.is_ipv6() {
            b"inet6"
        } else {
            b"inet"
        },
        protocol,
    }
}
