//! The return of clients after a restart, and the comparison of what the server has with what they
//! had.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use millrace_wire::nfs4::{
    CloseOperation, DelegationType, LocktOperation, OpenClaim, Operation,
    OperationStatus as Status, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;

use super::fault::StateFault;
use super::holder::{Holder, OPEN_OWNER, kind};
use super::holdings::{BYTES, OWNERS, lock_conflict, open_conflict};
use super::{FILES, LEASE, StateRun};

/// Percentage of clients that have themselves been restarted.
const RESTARTED: u64 = 8;
/// Percentage of cycles in which the server is killed again while clients return.
const AGAIN: u64 = 10;
/// Percentage of clients of a gateway that go to the other one.
const MOVING: u64 = 40;
/// Pause between two questions whether the grace period is over.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for the answers to what clients of the other gateway have in flight.
const ANSWER: Duration = Duration::from_secs(60);
/// Time for the end of the grace period behind the lease, or behind the last client.
const LATE: Duration = Duration::from_secs(10);

/// The claim of an open that the client had before the restart.
const PREVIOUS: OpenClaim<'static> = OpenClaim::Previous(DelegationType::None);

/// What a client does after the restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It reclaims what it had.
    Returns,
    /// It has been restarted as well, and has nothing.
    Restarted,
    /// It returns when the grace period is over.
    Absent,
}

