//! A small HTTP requester for the API: one GET per connection, bounded in time and size.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::{runtime, time};

/// The most bytes of an answer.
const ANSWER_MAX: usize = 64 << 20;

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    authority: String,
    timeout: Duration,
}

/// An answer of the API, of whatever status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not one.
    #[error("`{0}` is no address; write http://HOST:PORT")]
    Address(String),
    /// The host name is unknown.
    #[error("cannot find {authority}: {source}")]
    Lookup {
        /// Host and port.
        authority: String,
        /// What the resolver says.
        source: std::io::Error,
    },
    /// Nobody listens.
    #[error("cannot connect to {authority}: {source}")]
    Connect {
        /// Host and port.
        authority: String,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The server does not speak HTTP, or broke off.
    #[error("no proper answer from {authority}: {reason}")]
    Protocol {
        /// Host and port.
        authority: String,
        /// What was wrong.
        reason: String,
    },
    /// It took too long.
    #[error("no answer from {authority} within {timeout:?}")]
    Time {
        /// Host and port.
        authority: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// No runtime for the request.
    #[error("cannot start a request: {0}")]
    Runtime(std::io::Error),
}

impl Client {
    /// For an address such as `http://127.0.0.1:9620`; the scheme may be left out.
    ///
    /// # Errors
    ///
    /// It is not HTTP, has a path, or has no port.
    pub fn new(address: &str) -> Result<Self, ClientError> {
        let refused = || ClientError::Address(address.to_owned());
        let authority = address.strip_prefix("http://").unwrap_or(address);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(plain) || port.parse::<u16>().is_err() {
            return Err(refused());
        }
        Ok(Self {
            authority: authority.to_owned(),
            timeout: Duration::from_secs(15),
        })
    }

    /// With another bound for the time of a request.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Asks for a path, such as `/api/v1/version`. Blocks; not for use in an async runtime.
    ///
    /// # Errors
    ///
    /// There is no answer. An answer of failure is an [`Answer`].
    pub fn get(&self, path: &str) -> Result<Answer, ClientError> {
        let addresses: Vec<SocketAddr> = self
            .authority
            .to_socket_addrs()
            .map_err(|source| ClientError::Lookup {
                authority: self.authority.clone(),
                source,
            })?
            .collect();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Runtime)?;
        runtime.block_on(async {
            time::timeout(self.timeout, self.request(&addresses, path))
                .await
                .unwrap_or_else(|_| {
                    Err(ClientError::Time {
                        authority: self.authority.clone(),
                        timeout: self.timeout,
                    })
                })
        })
    }

    async fn request(&self, addresses: &[SocketAddr], path: &str) -> Result<Answer, ClientError> {
        let authority = || self.authority.clone();
        let protocol = |reason: String| ClientError::Protocol {
            authority: self.authority.clone(),
            reason,
        };
        let stream =
            TcpStream::connect(addresses)
                .await
                .map_err(|source| ClientError::Connect {
                    authority: authority(),
                    source,
                })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| protocol(error.to_string()))?;
        // Its end shows in the sender's answer.
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(header::HOST, &self.authority)
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| protocol(error.to_string()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| protocol(error.to_string()))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_MAX)
            .collect()
            .await
            .map_err(|error| protocol(error.to_string()))?
            .to_bytes();
        Ok(Answer {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}
