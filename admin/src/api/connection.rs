//! One connection: its handshake, its requests, its end.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::{select, time};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::auth::{PeerAddress, PeerIdentity};
use super::gate::{Gate, Kind};
use super::limits::ApiLimits;
use super::long::LongAnswer;
use super::patience::Patient;
use super::places::Place;
use super::problem::problem;
use super::tls::{self, Certificates};

/// What all connections share.
pub struct Shared {
    pub router: Router,
    pub limits: ApiLimits,
    pub gate: Gate,
    /// Without them, HTTP is spoken in plain.
    pub certificates: Option<Arc<Certificates>>,
}

/// Serves one connection to its end.
pub async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
    _place: Place,
) {
    let Some(certificates) = &shared.certificates else {
        return requests(stream, peer, None, &shared, stopped).await;
    };
    let handshake = handshake(stream, certificates);
    let shaken = select! {
        shaken = time::timeout(shared.limits.handshake_time, handshake) => shaken,
        _ = stopped.wait_for(|stop| *stop) => return,
    };
    match shaken {
        Ok(Ok((stream, name))) => {
            requests(stream, peer, Some(PeerIdentity(name)), &shared, stopped).await;
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS with a client"),
        Err(_) => tracing::debug!(%peer, "no TLS with a client: it takes too long"),
    }
}

/// Speaks TLS from here on. Also answers the name in the client's certificate.
async fn handshake(
    stream: TcpStream,
    certificates: &Certificates,
) -> io::Result<(TlsStream<TcpStream>, Option<String>)> {
    // A handshake begins with the byte 22 (RFC 8446 section 5.1), HTTP with a method.
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_uppercase() {
        let detail = "this port speaks HTTPS; write https:// in place of http://";
        turn_away(stream, StatusCode::BAD_REQUEST, detail);
        return Err(io::Error::other("it speaks plain HTTP"));
    }
    let config = certificates.current(Instant::now());
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let (_, session) = stream.get_ref();
    // Verified: the handshake would have failed else.
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let name = certificate.and_then(tls::name);
    Ok((stream, name))
}

async fn requests<S>(
    stream: S,
    peer: SocketAddr,
    identity: Option<PeerIdentity>,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let router = TowerToHyperService::new(shared.router.clone());
    let long = LongAnswer::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(PeerAddress(peer));
        extensions.insert(long.clone());
        if let Some(identity) = &identity {
            extensions.insert(identity.clone());
        }
        let kind = Kind::of(request.uri().path());
        let admitted = shared.gate.admit(peer.ip(), kind, Instant::now());
        let answer = admitted.map(|()| router.call(request));
        async {
            match answer {
                Ok(answer) => answer.await,
                Err(wait) => Ok::<_, Infallible>(too_often(wait)),
            }
        }
    });
    let stream = Patient::new(stream, limits.write_time, limits.write_bytes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(limits.headers)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(8192) * 2)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let aged = select! {
        // A client that left or broke the protocol is no matter for the log.
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stop| *stop) => false,
        () = time::sleep(limits.connection_time) => true,
    };
    connection.as_mut().graceful_shutdown();
    if aged {
        select! {
            _ = connection.as_mut() => return,
            _ = stopped.wait_for(|stop| *stop) => {}
            () = time::sleep(long.rest()) => {}
        }
    }
    let _ = time::timeout(limits.drain_time, connection).await;
}

fn too_often(wait: Duration) -> Response<Body> {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut answer = problem(
        StatusCode::TOO_MANY_REQUESTS,
        format!("too many requests; the next one is answered in {wait:.1?}"),
    );
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// Answers without having looked at a request, and closes. The answer may get lost on its way, as
/// the request is not read.
pub fn turn_away(stream: TcpStream, status: StatusCode, detail: &str) {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
    .to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The buffers of a connection without traffic have room for it.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(answer.as_bytes());
    }
}
