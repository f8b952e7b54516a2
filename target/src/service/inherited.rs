//! Listening sockets of the process before this one, which the service manager kept open meanwhile:
//! clients that connect during a restart wait instead of being refused.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_admin::config::{Config, Fabric, Provider};
use rustix::net::sockopt;

/// TCP sockets that already listen. Each is taken once; those that nobody takes are closed with the
/// last clone.
#[derive(Clone, Debug, Default)]
pub struct InheritedListeners {
    left: Arc<Mutex<Vec<TcpListener>>>,
}

impl InheritedListeners {
    /// The listening ones of these sockets. Others are closed.
    #[must_use]
    pub fn new(sockets: impl IntoIterator<Item = OwnedFd>) -> Self {
        let listens = |socket: &OwnedFd| sockopt::socket_acceptconn(socket) == Ok(true);
        let sockets = sockets.into_iter().filter(listens).map(TcpListener::from);
        Self {
            left: Arc::new(Mutex::new(sockets.collect())),
        }
    }

    /// Those that nobody has taken.
    #[must_use]
    pub fn count(&self) -> usize {
        self.left().len()
    }

    /// Whether one listens at this address.
    #[must_use]
    pub fn has(&self, address: SocketAddr) -> bool {
        self.left().iter().any(|one| is_at(one, address))
    }

    /// The one that listens at this address.
    #[must_use]
    pub fn take(&self, address: SocketAddr) -> Option<TcpListener> {
        let mut left = self.left();
        let at = left.iter().position(|one| is_at(one, address))?;
        Some(left.swap_remove(at))
    }

    /// Those at addresses that this configuration does not want.
    #[must_use]
    pub fn take_unwanted(&self, config: &Config) -> Vec<TcpListener> {
        let iwarp = |fabric: &&Fabric| fabric.provider == Provider::Iwarp;
        let fabrics = config.fabric.iter().filter(iwarp);
        let mut wanted: Vec<_> = fabrics.map(|fabric| fabric.listen).collect();
        wanted.push(config.rpc.listen);
        let is_unwanted = |one: &mut TcpListener| !wanted.iter().any(|at| is_at(one, *at));
        self.left().extract_if(.., is_unwanted).collect()
    }

    fn left(&self) -> MutexGuard<'_, Vec<TcpListener>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_at(socket: &TcpListener, address: SocketAddr) -> bool {
    socket.local_addr().is_ok_and(|bound| bound == address)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_listener_is_taken_once_and_by_its_address_only() {
        let [one, two] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [first, second] = [&one, &two].map(|socket| socket.local_addr().unwrap());
        let client = TcpStream::connect(first).unwrap();
        let connected = OwnedFd::from(client.try_clone().unwrap());
        let inherited = InheritedListeners::new([one.into(), connected, two.into()]);
        assert_eq!(inherited.count(), 2);
        assert!(!inherited.has(client.local_addr().unwrap()));
        assert!(inherited.has(second));
        let taken = inherited.clone().take(second).expect("it is there");
        assert_eq!(taken.local_addr().unwrap(), second);
        assert!(!inherited.has(second) && inherited.take(second).is_none());
        // The connection that waited is accepted.
        let taken = inherited.take(first).expect("it is there");
        assert_eq!(taken.accept().unwrap().1, client.local_addr().unwrap());
    }
}
