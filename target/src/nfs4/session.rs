//! Operations that the state of clients answers: client IDs, sessions, opens and locks.

use millrace_mempool::Class;
use millrace_store::Store;
use millrace_wire::nfs4::{
    ConflictingLock, LockFailure, LockOperation, LockReply, Locker, LocktReply, Operation,
    OperationStatus, StateId, StateOwner, TestStateidReply,
};
use millrace_wire::xdr::{Array, BoundedBytes};

use super::compound::CompoundRun;
use super::reply::CompoundReply;
use super::seam::{CachedCompound, FileIdentity, LockRefusal, StateSeam};

impl<S: Store, H: StateSeam> CompoundRun<'_, S, H> {
    /// Executes an operation on the state of clients.
    pub async fn perform_in_session(
        &mut self,
        operation: &Operation<'_>,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let (seam, origin) = (self.seam, self.origin);
        let session = self.session.as_ref();
        let compound = session.map(|session| &session.compound);
        match operation {
            Operation::ExchangeId(arguments) => {
                let results = seam.exchange_id(&origin, arguments).await;
                return reply.push(number, &results);
            }
            Operation::CreateSession(arguments) => {
                let results = seam.create_session(&origin, arguments).await;
                return reply.push(number, &results);
            }
            Operation::BindConnToSession(arguments) => {
                let results = seam.bind_connection(&origin, arguments).await;
                return reply.push(number, &results);
            }
            Operation::DestroySession(id) => {
                let is_own = session.is_some_and(|session| session.id == *id);
                if is_own && !reply.is_last {
                    return reply.refuse(number, OperationStatus::NotOnlyOperation);
                }
                let results = seam.destroy_session(&origin, compound, *id).await;
                return reply.push(number, &results);
            }
            Operation::DestroyClientid(client) => {
                let results = seam.destroy_client(&origin, compound, *client).await;
                return reply.push(number, &results);
            }
            Operation::SetSsv(_) => return reply.refuse(number, OperationStatus::Invalid),
            _ => {}
        }
        let Some(compound) = compound else {
            return reply.refuse(number, OperationStatus::OperationNotInSession);
        };
        match operation {
            Operation::BackchannelCtl(arguments) => {
                let results = seam.control_backchannel(&origin, compound, arguments).await;
                reply.push(number, &results)
            }
            Operation::ReclaimComplete(one_file_system) => {
                let results = seam.reclaim_complete(compound, *one_file_system).await;
                reply.push(number, &results)
            }
            Operation::TestStateid(states) => {
                reply.reserve(16 + 4 * states.len()).await;
                let states = states.iter().collect();
                let results = match seam.test_stateids(compound, states).await {
                    Ok(statuses) => statuses,
                    Err(status) => return reply.refuse(number, status),
                };
                reply.push::<TestStateidReply<'_>>(number, &Ok(Array::new(&results)))
            }
            Operation::FreeStateid(state) => {
                let results = match self.stateid(*state) {
                    Ok(state) => seam.free_stateid(compound, state).await,
                    Err(status) => Err(status),
                };
                reply.push(number, &results)
            }
            Operation::Lock(_)
            | Operation::Lockt(_)
            | Operation::Locku(_)
            | Operation::Close(_)
            | Operation::OpenDowngrade(_)
            | Operation::Delegreturn(_) => self.perform_on_file(operation, number, reply).await,
            _ => self.not_served(number, reply),
        }
    }

    /// Executes an operation on opens and locks of the current file.
    async fn perform_on_file(
        &mut self,
        operation: &Operation<'_>,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let (file, is_on_host) = match self.object(OperationStatus::IsDirectory) {
            Ok(object) => (
                Self::identity(object),
                object.export.store.properties().changes_elsewhere,
            ),
            Err(status) => return reply.refuse(number, status),
        };
        match operation {
            Operation::Lock(arguments) => match self.lock((&file, is_on_host), arguments).await {
                Ok(state) => {
                    self.current_state = state;
                    reply.push::<LockReply<'_>>(number, &Ok(state))
                }
                Err(refusal) => with_failure(&refusal, |failure| {
                    reply.push::<LockReply<'_>>(number, &Err(failure))
                }),
            },
            Operation::Lockt(arguments) => {
                let compound = self.session.as_ref().map(|session| &session.compound);
                let Some(compound) = compound else {
                    return reply.refuse(number, OperationStatus::OperationNotInSession);
                };
                let file = (&file, is_on_host);
                match self.seam.test_lock(compound, file, arguments).await {
                    Ok(()) => reply.push::<LocktReply<'_>>(number, &Ok(())),
                    Err(refusal) => with_failure(&refusal, |failure| {
                        reply.push::<LocktReply<'_>>(number, &Err(failure))
                    }),
                }
            }
            operation => {
                let results = self.change_state(&file, operation).await;
                match results {
                    Ok(Some(state)) => {
                        self.current_state = state;
                        reply.push(number, &Ok::<_, OperationStatus>(state))
                    }
                    Ok(None) => reply.push_status(number, OperationStatus::Ok),
                    Err(status) => reply.refuse(number, status),
                }
            }
        }
    }

    async fn lock(
        &self,
        file: (&FileIdentity, bool),
        arguments: &LockOperation<'_>,
    ) -> Result<StateId, LockRefusal> {
        let mut arguments = *arguments;
        let state = match &mut arguments.locker {
            Locker::New(owner) => &mut owner.open,
            Locker::Existing(owner) => &mut owner.lock,
        };
        *state = self.stateid(*state).map_err(LockRefusal::Status)?;
        let Some(session) = &self.session else {
            return Err(LockRefusal::Status(OperationStatus::OperationNotInSession));
        };
        self.seam.lock(&session.compound, file, &arguments).await
    }

    /// CLOSE, OPEN_DOWNGRADE, LOCKU and DELEGRETURN.
    async fn change_state(
        &self,
        file: &FileIdentity,
        operation: &Operation<'_>,
    ) -> Result<Option<StateId>, OperationStatus> {
        let session = self.session.as_ref();
        let compound = &session
            .ok_or(OperationStatus::OperationNotInSession)?
            .compound;
        let seam = self.seam;
        Ok(match operation {
            Operation::Close(close) => {
                let open = self.stateid(close.open)?;
                Some(seam.close(compound, file, open).await?)
            }
            Operation::OpenDowngrade(downgrade) => {
                let mut arguments = *downgrade;
                arguments.open = self.stateid(arguments.open)?;
                Some(seam.downgrade(compound, file, &arguments).await?)
            }
            Operation::Locku(unlock) => {
                let mut arguments = *unlock;
                arguments.lock = self.stateid(arguments.lock)?;
                Some(seam.unlock(compound, file, &arguments).await?)
            }
            Operation::Delegreturn(delegation) => {
                let delegation = self.stateid(*delegation)?;
                seam.return_delegation(compound, file, delegation).await?;
                None
            }
            _ => return Err(OperationStatus::ServerFault),
        })
    }
}

/// Shows a refused lock as the wire has it.
fn with_failure<T>(refusal: &LockRefusal, show: impl FnOnce(LockFailure<'_>) -> T) -> T {
    match refusal {
        LockRefusal::Status(status) => show(LockFailure::Other(*status)),
        LockRefusal::Conflict(conflict) => show(LockFailure::Denied(ConflictingLock {
            offset: conflict.offset,
            length: conflict.length,
            kind: conflict.kind,
            owner: StateOwner {
                client: conflict.client,
                owner: BoundedBytes(&conflict.owner),
            },
        })),
    }
}

/// Answers with results that were given before. Whether they fit what this call offers.
pub(super) async fn repeat(cached: &CachedCompound, reply: &mut CompoundReply<'_>) -> bool {
    reply.reserve(cached.results.len()).await;
    let mut data = &cached.data[..];
    while !data.is_empty() {
        let (part, rest) = data.split_at(data.len().min(Class::Large.size()));
        let Ok(mut buffer) = reply.inner().pool().obtain_another(part.len()).await else {
            return false;
        };
        buffer[..part.len()].copy_from_slice(part);
        reply.inner().add_slice(buffer.into_slice(0..part.len()));
        data = rest;
    }
    reply.repeat(&cached.results, &cached.items)
}
