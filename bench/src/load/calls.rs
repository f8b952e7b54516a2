//! The calls of a load and their replies: calls are repeated from templates, and replies checked by
//! their statuses and lengths unless all is to be verified.

use std::time::Instant;

use anyhow::Result;
use millrace_mempool::Slice;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateOk, FileAttributes, FileHandle, LookupOk, NameInDirectory,
    PostAttributes, Procedure, ReadArguments, SetAttributes, WeakCacheData, WriteArguments,
    WriteOk,
};
use millrace_wire::xdr::Bulk;

use super::compounds;
use super::workload::Workload;
use crate::requester::session::{Error, take_plain, take_read};
use crate::requester::{Call, CallTemplate, Completion, Connection, Reply};

/// Bytes of a reply up to its procedure's status, and of attributes (RFC 1813 section 2.6).
pub(super) const REPLY_HEADER: usize = 28;
const ATTRIBUTES: usize = 84;

/// Such a reply's words from behind its XID on if all went well: message type REPLY, reply status,
/// an empty verifier, accept status, and the procedure's own status.
const SUCCESS: [u8; REPLY_HEADER - 4] = {
    let mut words = [0; REPLY_HEADER - 4];
    words[3] = 1;
    words
};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadCall {
    Read,
    Write,
    Getattr,
    Lookup,
    /// Opens the file and closes it, in version 4.
    Open,
    /// Makes a file, in version 3.
    Create,
    /// Removes it.
    Remove,
}

impl LoadCall {
    /// The next call of a load of CREATE and REMOVE.
    pub(super) fn creating_or_removing(self) -> Self {
        match self {
            Self::Create => Self::Remove,
            _ => Self::Create,
        }
    }
}

