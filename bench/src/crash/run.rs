//! The run: load, the server's end, its restart, and the inspection.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use millrace_mempool::Pool;
use millrace_wire::nfs3::{CreateHow, FileHandle, SetAttributes, WriteVerifier};

use super::inspect::{self, Found, PROBE};
use super::lane::{Flight, Lane};
use super::mix::Mix;
use super::mutant::Mutant;
use super::operation::{CrashAnswer, CrashOperation, with_mode};
use super::random::Random;
use super::server::{self, Server};
use super::tree::{Directory, Meaning, Tree};
use crate::client::{Client, pool};
use crate::requester::Session;

/// Memory of all clients.
const MEMORY: usize = 96 << 20;

/// Time for calls that are sent again, and for connections to end.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The run's own folder in the export.
const BASE: &[u8] = b"crash";

/// What happened to calls that were sent again with the same XID after a kill, and that may not be
/// done twice.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Resent {
    /// They had not been done, and were done now.
    pub done_now: u64,
    /// They had been done, and the original answer was returned.
    pub remembered: u64,
    /// They had been done, and the server refused to do them twice, as it had forgotten them.
    pub forgotten: u64,
    /// Told to come later.
    pub delayed: u64,
    /// Calls that may be done twice.
    pub idempotent: u64,
}

/// What was done and found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Sums {
    /// Ends by SIGKILL, or by the user's command.
    pub kills: u64,
    /// Ends in order.
    pub stops: u64,
    /// Calls that were answered, by procedure.
    pub answered: BTreeMap<&'static str, u64>,
    /// Calls answered with NFS3ERR_JUKEBOX.
    pub delayed: u64,
    /// Calls about names without an answer: those that had been done, and those that had not.
    pub unanswered: [u64; 2],
    /// Calls of data and attributes without an answer.
    pub unanswered_data: u64,
    /// Calls that were sent again.
    pub resent: Resent,
    /// The results of the inspections.
    pub found: Found,
    /// Longest time from a new start until the first answer, in milliseconds.
    pub longest_start_ms: u64,
}

/// How a run goes.
pub struct CrashPlan {
    /// Where logs and everything else are.
    pub folder: PathBuf,
    /// Clients over RDMA; one more speaks TCP.
    pub clients: usize,
    /// Calls in flight of each.
    pub depth: usize,
    /// Longest time of load before an end.
    pub load: Duration,
    /// So many ends of a hundred are in order.
    pub stops: u64,
    /// Whether answers have to be remembered over a kill.
    pub remembers: bool,
    /// The damage to make while the server is down.
    pub mutant: Option<Mutant>,
}

/// A run.
pub struct CrashRun {
    plan: CrashPlan,
    server: Server,
    client: Client,
    pool: Pool,
    random: Random,
    tree: Tree,
    lanes: Vec<Lane>,
    mixes: Vec<Mix>,
    /// Calls on connections that ended, with their client.
    lost: Vec<(usize, Flight)>,
    root: FileHandle,
    base: FileHandle,
    probe: FileHandle,
    verifier: WriteVerifier,
    journal: BufWriter<File>,
    /// What was done and found.
    pub sums: Sums,
}

impl CrashRun {
    /// Makes folders and connections on a server that runs.
    ///
    /// # Errors
    /// The server's.
    pub fn new(
        plan: CrashPlan,
        server: Server,
        client: Client,
        nfs: std::net::SocketAddr,
        seed: u64,
    ) -> Result<Self> {
        let mut random = Random::new(seed);
        let pool = pool(MEMORY)?;
        let root = client.root()?;
        let mut session = client.session(&pool, client.settings(1))?;
        let handle = |session: &mut Session, at, name: &[u8]| -> Result<FileHandle> {
            let mode = with_mode(0o755);
            session
                .mkdir(at, name, mode)
                .context("cannot make a folder")?;
            Ok(session.lookup(at, name)?.object)
        };
        let base = handle(&mut session, root, BASE)?;
        let mut tree = Tree::default();
        for number in 0..=2 * (plan.clients + 1) {
            let name = format!("d{number}");
            tree.directories.push(Directory {
                handle: handle(&mut session, base, name.as_bytes())?,
                name,
                names: BTreeMap::new(),
            });
        }
        session.create(base, PROBE, CreateHow::Guarded(SetAttributes::default()))?;
        let probe = session.lookup(base, PROBE)?.object;
        let verifier = session.commit(probe, 0, 0)?.verifier;
        session.close();
        let mut lanes = Vec::new();
        for number in 0..plan.clients {
            lanes.push(Lane::rdma(&client, &pool, plan.depth, number % 2 == 1)?);
        }
        let first = random.next() as u32;
        lanes.push(Lane::tcp(&client, nfs, &pool, plan.depth, first)?);
        let mixes = (0..lanes.len()).map(|client| Mix::new(client, Random::new(random.next())));
        let journal = BufWriter::new(File::create(plan.folder.join("journal.log"))?);
        Ok(Self {
            mixes: mixes.collect(),
            plan,
            server,
            client,
            pool,
            random,
            tree,
            lanes,
            lost: Vec::new(),
            root,
            base,
            probe,
            verifier,
            journal,
            sums: Sums::default(),
        })
    }

