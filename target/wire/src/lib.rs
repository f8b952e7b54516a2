//! Every byte layout above RDMA: XDR, ONC RPC, RPC-over-RDMA, rpcbind, MOUNT and NFS.
//!
//! Decoders borrow from their input and encoders write into a slice of the caller. Requester and
//! responder share one set of types. Nothing here does I/O, reads a clock or allocates, and no
//! input causes a panic.
//!
//! | module | layouts | source |
//! | --- | --- | --- |
//! | [`xdr`] | the data representation, with items that travel apart from the stream | RFC 4506 |
//! | [`rpc`] | call and reply headers, record marks | RFC 5531 |
//! | [`rpcrdma`] | transport headers and chunk lists of both versions | RFC 8166, RFC 5666, version two draft |
//! | [`ccp`] | the connection configuration protocol | RFC 5666 section 6 |
//! | [`private_data`] | the message exchanged at connection time | RFC 8797 |
//! | [`rpcbind`] | port mapper versions 2 to 4, universal addresses | RFC 1833, RFC 5665 |
//! | [`mount`] | MOUNT version 3 | RFC 1813 appendix I |
//! | [`nfs3`] | NFS version 3 | RFC 1813 |
//! | [`nfs4`] | NFS version 4, minor versions 1 and 2 | RFC 8881, RFC 7862, RFC 8276 |

// Without the standard library there is no allocator.
#![no_std]
#![forbid(unsafe_code)]

pub mod xdr;

pub mod ccp;
pub mod mount;
pub mod nfs3;
pub mod nfs4;
pub mod private_data;
pub mod rpc;
pub mod rpcbind;
pub mod rpcrdma;
