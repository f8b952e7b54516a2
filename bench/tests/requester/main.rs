//! The requester's rows of the conformance matrix, proved against a scripted server that speaks
//! version one. `requester_two` runs most of them again in version two.

mod ccp;
mod chunk;
mod credit;
mod deadline;
mod done;
mod done_any;
mod done_credit;
mod first;
mod gss;
mod gss_reverse;
mod header;
mod long;
mod old;
mod pad;
mod padding;
mod property;
mod reverse;
mod security;
mod support;

/// The version that both sides speak.
const VERSION: millrace_wire::rpcrdma::Version = millrace_wire::rpcrdma::Version::One;