    /// One cycle: load, end, start, and a look at everything.
    ///
    /// # Errors
    /// The first thing that must not be.
    pub fn cycle(&mut self, number: u64) -> Result<()> {
        let most = self.plan.load.as_millis() as u64;
        let time = Duration::from_millis(self.random.between(most / 20, most));
        let in_order =
            matches!(self.server, Server::Own(_)) && self.random.percent(self.plan.stops);
        writeln!(
            self.journal,
            "cycle {number}: {time:?}, in order: {in_order}"
        )?;
        let start = Instant::now();
        while start.elapsed() < time {
            self.work()?;
        }
        if in_order {
            self.stop()?;
        } else {
            self.kill()?;
        }
        if let (Some(mutant), Server::Own(_)) = (self.plan.mutant, &self.server) {
            let root = self.plan.folder.join("export");
            let base = root.join(String::from_utf8_lossy(BASE).as_ref());
            if mutant.strike(&self.tree, &base, &self.plan.folder)? {
                writeln!(self.journal, "mutant: {mutant:?}")?;
            }
        }
        let back = Instant::now();
        if let Server::Own(own) = &mut self.server {
            own.start()?;
        }
        self.verify(in_order, back)?;
        self.journal.flush()?;
        Ok(())
    }

    /// One turn of all clients under load.
    fn work(&mut self) -> Result<()> {
        for index in 0..self.lanes.len() {
            while self.lanes[index].is_up() && self.lanes[index].in_flight() < self.plan.depth {
                let Some(operation) = self.mixes[index].next(&mut self.tree) else {
                    break;
                };
                writeln!(self.journal, "{index} > {operation:?}")?;
                self.tree.begin(&operation, index);
                self.lanes[index].submit(operation, &self.tree)?;
            }
            self.turn(index)?;
        }
        if let Server::Own(own) = &mut self.server {
            own.check()?;
        }
        Ok(())
    }

    /// One turn of one client.
    fn turn(&mut self, index: usize) -> Result<()> {
        let mut ended = Vec::new();
        self.lanes[index].turn(&mut ended);
        for (flight, answer) in ended {
            if matches!(answer, CrashAnswer::Lost) {
                self.lost.push((index, flight));
                continue;
            }
            self.take(index, &flight, &answer)?;
        }
        Ok(())
    }

    /// Takes an answer.
    fn take(&mut self, index: usize, flight: &Flight, answer: &CrashAnswer) -> Result<()> {
        let Flight {
            operation, again, ..
        } = flight;
        match answer {
            CrashAnswer::Data(data) => {
                writeln!(
                    self.journal,
                    "{index} < {operation:?}: {} bytes",
                    data.len()
                )?;
            }
            answer => writeln!(self.journal, "{index} < {operation:?}: {answer:?}")?,
        }
        let meaning = self.tree.answered(operation, answer, *again);
        let meaning = meaning.map_err(|why| {
            let name = self.lanes[index].name();
            let when = if again.is_some() { ", sent again" } else { "" };
            anyhow::anyhow!("client {index} ({name}): {operation:?}{when}: {why}")
        })?;
        let name = operation.procedure().name();
        *self.sums.answered.entry(name).or_default() += 1;
        let resent = &mut self.sums.resent;
        match (again, meaning) {
            (None, Meaning::Delayed) => self.sums.delayed += 1,
            (None, _) => {}
            (Some(_), Meaning::Delayed) => resent.delayed += 1,
            (Some(_), _) if operation.done_before().is_none() => resent.idempotent += 1,
            (Some(false), _) => resent.done_now += 1,
            (Some(true), Meaning::Done) => resent.remembered += 1,
            (Some(true), Meaning::DoneBefore) => {
                resent.forgotten += 1;
                ensure!(
                    !self.plan.remembers,
                    "{operation:?} was done, and sent again with the same XID, and refused"
                );
            }
        }
        Ok(())
    }

    /// Kills the server in the middle of everything.
    fn kill(&mut self) -> Result<()> {
        self.sums.kills += 1;
        match &mut self.server {
            Server::Own(own) => own.kill()?,
            Server::Foreign { crash } => {
                server::run(crash, &self.plan.folder.join("commands.log"))?;
            }
        }
        self.drain()
    }

    /// Has the server end in order, under load.
    fn stop(&mut self) -> Result<()> {
        self.sums.stops += 1;
        let start = Instant::now();
        if let Server::Own(own) = &self.server {
            own.ask_to_end();
        }
        while let Server::Own(own) = &mut self.server {
            if own.has_ended()? {
                break;
            }
            let timeout = own.timeout();
            if start.elapsed() > timeout {
                bail!("the server did not end within {timeout:?} of SIGTERM");
            }
            for index in 0..self.lanes.len() {
                if self.lanes[index].is_up() {
                    self.turn(index)?;
                }
            }
        }
        self.drain()
    }

