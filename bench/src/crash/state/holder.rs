//! A client of the run: its session, the operation in flight, and what it holds.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use millrace_mempool::Pool;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    CloseOperation, ExistingLockOwner, LockOperation, LockType, Locker, LockuOperation,
    NewLockOwner, OpenClaim, OpenOperation, Operation, OperationResults, OperationStatus as Status,
    ReadOperation, StateId, StateOwner, WriteOperation, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use super::holdings::{Holdings, OWNERS, OpenFile};
use crate::client::Client;
use crate::requester::session::{ClientSession, compound_results};
use crate::requester::{Call, CallError, Completion, RequesterState, Session};

/// Bytes of the longest reply.
const REPLY_MAX: usize = 2048;
/// The open owner, and the lock owners.
pub const OPEN_OWNER: &[u8] = b"opens";
pub const LOCK_OWNERS: [&[u8]; OWNERS] = [b"locks", b"more locks"];
/// Where clients write, behind the bytes that they lock: each has a place of its own.
const STAMPS: u64 = 1024;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOperation {
    /// OPEN, also of a file that is open.
    Open { file: usize, access: u32, deny: u32 },
    /// CLOSE.
    Close { file: usize },
    /// LOCK of the bytes from `start` to before `end`.
    Lock {
        file: usize,
        owner: usize,
        start: usize,
        end: usize,
        exclusive: bool,
    },
    /// LOCKU.
    Unlock {
        file: usize,
        owner: usize,
        start: usize,
        end: usize,
    },
    /// A stable WRITE.
    Write { file: usize, stamp: u64 },
    /// READ of what was written.
    Read { file: usize },
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum StateAnswer {
    /// Success, with the stateid of what was granted or changed.
    Granted(StateId),
    /// Success.
    Done,
    /// Data.
    Data(Vec<u8>),
    /// The server's refusal.
    Refused(Status),
    /// The connection ended first.
    Lost,
}

/// What a client has written to its place in a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct StampHistory {
    /// The last WRITE that was answered.
    pub answered: u64,
    /// A later one without an answer.
    pub unanswered: Option<u64>,
}

/// One client.
pub struct Holder {
    /// Its number.
    pub number: usize,
    /// The number of the server that it uses.
    pub server: usize,
    /// Of its instance.
    pub verifier: u64,
    connected: Option<(Session, ClientSession)>,
    /// What it holds.
    pub files: Holdings,
    /// What it has written, by file.
    pub written: BTreeMap<usize, StampHistory>,
    /// Whether it has had an open in this instance.
    pub is_recorded: bool,
    /// The operation in flight, and what it held of the file before.
    pub in_flight: Option<(StateOperation, Option<OpenFile>)>,
}

/// The handles of the files.
pub type FileHandles = Vec<Vec<u8>>;

impl Holder {
    /// A client without a session.
    pub const fn new(number: usize, verifier: u64) -> Self {
        Self {
            number,
            server: 0,
            verifier,
            connected: None,
            files: Holdings::new(),
            written: BTreeMap::new(),
            is_recorded: false,
            in_flight: None,
        }
    }

    /// Connects and begins a session, which has nothing reclaimed yet.
    pub fn begin(&mut self, client: &Client, pool: &Pool, minor_version: u32) -> Result<()> {
        let mut session = client.session(pool, client.settings(1))?;
        let owner = format!("millrace-crash {}", self.number);
        let verifier = self.verifier.to_be_bytes();
        let begun = session
            .begin_session(minor_version, owner.as_bytes(), verifier, 1)
            .with_context(|| format!("client {}", self.number))?;
        self.connected = Some((session, begun));
        Ok(())
    }

    /// Says that all is reclaimed.
    pub fn complete(&mut self) -> Result<()> {
        let (session, client) = self.connected.as_mut().context("no session")?;
        Ok(session.reclaim_complete(client)?)
    }

    /// Renews the lease, if there is a session.
    pub fn renew(&mut self) -> Result<()> {
        match &mut self.connected {
            Some((session, client)) => Ok(session.in_session(client, &[], |_| Some(()))?),
            None => Ok(()),
        }
    }

    /// Ends the client, which holds nothing.
    pub fn leave(mut self) -> Result<()> {
        let (session, client) = self.connected.as_mut().context("no session")?;
        Ok(session.leave(client)?)
    }

    /// The client's number for the server; 0 without a session.
    fn id(&self) -> u64 {
        self.connected
            .as_ref()
            .map_or(0, |(_, client)| client.client)
    }

