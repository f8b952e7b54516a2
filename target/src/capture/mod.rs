//! Copies of a connection's messages, and the pcap files that they are written to.
//!
//! A [`CapturePoint`] at the connection hands copies to a [`CaptureSink`]; the requester of the
//! capture takes them from the [`CaptureSource`] at the other end, and writes a [`CaptureFile`].

mod file;
mod packet;
mod point;
mod sink;

pub use file::CaptureFile;
pub use point::CapturePoint;
pub use sink::{CaptureEnded, CaptureLimits, CaptureSink, CaptureSource, channel};

use std::time::SystemTime;

/// A message that was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedMessage {
    /// When it was received or posted.
    pub at: SystemTime,
    /// Whether it came from the client.
    pub received: bool,
    /// Its number in its direction, starting at one and counting dropped messages.
    pub number: u32,
    /// The client's key that it invalidates.
    pub invalidate: Option<u32>,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// What it carries.
    pub bytes: Vec<u8>,
}
