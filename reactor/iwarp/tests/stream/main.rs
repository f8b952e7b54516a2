//! Streams over plain vectors: two ends joined by byte queues, and one end against hostile bytes.

mod any_bytes;
mod framing;
mod hostile;
mod joined;
mod progress;
mod start;
mod support;