    /// Executes operations on a file and waits for the status, and for the last result's stateid.
    pub fn run(
        &mut self,
        handle: &[u8],
        operation: &Operation<'_>,
    ) -> Result<Result<Option<StateId>, Status>> {
        let (session, client) = self.connected.as_mut().context("no session")?;
        let operations = [Operation::Putfh(BoundedBytes(handle)), *operation];
        let ran = session.in_session(client, &operations, |results| {
            Some(results.last().and_then(granted))
        });
        match ran {
            Ok(state) => Ok(Ok(state)),
            Err(crate::requester::session::Error::Nfs4(_, status)) => Ok(Err(status)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads its place in a file.
    pub fn read_stamp(&mut self, file: usize, handle: &[u8]) -> Result<Result<u64, Status>> {
        let Some(open) = self.files.get(&file).map(|held| held.open) else {
            bail!("client {} has no open of file {file}", self.number);
        };
        let read = self.reading(open);
        let (session, client) = self.connected.as_mut().context("no session")?;
        let operations = [Operation::Putfh(BoundedBytes(handle)), read];
        let ran = session.in_session(client, &operations, |results| match results.last() {
            Some(OperationResults::Read(Ok(reply))) => Some(stamp(reply.data.as_inline()?)),
            _ => None,
        });
        match ran {
            Ok(stamp) => Ok(Ok(stamp)),
            Err(crate::requester::session::Error::Nfs4(_, status)) => Ok(Err(status)),
            Err(error) => Err(error.into()),
        }
    }

    /// OPEN by the client's open owner.
    pub fn opening<'a>(&self, (access, deny): (u32, u32), claim: OpenClaim<'a>) -> Operation<'a> {
        Operation::Open(OpenOperation {
            sequence: 0,
            access: access | share::WANT_NONE,
            deny,
            owner: StateOwner {
                client: self.id(),
                owner: BoundedBytes(OPEN_OWNER),
            },
            create: None,
            claim,
        })
    }

    /// LOCK of a file that is open.
    pub fn locking<'a>(
        &self,
        held: &OpenFile,
        owner: usize,
        (range, exclusive): (std::ops::Range<usize>, bool),
        reclaim: bool,
    ) -> Operation<'a> {
        let locker = match held.locks[owner].state {
            Some(lock) => Locker::Existing(ExistingLockOwner { lock, sequence: 0 }),
            None => Locker::New(NewLockOwner {
                open_sequence: 0,
                open: held.open,
                lock_sequence: 0,
                owner: StateOwner {
                    client: self.id(),
                    owner: BoundedBytes(LOCK_OWNERS[owner]),
                },
            }),
        };
        Operation::Lock(LockOperation {
            kind: kind(exclusive),
            reclaim,
            offset: range.start as u64,
            length: range.len() as u64,
            locker,
        })
    }

    fn reading<'a>(&self, open: StateId) -> Operation<'a> {
        Operation::Read(ReadOperation {
            state: open,
            offset: self.place(),
            count: 8,
        })
    }

    const fn place(&self) -> u64 {
        STAMPS + 8 * self.number as u64
    }

    /// Sends an operation, and gives up what that frees.
    pub fn submit(&mut self, operation: StateOperation, handles: &FileHandles) -> Result<()> {
        let file = operation.file();
        let before = self.files.get(&file).cloned();
        let held = before.as_ref();
        let open = held.map(|held| held.open);
        let lock = |owner: usize| held.and_then(|held| held.locks[owner].state);
        let data;
        let sent = match operation {
            StateOperation::Open { access, deny, .. } => {
                self.opening((access, deny), OpenClaim::File)
            }
            StateOperation::Close { .. } => Operation::Close(CloseOperation {
                sequence: 0,
                open: open.context("not open")?,
            }),
            StateOperation::Lock {
                owner,
                start,
                end,
                exclusive,
                ..
            } => {
                let held = held.context("not open")?;
                self.locking(held, owner, (start..end, exclusive), false)
            }
            StateOperation::Unlock {
                owner, start, end, ..
            } => Operation::Locku(LockuOperation {
                kind: LockType::Write,
                sequence: 0,
                lock: lock(owner).context("no locks")?,
                offset: start as u64,
                length: (end - start) as u64,
            }),
            StateOperation::Write { stamp, .. } => {
                data = stamp.to_be_bytes();
                Operation::Write(WriteOperation {
                    state: open.context("not open")?,
                    offset: self.place(),
                    stable: Stability::FileSync,
                    data: Bulk::inline(&data),
                })
            }
            StateOperation::Read { .. } => self.reading(open.context("not open")?),
        };
        let (session, client) = self.connected.as_mut().context("no session")?;
        client.sequence = client.sequence.wrapping_add(1);
        let operations = [
            Operation::Sequence(client.sequence(0, client.sequence)),
            Operation::Putfh(BoundedBytes(&handles[file])),
            sent,
        ];
        let call = Call::compound(client.minor_version, &operations, REPLY_MAX);
        session.parts().0.submit(&call, Instant::now())?;
        self.give_up(operation);
        self.in_flight = Some((operation, before));
        Ok(())
    }

    /// Gives up what an operation frees.
    fn give_up(&mut self, operation: StateOperation) {
        let Some(held) = self.files.get_mut(&operation.file()) else {
            return;
        };
        match operation {
            StateOperation::Close { file } => {
                self.files.remove(&file);
            }
            StateOperation::Unlock {
                owner, start, end, ..
            } => held.locks[owner].bytes[start..end].fill(None),
            StateOperation::Lock {
                owner,
                start,
                end,
                exclusive: false,
                ..
            } => {
                let exclusive = held.locks[owner].bytes[start..end].iter_mut();
                exclusive.flatten().for_each(|mode| *mode = false);
            }
            StateOperation::Write { file, stamp } => {
                self.written.entry(file).or_default().unanswered = Some(stamp);
            }
            _ => {}
        }
    }

    /// Sends and receives what can be; gives the operation that has ended, with what was held
    /// before.
    pub fn turn(&mut self) -> Option<(StateOperation, Option<OpenFile>, StateAnswer)> {
        let (session, _) = self.connected.as_mut()?;
        let mut answer = None;
        session.turn(&mut |completion: Completion<'_>| {
            answer = Some(match &completion.result {
                Ok(reply) => match compound_results(reply) {
                    Ok(results) => answered(results.last()),
                    Err(crate::requester::session::Error::Nfs4(_, status)) => {
                        StateAnswer::Refused(status)
                    }
                    Err(_) => StateAnswer::Refused(Status::ServerFault),
                },
                Err(CallError::Disconnected) => StateAnswer::Lost,
                Err(_) => StateAnswer::Refused(Status::ServerFault),
            });
        });
        let (operation, before) = self.in_flight.take_if(|_| answer.is_some())?;
        Some((operation, before, answer?))
    }

    /// Whether it has a connection.
    pub fn is_up(&self) -> bool {
        let connected = self.connected.as_ref();
        connected.is_some_and(|(session, _)| session.connection().state() == &RequesterState::Ready)
    }

    /// Forgets the connection, and the session with it.
    pub fn disconnect(&mut self) {
        self.connected = None;
        self.in_flight = None;
    }
}

