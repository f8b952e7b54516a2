//! The requester's rows of the conformance matrix, proved against a scripted server.

mod ccp;
mod chunk;
mod credit;
mod done;
mod done_credit;
mod header;
mod long;
mod old;
mod pad;
mod padding;
mod property;
mod security;
mod support;
