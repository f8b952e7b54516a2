//! Opens and locks of NFS version 4 that survive when the server is killed at any time.

mod check;
mod fault;
mod holder;
mod holdings;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use millrace_mempool::Pool;
use millrace_wire::nfs4::{
    Attributes, CreateMode, OpenClaim, OpenOperation, Operation, OperationResults,
    OperationStatus as Status, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;

use super::gateways::StateServers;
use super::random::Random;
use super::server::Own;
use crate::client::{Client, ClientOptions, ServerAddress, pool};
pub use fault::StateFault;
use holder::{FileHandles, Holder, OPEN_OWNER, StateAnswer, StateOperation, stamp};
use holdings::{BYTES, Holdings, OWNERS, OpenFile, lock_conflict, open_conflict};

/// Memory of all clients.
const MEMORY: usize = 32 << 20;
/// Files that clients share.
const FILES: usize = 6;
/// The lease of the server in seconds: the shortest.
pub const LEASE: Duration = Duration::from_secs(10);

/// How a run goes.
pub struct StatePlan {
    /// Where logs and everything else are.
    pub folder: PathBuf,
    /// The export, without the slash.
    pub export: &'static str,
    /// Clients.
    pub clients: usize,
    /// Minor version of the protocol.
    pub minor_version: u32,
    /// Longest time of load before a kill.
    pub load: Duration,
    /// So many clients of a thousand do not return before the end of the grace period.
    pub absent: u64,
    /// Whether clients deny others some access.
    pub denies: bool,
    /// The fault that has to be noticed.
    pub fault: Option<StateFault>,
}

/// What was done and found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct StateSums {
    /// Ends of the server, mostly kills.
    pub ends: u64,
    /// Ends before all clients had returned.
    pub ends_in_grace: u64,
    /// Operations that succeeded, by name.
    pub done: BTreeMap<&'static str, u64>,
    /// Operations that were refused as they conflict.
    pub refused: u64,
    /// Operations that were told to come later.
    pub delayed: u64,
    /// Operations without an answer.
    pub unanswered: u64,
    /// Opens that were reclaimed.
    pub opens_reclaimed: u64,
    /// Ranges that were reclaimed.
    pub locks_reclaimed: u64,
    /// Clients that had themselves been restarted.
    pub restarted: u64,
    /// Clients that returned too late.
    pub late: u64,
    /// Requests that had to be refused in a grace period.
    pub refused_in_grace: u64,
    /// Questions of a stranger about opens and locks after the grace period, each with the only
    /// answer that is right.
    pub probes: u64,
    /// Longest time from a new start until all had returned, in milliseconds.
    pub longest_return_ms: u64,
}

/// A run.
pub struct StateRun {
    plan: StatePlan,
    servers: StateServers,
    /// A client of each server.
    clients: Vec<Client>,
    pool: Pool,
    random: Random,
    holders: Vec<Holder>,
    handles: FileHandles,
    stamps: u64,
    strangers: usize,
    journal: BufWriter<File>,
    /// What was done and found.
    pub sums: StateSums,
}

impl StateRun {
    /// Makes files and clients on a server that runs.
    ///
    /// # Errors
    /// The server's.
    pub fn new(
        plan: StatePlan,
        servers: StateServers,
        options: &ClientOptions,
        seed: u64,
    ) -> Result<Self> {
        let clients = servers.all().iter();
        let clients: Vec<Client> = clients
            .map(|server| client_of(&plan, server, options))
            .collect();
        let mut random = Random::new(seed);
        let pool = pool(MEMORY)?;
        let handles = files(&plan, &clients[0], &pool)?;
        let mut holders = Vec::new();
        for number in 0..plan.clients {
            let mut holder = Holder::new(number, random.next());
            holder.server = number % clients.len();
            holder.begin(&clients[holder.server], &pool, plan.minor_version)?;
            holder.complete()?;
            holders.push(holder);
        }
        let journal = BufWriter::new(File::create(plan.folder.join("journal.log"))?);
        Ok(Self {
            plan,
            servers,
            clients,
            pool,
            random,
            holders,
            handles,
            stamps: 0,
            strangers: 0,
            journal,
            sums: StateSums::default(),
        })
    }

    /// One cycle: load, kill, start, the return of all clients, and a look at everything.
    ///
    /// # Errors
    /// The first thing that must not be.
    pub fn cycle(&mut self, number: u64) -> Result<()> {
        let most = self.plan.load.as_millis() as u64;
        let time = Duration::from_millis(self.random.between(most / 20, most));
        writeln!(self.journal, "cycle {number}: {time:?}")?;
        let start = Instant::now();
        while start.elapsed() < time {
            for index in 0..self.holders.len() {
                self.work(index)?;
            }
            self.servers.check()?;
        }
        if self.clients.len() > 1 {
            let next = self.random.below(2) as usize;
            self.servers.choose(next);
        }
        self.end_server()?;
        if let Some(fault) = self.plan.fault {
            writeln!(self.journal, "fault: {fault:?}")?;
            fault.strike(self.servers.records(), &self.plan.folder)?;
        }
        self.come_back()?;
        self.journal.flush()?;
        Ok(())
    }

