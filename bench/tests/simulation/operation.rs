//! The calls that clients make, and what their replies must say.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use millrace_bench::requester::{Call, CallError, CallId, Connection, Reply, SubmitError};
use millrace_mempool::Slice;
use millrace_wire::nfs3::{
    CommitArguments, CommitResults, CreateArguments, CreateHow, CreateResults, GetattrResults,
    LookupResults, NameInDirectory, Procedure, ReadArguments, ReadResults, ReaddirArguments,
    ReaddirResults, RemoveResults, RenameArguments, RenameResults, SetAttributes, Stability,
    Status, WriteArguments, WriteResults,
};
use millrace_wire::xdr::Bulk;

use super::client::{Client, Context, Ended, Lingering, Open, is_dead};
use super::dice::Dice;
use super::memory::Memory;
use super::model::{Model, Moment, Name, NameModel, Seen, pattern};

/// Bytes of the largest file, and of the largest READ and WRITE.
const FILE: usize = 24_000;
/// Asked of READDIR: all names fit.
const LIST: u32 = 3000;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Null,
    Getattr {
        file: usize,
    },
    Read {
        file: usize,
        offset: usize,
        length: usize,
    },
    Write {
        file: usize,
        offset: usize,
        length: usize,
        stable: Stability,
    },
    Commit {
        file: usize,
    },
    Create {
        name: usize,
        how: How,
    },
    Remove {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Lookup {
        name: usize,
    },
    Readdir,
}

/// How a file is created.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Unchecked,
    Guarded,
    Exclusive(u64),
}

impl Kind {
    pub fn choose(dice: &mut Dice, names: &[Name], files: usize) -> Option<Self> {
        let file = dice.below(files);
        let (offset, length) = extent(dice);
        let stable = dice.pick(&[
            Stability::Unstable,
            Stability::DataSync,
            Stability::FileSync,
        ]);
        let usable = |name: &usize| !names[*name].busy && names[*name].state != NameModel::Retired;
        let mut free: Vec<usize> = (0..names.len()).filter(usable).collect();
        dice.shuffle(&mut free);
        let name = free.first().copied();
        if let Some(name) = name.filter(|&name| names[name].state == NameModel::Unknown) {
            return Some(Self::Lookup { name });
        }
        Some(match dice.below(20) {
            0 => Self::Null,
            1 => Self::Getattr { file },
            2..6 => Self::Read {
                file,
                offset,
                length,
            },
            6..11 => Self::Write {
                file,
                offset,
                length,
                stable,
            },
            11 => Self::Commit { file },
            12..15 => Self::Create {
                name: name?,
                how: match dice.below(3) {
                    0 => How::Unchecked,
                    1 => How::Guarded,
                    _ => How::Exclusive(dice.below(usize::MAX) as u64),
                },
            },
            15..17 => Self::Remove { name: name? },
            17 => Self::Rename {
                from: name?,
                to: *free.get(1)?,
            },
            18 => Self::Lookup { name: name? },
            _ => Self::Readdir,
        })
    }

    /// Bytes of memory that it takes.
    pub fn length(&self) -> Option<usize> {
        match *self {
            Self::Read { length, .. } | Self::Write { length, .. } => Some(length),
            _ => None,
        }
    }
}

/// Mostly little; sometimes too much to be inline for anybody.
fn extent(dice: &mut Dice) -> (usize, usize) {
    let most = dice.pick(&[100, 1200, 1200, 5000, FILE]);
    let length = 1 + dice.below(most);
    (dice.below(FILE - length + 1), length)
}

/// A call, entered in the model.
#[derive(Debug)]
pub struct Operation {
    pub kind: Kind,
    /// The number of a WRITE.
    write: u64,
}

impl Operation {
    /// Takes the names that it uses.
    pub fn begin(kind: Kind, model: &mut Model, client: usize) -> Self {
        let write = match kind {
            Kind::Write { .. } => model.write_id(),
            _ => 0,
        };
        let operation = Self { kind, write };
        operation.names(model, client, |name| name.busy = true);
        operation
    }

    fn names(&self, model: &mut Model, client: usize, mut each: impl FnMut(&mut Name)) {
        let names = &mut model.names[client];
        match self.kind {
            Kind::Create { name, .. } | Kind::Remove { name } | Kind::Lookup { name } => {
                each(&mut names[name]);
            }
            Kind::Rename { from, to } => {
                each(&mut names[from]);
                each(&mut names[to]);
            }
            _ => {}
        }
    }

