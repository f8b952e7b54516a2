//! The server's address and credentials, and single requests.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::{Response, header};
use rustls::ClientConfig;
use tokio::{runtime, time};

use super::address::Address;
use super::exchange::look_up;
use super::{Answer, ClientError, ClientToken, Method, Order};

/// The most bytes of an answer kept in memory.
const ANSWER_MAX: usize = 64 << 20;

/// The server's address and credentials.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) address: Address,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) token: Option<ClientToken>,
    pub(super) timeout: Duration,
}

impl Client {
    /// For an address such as `http://127.0.0.1:9620`, `https://host:9620` or
    /// `unix:/run/millrace/admin.sock`; without a scheme it is plain HTTP.
    ///
    /// # Errors
    ///
    /// It is none of these, has a path, or has no port.
    pub fn new(address: &str) -> Result<Self, ClientError> {
        Ok(Self {
            address: Address::parse(address)?,
            tls: None,
            token: None,
            timeout: Duration::from_secs(15),
        })
    }

    /// Sets another timeout.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets a token, which is sent with changes, and with queries that are refused without it: if
    /// the server requires it for reading, or is overloaded.
    #[must_use]
    pub fn with_token(self, token: ClientToken) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// Sets the TLS configuration for an `https` address; see [`super::TlsFiles::load`].
    #[must_use]
    pub fn with_tls(self, tls: Arc<ClientConfig>) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.address.authority
    }

    /// Whether the server is reached over its Unix socket, and so is on this host.
    pub fn is_on_socket(&self) -> bool {
        self.address.socket.is_some()
    }

    /// Whether the server is on this host.
    pub fn is_local(&self) -> bool {
        self.is_on_socket() || self.address.is_loopback()
    }

    /// A text with `[token]` in place of the token.
    pub fn without_token(&self, text: &str) -> String {
        match &self.token {
            Some(token) => token.taken_out(text),
            None => text.to_owned(),
        }
    }

    /// Whether a secret sent there cannot be read on the network: TLS, or this host.
    pub fn is_private(&self) -> bool {
        self.address.secure.is_some() || self.address.is_loopback()
    }

    /// Queries a path, such as `/api/v1/version`.
    ///
    /// # Errors
    ///
    /// There is no answer. An error response is an [`Answer`].
    pub fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.send(&Order::new(Method::Get, path))
    }

    /// Sends an order, on a connection of its own.
    ///
    /// # Errors
    ///
    /// There is no answer. An error response is an [`Answer`].
    pub fn send(&self, order: &Order) -> Result<Answer, ClientError> {
        let addresses = look_up(&self.address)?;
        runtime()?.block_on(self.in_time(self.timeout, async {
            let mut sender = self.connect(&addresses).await?;
            let response = self.exchange(&mut sender, order, false, false).await?;
            if !self.may_help(order, &response) {
                return self.whole(response).await;
            }
            let mut sender = self.connect(&addresses).await?;
            let response = self.exchange(&mut sender, order, false, true).await?;
            self.whole(response).await
        }))
    }

    /// Sends an order and writes the body of a successful answer to `out` as it arrives, for at
    /// most `longest`; the returned answer then has no body. Writes must not be buffered. Returns
    /// the number of bytes as well.
    ///
    /// # Errors
    ///
    /// There is no answer, the body is longer than `most` bytes or truncated, it takes longer than
    /// `longest`, or it cannot be written. The bytes received before have been written.
    pub fn stream(
        &self,
        order: &Order,
        longest: Duration,
        most: u64,
        out: &mut dyn Write,
    ) -> Result<(Answer, u64), ClientError> {
        let addresses = look_up(&self.address)?;
        runtime()?.block_on(self.in_time(longest, async {
            // The head of the answer has the usual timeout.
            let start = async {
                let mut sender = self.connect(&addresses).await?;
                let response = self.exchange(&mut sender, order, false, true).await?;
                // The sender keeps the connection open.
                Ok((sender, response))
            };
            let (_sender, response) = self.in_time(self.timeout, start).await?;
            if !response.status().is_success() {
                return Ok((self.whole(response).await?, 0));
            }
            let answer = head(&response);
            let mut body = response.into_body();
            let mut count = 0_u64;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| self.broken(&error))?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                count += data.len() as u64;
                if count > most {
                    return Err(self.protocol(format!("more than {most} bytes")));
                }
                out.write_all(&data)
                    .and_then(|()| out.flush())
                    .map_err(|source| ClientError::Output {
                        authority: self.address.authority.clone(),
                        source,
                    })?;
            }
            Ok((answer, count))
        }))
    }

    /// Whether a refused query may be repeated with the token.
    pub(super) fn may_help(&self, order: &Order, response: &Response<Incoming>) -> bool {
        let refused = matches!(response.status().as_u16(), 401 | 429);
        refused && self.token.is_some() && !order.is_change()
    }

    /// The answer with its body.
    pub(super) async fn whole(&self, response: Response<Incoming>) -> Result<Answer, ClientError> {
        let mut answer = head(&response);
        let long = || self.protocol(format!("its answer has more than {ANSWER_MAX} bytes"));
        if response.body().size_hint().lower() > ANSWER_MAX as u64 {
            return Err(long());
        }
        let body = Limited::new(response.into_body(), ANSWER_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => self.broken(&error),
            Err(_) => long(),
        })?;
        answer.body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok(answer)
    }

    pub(super) async fn in_time<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        time::timeout(timeout, work).await.unwrap_or_else(|_| {
            Err(ClientError::Time {
                authority: self.address.authority.clone(),
                timeout,
            })
        })
    }
}

/// An answer's head, from its headers.
fn head(response: &Response<Incoming>) -> Answer {
    let tag = response.headers().get(header::ETAG);
    Answer {
        status: response.status().as_u16(),
        tag: tag.and_then(|tag| Some(tag.to_str().ok()?.to_owned())),
        body: String::new(),
    }
}

/// A runtime for the calling thread.
pub fn runtime() -> Result<runtime::Runtime, ClientError> {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)
}
