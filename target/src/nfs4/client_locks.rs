//! LOCK, LOCKT and LOCKU as the state of clients sees them.

use arrayvec::ArrayVec;
use millrace_wire::nfs4::{
    LockOperation, LockType, Locker, LocktOperation, LockuOperation, OperationOutcome, StateId,
};

use super::client_state::ClientState;
use super::client_translation::{key, stateid, status, wire_stateid};
use super::seam::{DeniedLock, FileIdentity, LockRefusal};
use crate::state::{
    ByteRange, ClientId, LockConflict, LockHolder, LockMode, LockRequest, StateError, Stateid,
};

/// Who locks, as it travels to the home.
#[derive(Clone)]
enum OwnedHolder {
    New { open: Stateid, owner: Box<[u8]> },
    Existing(Stateid),
}

/// LOCK.
pub(super) async fn lock(
    state: &ClientState,
    client: ClientId,
    (file, is_on_host): (&FileIdentity, bool),
    arguments: &LockOperation<'_>,
) -> Result<StateId, LockRefusal> {
    let range = ByteRange::new(arguments.offset, arguments.length).map_err(refusal)?;
    let (mode, waits) = mode(arguments.kind);
    let file = key(file);
    let holder = match &arguments.locker {
        Locker::New(owner) => OwnedHolder::New {
            open: stateid(owner.open),
            owner: owner.owner.owner.0.into(),
        },
        Locker::Existing(owner) => OwnedHolder::Existing(stateid(owner.lock)),
    };
    let reclaims = arguments.reclaim;
    let locked = state.ask_recorded_for_later(Some(file), move |home, now, asker| {
        let holder = match &holder {
            OwnedHolder::New { open, owner } => LockHolder::New { open: *open, owner },
            OwnedHolder::Existing(lock) => LockHolder::Existing(*lock),
        };
        let request = LockRequest {
            client,
            file,
            holder,
            range,
            mode,
            waits,
            reclaims,
        };
        match is_on_host {
            true => home.lock_on_host(&request, asker, now),
            false => Some(home.lock(&request, now)),
        }
    });
    locked.await.map(wire_stateid).map_err(refusal)
}

/// LOCKT.
pub(super) async fn test_lock(
    state: &ClientState,
    client: ClientId,
    (file, is_on_host): (&FileIdentity, bool),
    arguments: &LocktOperation<'_>,
) -> Result<(), LockRefusal> {
    let range = ByteRange::new(arguments.offset, arguments.length).map_err(refusal)?;
    let (mode, _) = mode(arguments.kind);
    let owner: Box<[u8]> = arguments.owner.owner.0.into();
    let file = key(file);
    let tested = state.ask_recorded_for_later(None, move |home, now, asker| match is_on_host {
        true => home.test_lock_on_host((client, &owner), &file, (range, mode), asker, now),
        false => Some(home.test_lock(client, &owner, &file, range, mode, now)),
    });
    tested.await.map_err(refusal)
}

/// LOCKU.
pub(super) async fn unlock(
    state: &ClientState,
    client: ClientId,
    file: &FileIdentity,
    arguments: &LockuOperation,
) -> OperationOutcome<StateId> {
    let range = ByteRange::new(arguments.offset, arguments.length);
    let range = range.map_err(|error| status(&error))?;
    let (file, lock) = (key(file), stateid(arguments.lock));
    let unlocked = state.ask(move |home, now| home.unlock(client, &file, &lock, range, now));
    let unlocked = unlocked.await.map(wire_stateid);
    unlocked.map_err(|error| status(&error))
}

/// How a lock excludes others, and whether its client waits for it.
fn mode(kind: LockType) -> (LockMode, bool) {
    match kind {
        LockType::Read => (LockMode::Read, false),
        LockType::ReadWait => (LockMode::Read, true),
        LockType::Write => (LockMode::Write, false),
        LockType::WriteWait => (LockMode::Write, true),
    }
}

fn refusal(error: StateError) -> LockRefusal {
    match error {
        StateError::Denied(held) => LockRefusal::Conflict(Box::new(conflict(&held))),
        error => LockRefusal::Status(status(&error)),
    }
}

fn conflict(held: &LockConflict) -> DeniedLock {
    let owner: ArrayVec<u8, 1024> = held.owner.iter().copied().take(1024).collect();
    DeniedLock {
        offset: held.range.offset(),
        length: held.range.length(),
        kind: match held.mode {
            LockMode::Read => LockType::Read,
            LockMode::Write => LockType::Write,
        },
        client: held.client.0,
        owner,
    }
}
