//! COMPOUND of NFS version 4, one blocking call each, and the sessions that calls go by
//! (RFC 8881 sections 2.10 and 16.2).

use millrace_wire::nfs4::{
    CallbackSecurity, ChannelAttributes, ClientId, ClientOwner, CloseOperation,
    CompoundReplyHeader, CreateSessionOperation, ExchangeIdOperation, OpenClaim, OpenDelegation,
    OpenOperation, Operation, OperationNumber, OperationResults, OperationStatus, ProtectionOffer,
    ResultsReader, SequenceOperation, SessionId, StateId, StateOwner, Verifier, session_flags,
};
use millrace_wire::rpc::{Accepted, CallOutcome, ReplyHeader};
use millrace_wire::xdr::{Array, BoundedBytes, Decode, Decoder};

use super::callbacks::{CALLBACK_PROGRAM, Callbacks, RecalledDelegation};
use super::{Error, Session};
use crate::requester::call::{Call, Reply, RpcError};

/// Bytes of the longest reply that calls of this module expect.
const REPLY_MAX: usize = 2048;
/// Bytes of a request and of a reply of a session: 1 MiB of data, and what goes with it.
const MESSAGE_MAX: u32 = (1 << 20) + 2048;
/// Most operations of a request.
const OPERATIONS_MAX: u32 = 32;

/// A client ID and its session.
#[derive(Clone, Copy, Debug)]
pub struct ClientSession {
    /// The session.
    pub id: SessionId,
    /// Its client.
    pub client: ClientId,
    /// Minor version of all its requests.
    pub minor_version: u32,
    /// Slots that the server has granted.
    pub slots: u32,
    /// Sequence number of the last request of slot 0.
    pub sequence: u32,
}

impl ClientSession {
    /// SEQUENCE of a slot's next request, whose reply need not be cached.
    #[must_use]
    pub const fn sequence(&self, slot: u32, sequence: u32) -> SequenceOperation {
        SequenceOperation {
            session: self.id,
            sequence,
            slot,
            highest_slot: self.slots - 1,
            cache_this: false,
        }
    }
}

/// A file that is open.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// Its directory.
    pub directory: Vec<u8>,
    /// Its handle.
    pub handle: Vec<u8>,
    /// The stateid of the open.
    pub open: StateId,
    /// The delegation that came with it.
    pub delegation: Option<StateId>,
}

/// The results of a COMPOUND.
///
/// # Errors
/// [`Error::Nfs4`] if an operation failed, and those of replies without results.
pub fn compound_results<'a>(reply: &Reply<'a>) -> Result<Vec<OperationResults<'a>>, Error> {
    let mut input = Decoder::with_results(reply.message, reply.written);
    match ReplyHeader::decode(&mut input)?.outcome {
        CallOutcome::Accepted {
            status: Accepted::Success,
            ..
        } => {}
        CallOutcome::Accepted { status, .. } => return Err(RpcError::Failed(status).into()),
        CallOutcome::Denied(denied) => return Err(RpcError::Denied(denied).into()),
    }
    let header = CompoundReplyHeader::decode(&mut input)?;
    let results = ResultsReader::new(input, header.results).collect::<Result<Vec<_>, _>>()?;
    match (header.status, results.last()) {
        (OperationStatus::Ok, _) => Ok(results),
        (status, failed) => Err(Error::Nfs4(
            failed
                .and_then(|failed| OperationNumber::from_number(failed.number()))
                .map_or("COMPOUND", OperationNumber::name),
            status,
        )),
    }
}

