//! The port mapper inside this process, on TCP and UDP.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_mempool::{Class, Pool};
use millrace_reactor::{Alarm, Clock};

use super::offers::Offers;
use super::responder::{Asker, respond};
use crate::call::{Answer, Bulk, Call, Reply, Serve};
use crate::flow::Flow;
use crate::rpc::Transport;
use crate::tcp::{TcpConfig, TcpServer};
use crate::transfer::TransferLimits;

/// Longest datagram that is processed or sent.
const DATAGRAM_MAX: usize = 2048;

/// Datagrams answered in one turn.
const BURST: usize = 16;

/// Least time between two looks at the socket for datagrams.
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// Answers of the port mapper for transports.
#[derive(Clone)]
struct Responder {
    offers: Rc<RefCell<Offers>>,
}

impl Serve for Responder {
    async fn serve<B: Bulk>(&self, call: Call<'_>, _: &mut B, reply: &mut Reply) -> Answer {
        let asker = Asker {
            address: call.connection.address(),
            stream: true,
        };
        match respond(&self.offers.borrow(), asker, call.message, reply.room()) {
            Some(length) => {
                reply.set_length(length);
                Answer::Send
            }
            None => Answer::Silent,
        }
    }
}

/// The port mapper of this process.
pub struct RpcbindServer {
    tcp: TcpServer<Responder>,
    udp: UdpSocket,
    offers: Rc<RefCell<Offers>>,
    polled: Option<Instant>,
    address: SocketAddr,
}

impl RpcbindServer {
    /// Listens at an address (port 111 by rights) on TCP and UDP, and answers with the offers and
    /// itself.
    ///
    /// # Errors
    /// If a socket cannot be bound: often another port mapper runs, which the service can register
    /// with.
    pub fn new(
        address: SocketAddr,
        mut offers: Offers,
        pool: &Pool,
        alarm: Option<&Alarm>,
    ) -> std::io::Result<Self> {
        let shared = Rc::new(RefCell::new(Offers::default()));
        let config = TcpConfig {
            connections: 64,
            calls_per_connection: 4,
            calls: 8,
            bytes: 1 << 20,
            idle_deadline: Duration::from_secs(30),
            record_deadline: Duration::from_secs(5),
            transfers: TransferLimits {
                least: 4096,
                window: Duration::from_secs(5),
            },
            ..TcpConfig::default()
        };
        let responder = Responder {
            offers: shared.clone(),
        };
        let clock = Clock::new(Instant::now());
        let flow = Flow::of_one_reactor(pool, Class::Control, &clock);
        let mut tcp = TcpServer::new(config, pool, responder, &flow, alarm)?;
        // Where the system chooses the port, it is the same for both.
        let address = tcp.listen(address)?;
        let udp = UdpSocket::bind(address)?;
        udp.set_nonblocking(true)?;
        offers.add_rpcbind(address, address);
        *shared.borrow_mut() = offers;
        Ok(Self {
            tcp,
            udp,
            offers: shared,
            polled: None,
            address,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with other offers from now on, and itself.
    pub fn replace_offers(&self, offers: &Offers) {
        let mut offers = offers.clone();
        offers.add_rpcbind(self.address, self.address);
        *self.offers.borrow_mut() = offers;
    }

    /// Answers what has come. Returns the amount of work done (0: idle).
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut work = self.tcp.poll(now);
        if self
            .polled
            .is_none_or(|polled| now.saturating_duration_since(polled) >= POLL_PAUSE)
        {
            self.polled = Some(now);
            work += self.poll_datagrams();
        }
        work
    }

    fn poll_datagrams(&self) -> usize {
        let mut question = [0; DATAGRAM_MAX];
        let mut answer = [0; DATAGRAM_MAX];
        for count in 0..BURST {
            let (length, peer) = match self.udp.recv_from(&mut question) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
                // An earlier answer could not be delivered; nothing to do about it here.
                Err(_) => continue,
            };
            let asker = Asker {
                address: peer.ip().to_canonical(),
                stream: false,
            };
            let offers = self.offers.borrow();
            if let Some(length) = respond(&offers, asker, &question[..length], &mut answer) {
                // A full socket loses the answer, as the network might.
                let _ = self.udp.send_to(&answer[..length], peer);
            }
        }
        BURST
    }

    /// Descriptors to sleep on.
    pub fn descriptors(&self, list: &mut Vec<RawFd>) {
        self.tcp.descriptors(list);
        list.push(self.udp.as_raw_fd());
    }

    /// The next instant at which [`RpcbindServer::poll`] has deadlines to look at.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.tcp.next_deadline()
    }
}
