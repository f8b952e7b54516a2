//! The thread, the listener and the bounds of connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::{runtime, select, time};

use super::auth::PeerAddress;
use super::long::LongAnswer;
use super::routes::{AdminState, router};

/// Bounds of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// Connections at once; more wait in the listener's backlog.
    pub connections: u32,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long a client may take to send them; also how long it may keep an idle connection.
    pub header_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long the service may take to answer.
    pub answer_time: Duration,
    /// How long a change of the configuration may take, and how long it may wait for its turn.
    pub change_time: Duration,
    /// How long a connection may live, however busy; a capture may take longer.
    pub connection_time: Duration,
    /// How long answers under way may take when a connection must end.
    pub drain_time: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            header_bytes: 16 * 1024,
            headers: 64,
            header_time: Duration::from_secs(30),
            body_bytes: 1 << 20,
            answer_time: Duration::from_secs(5),
            change_time: Duration::from_secs(60),
            connection_time: Duration::from_secs(600),
            drain_time: Duration::from_secs(5),
        }
    }
}

/// The running API; dropping it ends it, as [`AdminHandle::shutdown`] does.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminHandle {
    /// Where it listens; the port is the real one if any free port was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, finishes the answers under way within the drain time, and ends the thread.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the management plane's thread panicked");
        }
    }
}

/// Serves the API on `listener`, on a thread of its own.
///
/// # Errors
///
/// The listener cannot be made non-blocking, or there are no more threads or descriptors.
pub fn serve(listener: TcpListener, state: AdminState) -> io::Result<AdminHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_name("millrace-ask")
        .build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let thread = thread::Builder::new()
        .name("millrace-admin".to_owned())
        .spawn(move || {
            let limits = state.limits.clone();
            runtime.block_on(accept(&listener, &router(state), &limits, stopped));
            // A question that still waits for the service is left behind.
            runtime.shutdown_background();
        })?;
    Ok(AdminHandle {
        address,
        stop,
        thread: Some(thread),
    })
}

async fn accept(
    listener: &tokio::net::TcpListener,
    router: &Router,
    limits: &ApiLimits,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(limits.connections as usize));
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let (accepted, place) = select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            next = next => match next {
                Some(next) => next,
                None => break,
            },
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection(
                    stream,
                    PeerAddress(peer),
                    router.clone(),
                    limits.clone(),
                    stopped.clone(),
                    place,
                );
                tokio::spawn(connection);
            }
            Err(error) => {
                // Out of descriptors, most likely: others must close theirs first.
                tracing::warn!(%error, "the management plane cannot accept");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // All places free: all connections have ended.
    let all = places.acquire_many(limits.connections);
    if time::timeout(limits.drain_time * 2, all).await.is_err() {
        tracing::warn!("the management plane ends with connections open");
    }
}

async fn connection(
    stream: TcpStream,
    peer: PeerAddress,
    router: Router,
    limits: ApiLimits,
    mut stopped: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let router = TowerToHyperService::new(router);
    let long = LongAnswer::default();
    let allowed = long.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(allowed.clone());
        router.call(request)
    });
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
