//! The requester against the project's own responder: each version and each
//! way between them, classic mode, padding and the configuration protocol.

mod classic;
mod files;
mod versions;
mod world;
