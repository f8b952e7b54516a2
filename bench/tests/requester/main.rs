//! The requester's rows of the conformance matrix, proved against a scripted server.

mod chunk;
mod credit;
mod done;
mod done_credit;
mod header;
mod long;
mod pad;
mod property;
mod support;
