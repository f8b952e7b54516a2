//! The thread and the listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::http::StatusCode;
use millrace_primitives::Counter;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::{runtime, select, time};

use super::concurrency::ConcurrencyLimits;
use super::connection::{self, Shared};
use super::context::AdminState;
use super::gate::Gate;
use super::limits::ApiLimits;
use super::places::ConnectionPlaces;
use super::socket::AdminSocket;
use super::starting::{Answers, Stage};
use super::tls::Certificates;
use crate::metrics::{Families, MetricsSource, catalogue};

/// Connections that wait, for the time of an answer, until a place is free.
const WAITING: usize = 64;

/// How long accepting waits for descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Least time between two lines in the log about it.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// The running API; dropping it ends it, as [`AdminHandle::shutdown`] does.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    pauses: Arc<AcceptPauses>,
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

/// Serves the API on `listener`, on a thread of its own. The threads run where the one runs that
/// calls this.
///
/// # Errors
///
/// The listener cannot be made non-blocking, or there are no more threads or descriptors.
pub fn serve(listener: TcpListener, state: AdminState) -> io::Result<AdminHandle> {
    serve_with_socket(listener, None, state)
}

/// As [`serve`], also on a Unix socket, in plain HTTP.
///
/// # Errors
///
/// Those of [`serve`].
pub fn serve_with_socket(
    listener: TcpListener,
    socket: Option<AdminSocket>,
    state: AdminState,
) -> io::Result<AdminHandle> {
    let (limits, certificates) = (state.limits.clone(), state.certificates.clone());
    let metrics = state.metrics.clone();
    let answers = Answers::of_service(state);
    let handle = listen(listener, socket, limits, certificates, answers)?;
    metrics.register(Arc::clone(&handle.pauses) as _);
    Ok(handle)
}

/// The API of a service that starts; dropping it ends it.
pub struct StartingAdmin {
    handle: AdminHandle,
    answers: Answers,
}

impl StartingAdmin {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.handle.address()
    }

    /// The service has started: from now on everything is answered, from this state. Its limits and
    /// certificates are those of the start, whatever it says.
    pub fn serve(self, state: AdminState) -> AdminHandle {
        let pauses = Arc::clone(&self.handle.pauses);
        state.metrics.register(pauses as _);
        self.answers.serve(state);
        self.handle
    }
}

/// As [`serve_with_socket`], for a service that has yet to start: says that the process lives, and
/// by `stage` what it does.
///
/// # Errors
///
/// As those of [`serve`].
pub fn serve_start(
    listener: TcpListener,
    socket: Option<AdminSocket>,
    certificates: Option<Arc<Certificates>>,
    stage: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<StartingAdmin> {
    let answers = Answers::of_start(&(Arc::new(stage) as Stage));
    let handle = listen(
        listener,
        socket,
        ApiLimits::default(),
        certificates,
        answers.clone(),
    )?;
    Ok(StartingAdmin { handle, answers })
}

fn listen(
    listener: TcpListener,
    socket: Option<AdminSocket>,
    limits: ApiLimits,
    certificates: Option<Arc<Certificates>>,
    answers: Answers,
) -> io::Result<AdminHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    // One more for the change of the configuration that is under way.
    let reserved =
        ConcurrencyLimits::HEALTH + ConcurrencyLimits::OPERATOR + ConcurrencyLimits::TOKENS;
    let blocking = (limits.questions + reserved + 1) as usize;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking)
        .thread_name("millrace-ask")
        .build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let pauses = Arc::<AcceptPauses>::default();
    let counted = Arc::clone(&pauses);
    let thread = thread::Builder::new()
        .name("millrace-admin".to_owned())
        .spawn(move || {
            let shared = Arc::new(Shared {
                gate: Gate::new(&limits),
                limits,
                certificates,
                answers,
            });
            runtime.block_on(async {
                let local = accept_local(socket, &shared, &counted, stopped.clone());
                tokio::join!(accept(&listener, &shared, &counted, stopped), local);
            });
            // A question that still waits for the service is left behind.
            runtime.shutdown_background();
        })?;
    Ok(AdminHandle {
        address,
        stop,
        thread: Some(thread),
        pauses,
    })
}