/// The digits that end the name of a file that a place makes and removes: it is a number, so that
/// calls are repeated as others are.
pub(super) fn place_digits(place: usize) -> [u8; 8] {
    let mut rest = place;
    let mut digits = [b'0'; 8];
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// The arguments of a CREATE.
pub(super) fn create_arguments(entry: NameInDirectory<'_>) -> CreateArguments<'_> {
    let attributes = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    CreateArguments {
        entry,
        how: CreateHow::Unchecked(attributes),
    }
}

/// One call's place: it is used for one call after the other.
pub(super) struct LoadSlot {
    pub(super) memory: Slice,
    pub(super) begun: Instant,
    pub(super) offset: u64,
    pub(super) call: LoadCall,
    /// All of its reply is decoded.
    pub(super) verify: bool,
    /// Its calls are COMPOUNDs of NFS version 4.
    pub(super) compounds: bool,
}

/// The calls of a load, encoded once.
pub(super) struct Templates {
    pub(super) read: CallTemplate,
    pub(super) write: CallTemplate,
    pub(super) getattr: CallTemplate,
    pub(super) lookup: CallTemplate,
    /// Version 4 only.
    pub(super) open: Option<CallTemplate>,
    /// Version 3 only.
    pub(super) create: Option<CallTemplate>,
    pub(super) remove: Option<CallTemplate>,
}

impl Templates {
    pub(super) fn new(
        connection: &Connection,
        file: FileHandle,
        name: NameInDirectory<'_>,
        workload: &Workload,
    ) -> Result<Self> {
        let count = workload.size as u32;
        // READ and WRITE have the offset behind the handle.
        let offset = 4 + file.as_bytes().len().next_multiple_of(4);
        let read = ReadArguments {
            file,
            offset: 0,
            count,
        };
        let write = WriteArguments {
            file,
            offset: 0,
            count,
            stable: workload.stability(),
            data: Bulk::apart(count),
        };
        let made = [name.name, b".", &place_digits(0)].concat();
        let made = NameInDirectory {
            directory: name.directory,
            name: &made,
        };
        // Behind the directory's handle and the length of the name.
        let directory = 4 + name.directory.as_bytes().len().next_multiple_of(4);
        let digits = directory + 4 + made.name.len() - 8;
        let create = Call::nfs3(0, Procedure::Create, create_arguments(made), 0);
        let remove = Call::nfs3(0, Procedure::Remove, made, 0);
        let (read, write, getattr, lookup) = (
            Call::nfs3(0, Procedure::Read, read, 0),
            Call::nfs3(0, Procedure::Write, write, 0),
            Call::nfs3(0, Procedure::Getattr, file, 0),
            Call::nfs3(0, Procedure::Lookup, name, 0),
        );
        Ok(Self {
            read: connection.template(&read, &[offset])?,
            write: connection.template(&write, &[offset])?,
            getattr: connection.template(&getattr, &[])?,
            lookup: connection.template(&lookup, &[])?,
            open: None,
            create: Some(connection.template(&create, &[digits])?),
            remove: Some(connection.template(&remove, &[digits])?),
        })
    }

    /// The template of a call, if the version has it.
    pub(super) fn of(&self, call: LoadCall) -> Option<&CallTemplate> {
        match call {
            LoadCall::Read => Some(&self.read),
            LoadCall::Write => Some(&self.write),
            LoadCall::Getattr => Some(&self.getattr),
            LoadCall::Lookup => Some(&self.lookup),
            LoadCall::Open => self.open.as_ref(),
            LoadCall::Create => self.create.as_ref(),
            LoadCall::Remove => self.remove.as_ref(),
        }
    }
}

/// A call that ended.
pub(super) struct Finished {
    pub(super) lane: usize,
    pub(super) place: usize,
    pub(super) outcome: Result<(u32, bool), Error>,
}

/// Looks at a reply: bytes that were moved, and whether as many as were asked for.
pub(super) fn judge(lane: usize, places: &[LoadSlot], completion: &Completion<'_>) -> Finished {
    let place = completion.token as usize;
    let outcome = match (&completion.result, places.get(place)) {
        (Ok(reply), Some(at)) if !at.verify && is_done(at, reply) => {
            let moved = match at.call {
                LoadCall::Read | LoadCall::Write => at.memory.len() as u32,
                _ => 0,
            };
            Ok((moved, true))
        }
        (Ok(reply), Some(at)) if at.compounds => compounds::read(at, reply),
        (Ok(reply), Some(at)) => read(at, reply),
        (Err(error), _) => Err((*error).into()),
        (Ok(_), None) => Err(Error::OtherResults),
    };
    Finished {
        lane,
        place,
        outcome,
    }
}

/// Decodes a reply: bytes that were moved, and whether as many as were asked for.
fn read(at: &LoadSlot, reply: &Reply<'_>) -> Result<(u32, bool), Error> {
    let count = match at.call {
        LoadCall::Read => Some(take_read(reply, std::slice::from_ref(&at.memory))?.count),
        LoadCall::Write => {
            let done = take_plain::<WriteOk, WeakCacheData>(Procedure::Write, reply)?;
            Some(done.count)
        }
        LoadCall::Getattr => {
            take_plain::<FileAttributes, ()>(Procedure::Getattr, reply).map(|_| None)?
        }
        LoadCall::Lookup => {
            take_plain::<LookupOk, PostAttributes>(Procedure::Lookup, reply).map(|_| None)?
        }
        LoadCall::Create => {
            take_plain::<CreateOk, WeakCacheData>(Procedure::Create, reply).map(|_| None)?
        }
        LoadCall::Remove => {
            take_plain::<WeakCacheData, WeakCacheData>(Procedure::Remove, reply).map(|_| None)?
        }
        LoadCall::Open => return Err(Error::OtherResults),
    };
    Ok(count.map_or((0, true), |count| {
        (count, count as usize == at.memory.len())
    }))
}

fn is_done(at: &LoadSlot, reply: &Reply<'_>) -> bool {
    if at.compounds {
        compounds::did_all(at.call, reply, at.memory.len())
    } else {
        did_all(at.call, reply, at.memory.len())
    }
}

/// Whether all statuses of a reply up to that of its results tell success.
pub(super) fn succeeded(message: &[u8]) -> bool {
    message.get(4..REPLY_HEADER) == Some(&SUCCESS[..])
}

/// Whether a reply tells by its statuses and its lengths that all was done. If not it has to be
/// decoded, as failures, short counts and inline data are.
fn did_all(call: LoadCall, reply: &Reply<'_>, size: usize) -> bool {
    let message = reply.message;
    if !succeeded(message) {
        return false;
    }
    match call {
        LoadCall::Getattr => message.len() == REPLY_HEADER + ATTRIBUTES,
        // A handle, the attributes of the file, and those of the directory.
        LoadCall::Lookup => message.len() > REPLY_HEADER + 4 + 2 * (4 + ATTRIBUTES),
        // Count, stability and verifier are the end of the results (RFC 1813 section 3.3.7).
        LoadCall::Write => {
            let ends = message[REPLY_HEADER..].last_chunk::<16>();
            let count = ends.and_then(|end| end.first_chunk().copied());
            message.len() >= REPLY_HEADER + 24 && count == Some((size as u32).to_be_bytes())
        }
        LoadCall::Read => reply.written == [Some(size as u32)],
        LoadCall::Open | LoadCall::Create | LoadCall::Remove => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply of so many bytes that tells success.
    fn success(length: usize) -> Vec<u8> {
        let mut message = vec![0; length];
        message[7] = 1;
        message
    }

    #[test]
    fn only_replies_that_tell_success_in_every_status_pass_undecoded() {
        let done = |message: &[u8]| {
            let reply = Reply {
                message,
                written: &[],
            };
            did_all(LoadCall::Getattr, &reply, 0)
        };
        let message = success(REPLY_HEADER + ATTRIBUTES);
        assert!(done(&message));
        assert!(!done(&message[..message.len() - 4]), "it is too short");
        for word in 1..7 {
            let mut failed = message.clone();
            failed[word * 4 + 3] ^= 2;
            assert!(!done(&failed), "word {word}");
        }
    }

    #[test]
    fn lookups_without_a_handle_and_attributes_do_not_pass_undecoded() {
        let done = |message: &[u8]| {
            let written = &[];
            did_all(LoadCall::Lookup, &Reply { message, written }, 0)
        };
        let least = REPLY_HEADER + 4 + 2 * (4 + ATTRIBUTES);
        assert!(done(&success(least + 32)));
        assert!(!done(&success(least)));
        assert!(!done(&success(REPLY_HEADER + 4)));
    }

    #[test]
    fn short_reads_and_writes_do_not_pass_undecoded() {
        let message = success(REPLY_HEADER + 100);
        let read = |written: &[Option<u32>]| {
            let message = &message;
            did_all(LoadCall::Read, &Reply { message, written }, 4096)
        };
        assert!(read(&[Some(4096)]));
        assert!(!read(&[Some(4095)]));
        assert!(!read(&[None]), "its data is inline");
        let mut message = success(REPLY_HEADER + 24);
        let write = |message: &[u8]| {
            let written = &[];
            did_all(LoadCall::Write, &Reply { message, written }, 4096)
        };
        assert!(!write(&message));
        message[REPLY_HEADER + 8 + 2] = 0x10;
        assert!(write(&message));
        assert!(!write(&message[..REPLY_HEADER + 20]));
    }
}
