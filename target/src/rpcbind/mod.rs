//! How clients find the ports (RFC 1833, RFC 5666 section 10): either this process answers as the
//! port mapper itself ([`RpcbindServer`]), or it registers with the one that runs
//! ([`Registration`]).
//!
//! NFS on TCP and MOUNT are offered under `tcp` and `tcp6`, NFS on RDMA under `rdma` and `rdma6`
//! (RFC 8166 section 9). Clients that name their ports need none of this.

mod offers;
mod program;
mod register;
mod responder;
mod server;

pub use offers::{Offer, Offers};
pub use program::{INFO, Rpcbind};
pub use register::{Registration, Rendezvous};
use responder::answer;
pub use server::RpcbindServer;