/// Times that accepting had to wait.
#[derive(Debug, Default)]
struct AcceptPauses {
    count: Counter,
}

impl AcceptPauses {
    /// Waits until it is worth while to accept again. `logged` is when that was said last.
    async fn wait(&self, error: &io::Error, logged: &mut Option<time::Instant>) {
        // Out of descriptors, most likely: others must close theirs first.
        self.count.increment();
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_PAUSE) {
            tracing::warn!(%error, "the management plane cannot accept");
            *logged = Some(time::Instant::now());
        }
        time::sleep(ACCEPT_PAUSE).await;
    }
}

impl MetricsSource for AcceptPauses {
    fn collect(&self, out: &mut Families) {
        out.number(&catalogue::ACCEPT_PAUSES, &["admin"], self.count.get());
    }
}

async fn accept(
    listener: &tokio::net::TcpListener,
    shared: &Arc<Shared>,
    pauses: &AcceptPauses,
    mut stopped: watch::Receiver<bool>,
) {
    let places = ConnectionPlaces::new(shared.limits.connections);
    let waiting = Arc::new(Semaphore::new(WAITING));
    let mut logged = None;
    loop {
        let accepted = select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match places.take(peer.ip()) {
                Some(place) => {
                    let shared = Arc::clone(shared);
                    let serve = connection::serve(stream, peer, shared, stopped.clone(), place);
                    begin(serve).await;
                }
                None => {
                    let Ok(waiting) = Arc::clone(&waiting).try_acquire_owned() else {
                        turn_away(stream, peer, shared);
                        continue;
                    };
                    let (shared, places) = (Arc::clone(shared), Arc::clone(&places));
                    let stopped = stopped.clone();
                    tokio::spawn(async move {
                        let place = places.take_soon(peer.ip());
                        let place = time::timeout(shared.limits.answer_time, place).await;
                        drop(waiting);
                        match place {
                            Ok(place) => {
                                connection::serve(stream, peer, shared, stopped, place).await;
                            }
                            Err(_) => turn_away(stream, peer, &shared),
                        }
                    });
                }
            },
            Err(error) => pauses.wait(&error, &mut logged).await,
        }
    }
    end(&places, shared).await;
}

/// The same on the Unix socket, which has places of its own.
async fn accept_local(
    socket: Option<AdminSocket>,
    shared: &Arc<Shared>,
    pauses: &AcceptPauses,
    mut stopped: watch::Receiver<bool>,
) {
    let Some(socket) = socket else { return };
    let listener = socket.listener.try_clone();
    let listener = match listener.and_then(tokio::net::UnixListener::from_std) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "admin.socket: cannot be served"),
    };
    let places = ConnectionPlaces::new(shared.limits.connections);
    let mut logged = None;
    loop {
        let accepted = select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // A connection without a place is closed.
                if let Some(place) = places.take(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
                    let shared = Arc::clone(shared);
                    begin(connection::serve_local(
                        stream,
                        shared,
                        stopped.clone(),
                        place,
                    ))
                    .await;
                }
            }
            Err(error) => pauses.wait(&error, &mut logged).await,
        }
    }
    end(&places, shared).await;
}

/// There is no place, and none will be soon.
fn turn_away(stream: TcpStream, peer: SocketAddr, shared: &Shared) {
    match shared.certificates {
        Some(_) => tracing::debug!(%peer, "a client has its share of connections already"),
        None => {
            let detail = "too many connections from this address; close some";
            connection::turn_away(stream, StatusCode::TOO_MANY_REQUESTS, detail);
        }
    }
}

/// Serves a connection. What it has sent already is looked at before the next one is accepted, so
/// that no flood of connections takes its place away before.
async fn begin(serve: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(serve);
    tokio::task::yield_now().await;
}

async fn end(places: &Arc<ConnectionPlaces>, shared: &Shared) {
    if !places.empty(shared.limits.drain_time * 2).await {
        tracing::warn!("the management plane ends with connections open");
    }
}
