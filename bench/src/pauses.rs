//! How long clients wait while their server is restarted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace_mempool::{Class, Pool, Slice};
use millrace_wire::nfs3::{
    CreateHow, FileHandle, Procedure, ReadArguments, ReadResults, SetAttributes, Stability, Status,
    WriteArguments, WriteResults,
};
use millrace_wire::xdr::Bulk;

use crate::client::{self, Client};
use crate::interrupt;
use crate::load::Pattern;
use crate::requester::{Call, Completion, Reply, RequesterState, Session};
use crate::table::Table;
use crate::units;

/// Memory of each client: its data, and its messages.
const CLIENT_MEMORY: usize = 256 << 10;

/// Measure how long clients wait while their server is restarted or upgraded.
///
/// Each client has a connection and a file. It writes the file and reads it back, one call at a
/// time, for as long as this command runs. When its connection is lost, it connects again and
/// repeats its call, as NFS clients do. Restart the server meanwhile. A call fails if the server
/// refuses it, if the data is wrong, or if it is not answered within --timeout. Ctrl-C ends it
/// early, with its report; the files are removed.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  A hundred clients for a minute, while another shell runs `systemctl restart millrace`:
    millrace-bench pauses --target filer:20049 --mount filer:2049 --export /data --time 1m
  The same, and status 1 if one of them waited for more than a second:
    millrace-bench pauses --target filer:20049 --mount filer:2049 --export /data --at-most 1s
")]
pub struct Pauses {
    #[command(flatten)]
    client: Client,

    /// Clients.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    connections: usize,

    /// Bytes of one READ or WRITE.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = units::size)]
    size: usize,

    /// How long to go on.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::duration)]
    time: Duration,

    /// End with status 1 if a call took longer.
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    at_most: Option<Duration>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What all clients saw.
#[derive(Clone, Debug, Default, serde::Serialize)]
struct PauseReport {
    /// Calls that succeeded.
    calls: u64,
    /// Calls that failed.
    failed: u64,
    /// The first failure.
    failure: Option<String>,
    /// Connections that were lost and made again.
    reconnected: u64,
    /// Seconds that the slowest call took.
    longest_wait: f64,
    /// Seconds that the slowest call of the median client took.
    median_wait: f64,
}

impl Pauses {
    /// Runs and prints. False if a call failed or took too long.
    ///
    /// # Errors
    /// If the server cannot be reached at the beginning.
    pub fn run(&self) -> Result<bool> {
        if self.connections == 0 || self.size == 0 || self.size > 1 << 20 {
            bail!("--connections takes 1 or more, --size 1 to 1MiB");
        }
        let memory = self.connections.saturating_mul(CLIENT_MEMORY + self.size);
        let pool = client::pool(memory)?;
        let root = self.client.root()?;
        let clients =
            (0..self.connections).map(|index| PausedClient::new(self, &pool, root, index));
        let mut clients = clients.collect::<Result<Vec<_>>>()?;
        interrupt::ends_in_order();
        let begun = Instant::now();
        while begun.elapsed() < self.time && !interrupt::is_asked_to_end() {
            for client in &mut clients {
                client.turn()?;
            }
        }
        let report = report(&clients);
        self.print(&report);
        for client in clients {
            client.finish(root, self.client.options.timeout)?;
        }
        let most = self
            .at_most
            .map_or(f64::INFINITY, |most| most.as_secs_f64());
        Ok(report.failed == 0 && report.longest_wait <= most)
    }

    fn print(&self, report: &PauseReport) {
        if self.json {
            println!("{}", serde_json::json!(report));
            return;
        }
        let mut table = Table::new(&["clients", "calls", "failed", "reconnected", "longest wait"]);
        table.row(&[
            self.connections.to_string(),
            report.calls.to_string(),
            report.failed.to_string(),
            report.reconnected.to_string(),
            format!("{:.3} s", report.longest_wait),
        ]);
        println!("{table}");
        if let Some(failure) = &report.failure {
            println!("the first failure: {failure}");
        }
    }
}

fn report(clients: &[PausedClient]) -> PauseReport {
    let mut waits: Vec<_> = clients.iter().map(PausedClient::longest).collect();
    waits.sort_unstable();
    let mut report = PauseReport::default();
    for client in clients {
        report.calls += client.calls;
        report.failed += client.failed;
        report.reconnected += client.reconnected;
        report.failure = report.failure.or_else(|| client.failure.clone());
    }
    report.longest_wait = waits.last().map_or(0.0, Duration::as_secs_f64);
    report.median_wait = waits
        .get(waits.len() / 2)
        .map_or(0.0, Duration::as_secs_f64);
    report
}

/// One client, with one call in flight.
struct PausedClient {
    session: Session,
    name: String,
    file: FileHandle,
    memory: Slice,
    scratch: Vec<u8>,
    /// The number of the last WRITE, which is the seed of its data.
    round: u64,
    /// The call in flight is a WRITE.
    writes: bool,
    /// When the call in flight was made, if there is one.
    since: Option<Instant>,
    was_up: bool,
    longest: Duration,
    calls: u64,
    failed: u64,
    failure: Option<String>,
    reconnected: u64,
}

/// What came of a call.
enum Ended {
    Done,
    /// To be made again (NFS3ERR_JUKEBOX).
    Later,
    Failed(String),
}

impl PausedClient {
    fn new(settings: &Pauses, pool: &Pool, root: FileHandle, index: usize) -> Result<Self> {
        let mut connection = settings.client.settings(1);
        connection.keep_calls = true;
        let mut session = settings.client.session(pool, connection)?;
        let name = format!(".millrace-pauses-{}-{index}", std::process::id());
        let attributes = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        let created = session.create(root, name.as_bytes(), CreateHow::Unchecked(attributes))?;
        let class = Class::for_size(settings.size).context("--size is too large")?;
        let memory = pool.try_acquire(class).context("no memory for data")?;
        Ok(Self {
            session,
            name,
            file: created.object.context("the server tells no handle")?,
            memory: memory.into_slice(0..settings.size),
            scratch: vec![0; 2 * settings.size],
            round: 0,
            writes: false,
            since: None,
            was_up: true,
            longest: Duration::ZERO,
            calls: 0,
            failed: 0,
            failure: None,
            reconnected: 0,
        })
    }