impl Session {
    fn compound<T>(
        &mut self,
        minor_version: u32,
        operations: &[Operation<'_>],
        read: impl FnOnce(&[OperationResults<'_>]) -> Option<T>,
    ) -> Result<T, Error> {
        let call = Call::compound(minor_version, operations, REPLY_MAX);
        self.call(call, |reply| {
            let results = compound_results(reply)?;
            read(&results).ok_or(Error::OtherResults)
        })
    }

    /// Answers the calls of the server from now on, for the session that is created next. It takes
    /// [`Settings::reverse_credits`](crate::requester::Settings::reverse_credits). Under a security
    /// context, the server has to call under the same.
    pub fn serve_callbacks(&mut self) -> Callbacks {
        let callbacks = self.callbacks.get_or_insert_default().clone();
        let service = Box::new(callbacks.clone());
        self.connection.set_reverse_service(service);
        callbacks
    }

    /// Returns a delegation.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn return_delegation(
        &mut self,
        session: &mut ClientSession,
        recalled: &RecalledDelegation,
    ) -> Result<(), Error> {
        let operations = [
            Operation::Putfh(BoundedBytes(&recalled.handle)),
            Operation::Delegreturn(recalled.delegation),
        ];
        self.in_session(session, &operations, |_| Some(()))
    }

    /// A COMPOUND that begins with SEQUENCE, by slot 0.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn in_session<T>(
        &mut self,
        session: &mut ClientSession,
        operations: &[Operation<'_>],
        read: impl FnOnce(&[OperationResults<'_>]) -> Option<T>,
    ) -> Result<T, Error> {
        session.sequence = session.sequence.wrapping_add(1);
        let sequence = Operation::Sequence(session.sequence(0, session.sequence));
        let operations = [&[sequence], operations].concat();
        self.compound(session.minor_version, &operations, read)
    }

    /// A new client with a session of so many slots at most, that reclaims nothing.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn create_session(
        &mut self,
        minor_version: u32,
        owner: &[u8],
        verifier: Verifier,
        slots: u32,
    ) -> Result<ClientSession, Error> {
        let mut session = self.begin_session(minor_version, owner, verifier, slots)?;
        self.reclaim_complete(&mut session)?;
        Ok(session)
    }

    /// Says that the client has reclaimed what it had before the server's restart.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn reclaim_complete(&mut self, session: &mut ClientSession) -> Result<(), Error> {
        let complete = [Operation::ReclaimComplete(false)];
        self.in_session(session, &complete, |_| Some(()))
    }

    /// A client with a session of so many slots at most, that may reclaim what it had.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn begin_session(
        &mut self,
        minor_version: u32,
        owner: &[u8],
        verifier: Verifier,
        slots: u32,
    ) -> Result<ClientSession, Error> {
        let exchange = Operation::ExchangeId(ExchangeIdOperation {
            owner: ClientOwner {
                verifier,
                owner: BoundedBytes(owner),
            },
            flags: 0,
            protection: ProtectionOffer::Unprotected,
            implementation: None,
        });
        let (client, sequence) =
            self.compound(minor_version, &[exchange], |results| match results {
                [OperationResults::ExchangeId(Ok(reply))] => Some((reply.client, reply.sequence)),
                _ => None,
            })?;
        let channel = |requests, size| ChannelAttributes {
            header_padding: 0,
            request_size: size,
            response_size: size,
            cached_size: 0,
            operations: OPERATIONS_MAX,
            requests,
            rdma_ird: None,
        };
        let callbacks = self.callbacks.clone();
        let context = self.connection.context().cloned();
        self.connection.protect_reverse(context.as_ref());
        let offer = context.as_ref().map(|context| [context.offer()]);
        let offer = offer.as_ref().unwrap_or(&[CallbackSecurity::None]);
        let (flags, callback_program, security) = match callbacks {
            Some(_) => (session_flags::BACKCHANNEL, CALLBACK_PROGRAM, &offer[..]),
            None => (0, 0, &[][..]),
        };
        let create = Operation::CreateSession(CreateSessionOperation {
            client,
            sequence,
            flags,
            fore: channel(slots, MESSAGE_MAX),
            back: channel(1, 4096),
            callback_program,
            security: Array::new(security),
        });
        let (id, slots) = self.compound(minor_version, &[create], |results| match results {
            [OperationResults::CreateSession(Ok(reply))] => {
                Some((reply.session, reply.fore.requests))
            }
            _ => None,
        })?;
        if let Some(callbacks) = callbacks {
            callbacks.begin(id);
        }
        Ok(ClientSession {
            id,
            client,
            minor_version,
            slots,
            sequence: 0,
        })
    }

    /// Opens a file by its path from the root of the name space.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn open_path(
        &mut self,
        session: &mut ClientSession,
        (directory, name): (&str, &str),
        access: u32,
    ) -> Result<OpenedFile, Error> {
        let names = directory.split('/').filter(|name| !name.is_empty());
        let open = Operation::Open(OpenOperation {
            sequence: 0,
            access,
            deny: 0,
            owner: StateOwner {
                client: session.client,
                owner: BoundedBytes(b"millrace-bench"),
            },
            create: None,
            claim: OpenClaim::Name(name.as_bytes()),
        });
        let mut operations = vec![Operation::Putrootfh(())];
        operations.extend(names.map(|name| Operation::Lookup(name.as_bytes())));
        operations.extend([Operation::Getfh(()), open, Operation::Getfh(())]);
        self.in_session(session, &operations, |results| match results {
            [
                ..,
                OperationResults::Getfh(Ok(directory)),
                OperationResults::Open(Ok(reply)),
                OperationResults::Getfh(Ok(handle)),
            ] => Some(OpenedFile {
                directory: directory.0.to_vec(),
                handle: handle.0.to_vec(),
                open: reply.open,
                delegation: match &reply.delegation {
                    OpenDelegation::Read(delegation) => Some(delegation.state),
                    OpenDelegation::Write(delegation) => Some(delegation.state),
                    OpenDelegation::None | OpenDelegation::NoneBecause(_) => None,
                },
            }),
            _ => None,
        })
    }

    /// Closes the file and ends the session and its client.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn end_session(
        &mut self,
        mut session: ClientSession,
        file: &OpenedFile,
    ) -> Result<(), Error> {
        self.close_file(&mut session, file)?;
        self.leave(&session)
    }

    /// Closes a file.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn close_file(
        &mut self,
        session: &mut ClientSession,
        file: &OpenedFile,
    ) -> Result<(), Error> {
        let close = [
            Operation::Putfh(BoundedBytes(&file.handle)),
            Operation::Close(CloseOperation {
                sequence: 0,
                open: file.open,
            }),
        ];
        self.in_session(session, &close, |_| Some(()))
    }

    /// Ends the session and its client, which holds nothing.
    ///
    /// # Errors
    /// [`Error::Nfs4`] and those of calls.
    pub fn leave(&mut self, session: &ClientSession) -> Result<(), Error> {
        let end = [Operation::DestroySession(session.id)];
        self.compound(session.minor_version, &end, |_| Some(()))?;
        let end = [Operation::DestroyClientid(session.client)];
        self.compound(session.minor_version, &end, |_| Some(()))
    }
}
