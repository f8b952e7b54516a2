//! The network that a test runs over.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millrace_mempool::{HugepagePolicy, Registry};

use super::Rest;
use super::ledger::{Ledger, LedgerName, count};
use super::wrapper::Wrapper;
use crate::fabric::loopback::{Loopback, Network};
#[cfg(feature = "verbs")]
use crate::fabric::verbs::Devices;
use crate::fabric::{
    ConnectParameters, Event, ListenerId, PostError, Provider, QueuePairId, QueuePairLimits,
    Revoked, WorkRequest,
};

/// Selects the fabric of tests that run on any.
const VARIABLE: &str = "MILLRACE_TEST_FABRIC";

/// The fabric of tests that run on any.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The loopback network, in the test's virtual time.
    Loopback,
    /// The loopback network in real time, with this latency: it simulates devices.
    Delayed(Duration),
    /// The device at this address.
    Verbs(Ipv4Addr),
}

static CHOICE: LazyLock<Choice> = LazyLock::new(|| {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Choice::Loopback;
    };
    let chosen = match text.split_once(':') {
        None if text == "loopback" => Some(Choice::Loopback),
        Some(("delayed", time)) => {
            let time = time.parse().ok();
            time.map(|time| Choice::Delayed(Duration::from_micros(time)))
        }
        Some(("verbs", address)) => address.parse().ok().map(Choice::Verbs),
        _ => None,
    };
    chosen.unwrap_or_else(|| {
        panic!(
            "{VARIABLE}={text}: expected `loopback`, `delayed:` and microseconds, or `verbs:` and \
             an IPv4 address"
        )
    })
});

/// Memory for a test, registered with all devices if tests use any.
pub fn registry() -> Registry {
    if !matches!(*CHOICE, Choice::Verbs(_)) {
        return Registry::new(HugepagePolicy::Off);
    }
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY
        .get_or_init(|| Registry::new(HugepagePolicy::Off))
        .clone()
}

/// Prints the fabric of a test, once, if the environment selects it.
fn tell(fabric: &'static str) {
    static TOLD: Mutex<Option<HashSet<(String, &str)>>> = Mutex::new(None);
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told
        .get_or_insert_default()
        .insert((test.to_owned(), fabric))
    {
        // Not by a macro, whose output the test harness captures.
        let _ = writeln!(io::stderr(), "over {fabric}: {test}");
    }
}

