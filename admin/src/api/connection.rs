//! One connection: handshake, requests, end.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::{select, time};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ask::answering;
use super::auth::{PeerAddress, PeerIdentity};
use super::events::StopSignal;
use super::gate::{Gate, RequestKind};
use super::limits::ApiLimits;
use super::long::LongAnswer;
use super::operator::{RequestStanding, standing};
use super::origin::ArrivalAddress;
use super::places::ConnectionPlace;
use super::problem::{body_of, problem};
use super::socket::PeerCredentials;
use super::starting::Answers;
use super::tls::{CertificateIdentity, Certificates};
use super::write_timeout::WriteTimeout;
use crate::status::ProblemType;

/// State shared by all connections.
pub struct Shared {
    pub answers: Answers,
    pub limits: ApiLimits,
    pub gate: Gate,
    /// `None` serves HTTP without TLS.
    pub certificates: Option<Arc<Certificates>>,
}

/// Properties of a client known before its first request.
struct Client {
    arrival: ArrivalAddress,
    /// The address or network whose rate limit applies to its requests.
    address: IpAddr,
    peer: Option<PeerAddress>,
    identity: Option<PeerIdentity>,
    credentials: Option<PeerCredentials>,
}

/// Serves one connection over TCP to its end.
pub async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
    place: ConnectionPlace,
) {
    let Ok(local) = stream.local_addr() else {
        // It is already closed.
        return;
    };
    let client = |identity| Client {
        arrival: ArrivalAddress::Tcp(local),
        address: peer.ip(),
        peer: Some(PeerAddress(peer)),
        identity,
        credentials: None,
    };
    let Some(certificates) = &shared.certificates else {
        return requests(stream, client(None), &shared, &place, stopped).await;
    };
    let handshake = handshake(stream, certificates);
    let shaken = select! {
        shaken = time::timeout(shared.limits.handshake_time, handshake) => shaken,
        _ = stopped.wait_for(|stop| *stop) => return,
        () = place.evicted() => return,
    };
    match shaken {
        Ok(Ok((stream, identity))) => {
            let client = client(Some(PeerIdentity(identity)));
            requests(stream, client, &shared, &place, stopped).await;
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS with a client"),
        Err(_) => tracing::debug!(%peer, "no TLS with a client: timeout"),
    }
}

/// Serves one connection over the Unix socket to its end.
pub async fn serve_local(
    stream: UnixStream,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
    place: ConnectionPlace,
) {
    let Ok(credentials) = stream.peer_cred() else {
        return;
    };
    let client = Client {
        arrival: ArrivalAddress::Unix,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        peer: None,
        identity: None,
        credentials: Some(PeerCredentials {
            uid: credentials.uid(),
            gid: credentials.gid(),
        }),
    };
    requests(stream, client, &shared, &place, stopped).await;
}

/// Performs the TLS handshake. Returns who the client is by its certificate, too.
async fn handshake(
    stream: TcpStream,
    certificates: &Certificates,
) -> io::Result<(TlsStream<TcpStream>, Option<Arc<CertificateIdentity>>)> {
    // A handshake begins with the byte 22 (RFC 8446 section 5.1), HTTP with a method.
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_uppercase() {
        let detail = "this port speaks HTTPS; write https:// in place of http://";
        turn_away(stream, ProblemType::BadRequest, detail);
        return Err(io::Error::other("it speaks plain HTTP"));
    }
    let config = certificates.current(Instant::now());
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let (_, session) = stream.get_ref();
    // It is verified: otherwise the handshake would have failed.
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let identity = certificate.and_then(CertificateIdentity::of);
    Ok((stream, identity.map(Arc::new)))
}

async fn requests<S>(
    stream: S,
    client: Client,
    shared: &Shared,
    place: &ConnectionPlace,
    mut stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let long = LongAnswer::default();
    let stop = StopSignal(stopped.clone());
    let service = service_fn(|mut request: Request<Incoming>| {
        let in_service = place.serve();
        let extensions = request.extensions_mut();
        extensions.insert(client.arrival);
        extensions.insert(long.clone());
        extensions.insert(stop.clone());
        client.peer.map(|peer| extensions.insert(peer));
        client.credentials.map(|peer| extensions.insert(peer));
        let identity = client.identity.clone();
        identity.map(|identity| extensions.insert(identity));
        let kind = RequestKind::of(request.uri().path());
        let admitted = shared.gate.admit(client.address, kind, Instant::now());
        // A connection may have arrived during the start.
        let (router, state) = shared.answers.now();
        async move {
            let standing = standing(state.as_ref(), &mut request).await;
            let is_operator = standing == RequestStanding::Operator;
            let answer = match admitted {
                _ if place.is_reserved() && standing == RequestStanding::Stranger => full(),
                Err(wait) if !is_operator => too_often(wait),
                _ => {
                    let router = TowerToHyperService::new(router);
                    answering(is_operator, router.call(request)).await?
                }
            };
            // The connection is not idle until the response has been written.
            Ok::<_, Infallible>(answer.map(|body| {
                body.map_err(move |error| {
                    let _in_service = &in_service;
                    error
                })
            }))
        }
    });
    let stream = WriteTimeout::new(stream, limits.write_time, limits.write_bytes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(limits.headers)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(8192) * 2)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let aged = select! {
        // A client that disconnected or violated the protocol is not logged.
        _ = connection.as_mut() => return,
        () = place.evicted() => return,
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

/// The response to requests without operator's rights on a reserved connection.
fn full() -> Response<Body> {
    let detail = "too many connections from this address; the rest are reserved for requests with \
        a valid token and health checks";
    let mut answer = problem(StatusCode::TOO_MANY_REQUESTS, detail);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
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

/// Responds without reading a request, and closes. As the request is not read, the response may be
/// lost.
pub fn turn_away(stream: TcpStream, kind: ProblemType, detail: &str) {
    let problem = body_of(kind, detail);
    let (status, title) = (problem.status, &problem.title);
    // Serializing strings and numbers does not fail.
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // The socket buffers of a new connection have space for it.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(answer.as_bytes());
    }
}
