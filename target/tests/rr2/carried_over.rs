//! The rules on chunks, long messages, pads, credits and security are those of version one, so its
//! tests run here with headers of version two (version two draft sections 3, 5.2, 6 and 7).

#[path = "../rr1/chunk.rs"]
mod chunk;
#[path = "../rr1/cred.rs"]
mod cred;
#[path = "../rr1/long.rs"]
mod long;
#[path = "../rr1/pad.rs"]
mod pad;
#[path = "../rr1/sec.rs"]
mod sec;
#[path = "../rr1/write.rs"]
mod write;
