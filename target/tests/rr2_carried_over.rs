//! The rules on chunks, long messages, pads, credits and security are those of version one, so its
//! tests run here with headers of version two (version two draft sections 3, 5.2, 6 and 7).

#![allow(clippy::duplicate_mod)] // Each of them has the support as a module of its own.

mod support;

#[path = "rr1_chunk.rs"]
mod rr1_chunk;
#[path = "rr1_cred.rs"]
mod rr1_cred;
#[path = "rr1_long.rs"]
mod rr1_long;
#[path = "rr1_pad.rs"]
mod rr1_pad;
#[path = "rr1_sec.rs"]
mod rr1_sec;
#[path = "rr1_write.rs"]
mod rr1_write;
