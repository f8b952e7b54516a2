//! The thread and the listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::watch;
use tokio::{runtime, select, time};

use super::ask::Lanes;
use super::connection::{self, Shared};
use super::gate::Gate;
use super::places::Places;
use super::routes::{AdminState, router};

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

/// Serves the API on `listener`, on a thread of its own. The threads run where the one runs that
/// calls this.
///
/// # Errors
///
/// The listener cannot be made non-blocking, or there are no more threads or descriptors.
pub fn serve(listener: TcpListener, state: AdminState) -> io::Result<AdminHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    // One more for the change of the configuration that is under way.
    let blocking = (state.limits.questions + Lanes::HEALTH + 1) as usize;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking)
        .thread_name("millrace-ask")
        .build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let thread = thread::Builder::new()
        .name("millrace-admin".to_owned())
        .spawn(move || {
            let shared = Arc::new(Shared {
                limits: state.limits.clone(),
                gate: Gate::new(&state.limits),
                certificates: state.certificates.clone(),
                router: router(state),
            });
            runtime.block_on(accept(&listener, &shared, stopped));
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
    shared: &Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let limits = &shared.limits;
    let places = Places::new(limits.connections);
    loop {
        let next = async { Some((places.free().await?, listener.accept().await)) };
        let (free, accepted) = select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            next = next => match next {
                Some(next) => next,
                None => break,
            },
        };
        match accepted {
            Ok((stream, peer)) => match places.take(peer.ip(), free) {
                Some(place) => {
                    let shared = Arc::clone(shared);
                    let serve = connection::serve(stream, peer, shared, stopped.clone(), place);
                    tokio::spawn(serve);
                }
                None if shared.certificates.is_some() => {
                    tracing::debug!(%peer, "a client has its share of connections already");
                }
                None => {
                    let detail = "too many connections from this address; close some";
                    connection::turn_away(stream, StatusCode::TOO_MANY_REQUESTS, detail);
                }
            },
            Err(error) => {
                // Out of descriptors, most likely: others must close theirs first.
                tracing::warn!(%error, "the management plane cannot accept");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    if !places.empty(limits.drain_time * 2).await {
        tracing::warn!("the management plane ends with connections open");
    }
}