    /// Ends the server under load, and takes what has arrived before.
    fn end_server(&mut self) -> Result<()> {
        self.sums.ends += 1;
        self.servers.end()?;
        for index in self.holders_of(self.servers.serving()) {
            while self.holders[index].is_up() {
                self.take(index)?;
            }
            if let Some((operation, _)) = self.holders[index].in_flight {
                self.sums.unanswered += 1;
                writeln!(self.journal, "{index} ? {operation:?}")?;
            }
            self.holders[index].disconnect();
        }
        Ok(())
    }

    /// The clients of a server.
    fn holders_of(&self, server: usize) -> Vec<usize> {
        let all = 0..self.holders.len();
        all.filter(|&index| self.holders[index].server == server)
            .collect()
    }

    /// One turn of one client under load.
    fn work(&mut self, index: usize) -> Result<()> {
        if self.holders[index].in_flight.is_none() {
            let operation = self.next_operation(index);
            writeln!(self.journal, "{index} > {operation:?}")?;
            self.holders[index].submit(operation, &self.handles)?;
        }
        self.take(index)
    }

    fn next_operation(&mut self, index: usize) -> StateOperation {
        let random = &mut self.random;
        let file = random.below(FILES as u64) as usize;
        let access = [share::READ, share::WRITE, share::BOTH, share::BOTH];
        let deny = &[0, 0, 0, 0, 0, 0, share::WRITE, share::READ][..];
        let deny = if self.plan.denies { deny } else { &deny[..1] };
        let opening = |random: &mut Random| StateOperation::Open {
            file,
            access: random.pick(&access).unwrap_or(share::BOTH),
            deny: random.pick(deny).unwrap_or(0),
        };
        let Some(held) = self.holders[index].files.get(&file) else {
            return opening(random);
        };
        let owner = random.below(OWNERS as u64) as usize;
        let start = random.below(BYTES as u64 - 1) as usize;
        let end = random.between(start as u64 + 1, BYTES as u64) as usize;
        match random.below(100) {
            0..8 => StateOperation::Close { file },
            8..16 => opening(random),
            16..40 if held.locks[owner].state.is_some() => StateOperation::Unlock {
                file,
                owner,
                start,
                end,
            },
            40..55 if held.access & share::WRITE != 0 => {
                self.stamps += 1;
                let stamp = self.stamps;
                StateOperation::Write { file, stamp }
            }
            55..65 if held.access & share::READ != 0 => StateOperation::Read { file },
            _ => StateOperation::Lock {
                file,
                owner,
                start,
                end: end.min(start + 6),
                exclusive: match held.access {
                    share::READ => false,
                    share::WRITE => true,
                    _ => random.percent(50),
                },
            },
        }
    }

    /// Takes the answer to a client's operation, if it is there.
    fn take(&mut self, index: usize) -> Result<()> {
        let Some((operation, before, answer)) = self.holders[index].turn() else {
            return Ok(());
        };
        writeln!(self.journal, "{index} < {operation:?}: {answer:?}")?;
        if matches!(answer, StateAnswer::Lost) {
            self.sums.unanswered += 1;
            return Ok(());
        }
        let settled = self.settle(index, operation, before, &answer);
        settled.map_err(|why| anyhow::anyhow!("client {index}: {operation:?}: {why:#}"))
    }

