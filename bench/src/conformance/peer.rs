//! A requester that sends any bytes, over the provider.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use millrace_mempool::{Class, Pool, Slice};
use millrace_reactor::fabric::chain::{Direction, RemoteSegment, transfer};
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_reactor::fabric::{
    Access, ConnectParameters, Ended, Event, Exposure, Key, Operation, PrivateData, Provider,
    QueuePairId, QueuePairLimits, ReadDepths, RemoteAddress, Slices, WorkError, WorkRequest,
};
use millrace_wire::private_data;
use millrace_wire::rpcrdma::{ReadSegment, Segment};

use super::verdict::{Stop, fail};

/// Token of the RDMA Read under way.
const FETCH: u64 = 1;

/// How the probe behaves towards a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeOptions {
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long to wait on a new connection before the first message.
    pub settle: Duration,
}

/// The parameters that a connection states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated {
    /// Inline limit in the private data, in bytes; none: no private data.
    pub inline: Option<usize>,
    pub invalidation: bool,
    /// Receives posted.
    pub receives: usize,
    /// RDMA Reads served at once.
    pub ird: u16,
}

impl Default for Stated {
    fn default() -> Self {
        Self {
            inline: Some(4096),
            invalidation: false,
            receives: 64,
            ird: 16,
        }
    }
}

/// Memory that the server may reach.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    exposure: Exposure,
    slice: Slice,
}

impl Memory {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.slice.len()];
        self.slice.copy_to(0, &mut bytes);
        bytes
    }

    pub fn key(&self) -> u32 {
        self.exposure.key.0
    }

    pub fn segment(&self, at: u64, length: u32) -> Segment {
        Segment {
            handle: self.exposure.key.0,
            length,
            offset: self.exposure.offset + at,
        }
    }

    pub fn whole(&self) -> Segment {
        self.segment(0, self.exposure.length)
    }

    /// Cut into consecutive segments.
    pub fn cut(&self, lengths: &[u32]) -> Vec<Segment> {
        let mut at = 0;
        let next = |&length: &u32| {
            let segment = self.segment(at, length);
            at += u64::from(length);
            segment
        };
        lengths.iter().map(next).collect()
    }
}

/// The entries of a read chunk.
pub(crate) fn entries(position: usize, segments: &[Segment]) -> Vec<ReadSegment> {
    let position = u32::try_from(position).unwrap_or(u32::MAX);
    let entry = |&segment: &Segment| ReadSegment { position, segment };
    segments.iter().map(entry).collect()
}

/// One connection.
pub(crate) struct Peer {
    provider: Box<dyn Provider>,
    queue_pair: QueuePairId,
    pool: Pool,
    received: VecDeque<Vec<u8>>,
    /// Keys that the server invalidated.
    pub invalidated: Vec<Key>,
    /// The result of the last RDMA Read.
    fetched: Option<Result<(), WorkError>>,
    /// The server's private data.
    pub private_data: PrivateData,
    pub depths: ReadDepths,
    established: bool,
    pub ended: Option<String>,
    options: ProbeOptions,
}

impl Peer {
    pub fn connect(
        address: SocketAddr,
        pool: &Pool,
        stated: Stated,
        options: ProbeOptions,
    ) -> Result<Self, Stop> {
        let mut peer = Self::open(address, pool, stated, options).map_err(trouble)?;
        let deadline = Instant::now() + options.timeout;
        while !peer.established {
            if let Some(ended) = &peer.ended {
                return Err(fail(format!(
                    "the connection did not come to stand: {ended}"
                )));
            }
            if !peer.turn() && Instant::now() >= deadline {
                return Err(fail("the connection did not come to stand in time"));
            }
        }
        let settled = Instant::now() + options.settle;
        while Instant::now() < settled {
            peer.turn();
        }
        Ok(peer)
    }

    fn open(
        address: SocketAddr,
        pool: &Pool,
        stated: Stated,
        options: ProbeOptions,
    ) -> anyhow::Result<Self> {
        let mut provider: Box<dyn Provider> = Box::new(Iwarp::new(IwarpConfig {
            connect_wait: options.timeout,
            reply_wait: options.timeout,
            ..IwarpConfig::default()
        })?);
        // Large enough for version two, whatever is stated.
        let size = stated.inline.unwrap_or(4096).max(4096);
        let private_data = stated.inline.map(|size| private_data::PrivateData {
            remote_invalidation: stated.invalidation,
            send_size: size,
            receive_size: size,
        });
        let limits = QueuePairLimits {
            send_depth: 512,
            receive_depth: 512,
            ird: stated.ird,
            ord: 16,
            exposures: 256,
            receive_size: u32::try_from(size)?,
        };
        let parameters = ConnectParameters {
            limits,
            private_data: private_data
                .iter()
                .flat_map(private_data::PrivateData::to_bytes)
                .collect(),
        };
        let queue_pair = provider.connect(address, parameters, Instant::now())?;
        for _ in 0..stated.receives {
            let class = Class::for_size(size).context("no such buffers")?;
            let buffer = pool.try_acquire(class).context("no memory")?;
            let posted = provider.post_receive(queue_pair, buffer);
            posted.map_err(|(error, _)| error)?;
        }
        Ok(Self {
            provider,
            queue_pair,
            pool: pool.clone(),
            received: VecDeque::new(),
            invalidated: Vec::new(),
            fetched: None,
            private_data: PrivateData::new(),
            depths: ReadDepths::default(),
            established: false,
            ended: None,
            options,
        })
    }