impl StateRun {
    /// Starts the server, lets all clients return, and looks at everything.
    pub(super) fn come_back(&mut self) -> Result<()> {
        let start = Instant::now();
        let mut order = self.holders_of(self.servers.serving());
        for at in (1..order.len()).rev() {
            order.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let mut fates: Vec<Fate> = order.iter().map(|_| self.fate()).collect();
        if self.random.percent(AGAIN) && !order.is_empty() {
            let some = self.random.below(order.len() as u64) as usize;
            self.serve_again()?;
            self.meet_grace(&order)?;
            for (&index, &fate) in order.iter().zip(&fates).take(some) {
                if fate == Fate::Returns {
                    self.reclaim(index)?;
                }
            }
            self.sums.ends_in_grace += 1;
            // Its own clients have to return as well.
            let mut others = self.holders_of(self.servers.serving());
            others.retain(|index| !order.contains(index));
            order.extend(others);
            fates.resize(order.len(), Fate::Returns);
            self.end_server()?;
        }
        self.serve_again()?;
        self.meet_grace(&order)?;
        let mut absent = Vec::new();
        for (&index, &fate) in order.iter().zip(&fates) {
            writeln!(self.journal, "{index}: {fate:?}")?;
            self.renew_all()?;
            match fate {
                Fate::Returns => self.reclaim(index)?,
                Fate::Restarted => self.begin_anew(index)?,
                Fate::Absent => absent.push(index),
            }
        }
        // What the absent ones had is everybody's.
        let waits = absent.iter().any(|&index| self.holders[index].is_recorded);
        for &index in &absent {
            self.holders[index].files.clear();
        }
        let took = start.elapsed().as_millis() as u64;
        self.sums.longest_return_ms = self.sums.longest_return_ms.max(took);
        let mut stranger = self.stranger()?;
        self.wait_for_end(&mut stranger, waits)?;
        for index in absent {
            self.return_late(index)?;
        }
        self.probe(&mut stranger, true)?;
        // The next grace period must not wait for it.
        stranger.leave()?;
        if let Some(other) = self.servers.other() {
            let mut stranger = self.stranger_of(other)?;
            self.wait_for_end(&mut stranger, waits)?;
            self.probe(&mut stranger, false)?;
            stranger.leave()?;
        }
        self.read_all()?;
        self.move_some()
    }

    /// Has clients served again, wherever. Clients of the other gateway get answers to what they have
    /// in flight: before, they may have more than they know.
    fn serve_again(&mut self) -> Result<()> {
        self.servers.come_back()?;
        let start = Instant::now();
        for index in 0..self.holders.len() {
            while self.holders[index].in_flight.is_some() && self.holders[index].is_up() {
                ensure!(
                    start.elapsed() < ANSWER,
                    "client {index}, of the other gateway, gets no answer within {ANSWER:?}"
                );
                self.take(index)?;
            }
        }
        Ok(())
    }

    /// Some clients give up what they have and begin anew at the other gateway.
    fn move_some(&mut self) -> Result<()> {
        let Some(other) = self.servers.other() else {
            return Ok(());
        };
        for index in self.holders_of(self.servers.serving()) {
            if !self.random.percent(MOVING) {
                continue;
            }
            let mut before = std::mem::replace(&mut self.holders[index], Holder::new(index, 0));
            for (file, held) in std::mem::take(&mut before.files) {
                close(&mut before, &self.handles[file], held.open)?;
            }
            let mut holder = Holder::new(index, self.random.next());
            holder.written = std::mem::take(&mut before.written);
            before.leave()?;
            self.connect(&mut holder, other)?;
            holder.complete()?;
            self.holders[index] = holder;
            writeln!(self.journal, "{index}: moves")?;
        }
        Ok(())
    }

    /// Connects a client to a server and begins a session.
    fn connect(&self, holder: &mut Holder, server: usize) -> Result<()> {
        holder.server = server;
        holder.begin(&self.clients[server], &self.pool, self.plan.minor_version)
    }

    /// Renews the leases of those who have returned: a stranger would get what a silent client has.
    fn renew_all(&mut self) -> Result<()> {
        self.holders.iter_mut().try_for_each(Holder::renew)
    }

    fn fate(&mut self) -> Fate {
        if self.plan.fault.is_none() && self.random.below(1000) < self.plan.absent {
            Fate::Absent
        } else if self.plan.fault.is_none() && self.random.percent(RESTARTED) {
            Fate::Restarted
        } else {
            Fate::Returns
        }
    }

    /// A client that the server does not know.
    fn stranger(&mut self) -> Result<Holder> {
        self.stranger_of(self.servers.serving())
    }

    fn stranger_of(&mut self, server: usize) -> Result<Holder> {
        self.strangers += 1;
        let mut stranger = Holder::new(1000 + self.strangers, self.random.next());
        self.connect(&mut stranger, server)?;
        stranger.complete()?;
        Ok(stranger)
    }

    /// As long as recorded ones of these clients have not returned, others get nothing.
    fn meet_grace(&mut self, gone: &[usize]) -> Result<()> {
        if !gone.iter().any(|&index| self.holders[index].is_recorded) {
            return Ok(());
        }
        let mut stranger = self.stranger()?;
        self.is_held_off(&mut stranger)?;
        if let Some(other) = self.servers.other() {
            let mut stranger = self.stranger_of(other)?;
            self.is_held_off(&mut stranger)
                .context("at the other gateway")?;
            stranger.leave()?;
        }
        Ok(())
    }

    fn is_held_off(&mut self, stranger: &mut Holder) -> Result<()> {
        let open = stranger.opening((share::READ, 0), OpenClaim::File);
        let previous = stranger.opening((share::READ, 0), PREVIOUS);
        self.is_refused(stranger, &open, &[Status::Grace])
            .context("OPEN of a stranger in the grace period")?;
        self.is_refused(stranger, &previous, &[Status::NoGrace])
            .context("a reclaim by a stranger")
    }

    /// An operation on the first file must be refused so.
    fn is_refused(
        &mut self,
        client: &mut Holder,
        operation: &Operation<'_>,
        expected: &[Status],
    ) -> Result<()> {
        self.sums.refused_in_grace += 1;
        match client.run(&self.handles[0], operation)? {
            Err(status) if expected.contains(&status) => Ok(()),
            Err(status) => bail!("{} instead of {}", status.name(), expected[0].name()),
            Ok(_) => bail!("granted; it must be refused with {}", expected[0].name()),
        }
    }

    /// A client returns and reclaims all that it had.
    fn reclaim(&mut self, index: usize) -> Result<()> {
        let mut holder = std::mem::replace(&mut self.holders[index], Holder::new(index, 0));
        let outcome = self.reclaim_all(&mut holder);
        self.holders[index] = holder;
        outcome.with_context(|| format!("client {index} returns"))
    }

    fn reclaim_all(&mut self, holder: &mut Holder) -> Result<()> {
        self.connect(holder, self.servers.serving())?;
        let open = holder.opening((share::READ, 0), OpenClaim::File);
        self.is_refused(holder, &open, &[Status::Grace])
            .context("OPEN before all is reclaimed")?;
        let files: Vec<usize> = holder.files.keys().copied().collect();
        for &file in &files {
            let handle = self.handles[file].clone();
            let old = holder.read_stamp(file, &handle)?;
            let is_dead = matches!(old, Err(Status::BadStateId | Status::StaleStateId));
            ensure!(is_dead, "a stateid of before the restart: {old:?}");
            self.reclaim_file(holder, file, &handle)
                .with_context(|| format!("file {file}"))?;
        }
        self.invent(holder)?;
        holder.complete()?;
        // Without state it has no record from now on.
        holder.is_recorded = !holder.files.is_empty();
        let late = holder.opening((share::READ, 0), PREVIOUS);
        self.is_refused(holder, &late, &[Status::NoGrace])
            .context("a reclaim behind RECLAIM_COMPLETE")
    }

    fn reclaim_file(&mut self, holder: &mut Holder, file: usize, handle: &[u8]) -> Result<()> {
        let fault = self.plan.fault;
        let Some(mut held) = holder.files.get(&file).cloned() else {
            return Ok(());
        };
        let deny = match fault {
            Some(StateFault::LoseDenial) => 0,
            _ => held.deny,
        };
        let opening = holder.opening((held.access, deny), PREVIOUS);
        let open = holder.run(handle, &opening)?;
        writeln!(
            self.journal,
            "{} back: file {file}: {open:?}",
            holder.number
        )?;
        let open = open.map_err(|status| anyhow::anyhow!("OPEN: {}", status.name()))?;
        held.open = open.context("OPEN without a stateid")?;
        self.sums.opens_reclaimed += 1;
        for owner in 0..OWNERS {
            held.locks[owner].state = None;
            let mut runs = held.locks[owner].runs();
            if fault == Some(StateFault::LoseLock) {
                runs.pop();
            }
            for (range, exclusive) in runs {
                let locking = holder.locking(&held, owner, (range.clone(), exclusive), true);
                let lock = holder.run(handle, &locking)?;
                let number = holder.number;
                writeln!(
                    self.journal,
                    "{number} back: file {file}, {range:?}: {lock:?}"
                )?;
                let lock = lock.map_err(|status| {
                    anyhow::anyhow!("LOCK of {range:?} by owner {owner}: {}", status.name())
                })?;
                held.locks[owner].state = lock;
                self.sums.locks_reclaimed += 1;
            }
        }
        // What another one has reclaimed cannot be had by a reclaim.
        let wanted = (0..BYTES).find(|&byte| {
            let others = self.holders.iter().map(|one| &one.files);
            let is_back = |(client, _): (usize, usize)| self.holders[client].is_up();
            lock_conflict(others, None, file, (byte..byte + 1, false)).is_some_and(is_back)
        });
        if let Some(byte) = wanted.filter(|_| held.access & share::READ != 0) {
            let locking = holder.locking(&held, 0, (byte..byte + 1, false), true);
            self.sums.refused_in_grace += 1;
            match holder.run(handle, &locking)? {
                Err(Status::ReclaimConflict) => {}
                other => bail!("a reclaim of byte {byte}, which another client has: {other:?}"),
            }
        }
        holder.files.insert(file, held);
        Ok(())
    }

    /// Reclaims a lock that the client did not have, if that is the fault.
    fn invent(&mut self, holder: &mut Holder) -> Result<()> {
        if self.plan.fault != Some(StateFault::InventLock) {
            return Ok(());
        }
        for (&file, held) in &holder.files {
            let all = || {
                let others = self.holders.iter().map(|one| &one.files);
                others.chain(std::iter::once(&holder.files))
            };
            let is_free =
                |byte: &usize| lock_conflict(all(), None, file, (*byte..*byte + 1, true)).is_none();
            let exclusive = held.access & share::WRITE != 0;
            if let Some(byte) = (0..BYTES).find(is_free) {
                let locking = holder.locking(held, 0, (byte..byte + 1, exclusive), true);
                let handle = self.handles[file].clone();
                let _ = holder.run(&handle, &locking)?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// A client that has been restarted has nothing.
    fn begin_anew(&mut self, index: usize) -> Result<()> {
        self.sums.restarted += 1;
        let verifier = self.random.next();
        let written = std::mem::take(&mut self.holders[index].written);
        let mut holder = Holder::new(index, verifier);
        holder.written = written;
        self.connect(&mut holder, self.servers.serving())?;
        let previous = holder.opening((share::READ, 0), PREVIOUS);
        let refused = self.is_refused(&mut holder, &previous, &[Status::NoGrace]);
        holder.complete()?;
        self.holders[index] = holder;
        refused.context("a reclaim by a client that was restarted")
    }

    /// A client that returns when the grace period is over has nothing.
    fn return_late(&mut self, index: usize) -> Result<()> {
        self.sums.late += 1;
        let mut holder = std::mem::replace(&mut self.holders[index], Holder::new(index, 0));
        holder.is_recorded = false;
        self.connect(&mut holder, self.servers.serving())?;
        let previous = holder.opening((share::READ, 0), PREVIOUS);
        let refused = self.is_refused(&mut holder, &previous, &[Status::NoGrace]);
        holder.complete()?;
        self.holders[index] = holder;
        refused.context("a reclaim behind the grace period")
    }

    /// Waits until a stranger gets an open.
    fn wait_for_end(&mut self, stranger: &mut Holder, waits: bool) -> Result<()> {
        let start = Instant::now();
        let most = if waits { LEASE * 3 / 2 + LATE } else { LATE };
        loop {
            let open = stranger.opening((share::READ, 0), OpenClaim::File);
            match stranger.run(&self.handles[0], &open)? {
                Ok(open) => {
                    let open = open.context("OPEN without a stateid")?;
                    return close(stranger, &self.handles[0], open);
                }
                Err(Status::ShareDenied) => return Ok(()),
                Err(Status::Grace) => {}
                Err(status) => bail!("OPEN of a stranger: {}", status.name()),
            }
            ensure!(
                start.elapsed() < most,
                "the grace period does not end within {most:?}"
            );
            thread::sleep(PAUSE);
            self.renew_all()?;
        }
    }

    /// Compares locks, and opens if they are `known` there, with what a stranger meets.
    fn probe(&mut self, stranger: &mut Holder, known: bool) -> Result<()> {
        for file in 0..FILES {
            self.renew_all()?;
            let handle = self.handles[file].clone();
            let modes = [
                (share::READ, 0),
                (share::WRITE, 0),
                (share::READ, share::READ),
                (share::READ, share::WRITE),
            ];
            let asked = match (known, self.plan.denies) {
                (true, true) => &modes[..],
                (true, false) => &modes[..2],
                (false, _) => &[],
            };
            for &modes in asked {
                let opening = stranger.opening(modes, OpenClaim::File);
                let found = stranger.run(&handle, &opening)?;
                let conflict = open_conflict(self.holdings(), None, file, modes);
                self.sums.probes += 1;
                match (found, conflict) {
                    (Ok(Some(open)), None) => close(stranger, &handle, open)?,
                    (Err(Status::ShareDenied), Some(_)) => {}
                    (found, conflict) => bail!(
                        "file {file}: OPEN for {modes:?} gives {found:?}, and the client that \
                         conflicts is {conflict:?}"
                    ),
                }
            }
            for byte in 0..BYTES {
                for exclusive in [false, true] {
                    self.probe_lock(stranger, &handle, (file, byte, exclusive))?;
                }
            }
        }
        Ok(())
    }

    fn probe_lock(
        &mut self,
        stranger: &mut Holder,
        handle: &[u8],
        (file, byte, exclusive): (usize, usize, bool),
    ) -> Result<()> {
        let test = Operation::Lockt(LocktOperation {
            kind: kind(exclusive),
            offset: byte as u64,
            length: 1,
            owner: StateOwner {
                client: 0,
                owner: BoundedBytes(OPEN_OWNER),
            },
        });
        let found = stranger.run(handle, &test)?;
        let wanted = (byte..byte + 1, exclusive);
        let conflict = lock_conflict(self.holdings(), None, file, wanted);
        self.sums.probes += 1;
        let is_right = match found {
            Ok(_) => conflict.is_none(),
            Err(Status::Denied) => conflict.is_some(),
            Err(_) => false,
        };
        ensure!(
            is_right,
            "file {file}, byte {byte}, exclusive {exclusive}: LOCKT gives {found:?}, and the client \
             and owner that have it are {conflict:?}"
        );
        Ok(())
    }

    /// Compares what clients have written.
    fn read_all(&mut self) -> Result<()> {
        for index in 0..self.holders.len() {
            let readable = self.holders[index].files.iter();
            let readable = readable.filter(|(_, held)| held.access & share::READ != 0);
            let files: Vec<usize> = readable.map(|(file, _)| *file).collect();
            for file in files {
                let handle = self.handles[file].clone();
                let found = self.holders[index].read_stamp(file, &handle)?;
                let found = found
                    .map_err(|status| anyhow::anyhow!("READ of file {file}: {}", status.name()))?;
                self.compare(index, file, found)?;
            }
        }
        Ok(())
    }
}

fn close(client: &mut Holder, handle: &[u8], open: millrace_wire::nfs4::StateId) -> Result<()> {
    let close = Operation::Close(CloseOperation { sequence: 0, open });
    match client.run(handle, &close)? {
        Ok(_) => Ok(()),
        Err(status) => bail!("CLOSE: {}", status.name()),
    }
}