    fn settle(
        &mut self,
        index: usize,
        operation: StateOperation,
        before: Option<OpenFile>,
        answer: &StateAnswer,
    ) -> Result<()> {
        let pretends = self.plan.fault == Some(StateFault::GrantTwice);
        match (operation, answer) {
            (StateOperation::Lock { .. }, StateAnswer::Refused(Status::Denied)) if pretends => {
                let state = before.as_ref().map(|held| held.open);
                let granted = StateAnswer::Granted(state.unwrap_or_else(unknown));
                return self.settle(index, operation, before, &granted);
            }
            (StateOperation::Open { .. }, StateAnswer::Refused(Status::ShareDenied))
            | (StateOperation::Lock { .. }, StateAnswer::Refused(Status::Denied)) => {
                self.sums.refused += 1;
                if let Some(before) = before {
                    self.holders[index].files.insert(operation.file(), before);
                }
                return Ok(());
            }
            (_, StateAnswer::Refused(Status::Delay | Status::Grace))
                if self.servers.other().is_some() =>
            {
                self.sums.delayed += 1;
                if let Some(before) = before {
                    self.holders[index].files.insert(operation.file(), before);
                }
                return Ok(());
            }
            (_, StateAnswer::Refused(status)) => bail!("{}", status.name()),
            _ => {}
        }
        *self.sums.done.entry(operation.name()).or_default() += 1;
        let state = match answer {
            StateAnswer::Granted(state) => Some(*state),
            _ => None,
        };
        match (operation, state) {
            (StateOperation::Open { file, access, deny }, Some(state)) => {
                let all = self.holdings();
                let conflict = open_conflict(all, Some(index), file, (access, deny));
                ensure!(
                    conflict.is_none(),
                    "granted although client {conflict:?} denies it"
                );
                let holder = &mut self.holders[index];
                holder.is_recorded = true;
                let held = holder.files.entry(file).or_insert_with(|| OpenFile {
                    open: state,
                    access: 0,
                    deny: 0,
                    locks: Default::default(),
                });
                (held.open, held.access, held.deny) =
                    (state, held.access | access, held.deny | deny);
            }
            (
                StateOperation::Lock {
                    file,
                    owner,
                    start,
                    end,
                    exclusive,
                },
                Some(state),
            ) => {
                let wanted = (start..end, exclusive);
                let conflict = lock_conflict(self.holdings(), Some((index, owner)), file, wanted);
                ensure!(
                    conflict.is_none(),
                    "granted although client and owner {conflict:?} have it"
                );
                if let Some(held) = self.holders[index].files.get_mut(&file) {
                    held.locks[owner].state = Some(state);
                    held.locks[owner].bytes[start..end].fill(Some(exclusive));
                }
            }
            (StateOperation::Unlock { file, owner, .. }, Some(state)) => {
                if let Some(held) = self.holders[index].files.get_mut(&file) {
                    held.locks[owner].state = Some(state);
                }
            }
            (StateOperation::Write { file, stamp }, None) => {
                let written = self.holders[index].written.entry(file).or_default();
                (written.answered, written.unanswered) = (stamp, None);
            }
            (StateOperation::Read { file }, None) => {
                let StateAnswer::Data(data) = answer else {
                    bail!("no data");
                };
                self.compare(index, file, stamp(data))?;
            }
            (StateOperation::Close { .. }, None) => {}
            (_, state) => bail!("an answer of another kind: {state:?}"),
        }
        Ok(())
    }

    /// Compares what a client reads of its place in a file with what it has written there.
    fn compare(&mut self, index: usize, file: usize, found: u64) -> Result<()> {
        let written = self.holders[index].written.entry(file).or_default();
        let is_known = found == written.answered || Some(found) == written.unanswered;
        ensure!(
            is_known,
            "client {index} reads {found} in file {file} and has written {written:?}"
        );
        (written.answered, written.unanswered) = (found, None);
        Ok(())
    }

    /// What all clients hold.
    fn holdings(&self) -> impl Iterator<Item = &Holdings> {
        self.holders.iter().map(|holder| &holder.files)
    }

    /// Ends the server.
    ///
    /// # Errors
    /// If it has ended by itself.
    pub fn finish(mut self) -> Result<StateSums> {
        self.servers.finish()?;
        Ok(self.sums)
    }
}

/// A client of a server.
fn client_of(plan: &StatePlan, server: &Own, options: &ClientOptions) -> Client {
    let export = format!("/{}", plan.export);
    Client {
        place: ServerAddress::of(server.rdma, server.rpc, &export),
        options: options.clone(),
    }
}

/// A stateid that no server has given.
const fn unknown() -> millrace_wire::nfs4::StateId {
    millrace_wire::nfs4::StateId::INVALID
}

/// Makes the files, and gives their handles.
fn files(plan: &StatePlan, client: &Client, pool: &Pool) -> Result<FileHandles> {
    let mut session = client.session(pool, client.settings(1))?;
    let mut maker = session.create_session(plan.minor_version, b"maker", [1; 8], 1)?;
    let mut handles = FileHandles::new();
    for number in 0..FILES {
        let name = format!("file-{number}");
        let operations = [
            Operation::Putrootfh(()),
            Operation::Lookup(plan.export.as_bytes()),
            Operation::Open(OpenOperation {
                sequence: 0,
                access: share::BOTH | share::WANT_NONE,
                deny: 0,
                owner: StateOwner {
                    client: maker.client,
                    owner: BoundedBytes(OPEN_OWNER),
                },
                create: Some(CreateMode::Unchecked(Attributes::NONE)),
                claim: OpenClaim::Name(name.as_bytes()),
            }),
            Operation::Getfh(()),
        ];
        let made = session.in_session(&mut maker, &operations, |results| match results {
            [
                ..,
                OperationResults::Open(Ok(reply)),
                OperationResults::Getfh(Ok(handle)),
            ] => Some(crate::requester::session::OpenedFile {
                directory: Vec::new(),
                handle: handle.0.to_vec(),
                open: reply.open,
                delegation: None,
            }),
            _ => None,
        })?;
        session.close_file(&mut maker, &made)?;
        handles.push(made.handle);
    }
    session.leave(&maker)?;
    Ok(handles)
}
