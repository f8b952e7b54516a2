//! NFS version 3 (RFC 1813), called through the seam between transports and programs.

#![allow(clippy::result_large_err)] // Failures of the protocol carry attributes.

#[path = "../support/mod.rs"]
mod support;

mod data;
mod procedures;
