//! OPEN as the state of clients sees it.

use millrace_wire::nfs4::{
    DelegationType, NoDelegation, OpenDelegation, OperationOutcome, OperationStatus, open_flags,
    share,
};

use super::client_state::{ClientState, key, status, wire_stateid};
use super::seam::{OpenBasis, OpenGrant, OpenRequest};
use crate::state::{ClientId, OpenTerms, ShareMode};

/// Bits of `share_access` that are about delegations.
const WISHES: u32 = share::WANT_MASK | share::SIGNAL_WHEN_AVAILABLE | share::PUSH_WHEN_UNCONTENDED;

/// The share reservation of an OPEN.
pub(super) async fn open(
    state: &ClientState,
    client: ClientId,
    request: &OpenRequest<'_>,
) -> OperationOutcome<OpenGrant> {
    let delegation = delegation(request.access & share::WANT_MASK)?;
    let access = ShareMode::from_bits(request.access & !WISHES);
    let access = access.ok_or(OperationStatus::Invalid)?;
    let deny = ShareMode::from_bits(request.deny).ok_or(OperationStatus::Invalid)?;
    let owner: Box<[u8]> = request.owner.owner.0.into();
    let reclaims = match request.basis {
        OpenBasis::Rights => false,
        OpenBasis::Reclaim(DelegationType::None) => true,
        // None was given.
        OpenBasis::Reclaim(_) => return Err(OperationStatus::ReclaimBad),
        OpenBasis::Delegation(_) => return Err(OperationStatus::BadStateId),
    };
    let terms = OpenTerms {
        reclaims,
        is_lasting: request.is_lasting,
    };
    let file = key(&request.file);
    let outcome = state
        .ask_recorded(move |home, now| {
            home.open_under(terms, client, &owner, file, (access, deny), now)
        })
        .await
        .map_err(|error| status(&error))?;
    Ok(OpenGrant {
        open: wire_stateid(outcome.stateid),
        flags: open_flags::POSIX_LOCKS,
        delegation,
    })
}

/// The answer to a wish for a delegation. None is given yet.
fn delegation(wish: u32) -> OperationOutcome<OpenDelegation<'static>> {
    Ok(OpenDelegation::NoneBecause(match wish {
        0 => return Ok(OpenDelegation::None),
        share::WANT_READ | share::WANT_WRITE | share::WANT_ANY => NoDelegation::Resource(false),
        share::WANT_NONE => NoDelegation::NotWanted,
        share::WANT_CANCEL => NoDelegation::Cancelled,
        _ => return Err(OperationStatus::Invalid),
    }))
}
