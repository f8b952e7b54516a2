//! Tests of the layers below the provider, on a real device.
//!
//! They connect two queue pairs of this process over the device with the address of
//! `MILLRACE_TEST_FABRIC` (`verbs:ADDRESS`), by default 10.0.2.15, that of the guests of
//! `bench/kernel-client/in-guest`.

mod exposures;
mod requests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};

use super::counters::VerbsCounters;
use super::device::Device;
use super::devices::{Devices, DevicesError};
use super::exposures::{Ending, Exposures};
use super::keys::KeyCache;
use super::sys::{
    Completion, CompletionBatch, CompletionQueue, ConnectionEvent, ConnectionEventKind,
    ConnectionId, ConnectionParameters, EventChannel, PostFailed, QueuePair, QueuePairSetup,
    QueuePairState, Range, ReceiveList, SendKind, SendList, SendRequest, Status,
};
use super::windows::Windows;
use crate::fabric::{Access, Exposure, Key, Slices};

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Identifiers of the receive, and of the request in flight.
const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

fn address() -> IpAddr {
    millrace_testing::rdma_device().expect("asked before")
}

/// False, recorded as skipped, if this machine has no RDMA device.
fn has_device() -> bool {
    let device = millrace_testing::rdma_device();
    device
        .inspect_err(|reason| millrace_testing::skip!("{reason}"))
        .is_ok()
}

/// One end of a connection, with a receive posted that is `inbox`.
struct Side {
    // Dropped in this order: destroying a queue pair waits for its bound windows.
    exposures: Exposures,
    queue_pair: QueuePair,
    id: ConnectionId,
    channel: Arc<EventChannel>,
    queue: Arc<CompletionQueue>,
    completions: CompletionBatch,
    keys: KeyCache,
    windows: Windows,
    counters: Arc<VerbsCounters>,
    device: Arc<Device>,
    inbox: Slice,
}

/// Memory, the devices, and two ends on one of them.
struct Pair {
    asks: Side,
    serves: Side,
    devices: Devices,
    pool: Pool,
}

fn event(channel: &Arc<EventChannel>, wanted: &[ConnectionEventKind]) -> ConnectionEvent {
    let mut scratch = Vec::new();
    loop {
        if let Some(event) = channel.next().expect("a channel that works") {
            assert!(wanted.contains(&event.kind), "{event:?}");
            return event;
        }
        crate::sleep::until_readable(&[channel.descriptor()], &mut scratch, None);
    }
}

impl Side {
    fn new(devices: &Devices, channel: &Arc<EventChannel>, id: ConnectionId, pool: &Pool) -> Self {
        let name = id.device_name().expect("on a device by now");
        let device = devices.by_name(&name).expect("in use");
        let queue = CompletionQueue::new(device.context(), 64, None, 0).expect("a queue");
        let setup = QueuePairSetup {
            send_queue: &queue,
            receive_queue: &queue,
            shared: None,
            send_depth: 16,
            receive_depth: 4,
            send_ranges: 1,
            inline: 64,
        };
        let queue_pair = QueuePair::new(device.protection_domain(), setup).expect("a queue pair");
        let counters = Arc::default();
        let mut side = Self {
            id,
            channel: Arc::clone(channel),
            keys: KeyCache::new(&device),
            windows: Windows::new(&device, &counters).expect("random numbers"),
            exposures: Exposures::new(8),
            completions: CompletionBatch::new(),
            inbox: memory(pool, 0),
            queue_pair,
            queue,
            counters,
            device,
        };
        side.raise(QueuePairState::Init);
        let mut list = ReceiveList::with_capacity(1);
        let inbox = side.inbox.clone();
        list.push(RECEIVE, side.range(&inbox));
        // SAFETY: the side holds the slice to its end; slices give no references to their bytes.
        unsafe { side.queue_pair.post_receive(&mut list) }.expect("room");
        side
    }

    fn raise(&self, state: QueuePairState) {
        let mut attributes = self.id.queue_pair_attributes(state).expect("known");
        attributes.set_remote_access(true, true);
        self.queue_pair.modify(&attributes).expect("a good state");
    }

