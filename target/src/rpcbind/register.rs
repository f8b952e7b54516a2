//! Registration with a port mapper that runs on this host.
//!
//! Talking to it blocks, so it happens on a thread of its own, at the start, with changes of the
//! offers and at the end. A failure is a warning: clients that name their ports do not need the
//! port mapper.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_reactor::step_aside;
use millrace_wire::rpc::{
    Accepted, CallHeader, CallOutcome, Credential, OpaqueAuth, RecordMark, ReplyHeader,
};
use millrace_wire::rpcbind::{PORT, PROGRAM, RpcbindProcedure, universal_address};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

use super::offers::{Offer, Offers};
use super::responder::registration;

/// How long one step of the conversation may take.
const RPCBIND_STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the caller that replaces the offers waits for the outcome.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest reply that is read.
const REPLY_MAX: usize = 4096;

/// Where a port mapper is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// Its socket in the file system, over which it trusts the superuser.
    Local(PathBuf),
    /// An address of TCP, as a rule on the loopback interface.
    Tcp(SocketAddr),
}

impl Rendezvous {
    /// Where the port mapper of this host is met, best first.
    #[must_use]
    pub fn of_this_host() -> Vec<Self> {
        let local = |path| Self::Local(Path::new(path).to_owned());
        vec![
            local("/run/rpcbind.sock"),
            local("/var/run/rpcbind.sock"),
            Self::Tcp(SocketAddr::from(([127, 0, 0, 1], PORT))),
        ]
    }
}

/// Why an offer could not be registered.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("no port mapper answers")]
    Unreachable,
    #[error("talking to the port mapper failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the port mapper's answer makes no sense")]
    Answer,
    #[error("the port mapper refused")]
    Refused,
}

/// Offers that are registered as long as this value lives.
#[derive(Debug)]
pub struct Registration {
    orders: Option<Sender<RegistrationOrder>>,
    thread: Option<JoinHandle<()>>,
}

/// Offers that replace the registered ones, and the channel for the outcome.
#[derive(Debug)]
struct RegistrationOrder {
    offers: Offers,
    outcome: Sender<Result<(), String>>,
}

impl Registration {
    /// Begins to register the offers, on a thread of its own off the cores of reactors, at the
    /// first rendezvous that answers.
    ///
    /// # Errors
    /// If the thread cannot be made.
    pub fn start(
        rendezvous: Vec<Rendezvous>,
        offers: Offers,
        reactors: Vec<usize>,
    ) -> std::io::Result<Self> {
        let (orders, ordered) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("rpcbind".to_owned())
            .spawn(move || {
                if let Err(error) = step_aside(&reactors) {
                    tracing::warn!(%error, "registering may disturb reactors");
                }
                run(&rendezvous, &ordered);
            })?;
        let registration = Self {
            orders: Some(orders),
            thread: Some(thread),
        };
        registration.order(offers);
        Ok(registration)
    }

    /// Replaces the registered offers: unregisters the previous ones, and registers these. Waits
    /// for five seconds at most; the thread continues after that.
    ///
    /// # Errors
    /// Why not all of them are registered.
    pub fn replace(&self, offers: Offers) -> Result<(), String> {
        let outcome = self.order(offers).recv_timeout(REPLACE_TIMEOUT);
        outcome.unwrap_or_else(|_| {
            Err(format!(
                "it does not answer within {REPLACE_TIMEOUT:?}; the log will tell if it refuses"
            ))
        })
    }

    fn order(&self, offers: Offers) -> Receiver<Result<(), String>> {
        let (outcome, told) = mpsc::channel();
        if let Some(orders) = &self.orders {
            // A thread that has ended returns no outcome.
            let _ = orders.send(RegistrationOrder { offers, outcome });
        }
        told
    }
}

impl Drop for Registration {
    /// Takes the offers back, which takes a few times five seconds at worst.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that talks to the port mapper panicked");
        }
    }
}

