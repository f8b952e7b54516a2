//! A requester for the API, over plain HTTP or TLS, bounded in time and size.
//!
//! [`Client`] says where to ask, and how to be known there: by a [`ClientToken`], or by a client
//! certificate ([`TlsFiles`]). [`Client::send`] makes one connection for one [`Order`];
//! [`Session`] keeps its connection for those that ask again and again; [`Client::stream`] hands
//! on the bytes of an answer as they come.
//!
//! Everything blocks, and none of it is for use in an async runtime.

mod address;
mod error;
mod exchange;
mod order;
mod requester;
mod session;
mod tls;
mod token;

pub use error::{ClientError, TlsFailure};
pub use order::{Answer, Method, Order};
pub use requester::Client;
pub use session::Session;
pub use tls::{TlsFileError, TlsFiles};
pub use token::{ClientToken, ClientTokenError};

#[cfg(test)]
mod tests;