    /// Takes what arrived before the end.
    fn drain(&mut self) -> Result<()> {
        let start = Instant::now();
        for index in 0..self.lanes.len() {
            while self.lanes[index].is_up() {
                self.turn(index)?;
                ensure!(
                    start.elapsed() < SETTLE_TIMEOUT,
                    "a connection outlives the server"
                );
            }
        }
        Ok(())
    }

    /// Looks at everything after a new start.
    fn verify(&mut self, in_order: bool, back: Instant) -> Result<()> {
        let root = self.client.root().context("after the new start")?;
        ensure!(root == self.root, "the root has another handle than before");
        let mut session = self.session()?;
        session
            .getattr(self.root)
            .context("the root's handle from before")?;
        let committed = session.commit(self.probe, 0, 0);
        let verifier = committed
            .context("COMMIT by a handle from before")?
            .verifier;
        let took = back.elapsed().as_millis() as u64;
        self.sums.longest_start_ms = self.sums.longest_start_ms.max(took);
        ensure!(
            !in_order || verifier == self.verifier,
            "an end in order changed the write verifier"
        );
        writeln!(
            self.journal,
            "verifier {verifier:?} after {:?}",
            self.verifier
        )?;
        self.verifier = verifier;
        let seen = inspect::look(&mut session, &self.tree, self.base)?;
        self.resolve(&seen)?;
        self.resend()?;
        let seen = inspect::look(&mut session, &self.tree, self.base)?;
        self.tree.compare(&seen).map_err(anyhow::Error::msg)?;
        inspect::objects(&mut session, &mut self.tree, verifier, &mut self.sums.found)?;
        session.close();
        Ok(())
    }

    fn session(&self) -> Result<Session> {
        self.client.session(&self.pool, self.client.settings(1))
    }

    /// Finds out what came of the calls without an answer.
    fn resolve(&mut self, seen: &[super::tree::DirectoryContents]) -> Result<()> {
        let mut lost = std::mem::take(&mut self.lost);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.name() == "TCP" {
                lane.resends = self.random.percent(50);
            }
            if !lane.resends {
                lost.extend(lane.abandon().into_iter().map(|flight| (index, flight)));
            }
        }
        for (index, flight) in lost {
            let operation = flight.operation;
            let done = about_names(&operation).then(|| self.tree.is_done(&operation, seen));
            let done = done.transpose().map_err(|why| {
                anyhow::anyhow!("client {index}: {operation:?} without an answer: {why}")
            })?;
            writeln!(self.journal, "{index} ? {operation:?}: done {done:?}")?;
            match done {
                Some(done) => {
                    self.sums.unanswered[usize::from(!done)] += 1;
                    self.tree.finish(&operation, done);
                }
                None => {
                    self.sums.unanswered_data += 1;
                    self.tree.abandon(&operation);
                }
            }
        }
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            for flight in lane.flights() {
                let operation = &flight.operation;
                let done = about_names(operation) && {
                    let done = self.tree.is_done(operation, seen);
                    done.map_err(|why| {
                        anyhow::anyhow!("client {index}: {operation:?}, to be sent again: {why}")
                    })?
                };
                writeln!(self.journal, "{index} again {operation:?}: done {done}")?;
                if done {
                    self.tree.finish(operation, true);
                }
                flight.again = Some(done);
            }
        }
        Ok(())
    }

    /// Connects all clients again, and waits for the answers of calls that are sent again.
    fn resend(&mut self) -> Result<()> {
        let start = Instant::now();
        for index in 0..self.lanes.len() {
            self.lanes[index].reconnect()?;
            while self.lanes[index].in_flight() > 0 || !self.lanes[index].is_up() {
                self.turn(index)?;
                ensure!(
                    start.elapsed() < SETTLE_TIMEOUT,
                    "no answer to calls that were sent again"
                );
            }
        }
        ensure!(
            self.lost.is_empty(),
            "a connection was lost right after the start"
        );
        Ok(())
    }

    /// Ends the server.
    ///
    /// # Errors
    /// If it does not end in order.
    pub fn finish(mut self) -> Result<Sums> {
        self.drain_calls()?;
        self.stop_for_good()?;
        Ok(self.sums)
    }

    fn drain_calls(&mut self) -> Result<()> {
        for index in 0..self.lanes.len() {
            while self.lanes[index].in_flight() > 0 {
                self.turn(index)?;
            }
        }
        Ok(())
    }

    fn stop_for_good(&mut self) -> Result<()> {
        match &self.server {
            Server::Own(_) => self.stop(),
            Server::Foreign { .. } => Ok(()),
        }
    }
}

fn about_names(operation: &CrashOperation) -> bool {
    match operation {
        CrashOperation::Create { .. } => true,
        operation => operation.done_before().is_some(),
    }
}