    /// One turn. Whether there was anything to do; if not, a moment has passed.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let mut events = Vec::with_capacity(16);
        let work = self.provider.poll(now, &mut events) + self.provider.flush(now);
        for event in events {
            self.handle(event);
        }
        if work == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        work > 0
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Established {
                private_data,
                depths,
                ..
            } => {
                self.established = true;
                self.private_data = private_data;
                self.depths = depths;
            }
            Event::Received {
                buffer,
                length,
                invalidated,
                ..
            } => {
                self.received.push_back(buffer[..length as usize].to_vec());
                self.invalidated.extend(invalidated);
                // The connection may have ended meanwhile.
                let _ = self.provider.post_receive(self.queue_pair, buffer);
            }
            Event::Completed {
                token: FETCH,
                result,
                ..
            } => {
                // The first outcome is the cause of those that follow.
                self.fetched.get_or_insert(result);
            }
            Event::Disconnected { reason, .. } => self.ended = Some(ending(&reason)),
            Event::Rejected { .. } => self.ended = Some("rejected by the peer".to_owned()),
            _ => {}
        }
    }

    /// Sends a message.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let posted = self.post(bytes).map_err(trouble);
        if let (Err(_), Some(ended)) = (&posted, &self.ended) {
            return Err(fail(format!("the connection has ended: {ended}")));
        }
        posted
    }

    fn post(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let class = Class::for_size(bytes.len().max(1)).context("no such buffers")?;
        let mut buffer = self.pool.try_acquire(class).context("no memory")?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        let local = (!bytes.is_empty()).then(|| buffer.into_slice(0..bytes.len()));
        let send = Operation::Send {
            invalidate: None,
            solicited: false,
        };
        let mut chain = vec![WorkRequest {
            token: 0,
            operation: send,
            local: local.into_iter().collect(),
            signalled: false,
        }];
        Ok(self.provider.post(self.queue_pair, &mut chain)?)
    }

    /// Reads memory of the server's. The inner error is the server's refusal.
    pub fn fetch(&mut self, segment: &Segment) -> Result<Result<Vec<u8>, WorkError>, Stop> {
        let length = segment.length as usize;
        let buffer = Class::for_size(length).and_then(|class| self.pool.try_acquire(class));
        let buffer = buffer.ok_or_else(|| fail("the probe has no memory"))?;
        let remote = RemoteSegment {
            address: RemoteAddress {
                key: Key(segment.handle),
                offset: segment.offset,
            },
            length: segment.length,
        };
        self.fetched = None;
        let sink = buffer.into_slice(0..length);
        let mut chain = Vec::new();
        let direction = Direction::FromPeer { slices: 1 };
        transfer(direction, std::slice::from_ref(&sink), [remote], &mut chain);
        for request in &mut chain {
            request.token = FETCH;
        }
        match chain.last_mut() {
            Some(last) => last.signalled = true,
            None => return Ok(Ok(Vec::new())),
        }
        let posted = self.provider.post(self.queue_pair, &mut chain);
        posted.map_err(|error| trouble(error.into()))?;
        let deadline = Instant::now() + self.options.timeout;
        loop {
            if let Some(fetched) = self.fetched.take() {
                let mut bytes = vec![0; length];
                sink.copy_to(0, &mut bytes);
                return Ok(fetched.map(|()| bytes));
            }
            if !self.turn() && Instant::now() >= deadline {
                return Err(fail("an RDMA Read of the server's memory brought nothing"));
            }
        }
    }

    /// The next message of the server.
    pub fn answer(&mut self) -> Result<Vec<u8>, Stop> {
        let deadline = Instant::now() + self.options.timeout;
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(message);
            }
            if let Some(ended) = &self.ended {
                return Err(fail(format!("no answer, the connection ended: {ended}")));
            }
            if !self.turn() && Instant::now() >= deadline {
                let waited = self.options.timeout.as_secs_f32();
                return Err(fail(format!("no answer within {waited} s")));
            }
        }
    }

    /// Sends a message and takes its answer.
    pub fn exchange(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Stop> {
        self.send(bytes)?;
        self.answer()
    }

    /// Memory that the server may read.
    pub fn source(&mut self, bytes: &[u8]) -> Result<Memory, Stop> {
        let memory = self.expose(bytes.len(), Access::RemoteRead)?;
        memory.slice.copy_from(0, bytes);
        Ok(memory)
    }

    /// Memory that the server may write, filled with 0xee.
    pub fn sink(&mut self, length: usize) -> Result<Memory, Stop> {
        let memory = self.expose(length, Access::RemoteWrite)?;
        memory.slice.copy_from(0, &vec![0xee; length]);
        Ok(memory)
    }

    fn expose(&mut self, length: usize, access: Access) -> Result<Memory, Stop> {
        let buffer = Class::for_size(length).and_then(|class| self.pool.try_acquire(class));
        let buffer = buffer.ok_or_else(|| fail("the probe has no memory"))?;
        let slice = buffer.into_slice(0..length);
        let local: Slices = std::iter::once(slice.clone()).collect();
        let exposed = self.provider.expose(self.queue_pair, local, access);
        let exposure = exposed.map_err(|(error, _)| trouble(error.into()))?;
        Ok(Memory { exposure, slice })
    }

    /// The server's private data.
    pub fn terms(&self) -> Option<private_data::PrivateData> {
        private_data::PrivateData::find(&self.private_data)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.provider.abort(self.queue_pair);
        self.turn();
    }
}

fn ending(reason: &Ended) -> String {
    reason.to_string()
}

/// Trouble of the probe's own.
fn trouble(error: anyhow::Error) -> Stop {
    fail(format!("{:#}", anyhow!(error)))
}
