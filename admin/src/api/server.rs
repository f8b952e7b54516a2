//! The API's thread and listeners.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_primitives::Counter;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::{runtime, select, time};

use super::concurrency::ConcurrencyLimits;
use super::connection::{self, Shared};
use super::context::AdminState;
use super::figures;
use super::gate::Gate;
use super::limits::ApiLimits;
use super::places::ConnectionPlaces;
use super::socket::AdminSocket;
use super::starting::{Answers, Stage};
use super::tls::Certificates;
use crate::metrics::{Families, MetricsSource, catalogue};
use crate::status::ProblemType;

/// Connections that wait for a place, for at most the timeout of an answer.
const WAITING: usize = 64;

/// How long accepting pauses without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The shortest interval between log lines about that.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// The running API; dropping it stops it, as [`AdminHandle::shutdown`] does.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    pauses: Arc<AcceptPauses>,
}

impl AdminHandle {
    /// Its address; with the actual port if the configured one is 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, finishes responses within the drain time, and ends the thread.
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

/// Serves the API on `listener`, on a thread of its own. The threads inherit the cores of the
/// calling thread.
///
/// # Errors
///
/// The listener cannot be made non-blocking, or threads or descriptors are exhausted.
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

/// The API during the start of the service; dropping it stops it.
pub struct StartingAdmin {
    handle: AdminHandle,
    answers: Answers,
}

impl StartingAdmin {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.handle.address()
    }

    /// Switches to serving everything from this state, after the start. Limits and certificates
    /// stay those of the start.
    pub fn serve(self, state: AdminState) -> AdminHandle {
        let pauses = Arc::clone(&self.handle.pauses);
        state.metrics.register(pauses as _);
        self.answers.serve(state);
        self.handle
    }
}

/// As [`serve_with_socket`], for a service that is starting: reports that the process is alive, and
/// the `stage` of the start.
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
    // One more for the change of the configuration in progress.
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
                let accepting = async {
                    tokio::join!(accept(&listener, &shared, &counted, stopped), local);
                };
                tokio::select! {
                    () = accepting => {}
                    () = figures::note_intervals(&shared.answers) => {}
                }
            });
            // A question still waiting for the service is abandoned.
            runtime.shutdown_background();
        })?;
    Ok(AdminHandle {
        address,
        stop,
        thread: Some(thread),
        pauses,
    })
}

/// Counts pauses of accepting.
#[derive(Debug, Default)]
struct AcceptPauses {
    count: Counter,
}

impl AcceptPauses {
    /// Waits before accepting again. `logged` is the time of the last log line.
    async fn wait(&self, error: &io::Error, logged: &mut Option<time::Instant>) {
        // Most likely out of descriptors: other connections must be closed first.
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

/// The same on the Unix socket, which has its own limit.
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

/// There is no place, and none became free in time.
fn turn_away(stream: TcpStream, peer: SocketAddr, shared: &Shared) {
    match shared.certificates {
        Some(_) => tracing::debug!(%peer, "a client has reached its share of connections"),
        None => {
            let detail = "too many connections from this address; close some";
            connection::turn_away(stream, ProblemType::TooMany, detail);
        }
    }
}

/// Serves a connection. The data it has sent already is processed before the next one is accepted,
/// so that a flood of connections does not evict it first.
async fn begin(serve: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(serve);
    tokio::task::yield_now().await;
}

async fn end(places: &Arc<ConnectionPlaces>, shared: &Shared) {
    if !places.empty(shared.limits.drain_time * 2).await {
        tracing::warn!("the management plane ends with connections open");
    }
}
