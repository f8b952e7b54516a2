//! One connection, and one request and response on it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::{Client, ClientError, Order, TlsFailure};

/// A connection for sending requests.
pub type Sender = SendRequest<Full<Bytes>>;

/// The addresses of the host.
pub fn look_up(address: &Address) -> Result<Vec<SocketAddr>, ClientError> {
    if address.socket.is_some() {
        return Ok(Vec::new());
    }
    match address.authority.to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(source) => Err(ClientError::Lookup {
            authority: address.authority.clone(),
            source,
        }),
    }
}

impl Client {
    /// Connects, with TLS if the address requires it.
    pub(super) async fn connect(&self, addresses: &[SocketAddr]) -> Result<Sender, ClientError> {
        let authority = || self.address.authority.clone();
        if let Some(path) = &self.address.socket {
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|source| ClientError::Connect {
                authority: authority(),
                source,
            })?;
            return self.shake_hands(stream).await;
        }
        let secure = match (&self.address.secure, &self.tls) {
            (None, _) => None,
            (Some(name), Some(config)) => Some((name.clone(), Arc::clone(config))),
            (Some(_), None) => {
                return Err(ClientError::NoTrust {
                    authority: authority(),
                });
            }
        };
        let stream =
            TcpStream::connect(addresses)
                .await
                .map_err(|source| ClientError::Connect {
                    authority: authority(),
                    source,
                })?;
        let Some((name, config)) = secure else {
            return self.shake_hands(stream).await;
        };
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| ClientError::Tls {
                authority: authority(),
                failure: TlsFailure::of(&error).unwrap_or_else(|| broken_off(&error)),
            })?;
        self.shake_hands(stream).await
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<Sender, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        // Its end is reported by the sender.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends an order and returns the head of the response.
    pub(super) async fn exchange(
        &self,
        sender: &mut Sender,
        order: &Order,
        keep: bool,
        with_token: bool,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder()
            .method(order.method.http())
            .uri(&order.path)
            .header(header::HOST, self.address.host_header())
            .header(header::ACCEPT, "*/*");
        if !keep {
            request = request.header(header::CONNECTION, "close");
        }
        // Queries usually need no token, so it is not sent with them.
        if let Some(token) = &self.token
            && (order.is_change() || with_token)
        {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        if let Some(tag) = &order.if_match {
            request = request.header(header::IF_MATCH, tag);
        }
        if let Some(id) = &order.last_event {
            request = request.header("last-event-id", id);
        }
        let body = match &order.body {
            None => Bytes::new(),
            Some((media_type, body)) => {
                request = request.header(header::CONTENT_TYPE, *media_type);
                Bytes::copy_from_slice(body)
            }
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| self.protocol(error.to_string()))?;
        sender
            .send_request(request)
            .await
            .map_err(|error| self.broken(&error))
    }

    /// The meaning of an error of the HTTP library. With TLS, the server may refuse a client's
    /// certificate after the handshake (RFC 8446 section 4.4.2.4), which is reported here.
    pub(super) fn broken(&self, error: &hyper::Error) -> ClientError {
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            if let Some(inner) = inner.downcast_ref::<io::Error>()
                && let Some(failure) = TlsFailure::of(inner)
            {
                return ClientError::Tls {
                    authority: self.address.authority.clone(),
                    failure,
                };
            }
            source = inner.source();
        }
        let hint = match self.address.secure.is_none() && error.is_parse() {
            true => "; does it speak TLS (https://)?",
            false => "",
        };
        self.protocol(format!("{error}{hint}"))
    }

    pub(super) fn protocol(&self, reason: String) -> ClientError {
        ClientError::Protocol {
            authority: self.address.authority.clone(),
            reason,
        }
    }
}

fn broken_off(error: &io::Error) -> TlsFailure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            TlsFailure::Other("the server closed the connection; does it speak TLS?".to_owned())
        }
        _ => TlsFailure::Other(error.to_string()),
    }
}
