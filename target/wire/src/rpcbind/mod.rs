//! Registration and look-up of programs: port mapper version 2, rpcbind versions 3 and 4 (RFC
//! 1833).
//!
//! Results of SET and UNSET are a boolean, of GETPORT and GETTIME a word, of GETADDR and
//! GETVERSADDR a string, of the DUMPs a [`List`]. The procedures that forward calls to other
//! programs are left out on purpose, since attackers misuse them.

mod address;

pub use address::{AddressText, Netid, parse_address, universal_address};

use crate::xdr::{List, xdr_enum, xdr_struct};

/// Program number of all versions.
pub const PROGRAM: u32 = 100_000;
/// Version of the port mapper.
pub const PORTMAP_VERSION: u32 = 2;
/// The versions of rpcbind.
pub const RPCBIND_VERSIONS: [u32; 2] = [3, 4];
/// The well-known port.
pub const PORT: u16 = 111;

/// Protocol number of TCP in port mappings.
pub const TCP: u32 = 6;
/// Protocol number of UDP in port mappings.
pub const UDP: u32 = 17;

xdr_enum! {
    /// Procedures of the port mapper (RFC 1833 section 3.1).
    pub enum PortmapProcedure {
        Null = 0, "NULL", "do nothing";
        Set = 1, "SET", "register a program's port";
        Unset = 2, "UNSET", "take a program off the register";
        GetPort = 3, "GETPORT", "look up a port";
        Dump = 4, "DUMP", "return the register";
        CallIt = 5, "CALLIT", "call another program";
    }
}

xdr_enum! {
    /// Procedures of rpcbind (RFC 1833 section 2.1); those from 9 on are of version 4 only.
    pub enum RpcbindProcedure {
        Null = 0, "NULL", "do nothing";
        Set = 1, "SET", "register a program's address";
        Unset = 2, "UNSET", "take a program off the register";
        GetAddress = 3, "GETADDR", "look up an address";
        Dump = 4, "DUMP", "return the register";
        CallIt = 5, "CALLIT", "call another program, silent about errors";
        GetTime = 6, "GETTIME", "seconds since 1970";
        ToTransport = 7, "UADDR2TADDR", "universal to transport address";
        ToUniversal = 8, "TADDR2UADDR", "transport to universal address";
        GetVersionAddress = 9, "GETVERSADDR", "look up the address of exactly this version";
        Indirect = 10, "INDIRECT", "call another program";
        GetAddressList = 11, "GETADDRLIST", "look up a program's addresses on all transports";
        GetStatistics = 12, "GETSTAT", "figures about this service";
    }
}

xdr_struct! {
    /// An entry of the port mapper: arguments of SET, UNSET and GETPORT (`mapping`).
    pub struct Mapping {
        /// Program.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// [`TCP`] or [`UDP`].
        pub protocol: u32,
        /// Port; ignored in UNSET and GETPORT.
        pub port: u32,
    }
}

/// Results of the port mapper's DUMP, as received.
pub type PortmapDump<'a> = List<'a, Mapping>;

xdr_struct! {
    /// An entry of rpcbind: arguments of SET, UNSET, GETADDR and GETVERSADDR (`rpcb`).
    pub struct Registration<'a> {
        /// Program.
        pub program: u32,
        /// Its version.
        pub version: u32,
        /// The transport, see [`Netid`].
        pub netid: &'a [u8],
        /// Universal address, see [`universal_address`].
        pub address: &'a [u8],
        /// The user who registered it.
        pub owner: &'a [u8],
    }
}

/// Results of rpcbind's DUMP, as received.
pub type RpcbindDump<'a> = List<'a, Registration<'a>>;

xdr_struct! {
    /// An address in the results of GETADDRLIST (`rpcb_entry`).
    pub struct AddressEntry<'a> {
        /// Universal address.
        pub address: &'a [u8],
        /// The transport, see [`Netid`].
        pub netid: &'a [u8],
        /// Semantics of the transport: 1 datagrams, 2 connections, 3 connections with orderly
        /// release.
        pub semantics: u32,
        /// Family of the protocol, such as `inet`.
        pub family: &'a [u8],
        /// The protocol, such as `tcp`.
        pub protocol: &'a [u8],
    }
}

/// Results of GETADDRLIST, as received.
pub type AddressList<'a> = List<'a, AddressEntry<'a>>;

xdr_struct! {
    /// An address in a transport's own form (`netbuf`).
    pub struct TransportAddress<'a> {
        /// Size of the address buffer, in bytes.
        pub max_length: u32,
        /// The address.
        pub address: &'a [u8],
    }
}
