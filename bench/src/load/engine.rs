//! Drives connections as fast as the server answers, from one thread.

mod prepare;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use millrace_mempool::Pool;
use millrace_reactor::await_work;
use millrace_reactor::fabric::{Event, Provider};
use millrace_wire::nfs3::FileHandle;

use super::calls::{Finished, LoadCall, judge, place_digits};
use super::cpu::{ServerCpu, Stopwatch};
use super::file_tree::FileTree;
use super::lane::{FileCount, Lanes, LoadLane, queue_pair};
use super::pattern::PatternChecker;
use super::progress::Progress;
use super::report::{BusySeconds, Measurement};
use super::workload::{IdlePolicy, NfsVersion, Operation, Until, Workload};
use crate::client::{Client, pool, spoken};
use crate::interrupt;
use crate::requester::session::{CopyOptions, Transfer};
use crate::requester::{Data, Repetition, RequesterState, Session};

const EVENTS: usize = 1024;
/// Connections that are set up at the same time: servers limit them.
const CONNECTING: usize = 128;
/// Turns between two looks at the progress.
const PROGRESS_TURNS: u32 = 1024;
/// The time in which each connection is looked at once.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Connections looked at together. There may be thousands, and a look at all of them would delay
/// calls by half a millisecond.
const CHECKED_TOGETHER: usize = 64;
/// Idle turns before the processor is offered to others.
const IDLE_TURNS: u32 = 64;

/// Connections, their files, and the provider that carries them.
pub struct Engine {
    client: Client,
    pool: Pool,
    provider: Box<dyn Provider>,
    lanes: Vec<LoadLane>,
    /// The lane of each queue pair, by its index.
    by_queue_pair: Vec<usize>,
    /// Lanes that may have something to send.
    due: Vec<usize>,
    /// The first ones, which loads are made on. The others are idle.
    loaded: usize,
    root: FileHandle,
    file_size: usize,
    /// Calls in flight on each connection at most.
    depth: usize,
    /// Further files, which LOOKUPs are for.
    tree: Option<FileTree>,
    /// The server's largest READ and WRITE, once it was asked.
    transfer: Option<Transfer>,
    events: Vec<Event>,
    finished: Vec<Finished>,
    scratch: Vec<u8>,
    /// Connections have stood for long enough to send their first messages.
    settled: bool,
    /// The connection that is looked at next.
    next_checked: usize,
    idle_policy: IdlePolicy,
}

impl Engine {
    /// Connects and writes a file for each connection.
    ///
    /// # Errors
    /// If the server cannot be reached or has no room.
    pub fn new(
        client: &Client,
        connections: usize,
        depth: usize,
        file_size: usize,
    ) -> Result<Self> {
        Self::speaking(client, NfsVersion::Three, connections, depth, file_size)
    }

    /// The same with loads of a version of NFS. Version 3 makes and removes the files in any case.
    ///
    /// # Errors
    /// The same, and if the server does not serve the version, or grants no such depth.
    pub fn speaking(
        client: &Client,
        nfs: NfsVersion,
        connections: usize,
        depth: usize,
        file_size: usize,
    ) -> Result<Self> {
        let lanes = Lanes {
            nfs,
            connections,
            idle: 0,
            depth,
            file_size,
            opens: 0,
            sparse: false,
            files: FileCount::default(),
        };
        Self::with(client, lanes)
    }

    /// The same with other connections and opens too.
    ///
    /// # Errors
    /// The same.
    pub fn with(client: &Client, lanes: Lanes) -> Result<Self> {
        let Lanes {
            connections,
            idle,
            depth,
            file_size,
            ..
        } = lanes;
        // Receives and messages are small; data of the largest size for each place, up to a bound
        // at which places of small size are still plenty.
        let data = (connections * depth * (1 << 20)).min(256 << 20);
        let control = (connections * (depth * 4 + 64) + idle * (4 + 64)) * 4096;
        let pool = pool(data + control + (64 << 20))?;
        let root = client.root()?;
        let mut engine = Self {
            client: client.clone(),
            pool,
            provider: client.provider()?,
            lanes: Vec::new(),
            by_queue_pair: Vec::new(),
            due: Vec::new(),
            loaded: lanes.all(),
            root,
            file_size,
            depth,
            tree: None,
            transfer: None,
            events: Vec::with_capacity(EVENTS),
            finished: Vec::with_capacity(EVENTS),
            scratch: vec![0; 2 << 20],
            settled: false,
            next_checked: 0,
            idle_policy: IdlePolicy::default(),
        };
        engine.prepare_files(lanes)?;
        if idle > 0 {
            // Servers close connections that never send anything.
            let once = Workload {
                until: Until::Count(engine.lanes.len() as u64),
                ..Workload::new(Operation::Getattr, 0, 1, Duration::ZERO)
            };
            engine.run(&once, &ServerCpu::default(), &mut |_| {})?;
            engine.loaded = connections;
        }
        Ok(engine)
    }