thread_local! {
    static HERE: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// A loopback network for a test that needs its features: every [`Wire`] of this thread is this
/// network, until the guard is dropped.
#[must_use]
pub fn loopback() -> Here {
    let network = Network::new();
    HERE.set(Some(network.clone()));
    Here { network }
}

/// The same, with deferred revocations, as on fabrics that invalidate keys by a work request.
#[must_use]
pub fn deferring() -> Here {
    let here = loopback();
    here.set_defer_revocations(true);
    here
}

/// The guard of [`loopback`], and its network.
#[derive(Debug)]
pub struct Here {
    network: Network,
}

impl Deref for Here {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireEnd(LedgerName);

/// The network of one test, on one thread. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Wire {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Loopback(Network),
    Device(Rc<Device>),
}

/// A network in real time.
#[derive(Debug)]
struct Device {
    address: Ipv4Addr,
    /// The network that simulates devices.
    delayed: Option<Network>,
    ledger: RefCell<Ledger>,
    providers: Cell<usize>,
}

impl Wire {
    /// The network of [`loopback`], if requested; else that of the environment; else a new loopback
    /// network.
    ///
    /// # Panics
    /// If the environment requests an unavailable fabric.
    pub fn new() -> Self {
        let (address, delayed) = match (HERE.with_borrow(Clone::clone), *CHOICE) {
            (Some(network), _) => return network.into(),
            (None, Choice::Loopback) => return Network::new().into(),
            (None, Choice::Verbs(address)) => {
                tell("verbs");
                (address, None)
            }
            (None, Choice::Delayed(time)) => {
                tell("delayed loopback");
                let network = Network::new();
                network.set_latency(time);
                (Ipv4Addr::LOCALHOST, Some(network))
            }
        };
        let device = Device {
            address,
            delayed,
            ledger: RefCell::default(),
            providers: Cell::new(0),
        };
        let kind = Kind::Device(Rc::new(device));
        Self { kind }
    }

    /// A new provider.
    pub fn provider(&self) -> Wired {
        self.provider_at(Ipv4Addr::LOCALHOST)
    }

    /// A new provider whose connections come from [`Wire::source`] of this address.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn provider_at(&self, address: Ipv4Addr) -> Wired {
        match &self.kind {
            Kind::Loopback(network) => Wired {
                inner: Inner::Loopback(network.provider_at(address)),
            },
            Kind::Device(device) => {
                let number = device.providers.get();
                device.providers.set(number + 1);
                let source = self.source(address);
                let inner = match &device.delayed {
                    Some(network) => Box::new(network.provider_at(source)),
                    None => open(source),
                };
                let device = Rc::clone(device);
                Wired {
                    inner: Inner::Device(OnDevice {
                        inner,
                        device,
                        number,
                    }),
                }
            }
        }
    }

    /// The address used for this one. On a device the loopback address becomes the device's own,
    /// and all others one whose last byte is from 100 to 199 in its /24 network, which must be
    /// configured on the device.
    pub fn source(&self, address: Ipv4Addr) -> Ipv4Addr {
        match &self.kind {
            Kind::Loopback(_) => address,
            Kind::Device(device) if device.delayed.is_some() => address,
            Kind::Device(device) if address == Ipv4Addr::LOCALHOST => device.address,
            Kind::Device(device) => {
                let ([a, b, c, _], [.., host]) = (device.address.octets(), address.octets());
                Ipv4Addr::new(a, b, c, 100 + host % 100)
            }
        }
    }

    /// Whether time is real.
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    /// Starts waiting for the idle state, which must be reached within `rounds` rounds with work.
    pub fn rest(&self, rounds: usize) -> Rest {
        Rest::new(self.clone(), rounds)
    }

    /// Whether work is in flight between the providers, if that differs from their having work to
    /// do.
    pub(super) fn is_busy(&self) -> Option<bool> {
        match &self.kind {
            Kind::Loopback(_) => None,
            Kind::Device(device) => Some(device.ledger.borrow().is_busy()),
        }
    }

    /// Queue pairs that have not ended.
    pub fn queue_pairs(&self) -> usize {
        match &self.kind {
            Kind::Loopback(network) => network.queue_pairs(),
            Kind::Device(device) => device.ledger.borrow().queue_pairs(),
        }
    }

    /// On devices: the other end of an established connection that `provider` requested, while both
    /// ends exist.
    pub fn other_end(&self, provider: &Wired, queue_pair: QueuePairId) -> Option<WireEnd> {
        match &provider.inner {
            Inner::Loopback(_) => None,
            Inner::Device(it) => {
                let ledger = it.device.ledger.borrow();
                ledger.other_end((it.number, queue_pair)).map(WireEnd)
            }
        }
    }

    /// On devices: whether an end of a connection still exists.
    pub fn lives(&self, end: WireEnd) -> bool {
        match &self.kind {
            Kind::Loopback(_) => false,
            Kind::Device(device) => device.ledger.borrow().lives(end.0),
        }
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Network> for Wire {
    fn from(network: Network) -> Self {
        tell("loopback");
        Self {
            kind: Kind::Loopback(network),
        }
    }
}

/// The devices that use [`registry`], and an address of one, if the environment selects them.
///
/// # Panics
/// If there are none.
#[cfg(feature = "verbs")]
pub fn devices() -> Option<(Devices, Ipv4Addr)> {
    static DEVICES: OnceLock<Devices> = OnceLock::new();
    let Choice::Verbs(address) = *CHOICE else {
        return None;
    };
    tell("verbs");
    let devices = DEVICES.get_or_init(|| {
        Devices::open(&registry()).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
    });
    Some((devices.clone(), address))
}

/// A provider on the devices of this machine, whose connections come from `source`.
#[cfg(feature = "verbs")]
fn open(source: Ipv4Addr) -> Box<dyn Provider> {
    use crate::fabric::verbs::{Verbs, VerbsConfig};

    let (devices, _) = devices().expect("asked for");
    let config = VerbsConfig {
        source: Some(source.into()),
        ..VerbsConfig::default()
    };
    let provider = Verbs::new(&devices, config);
    Box::new(provider.unwrap_or_else(|error| panic!("{VARIABLE}: {error}")))
}

#[cfg(not(feature = "verbs"))]
fn open(_: Ipv4Addr) -> Box<dyn Provider> {
    panic!("{VARIABLE} asks for RDMA devices, and this was built without the feature `verbs`")
}

/// A provider on a [`Wire`].
pub struct Wired {
    inner: Inner,
}

enum Inner {
    Loopback(Loopback),
    Device(OnDevice),
}

impl Wrapper for Wired {
    fn inner(&self) -> &dyn Provider {
        match &self.inner {
            Inner::Loopback(provider) => provider,
            Inner::Device(provider) => provider,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Provider {
        match &mut self.inner {
            Inner::Loopback(provider) => provider,
            Inner::Device(provider) => provider,
        }
    }
}

impl fmt::Debug for Wired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Wired")
            .field("fabric", &Wrapper::name(self))
            .finish_non_exhaustive()
    }
}

/// A provider that uses real time, whatever time its owner passes, so that owners may use a manual
/// clock; it also keeps the ledger.
struct OnDevice {
    inner: Box<dyn Provider>,
    device: Rc<Device>,
    number: usize,
}

impl OnDevice {
    fn name(&self, queue_pair: QueuePairId) -> LedgerName {
        (self.number, queue_pair)
    }

    fn note(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.device.ledger.borrow_mut());
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.note(|ledger| ledger.forget_all(self.number));
    }
}

impl Wrapper for OnDevice {
    fn inner(&self) -> &dyn Provider {
        self.inner.as_ref()
    }

    fn inner_mut(&mut self) -> &mut dyn Provider {
        self.inner.as_mut()
    }

    /// Simulated devices have the limits of real ones.
    fn exposure_slices(&self) -> usize {
        let most = self.inner.exposure_slices();
        match self.device.delayed {
            Some(_) => most.min(1),
            None => most,
        }
    }

    /// The same for Reads; the simplest devices (siw) support one range.
    fn read_slices(&self, queue_pair: QueuePairId) -> usize {
        let most = self.inner.read_slices(queue_pair);
        match self.device.delayed {
            Some(_) => most.min(1),
            None => most,
        }
    }

    fn listen(
        &mut self,
        mut address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        if address.ip().is_loopback() {
            address.set_ip(IpAddr::V4(self.device.address));
        }
        self.inner.listen(address, limits, hand_over)
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        _: Instant,
    ) -> io::Result<QueuePairId> {
        let queue_pair = self.inner.connect(address, parameters, Instant::now())?;
        self.note(|ledger| ledger.connects(self.name(queue_pair)));
        Ok(queue_pair)
    }

    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError> {
        self.inner.accept(queue_pair, parameters)?;
        self.note(|ledger| ledger.accepts(self.name(queue_pair)));
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        self.inner.reject(queue_pair, private_data);
        self.note(|ledger| ledger.forget(self.name(queue_pair)));
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let posted = count(chain);
        self.inner.post(queue_pair, chain)?;
        self.note(|ledger| ledger.posted(self.name(queue_pair), posted));
        Ok(())
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: crate::fabric::Key) -> Revoked {
        let revoked = self.inner.revoke(queue_pair, key);
        if matches!(revoked, Revoked::Later) {
            self.note(|ledger| ledger.revokes(self.name(queue_pair)));
        }
        revoked
    }

    fn close(&mut self, queue_pair: QueuePairId) {
        self.inner.close(queue_pair);
        self.note(|ledger| ledger.ends(self.name(queue_pair)));
    }

    fn abort(&mut self, queue_pair: QueuePairId) {
        self.inner.abort(queue_pair);
        self.note(|ledger| ledger.ends(self.name(queue_pair)));
    }

    fn poll(&mut self, _: Instant, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let work = self.inner.poll(Instant::now(), events);
        for event in &events[before..] {
            self.note(|ledger| ledger.note(self.number, event));
            if let Event::Established { queue_pair, .. } = event {
                let address = self.inner.local_address(*queue_pair);
                self.note(|ledger| ledger.stands_at(self.name(*queue_pair), address));
            }
        }
        work
    }

    fn flush(&mut self, _: Instant) -> usize {
        self.inner.flush(Instant::now())
    }

    /// Its deadlines are in another time than its owner's, which must poll continuously.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