    fn parameters(&self) -> ConnectionParameters<'static> {
        ConnectionParameters {
            private_data: &[],
            responder_resources: 4,
            initiator_depth: 4,
            retry_count: 7,
            rnr_retry_count: 7,
            queue_pair: self.queue_pair.number(),
            shared_receive: false,
        }
    }

    fn range(&mut self, slice: &Slice) -> Range {
        let key = self.keys.local_key(slice.region()).expect("registered");
        Range::of_slice(slice, key)
    }

    /// A completion of the receive, or of the only request.
    fn look(&mut self, id: u64) -> Option<Completion> {
        self.queue
            .poll(&mut self.completions)
            .expect("a good queue");
        let all = (0..self.completions.len()).map(|index| self.completions.get(index));
        all.into_iter().find(|completion| completion.id == id)
    }

    fn completed(&mut self, id: u64) -> Completion {
        loop {
            if let Some(completion) = self.look(id) {
                return completion;
            }
            std::thread::yield_now();
        }
    }

    /// Posts a request among several.
    fn begin(&mut self, kind: SendKind<'_>, slice: &Slice) {
        let range = self.range(slice);
        try_to_post(&self.queue_pair, kind, Some(range)).expect("room");
    }

    /// Waits until this many requests have succeeded.
    fn finish(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            self.queue
                .poll(&mut self.completions)
                .expect("a good queue");
            for index in 0..self.completions.len() {
                let completion = self.completions.get(index);
                assert_eq!(
                    (completion.id, completion.status),
                    (REQUEST, Status::Success)
                );
                left -= 1;
            }
            std::thread::yield_now();
        }
    }

    /// Whether the connection ends, shown by a request that would succeed on an intact one, after
    /// all requests before it.
    fn is_cut_off(&mut self, kind: SendKind<'_>, slice: &Slice) -> bool {
        let range = self.range(slice);
        if try_to_post(&self.queue_pair, kind, Some(range)).is_err() {
            return true;
        }
        // Not every device flushes requests posted after the end.
        loop {
            if let Some(completion) = self.look(REQUEST) {
                return completion.status != Status::Success;
            }
            match self.channel.next().expect("a channel that works") {
                Some(event) if event.kind == ConnectionEventKind::Disconnected => return true,
                Some(_) | None => std::thread::yield_now(),
            }
        }
    }

    /// Executes one request.
    fn carry_out(&mut self, kind: SendKind<'_>, slice: Option<&Slice>) -> Status {
        let range = slice.map(|slice| self.range(slice));
        try_to_post(&self.queue_pair, kind, range).expect("room");
        self.completed(REQUEST).status
    }

    /// Exposes a slice and makes it accessible to the peer.
    fn expose(&mut self, slice: &Slice, access: Access) -> Exposure {
        let local: Slices = std::iter::once(slice.clone()).collect();
        let exposed = self
            .exposures
            .expose(local, access, &mut self.windows, &mut self.keys);
        let (exposure, slot) = exposed.expect("room");
        assert_eq!(slot.is_some(), self.windows.are_there());
        if let Some(slot) = slot {
            let binding = self.exposures.binding(slot).expect("a window");
            try_to_post(&self.queue_pair, binding, None).expect("room");
            assert_eq!(self.completed(REQUEST).status, Status::Success, "bound");
        }
        exposure
    }

    /// Ends an exposure; returns its memory.
    fn revoke(&mut self, key: Key) -> Slices {
        match self.exposures.revoke(key, &mut self.windows) {
            Ending::Now(memory) => memory,
            Ending::Unknown => panic!("it was exposed"),
            Ending::Request(slot) => {
                let ending = self.exposures.ending(slot).expect("a window");
                assert_eq!(self.carry_out(ending, None), Status::Success, "ended");
                let ended = self.exposures.ended(slot, &mut self.windows);
                let (ended, memory) = ended.expect("it was ending");
                assert_eq!(ended, key);
                memory
            }
        }
    }
}

fn try_to_post(
    queue_pair: &QueuePair,
    kind: SendKind<'_>,
    range: Option<Range>,
) -> Result<(), PostFailed> {
    let mut list = SendList::with_capacity(1, 1);
    let request = SendRequest {
        id: REQUEST,
        kind,
        signalled: true,
        inline: false,
        solicited: false,
        fence: false,
    };
    list.push(request, range);
    // SAFETY: each test holds the windows, regions and slices that it posts until its requests have
    // ended; slices give no references to their bytes.
    unsafe { queue_pair.post_send(&mut list) }
}

/// 4 KiB of this byte.
fn memory(pool: &Pool, byte: u8) -> Slice {
    let mut buffer = pool.try_acquire(Class::Control).expect("memory");
    buffer.fill(byte);
    let length = buffer.capacity().min(4096);
    buffer.into_slice(0..length)
}

/// Opens the devices.
type Open = fn(&Registry) -> Result<Devices, DevicesError>;

/// As the service does, and with all windows.
const WAYS: [Open; 2] = [Devices::open, Devices::open_trusting_windows];

impl Pair {
    fn new(open: Open) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
        let devices = open(&registry).expect("a device");
        let [here, there] = [(); 2].map(|()| EventChannel::new().expect("a manager"));
        let listener = ConnectionId::new(&there, 1).expect("an identifier");
        listener.bind(SocketAddr::new(address(), 0)).expect("ours");
        listener.listen(1).expect("to listen");
        let to = listener.local_address().expect("bound");

        let id = ConnectionId::new(&here, 2).expect("an identifier");
        id.resolve_address(None, to, RESOLVE_TIMEOUT)
            .expect("begun");
        event(&here, &[ConnectionEventKind::AddressResolved]);
        id.resolve_route(RESOLVE_TIMEOUT).expect("begun");
        event(&here, &[ConnectionEventKind::RouteResolved]);
        let asks = Side::new(&devices, &here, id, &pool);
        asks.id.connect(&asks.parameters()).expect("begun");

        let request = event(&there, &[ConnectionEventKind::ConnectRequest]);
        assert_eq!(request.token, 1);
        let id = request.new.expect("a connection");
        let serves = Side::new(&devices, &there, id, &pool);
        serves.raise(QueuePairState::ReadyToReceive);
        serves.raise(QueuePairState::ReadyToSend);
        serves.id.accept(&serves.parameters()).expect("accepted");

        let kinds = [
            ConnectionEventKind::ConnectResponse,
            ConnectionEventKind::Established,
        ];
        if event(&here, &kinds).kind == ConnectionEventKind::ConnectResponse {
            asks.raise(QueuePairState::ReadyToReceive);
            asks.raise(QueuePairState::ReadyToSend);
            asks.id.establish().expect("up");
        }
        event(&there, &[ConnectionEventKind::Established]);
        Self {
            asks,
            serves,
            devices,
            pool,
        }
    }
}