    /// Makes the files for LOOKUPs; fewer if the program is to end.
    ///
    /// # Errors
    /// If a call fails or a connection ends.
    pub fn fill(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let wanted = self.tree.as_ref().map_or(0, |tree| tree.wanted);
        let fill = Workload::counted(Operation::Fill, self.depth, wanted);
        let made = self.run(&fill, &ServerCpu::default(), progress)?.operations;
        if let Some(tree) = &mut self.tree {
            tree.files = made;
        }
        Ok(())
    }

    fn session(&self) -> Result<Session> {
        self.client.session(&self.pool, self.client.settings(32))
    }

    /// Waits until all connections stand so, at most for the client's timeout.
    fn wait(&mut self, wanted: fn(&RequesterState) -> bool) -> Result<()> {
        let start = Instant::now();
        while let Some(lane) = self
            .lanes
            .iter()
            .find(|lane| !wanted(lane.connection.state()))
        {
            if start.elapsed() > self.client.options.timeout {
                bail!("no connection: {}", lane.connection.state());
            }
            let now = Instant::now();
            if self.turn(now) == 0 {
                std::thread::yield_now();
            }
            self.check_some(now)?;
        }
        Ok(())
    }

    /// The number of the version of RPC-over-RDMA that the connections speak.
    #[must_use]
    pub fn version(&self) -> u32 {
        let first = self.lanes.first();
        first.map_or(0, |lane| spoken(&lane.connection))
    }

    /// What loads do from now on while nothing arrives.
    pub const fn set_idle_policy(&mut self, policy: IdlePolicy) {
        self.idle_policy = policy;
    }

    /// The file of the first connection.
    #[must_use]
    pub fn file(&self) -> Option<FileHandle> {
        self.lanes.first().map(|lane| lane.file.handle)
    }

