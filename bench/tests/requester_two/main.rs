//! The requester in version two, against a scripted server: the rules of version one that carry
//! over (the tests of `requester`, with the headers of version two), and the rows of version two.

#[path = "../requester/chunk.rs"]
mod chunk;
#[path = "../requester/credit.rs"]
mod credit;
#[path = "../requester/deadline.rs"]
mod deadline;
#[path = "../requester/header.rs"]
mod header;
#[path = "../requester/long.rs"]
mod long;
#[path = "../requester/pad.rs"]
mod pad;
#[path = "../requester/property.rs"]
mod property;
#[path = "../requester/reverse.rs"]
mod reverse;
#[path = "../requester/security.rs"]
mod security;
#[allow(unused, reason = "read chunks in replies are of version one only")]
#[path = "../requester/support/mod.rs"]
mod support;

mod errors;
mod invalidation;
mod layout;
mod negotiation;
mod options;
mod random;
mod session;

/// The version that both sides speak.
const VERSION: millrace_wire::rpcrdma::Version = millrace_wire::rpcrdma::Version::Two;
