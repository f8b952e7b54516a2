//! A requester for the API, over plain HTTP or TLS, limited in time and size.
//!
//! [`Client`] has the server's address and the credentials: a [`ClientToken`], or a client
//! certificate ([`TlsFiles`]). [`Client::send`] makes one connection for one [`Order`]; [`Session`]
//! keeps its connection for repeated queries; [`Client::stream`] forwards the bytes of an answer as
//! they arrive.
//!
//! All calls block; they are not for async runtimes.

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