    /// It could not be made after all.
    pub fn withdraw(&self, model: &mut Model, client: usize) {
        self.names(model, client, |name| name.busy = false);
    }

    /// It was made.
    pub fn sent(&self, model: &mut Model, began: Moment) {
        if let Kind::Write {
            file,
            offset,
            length,
            ..
        } = self.kind
        {
            model.files[file].begin_write(self.write, offset, length, began);
        }
    }

    /// It came to no reply: it may have happened, or may even yet if it is `open`.
    pub fn unknown(&self, model: &mut Model, client: usize, open: bool) {
        let now = model.now();
        let changes = !matches!(self.kind, Kind::Lookup { .. });
        self.names(model, client, |name| {
            name.busy = false;
            name.settled = now;
            if changes && name.state != NameModel::Retired {
                name.state = if open {
                    NameModel::Retired
                } else {
                    NameModel::Unknown
                };
            }
        });
        if let Some(change) = self.change() {
            model.changes[change].1 += 1;
        }
    }

    /// Creation, removal or renaming.
    fn change(&self) -> Option<usize> {
        match self.kind {
            Kind::Create { .. } => Some(0),
            Kind::Remove { .. } => Some(1),
            Kind::Rename { .. } => Some(2),
            _ => None,
        }
    }

    /// Puts it into the connection's hands.
    pub fn submit(
        &self,
        token: u64,
        connection: &mut Connection,
        memory: Option<&Memory>,
        context: &Context<'_>,
        client: usize,
    ) -> Result<CallId, SubmitError> {
        let now = context.now;
        let names = &context.model.names[client];
        let entry = |name: usize| NameInDirectory {
            directory: context.root,
            name: &names[name].text,
        };
        let pieces: &[Slice] = memory.map_or(&[], |memory| &memory.pieces);
        match self.kind {
            Kind::Null => connection.submit(&Call::nfs3(token, Procedure::Null, (), 0), now),
            Kind::Getattr { file } => {
                let call = Call::nfs3(token, Procedure::Getattr, context.files[file], 0);
                connection.submit(&call, now)
            }
            Kind::Read {
                file,
                offset,
                length,
            } => {
                let arguments = ReadArguments {
                    file: context.files[file],
                    offset: offset as u64,
                    count: length as u32,
                };
                let call = Call::nfs3(token, Procedure::Read, arguments, 0);
                connection.submit(&call.with_sinks(&[pieces]), now)
            }
            Kind::Write {
                file,
                offset,
                length,
                stable,
            } => {
                if let Some(memory) = memory {
                    memory.fill(pattern(self.write, offset, length));
                }
                let arguments = WriteArguments {
                    file: context.files[file],
                    offset: offset as u64,
                    count: length as u32,
                    stable,
                    data: Bulk::apart(length as u32),
                };
                let call = Call::nfs3(token, Procedure::Write, arguments, 0);
                connection.submit(&call.with_data(pieces), now)
            }
            Kind::Commit { file } => {
                let arguments = CommitArguments {
                    file: context.files[file],
                    offset: 0,
                    count: 0,
                };
                connection.submit(&Call::nfs3(token, Procedure::Commit, arguments, 0), now)
            }
            Kind::Create { name, how } => {
                let how = match how {
                    How::Unchecked => CreateHow::Unchecked(SetAttributes::default()),
                    How::Guarded => CreateHow::Guarded(SetAttributes::default()),
                    How::Exclusive(verifier) => CreateHow::Exclusive(verifier.to_be_bytes()),
                };
                let arguments = CreateArguments {
                    entry: entry(name),
                    how,
                };
                connection.submit(&Call::nfs3(token, Procedure::Create, arguments, 0), now)
            }
            Kind::Remove { name } => {
                connection.submit(&Call::nfs3(token, Procedure::Remove, entry(name), 0), now)
            }
            Kind::Rename { from, to } => {
                let arguments = RenameArguments {
                    from: entry(from),
                    to: entry(to),
                };
                connection.submit(&Call::nfs3(token, Procedure::Rename, arguments, 0), now)
            }
            Kind::Lookup { name } => {
                connection.submit(&Call::nfs3(token, Procedure::Lookup, entry(name), 0), now)
            }
            Kind::Readdir => {
                let arguments = ReaddirArguments {
                    directory: context.root,
                    cookie: 0,
                    verifier: [0; 8],
                    count: LIST,
                };
                connection.submit(&Call::nfs3(token, Procedure::Readdir, arguments, LIST), now)
            }
        }
    }
}