    /// The longest wait, that of the call in flight included.
    fn longest(&self) -> Duration {
        let current = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.longest.max(current)
    }

    /// Makes the next call if none is in flight, and takes what has arrived.
    fn turn(&mut self) -> Result<()> {
        if self.since.is_none() {
            self.writes = !self.writes;
            self.round += u64::from(self.writes);
            self.submit()?;
            self.since = Some(Instant::now());
        }
        let (pattern, writes) = (Pattern::new(self.round), self.writes);
        let (memory, scratch) = (&self.memory, &mut self.scratch);
        let mut ended = None;
        self.session.turn(&mut |completion: Completion<'_>| {
            ended = Some(match &completion.result {
                Ok(reply) if writes => written(reply, memory),
                Ok(reply) => read(reply, memory, pattern, scratch),
                Err(error) => Ended::Failed(error.to_string()),
            });
        });
        let is_up = self.session.connection().state() == &RequesterState::Ready;
        self.reconnected += u64::from(is_up && !self.was_up);
        self.was_up = is_up;
        match ended {
            None => return Ok(()),
            Some(Ended::Later) => return self.submit(),
            Some(Ended::Done) => self.calls += 1,
            Some(Ended::Failed(why)) => {
                self.failed += 1;
                let call = if writes { "WRITE" } else { "READ" };
                self.failure.get_or_insert_with(|| format!("{call}: {why}"));
            }
        }
        self.longest = self.longest();
        self.since = None;
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        let (file, offset, count) = (self.file, 0, self.memory.len() as u32);
        let part = std::slice::from_ref(&self.memory);
        let connection = self.session.parts().0;
        let now = Instant::now();
        if self.writes {
            let pattern = Pattern::new(self.round);
            pattern.fill_slice(0, &self.memory, &mut self.scratch);
            let arguments = WriteArguments {
                file,
                offset,
                count,
                stable: Stability::Unstable,
                data: Bulk::apart(count),
            };
            let call = Call::nfs3(0, Procedure::Write, arguments, 0);
            connection.submit(&call.with_data(part), now)?;
        } else {
            let arguments = ReadArguments {
                file,
                offset,
                count,
            };
            let call = Call::nfs3(0, Procedure::Read, arguments, 0);
            connection.submit(&call.with_sinks(&[part]), now)?;
        }
        Ok(())
    }

    /// Removes its file.
    fn finish(mut self, root: FileHandle, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        while self.since.is_some() && begun.elapsed() < patience {
            self.session.turn(&mut |_| self.since = None);
        }
        self.session.remove(root, self.name.as_bytes())?;
        self.session.close();
        Ok(())
    }
}

fn refused(status: Status) -> Ended {
    match status {
        Status::Jukebox => Ended::Later,
        status => Ended::Failed(format!("{status:?}")),
    }
}

fn written(reply: &Reply<'_>, memory: &Slice) -> Ended {
    match reply.results::<WriteResults>() {
        Ok(Ok(done)) if done.count as usize == memory.len() => Ended::Done,
        Ok(Ok(done)) => Ended::Failed(format!("only {} bytes were written", done.count)),
        Ok(Err(failure)) => refused(failure.status),
        Err(error) => Ended::Failed(error.to_string()),
    }
}

fn read(reply: &Reply<'_>, memory: &Slice, pattern: Pattern, scratch: &mut [u8]) -> Ended {
    match reply.results::<ReadResults<'_>>() {
        Ok(Ok(done)) if done.count as usize == memory.len() => {
            if let Some(inline) = done.data.as_inline() {
                memory.copy_from(0, inline);
            }
            match pattern.holds(0, memory, scratch) {
                true => Ended::Done,
                false => Ended::Failed("the data is not what was written".to_owned()),
            }
        }
        Ok(Ok(done)) => Ended::Failed(format!("only {} bytes were read", done.count)),
        Ok(Err(failure)) => refused(failure.status),
        Err(error) => Ended::Failed(error.to_string()),
    }
}