impl StateOperation {
    /// The file that it is about.
    pub const fn file(&self) -> usize {
        match *self {
            Self::Open { file, .. }
            | Self::Close { file }
            | Self::Lock { file, .. }
            | Self::Unlock { file, .. }
            | Self::Write { file, .. }
            | Self::Read { file } => file,
        }
    }

    /// The operation of the protocol.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "OPEN",
            Self::Close { .. } => "CLOSE",
            Self::Lock { .. } => "LOCK",
            Self::Unlock { .. } => "LOCKU",
            Self::Write { .. } => "WRITE",
            Self::Read { .. } => "READ",
        }
    }
}

/// The type of a lock.
pub const fn kind(exclusive: bool) -> LockType {
    if exclusive {
        LockType::Write
    } else {
        LockType::Read
    }
}

fn granted(results: &OperationResults<'_>) -> Option<StateId> {
    match results {
        OperationResults::Open(Ok(reply)) => Some(reply.open),
        OperationResults::Lock(Ok(state)) | OperationResults::Locku(Ok(state)) => Some(*state),
        _ => None,
    }
}

fn answered(results: Option<&OperationResults<'_>>) -> StateAnswer {
    match results {
        Some(OperationResults::Read(Ok(reply))) => {
            StateAnswer::Data(reply.data.as_inline().unwrap_or_default().to_vec())
        }
        Some(results) => granted(results).map_or(StateAnswer::Done, StateAnswer::Granted),
        None => StateAnswer::Refused(Status::ServerFault),
    }
}

/// A stamp that was read; 0 if there is none.
pub fn stamp(data: &[u8]) -> u64 {
    data.try_into().map_or(0, u64::from_be_bytes)
}