/// What stays the same when a seed runs again: attributes hold times, so not all of the message.
pub fn digest(result: &Ended) -> u64 {
    let mut hasher = DefaultHasher::new();
    match result {
        Ok((message, written)) => (message.len(), written).hash(&mut hasher),
        Err(error) => format!("{error:?}").hash(&mut hasher),
    }
    hasher.finish()
}

/// The status of a reply, or that of its failure.
fn status<T, F>(results: &millrace_wire::nfs3::Outcome<T, F>) -> Status {
    match results {
        Ok(_) => Status::Ok,
        Err(failure) => failure.status,
    }
}

impl Client {
    /// Judges the end of a call, and learns from it.
    pub fn judge(
        &mut self,
        context: &mut Context<'_>,
        open: &Open,
        result: Ended,
    ) -> Result<(), String> {
        let told = format!("{:?} of client {}", open.operation, self.index);
        let judged = self.judge_quietly(context, open, result);
        judged.map_err(|what| format!("{told}: {what}"))
    }

    fn judge_quietly(
        &mut self,
        context: &mut Context<'_>,
        open: &Open,
        result: Ended,
    ) -> Result<(), String> {
        if let Some(memory) = &open.memory {
            if !memory.is_whole() {
                return Err("memory around the chunks was written to".to_owned());
            }
            if let Kind::Write { offset, length, .. } = open.operation.kind
                && memory.bytes(length) != pattern(open.operation.write, offset, length)
            {
                return Err("the source was written to".to_owned());
            }
        }
        let (message, written) = match result {
            Ok(reply) => reply,
            Err(error) => {
                if !self.may_fail(open, error, context.now) {
                    return Err(format!("failed with {error:?}, lost {:?}", open.lost));
                }
                open.operation
                    .unknown(context.model, self.index, open.cancelled);
                return Ok(());
            }
        };
        let reply = Reply {
            message: &message,
            written: &written,
        };
        self.reply(context, open, &reply)
    }

    /// Whether a call may come to no reply: its chunks cannot be read by a server that may read
    /// nothing, or broke an earlier connection.
    fn may_fail(&self, open: &Open, error: CallError, now: Instant) -> bool {
        if open.cancelled {
            return true;
        }
        // A reply that had to wait for whole windows of others, which no RDMA_DONE ended.
        let waited = |window: Duration| now >= open.made + window;
        if error == CallError::Chunk && self.options.window.is_some_and(waited) {
            return true;
        }
        let refused = matches!(error, CallError::Chunk | CallError::BadXdr);
        refused && (self.options.settings.ird == 0 || !open.lost.is_empty())
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        open: &Open,
        reply: &Reply<'_>,
    ) -> Result<(), String> {
        let wrong = |error| format!("no results: {error}");
        let model = &mut *context.model;
        match open.operation.kind {
            Kind::Null => reply.results::<()>().map_err(wrong),
            Kind::Getattr { file } => {
                let results = reply.results::<GetattrResults>().map_err(wrong)?;
                let size = results
                    .map_err(|failure| format!("{:?}", failure.status))?
                    .size as usize;
                let (least, most) = model.files[file].sizes(open.began);
                if size < least || size > most {
                    return Err(format!("{size} bytes, not {least} to {most}"));
                }
                Ok(())
            }
            Kind::Read {
                file,
                offset,
                length,
            } => {
                let results = reply.results::<ReadResults<'_>>().map_err(wrong)?;
                let read = results.map_err(|failure| format!("{:?}", failure.status))?;
                let count = read.count as usize;
                let apart;
                let data = match read.data.as_inline() {
                    Some(data) => data,
                    None => {
                        let memory = open.memory.as_ref().ok_or("no memory")?;
                        apart = memory.bytes(count);
                        &apart
                    }
                };
                if data.len() != count {
                    return Err(format!("{count} bytes told, {} there", data.len()));
                }
                model.files[file].check(&Seen {
                    offset,
                    asked: length,
                    eof: read.eof,
                    data,
                    began: open.began,
                })
            }
            Kind::Write {
                file,
                length,
                stable,
                ..
            } => {
                let results = reply.results::<WriteResults>().map_err(wrong)?;
                let done = results.map_err(|failure| format!("{:?}", failure.status))?;
                if done.count as usize != length || (done.committed as u32) < stable as u32 {
                    return Err(format!("{} bytes, {:?}", done.count, done.committed));
                }
                self.written(context, file, open);
                Ok(())
            }
            Kind::Commit { .. } => {
                let results = reply.results::<CommitResults>().map_err(wrong)?;
                results
                    .map(|_| ())
                    .map_err(|failure| format!("{:?}", failure.status))
            }
            Kind::Create { .. } => {
                let results = reply.results::<CreateResults>().map_err(wrong)?;
                self.changed(context, open, status(&results))
            }
            Kind::Remove { .. } => {
                let results = reply.results::<RemoveResults>().map_err(wrong)?;
                self.changed(context, open, status(&results))
            }
            Kind::Rename { .. } => {
                let results = reply.results::<RenameResults>().map_err(wrong)?;
                self.changed(context, open, status(&results))
            }
            Kind::Lookup { .. } => {
                let results = reply.results::<LookupResults>().map_err(wrong)?;
                self.changed(context, open, status(&results))
            }
            Kind::Readdir => {
                let results = reply.results::<ReaddirResults<'_>>().map_err(wrong)?;
                let list = results.map_err(|failure| format!("{:?}", failure.status))?;
                let names = list.entries.iter().map(|entry| entry.name.to_vec());
                let names: Vec<Vec<u8>> = names.collect();
                if !list.eof {
                    return Err(format!("only {} names", names.len()));
                }
                model.check_list(&names, open.began)
            }
        }
    }

