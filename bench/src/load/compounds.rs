//! The calls of a load in NFS version 4, and their replies: COMPOUNDs as a Linux client sends them
//! (RFC 8881 section 16.2).

use anyhow::{Context, Result, anyhow};
use millrace_wire::nfs4::{
    AttributeNumber, Bitmap, CloseOperation, OpenClaim, OpenOperation, Operation, OperationResults,
    ReadOperation, StateId, StateOwner, WriteOperation, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use super::calls::{LoadCall, LoadSlot, REPLY_HEADER, Templates, succeeded};
use super::workload::Workload;
use crate::requester::session::{ClientSession, Error, OpenedFile, compound_results};
use crate::requester::{Call, CallTemplate, Connection, Reply, Session};

/// Bytes of the longest reply, without data.
const REPLY_MAX: usize = 1024;
/// Where the sequence number stands in the arguments, with the slot behind it: tag, minor version,
/// number of operations, the number of SEQUENCE, and the session come first.
const SEQUENCE: usize = 4 + 4 + 4 + 4 + 16;
/// Bytes of the results of SEQUENCE and PUTFH, and of what comes before them: tag and number.
const RESULTS: usize = 8 + 44 + 8;

/// Tells the owners of further opens from those of calls.
const FURTHER_OWNERS: u64 = 1 << 63;

/// What GETATTR and LOOKUP ask for, as Linux does.
const ATTRIBUTES: Bitmap = Bitmap::of(&[
    AttributeNumber::Type,
    AttributeNumber::Change,
    AttributeNumber::Size,
    AttributeNumber::FileSystem,
    AttributeNumber::FileId,
    AttributeNumber::Mode,
    AttributeNumber::Links,
    AttributeNumber::Owner,
    AttributeNumber::OwnerGroup,
    AttributeNumber::RawDevice,
    AttributeNumber::SpaceUsed,
    AttributeNumber::TimeAccess,
    AttributeNumber::TimeMetadata,
    AttributeNumber::TimeModify,
    AttributeNumber::MountedOnFileId,
]);
/// What goes with a WRITE.
const WRITTEN: Bitmap = Bitmap::of(&[
    AttributeNumber::Change,
    AttributeNumber::Size,
    AttributeNumber::SpaceUsed,
    AttributeNumber::TimeMetadata,
    AttributeNumber::TimeModify,
]);

/// The session of a lane, and the file that is open in it.
pub(super) struct LaneSession {
    pub(super) client: ClientSession,
    pub(super) file: OpenedFile,
    /// The same file once more, by other owners.
    pub(super) again: Vec<StateId>,
    /// Sequence numbers of the last requests, by slot.
    pub(super) sequences: Vec<u32>,
}

impl LaneSession {
    /// A session with a slot for each call, and a file of an export open in it.
    pub(super) fn open(
        session: &mut Session,
        minor_version: u32,
        depth: usize,
        path: (&str, &str),
    ) -> Result<Self> {
        let verifier = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let verifier = (verifier.as_nanos() as u64).to_be_bytes();
        let slots = u32::try_from(depth).unwrap_or(u32::MAX).max(1);
        let mut client = session
            .create_session(minor_version, path.1.as_bytes(), verifier, slots)
            .with_context(|| format!("no session of NFS version 4.{minor_version}"))?;
        let file = match client.slots < slots {
            true => Err(anyhow!(
                "--depth: the server grants a session {} slots",
                client.slots
            )),
            false => session
                .open_path(&mut client, path, share::BOTH | share::WANT_NONE)
                .map_err(anyhow::Error::from),
        };
        let file = file.inspect_err(|_| {
            // The failure is what there is to tell.
            let _ = session.leave(&client);
        })?;
        let mut sequences = vec![0; slots as usize];
        sequences[0] = client.sequence;
        Ok(Self {
            client,
            file,
            again: Vec::new(),
            sequences,
        })
    }

    /// Opens the file so many times more, each time by another owner.
    pub(super) fn open_again(
        &mut self,
        session: &mut Session,
        name: &[u8],
        times: u32,
    ) -> Result<()> {
        for number in 0..times {
            let owner = (u64::from(number) | FURTHER_OWNERS).to_be_bytes();
            let open = open(&self.client, name, &owner);
            let operations = [Operation::Putfh(BoundedBytes(&self.file.directory)), open];
            let opened = session.in_session(&mut self.client, &operations, |results| match results
                .last()
            {
                Some(OperationResults::Open(Ok(reply))) => Some(reply.open),
                _ => None,
            });
            self.sequences[0] = self.client.sequence;
            self.again.push(opened.context("--opens")?);
        }
        Ok(())
    }

    /// Closes the file and ends the session.
    pub(super) fn end(self, session: &mut Session) -> Result<()> {
        let mut client = ClientSession {
            sequence: self.sequences[0],
            ..self.client
        };
        let mut file = self.file.clone();
        for open in self.again {
            file.open = open;
            session.close_file(&mut client, &file)?;
        }
        Ok(session.end_session(client, &self.file)?)
    }

    /// The words that differ in SEQUENCE of a slot's next request: its number, and the slot.
    pub(super) fn next(&mut self, slot: usize) -> u64 {
        let sequence = &mut self.sequences[slot];
        *sequence = sequence.wrapping_add(1);
        u64::from(*sequence) << 32 | slot as u64
    }
}

/// OPEN of a file by its name, by an owner.
fn open<'a>(client: &ClientSession, name: &'a [u8], owner: &'a [u8]) -> Operation<'a> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access: share::BOTH | share::WANT_NONE,
        deny: 0,
        owner: StateOwner {
            client: client.client,
            owner: BoundedBytes(owner),
        },
        create: None,
        claim: OpenClaim::Name(name),
    })
}