    /// Removes the files and closes.
    ///
    /// # Errors
    /// If the server does not do it.
    pub fn finish(mut self) -> Result<()> {
        let files = self.tree.as_ref().map_or(0, |tree| tree.files);
        if files > 0 {
            let clear = Workload::counted(Operation::Clear, self.depth, files);
            self.run(&clear, &ServerCpu::default(), &mut |_| {})?;
        }
        let mut session = self.session()?;
        if let Some(tree) = &self.tree {
            tree.remove(&mut session, self.root)?;
        }
        for lane in &mut self.lanes {
            lane.file.remove(&mut session, self.root)?;
        }
        session.close();
        for lane in &mut self.lanes {
            lane.connection.close(self.provider.as_mut());
        }
        let start = Instant::now();
        while self
            .lanes
            .iter()
            .any(|lane| lane.connection.state() == &RequesterState::Ready)
            && start.elapsed() < Duration::from_secs(5)
        {
            if self.turn(Instant::now()) == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// One pass over the provider; the calls that ended are in `finished`.
    fn turn(&mut self, now: Instant) -> usize {
        self.receive(now) + self.send(now)
    }

    /// Takes what has arrived; the calls that ended are in `finished`.
    fn receive(&mut self, now: Instant) -> usize {
        let provider = self.provider.as_mut();
        let finished = &mut self.finished;
        let work = provider.poll(now, &mut self.events);
        for event in self.events.drain(..) {
            let Some(id) = queue_pair(&event) else {
                continue;
            };
            let Some(&index) = self.by_queue_pair.get(id.index as usize) else {
                continue;
            };
            let Some(lane) = self.lanes.get_mut(index) else {
                continue;
            };
            if lane.connection.queue_pair() != id {
                continue;
            }
            lane.becomes_due(index, &mut self.due);
            let places = &lane.places;
            lane.connection
                .handle(provider, event, now, &mut |completion| {
                    finished.push(judge(index, places, &completion));
                });
        }
        work
    }

    /// Sends submitted calls and pending messages.
    fn send(&mut self, now: Instant) -> usize {
        let provider = self.provider.as_mut();
        let finished = &mut self.finished;
        let mut work = 0;
        for index in self.due.drain(..) {
            let lane = &mut self.lanes[index];
            lane.is_due = false;
            if !self.settled {
                continue;
            }
            let places = &lane.places;
            work += lane.connection.pump(provider, &mut |completion| {
                finished.push(judge(index, places, &completion));
            });
        }
        work + provider.flush(now)
    }

    /// Makes one load and measures it.
    ///
    /// # Errors
    /// If a call fails or a connection ends.
    pub fn run(
        &mut self,
        workload: &Workload,
        server: &ServerCpu,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Measurement> {
        self.run_counted(workload, server, progress, &Progress::default())
    }

    /// The same, counting operations as they complete.
    ///
    /// # Errors
    /// If a call fails or a connection ends.
    pub fn run_counted(
        &mut self,
        workload: &Workload,
        server: &ServerCpu,
        progress: &mut dyn FnMut(u64),
        counted: &Progress,
    ) -> Result<Measurement> {
        let counted_before = counted.bytes();
        workload.check(self.file_size)?;
        self.check_size(workload)?;
        self.prepare_places(workload)?;
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let (mut operations, mut bytes, mut mismatches) = (0_u64, 0_u64, 0_u64);
        let most = match workload.until {
            Until::Time(_) => u64::MAX,
            Until::Count(count) => count,
        };
        let mut begun = 0_u64;
        let server_before = (server.seconds(), server.busy_seconds());
        let watch = Stopwatch::start();
        let start = Instant::now();
        for lane in 0..self.loaded {
            for place in 0..workload.depth {
                if begun < most {
                    self.begin(workload, lane, place, start)?;
                    begun += 1;
                }
            }
        }
        let (mut turns, mut idle) = (0_u32, 0_u32);
        let mut checked = start;
        let groups = self.lanes.len().div_ceil(CHECKED_TOGETHER).max(1);
        let check_interval = CHECK_INTERVAL / u32::try_from(groups).unwrap_or(u32::MAX);
        let (mut now, mut work, mut busy) = (start, 0, Duration::ZERO);
        while operations < begun {
            let turned = Instant::now();
            if work > 0 {
                busy += turned - now;
            }
            now = turned;
            work = self.receive(now);
            let stopping = workload.operation != Operation::Clear
                && (interrupt::is_asked_to_end()
                    || matches!(workload.until, Until::Time(time) if now - start >= time));
            let mut finished = std::mem::take(&mut self.finished);
            for Finished {
                lane,
                place,
                outcome,
            } in finished.drain(..)
            {
                let (count, good) = outcome?;
                let begun_at = self.lanes[lane].places[place].begun;
                let nanoseconds = (now - begun_at).as_nanos() as u64;
                latencies.saturating_record(nanoseconds);
                operations += 1;
                bytes += u64::from(count);
                mismatches += u64::from(!good || !self.verified(workload, lane, place));
                // What was made is removed.
                let is_owed = workload.operation == Operation::Create
                    && self.lanes[lane].places[place].call == LoadCall::Create;
                if is_owed || !stopping && begun < most {
                    self.begin(workload, lane, place, now)?;
                    begun += 1;
                }
            }
            self.finished = finished;
            // Calls that follow others leave in the same turn, in one batch.
            work += self.send(now);
            idle = if work == 0 { idle + 1 } else { 0 };
            if idle > IDLE_TURNS {
                idle = 0;
                if now - checked > check_interval {
                    checked = now;
                    self.check_some(now)?;
                }
                match self.idle_policy {
                    IdlePolicy::Yield => std::thread::yield_now(),
                    IdlePolicy::Spin => {}
                    IdlePolicy::Sleep => await_work(self.provider.as_mut(), check_interval),
                }
            }
            counted.set(counted_before + bytes);
            turns += 1;
            if turns.is_multiple_of(PROGRESS_TURNS) {
                progress(match workload.until {
                    Until::Time(_) => (now - start).as_millis() as u64,
                    Until::Count(_) => operations,
                });
            }
        }
        let elapsed = now - start;
        let since = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
        let cpu = (watch.seconds(), since(server_before.0, server.seconds()));
        let busy = BusySeconds {
            client: busy.as_secs_f64(),
            server: since(server_before.1, server.busy_seconds()),
        };
        if workload.verify && workload.operation != Operation::Read {
            mismatches += self.verify_files()?;
        }
        let totals = (operations, bytes, mismatches);
        Ok(Measurement::new(
            workload.name(),
            totals,
            elapsed,
            &latencies,
            cpu,
            busy,
        ))
    }

    /// Refuses calls that the server would refuse.
    fn check_size(&self, workload: &Workload) -> Result<()> {
        let Some(transfer) = self.transfer else {
            return Ok(());
        };
        let most = match workload.operation {
            operation if !operation.moves_data() => return Ok(()),
            Operation::Read => transfer.read_max,
            Operation::Write => transfer.write_max,
            _ => transfer.read_max.min(transfer.write_max),
        };
        if workload.size > most {
            bail!("--size: the server moves at most {most} bytes in a call");
        }
        Ok(())
    }

    /// Submits the next call of a place.
    fn begin(&mut self, workload: &Workload, lane: usize, at: usize, now: Instant) -> Result<()> {
        self.lanes[lane].becomes_due(lane, &mut self.due);
        let lane = &mut self.lanes[lane];
        let token = at as u64;
        lane.random ^= lane.random << 13;
        lane.random ^= lane.random >> 7;
        lane.random ^= lane.random << 17;
        let templates = lane.templates.as_ref().context("no load is prepared")?;
        let place = &mut lane.places[at];
        place.begun = now;
        let sequence = lane.file.session.as_mut().map(|session| session.next(at));
        let mut repetition = Repetition {
            token,
            arguments: [sequence.unwrap_or(0), 0],
            data: Data::None,
            sinks: &[],
        };
        if let (Some(tree), Some(call)) = (&self.tree, workload.operation.in_tree()) {
            let number = match call {
                LoadCall::Lookup => lane.random % tree.files.max(1),
                _ => lane.next,
            };
            lane.next += 1;
            place.call = call;
            let directory;
            (directory, repetition.arguments[0]) = tree.place(number);
            let template = &lane.in_tree[directory];
            lane.connection.repeat(template, &repetition, now)?;
            return Ok(());
        }
        let without_data = match workload.operation {
            Operation::Getattr => Some(LoadCall::Getattr),
            Operation::Lookup => Some(LoadCall::Lookup),
            Operation::Open => Some(LoadCall::Open),
            Operation::Create => {
                repetition.arguments[0] = u64::from_be_bytes(place_digits(at));
                Some(place.call.creating_or_removing())
            }
            _ => None,
        };
        if let Some(call) = without_data {
            place.call = call;
            repetition.arguments[1] = token;
            let template = templates.of(call);
            let template = template
                .context("--op open takes --nfs 4.1 or 4.2, and --op create takes --nfs 3")?;
            lane.connection.repeat(template, &repetition, now)?;
            return Ok(());
        }
        let blocks = (self.file_size / workload.size) as u64;
        let block = if workload.random {
            lane.random % blocks
        } else {
            lane.next += 1;
            (lane.next - 1) % blocks
        };
        place.offset = block * workload.size as u64;
        repetition.arguments[usize::from(sequence.is_some())] = place.offset;
        let writing = match workload.operation {
            Operation::Write => true,
            Operation::Mixed => (lane.random >> 40) % 10 < 3,
            _ => false,
        };
        let memory = std::slice::from_ref(&place.memory);
        let sinks = [memory];
        if writing {
            place.call = LoadCall::Write;
            if workload.verify || workload.operation == Operation::Mixed {
                let scratch = &mut self.scratch;
                lane.file
                    .pattern
                    .fill_slice(place.offset, &place.memory, scratch);
            }
            repetition.data = Data::One(memory);
        } else {
            place.call = LoadCall::Read;
            repetition.sinks = &sinks;
        }
        let template = templates.of(place.call).context("no load is prepared")?;
        lane.connection.repeat(template, &repetition, now)?;
        Ok(())
    }

    /// Whether a READ returned the expected content of the file.
    fn verified(&mut self, workload: &Workload, lane: usize, place: usize) -> bool {
        let lane = &self.lanes[lane];
        let place = &lane.places[place];
        if !workload.verify || place.call != LoadCall::Read {
            return true;
        }
        lane.file
            .pattern
            .holds(place.offset, &place.memory, &mut self.scratch)
    }

    /// Reads all files back; returns the number of files that differ.
    fn verify_files(&self) -> Result<u64> {
        let mut session = self.session()?;
        let mut wrong = 0;
        for lane in &self.lanes {
            let mut check = PatternChecker {
                pattern: lane.file.pattern,
                at: 0,
                same: true,
                scratch: Vec::new(),
            };
            let read = session.copy_out(lane.file.handle, &mut check, CopyOptions::default())?;
            wrong += u64::from(!check.same || read != self.file_size as u64);
        }
        session.close();
        Ok(wrong)
    }

    /// Looks at the next connections: whether they are alive, and their calls are in time.
    fn check_some(&mut self, now: Instant) -> Result<()> {
        let first = std::mem::take(&mut self.next_checked);
        let end = self.lanes.len().min(first + CHECKED_TOGETHER);
        if end < self.lanes.len() {
            self.next_checked = end;
        }
        for (index, lane) in self.lanes.iter_mut().enumerate().take(end).skip(first) {
            // Whatever it waited for.
            lane.becomes_due(index, &mut self.due);
            let finished = &mut self.finished;
            let places = &lane.places;
            lane.connection
                .expire(self.provider.as_mut(), now, &mut |completion| {
                    finished.push(judge(index, places, &completion));
                });
            if let RequesterState::Down(_)
            | RequesterState::Rejected
            | RequesterState::NoVersion(_) = lane.connection.state()
            {
                bail!("connection {index} ended: {}", lane.connection.state());
            }
        }
        Ok(())
    }
}