    /// A WRITE is acknowledged. If it was sent more than once, an earlier copy may be at work as
    /// long as its connection lives at the server.
    fn written(&mut self, context: &mut Context<'_>, file: usize, open: &Open) {
        let write = open.operation.write;
        if is_dead(&open.lost, context.alive) {
            let now = context.model.now();
            context.model.files[file].end_write(write, now);
        } else {
            self.lingering.push(Lingering {
                file,
                write,
                lost: open.lost.clone(),
            });
        }
    }

    /// Compares the status of a call about names with what was known, and learns.
    fn changed(
        &mut self,
        context: &mut Context<'_>,
        open: &Open,
        status: Status,
    ) -> Result<(), String> {
        let names = &context.model.names[self.index];
        let state = |name: usize| names[name].state;
        let (expected, after): (&[Status], _) = match open.operation.kind {
            Kind::Create { name, how } => {
                let exists: &[Status] = match (state(name), how) {
                    (NameModel::Absent, _) | (NameModel::Present, How::Unchecked) => &[Status::Ok],
                    (NameModel::Present, _) => &[Status::Exists],
                    _ => &[Status::Ok, Status::Exists],
                };
                (exists, vec![(name, NameModel::Present)])
            }
            Kind::Remove { name } => (found(state(name)), vec![(name, NameModel::Absent)]),
            Kind::Rename { from, to } => {
                let moved = [(from, NameModel::Absent), (to, NameModel::Present)];
                let kept = [(from, NameModel::Absent), (to, state(to))];
                let after = if status == Status::Ok { moved } else { kept };
                (found(state(from)), after.to_vec())
            }
            Kind::Lookup { name } => {
                let there =
                    [NameModel::Absent, NameModel::Present][usize::from(status == Status::Ok)];
                (found(state(name)), vec![(name, there)])
            }
            _ => (&[Status::Ok], Vec::new()),
        };
        if !expected.contains(&status) {
            let known: Vec<&Name> = after.iter().map(|(name, _)| &names[*name]).collect();
            return Err(format!("{status:?}, with {known:?}"));
        }
        let now = context.model.now();
        for (name, state) in after {
            let name = &mut context.model.names[self.index][name];
            name.state = state;
            name.busy = false;
            name.settled = now;
        }
        if let Some(change) = open.operation.change().filter(|_| status == Status::Ok) {
            context.model.changes[change].0 += 1;
        }
        Ok(())
    }
}

fn found(state: NameModel) -> &'static [Status] {
    match state {
        NameModel::Present => &[Status::Ok],
        NameModel::Absent => &[Status::NoEntry],
        NameModel::Unknown | NameModel::Retired => &[Status::Ok, Status::NoEntry],
    }
}