/// Encodes the calls of a load.
pub(super) fn templates(
    connection: &Connection,
    session: &LaneSession,
    name: &str,
    workload: &Workload,
) -> Result<Templates> {
    let LaneSession { client, file, .. } = session;
    let count = workload.size as u32;
    let sequence = Operation::Sequence(client.sequence(0, 0));
    let opened = Operation::Putfh(BoundedBytes(&file.handle));
    let directory = Operation::Putfh(BoundedBytes(&file.directory));
    // SEQUENCE ends with two words; then come the number of PUTFH, the handle with its length, and
    // the number and the stateid of READ or WRITE.
    let offset = SEQUENCE + 16 + 4 + 4 + file.handle.len().next_multiple_of(4) + 4 + 16;
    let template = |operations: &[Operation<'_>], arguments: &[usize]| -> Result<CallTemplate> {
        let call = Call::compound(client.minor_version, operations, REPLY_MAX);
        Ok(connection.template(&call, arguments)?)
    };
    let read = Operation::Read(ReadOperation {
        state: file.open,
        offset: 0,
        count,
    });
    let write = Operation::Write(WriteOperation {
        state: file.open,
        offset: 0,
        stable: workload.stability(),
        data: Bulk::apart(count),
    });
    let attributes = Operation::Getattr(ATTRIBUTES);
    let written = Operation::Getattr(WRITTEN);
    // The owner is the number of the call's place: no two calls in flight share an open.
    let open = open(client, name.as_bytes(), &[0; 8]);
    let close = Operation::Close(CloseOperation {
        sequence: 0,
        open: StateId::CURRENT,
    });
    let owner = SEQUENCE + 16 + 4 + 4 + file.directory.len().next_multiple_of(4) + 16 + 8 + 4;
    let lookup = Operation::Lookup(name.as_bytes());
    let handle = Operation::Getfh(());
    let by_name = [sequence, directory, lookup, handle, attributes];
    Ok(Templates {
        read: template(&[sequence, opened, read], &[SEQUENCE, offset])?,
        write: template(&[sequence, opened, write, written], &[SEQUENCE, offset])?,
        getattr: template(&[sequence, opened, attributes], &[SEQUENCE])?,
        lookup: template(&by_name, &[SEQUENCE])?,
        open: Some(template(
            &[sequence, directory, open, close],
            &[SEQUENCE, owner],
        )?),
        create: None,
        remove: None,
    })
}

/// Whether a reply tells by its statuses and its lengths that all was done. If not it has to be
/// decoded, as failures, short counts and inline data are.
pub(super) fn did_all(call: LoadCall, reply: &Reply<'_>, size: usize) -> bool {
    let message = reply.message;
    // The status of a COMPOUND is that of its last operation.
    if !succeeded(message) {
        return false;
    }
    match call {
        LoadCall::Read => reply.written == [Some(size as u32)],
        // Number and status of the operation come before the count.
        LoadCall::Write => {
            let at = REPLY_HEADER + RESULTS + 8;
            message.get(at..at + 4) == Some(&(size as u32).to_be_bytes()[..])
        }
        _ => message.len() > REPLY_HEADER + RESULTS,
    }
}

/// Decodes a reply: bytes that were moved, and whether as many as were asked for.
pub(super) fn read(at: &LoadSlot, reply: &Reply<'_>) -> Result<(u32, bool), Error> {
    let results = compound_results(reply)?;
    let count = match (at.call, &results[..]) {
        (LoadCall::Read, [.., OperationResults::Read(Ok(done))]) => {
            if let Some(data) = done.data.as_inline()
                && data.len() <= at.memory.len()
            {
                at.memory.copy_from(0, data);
            }
            done.data.length
        }
        (LoadCall::Write, [_, _, OperationResults::Write(Ok(done)), _]) => done.count,
        (LoadCall::Read | LoadCall::Write, _) => return Err(Error::OtherResults),
        _ => return Ok((0, true)),
    };
    Ok((count, count as usize == at.memory.len()))
}