fn run(rendezvous: &[Rendezvous], orders: &Receiver<RegistrationOrder>) {
    let mut registered = Vec::new();
    for RegistrationOrder { offers, outcome } in orders {
        take_back(rendezvous, &registered);
        let all = offers.iter().count();
        let result;
        (registered, result) = match Mapper::meet(rendezvous) {
            Ok(mut mapper) => {
                let taken = offers.iter().filter(|offer| mapper.register(offer));
                let taken: Vec<Offer> = taken.copied().collect();
                let missing = all - taken.len();
                let refused = format!("{missing} of {all} addresses are not registered");
                (taken, if missing == 0 { Ok(()) } else { Err(refused) })
            }
            Err(error) => {
                tracing::warn!(%error, "not registered: clients have to name their ports");
                (Vec::new(), Err(error.to_string()))
            }
        };
        // The caller may have stopped waiting.
        let _ = outcome.send(result);
    }
    take_back(rendezvous, &registered);
}

fn take_back(rendezvous: &[Rendezvous], registered: &[Offer]) {
    if registered.is_empty() {
        return;
    }
    match Mapper::meet(rendezvous) {
        Ok(mut mapper) => {
            for offer in registered {
                if let Err(error) = mapper.call(RpcbindProcedure::Unset, offer) {
                    tracing::warn!(%error, ?offer, "an offer was not taken off the register");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "offers were not taken off the register"),
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A conversation with a port mapper.
struct Mapper {
    stream: Box<dyn Stream>,
    xid: u32,
}

impl Mapper {
    fn meet(rendezvous: &[Rendezvous]) -> Result<Self, RegisterError> {
        let mut met = rendezvous
            .iter()
            .filter_map(|place| Self::connect(place).ok());
        met.next()
            .map(|stream| Self { stream, xid: 0 })
            .ok_or(RegisterError::Unreachable)
    }

    fn connect(place: &Rendezvous) -> std::io::Result<Box<dyn Stream>> {
        Ok(match place {
            Rendezvous::Local(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(RPCBIND_STEP_TIMEOUT))?;
                stream.set_write_timeout(Some(RPCBIND_STEP_TIMEOUT))?;
                Box::new(stream)
            }
            Rendezvous::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, RPCBIND_STEP_TIMEOUT)?;
                stream.set_read_timeout(Some(RPCBIND_STEP_TIMEOUT))?;
                stream.set_write_timeout(Some(RPCBIND_STEP_TIMEOUT))?;
                Box::new(stream)
            }
        })
    }

    /// Registers an offer; false, and a warning, if that failed.
    fn register(&mut self, offer: &Offer) -> bool {
        // Removes an entry of an earlier process, which would conflict. There may be none.
        let _ = self.call(RpcbindProcedure::Unset, offer);
        match self.call(RpcbindProcedure::Set, offer) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, ?offer, "an offer was not registered");
                false
            }
        }
    }

    /// Calls SET or UNSET of rpcbind version 4.
    fn call(&mut self, procedure: RpcbindProcedure, offer: &Offer) -> Result<(), RegisterError> {
        self.xid = self.xid.wrapping_add(1);
        let header = CallHeader {
            xid: self.xid,
            program: PROGRAM,
            version: 4,
            procedure: procedure.number(),
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        };
        let address = universal_address(offer.address);
        let mut bytes = [0; REPLY_MAX];
        let mut out = Encoder::new(&mut bytes[4..]);
        let encoded = header
            .encode(&mut out)
            .and_then(|()| registration(offer, &address).encode(&mut out));
        encoded.map_err(|_| RegisterError::Answer)?;
        let length = out.position();
        let mark = RecordMark::whole(length).ok_or(RegisterError::Answer)?;
        bytes[..4].copy_from_slice(&mark.to_bytes());
        self.stream.write_all(&bytes[..4 + length])?;

        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = RecordMark::from_bytes(mark);
        let reply = bytes.get_mut(..mark.length as usize).filter(|_| mark.last);
        let reply = reply.ok_or(RegisterError::Answer)?;
        self.stream.read_exact(reply)?;
        let mut input = Decoder::new(reply);
        let answer = ReplyHeader::decode(&mut input).map_err(|_| RegisterError::Answer)?;
        let CallOutcome::Accepted {
            status: Accepted::Success,
            ..
        } = answer.outcome
        else {
            return Err(RegisterError::Refused);
        };
        match input.bool() {
            Ok(true) if answer.xid == self.xid => Ok(()),
            Ok(false) => Err(RegisterError::Refused),
            _ => Err(RegisterError::Answer),
        }
    }
}
