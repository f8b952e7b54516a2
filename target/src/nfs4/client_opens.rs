//! OPEN as the state of clients sees it.

use millrace_store::FileLease;
use millrace_wire::nfs4::{
    AccessControlEntry, DelegationType, NoDelegation, OpenDelegation, OperationOutcome,
    OperationStatus, ReadDelegation, SpaceLimit, WriteDelegation, open_flags, share,
};

use super::client_state::{ClientRequest, ClientState};
use super::client_translation::{key, stateid, status, wire_stateid};
use super::seam::{OpenBasis, OpenGrant, OpenRequest};
use crate::state::{
    DelegationOutcome, DelegationRequest, DelegationWish, FileSharing, FileUse, OpenTerms,
    ShareMode, StateError, StateHome,
};

/// Bits of `share_access` that are about delegations.
const WISHES: u32 = share::WANT_MASK | share::HINTS;

/// The share reservation of an OPEN, and the delegation that comes with it.
pub(super) async fn open(
    state: &ClientState,
    compound: &ClientRequest,
    request: &OpenRequest<'_>,
) -> OperationOutcome<OpenGrant> {
    let wish = wish(request.access & share::WANT_MASK)?;
    let access = ShareMode::from_bits(request.access & !WISHES);
    let access = access.ok_or(OperationStatus::Invalid)?;
    let deny = ShareMode::from_bits(request.deny).ok_or(OperationStatus::Invalid)?;
    let owner: Box<[u8]> = request.owner.owner.0.into();
    let basis = request.basis;
    let claimed = match basis {
        OpenBasis::Delegation(delegation) => Some(stateid(delegation)),
        _ => None,
    };
    // Whether a delegation is reclaimed with it, and whether that one is for writing.
    let reclaimed = match basis {
        OpenBasis::Reclaim(DelegationType::Read) => Some(false),
        OpenBasis::Reclaim(DelegationType::Write) => Some(true),
        _ => None,
    };
    let terms = OpenTerms {
        reclaims: matches!(basis, OpenBasis::Reclaim(_)),
        is_lasting: request.is_lasting,
        is_delegable: reclaimed.is_some(),
        is_shared: !request.is_sole_server,
    };
    let file = key(&request.file);
    let (client, session) = (compound.client(), compound.session());
    let truncates = request.truncates;
    let hold = request.hold.clone();
    let wanted = wanted(compound, request, wish);
    let grant = move |home: &mut StateHome, now| {
        if let Some(claimed) = claimed {
            home.claim_delegation(client, &file, &claimed, now)?;
        }
        if truncates {
            home.check_delegations(Some(client), &file, FileUse::Truncate, now)?;
        }
        if let Some(writes) = reclaimed {
            home.check_delegation_reclaim(client, &file, writes, &wanted)?;
        }
        let terms = OpenTerms {
            is_delegable: terms.is_delegable
                || home.may_record_delegation(client, &file, access, &wanted, now),
            ..terms
        };
        let outcome = home.open_under(terms, client, &owner, file, (access, deny), now)?;
        home.hold(&file, hold);
        let delegation = match (claimed, reclaimed) {
            (Some(_), _) => DelegationOutcome::Resource,
            (_, Some(writes)) => home.reclaim_delegation(client, file, writes, &wanted, now),
            _ => home.delegate(client, file, outcome.access, &wanted, now),
        };
        Ok((outcome, delegation, home.has_backchannel(session)))
    };
    let mut opened = state.ask_recorded(Some(file), grant.clone()).await;
    if let Err(StateError::Unannounced) = opened {
        let announced = state.ask_recorded_for_later(None, move |home, now, asker| {
            home.announce_share(client, file, (access, deny), terms.reclaims, asker, now)
        });
        opened = match announced.await {
            Ok(()) => state
                .ask_recorded(Some(file), grant)
                .await
                .inspect_err(|_| {
                    let link = state.link();
                    link.tell(move |home, _| home.forgo_announcement(&file));
                }),
            Err(error) => Err(error),
        };
    }
    let (outcome, delegation, notifies) = opened.map_err(|error| status(&error))?;
    let notifies = if notifies {
        open_flags::MAY_NOTIFY_LOCK
    } else {
        0
    };
    Ok(OpenGrant {
        open: wire_stateid(outcome.stateid),
        flags: open_flags::POSIX_LOCKS | notifies,
        delegation: granted(wish, delegation),
        needs_lease: delegation == DelegationOutcome::NeedsLease,
    })
}

/// The delegation that comes with an open, if there is a lease for it.
pub(super) async fn delegate(
    state: &ClientState,
    compound: &ClientRequest,
    request: &OpenRequest<'_>,
    lease: Option<FileLease>,
) -> OpenDelegation<'static> {
    let Ok(wish) = wish(request.access & share::WANT_MASK) else {
        return OpenDelegation::None;
    };
    let (client, file) = (compound.client(), key(&request.file));
    let wanted = wanted(compound, request, wish);
    let delegated = state.link().ask(Some(file), move |home, now| {
        home.delegate_leased(client, file, &wanted, lease, now)
    });
    granted(wish, delegated.await.unwrap_or(DelegationOutcome::Resource))
}

fn wanted(
    compound: &ClientRequest,
    request: &OpenRequest<'_>,
    wish: DelegationWish,
) -> DelegationRequest {
    DelegationRequest {
        wish,
        sharing: match (request.is_sole_server, request.has_leases) {
            (true, _) => FileSharing::Sole,
            (false, true) => FileSharing::Leased,
            (false, false) => FileSharing::Unknown,
        },
        is_lasting: request.is_lasting,
        granted_by: Some(compound.referring()),
    }
}

/// The wish for a delegation.
fn wish(bits: u32) -> OperationOutcome<DelegationWish> {
    Ok(match bits {
        0 => DelegationWish::Unspecified,
        share::WANT_READ => DelegationWish::Read,
        share::WANT_WRITE => DelegationWish::Write,
        share::WANT_ANY => DelegationWish::Any,
        share::WANT_NONE => DelegationWish::Nothing,
        share::WANT_CANCEL => DelegationWish::Cancel,
        _ => return Err(OperationStatus::Invalid),
    })
}

/// A delegation as the wire has it. Its access control entry grants nobody anything, so that
/// clients ask for the rights of each user.
fn granted(wish: DelegationWish, outcome: DelegationOutcome) -> OpenDelegation<'static> {
    let permissions = AccessControlEntry {
        kind: 0,
        flags: 0,
        mask: 0,
        who: b"",
    };
    let reason = match outcome {
        DelegationOutcome::Granted {
            stateid,
            writes,
            is_recalled: recalled,
        } => {
            let state = wire_stateid(stateid);
            return match writes {
                true => OpenDelegation::Write(WriteDelegation {
                    state,
                    recalled,
                    space: SpaceLimit::Size(u64::MAX),
                    permissions,
                }),
                false => OpenDelegation::Read(ReadDelegation {
                    state,
                    recalled,
                    permissions,
                }),
            };
        }
        DelegationOutcome::NotWanted => NoDelegation::NotWanted,
        DelegationOutcome::Cancelled => NoDelegation::Cancelled,
        DelegationOutcome::Contention | DelegationOutcome::NeedsLease => {
            NoDelegation::Contention(false)
        }
        DelegationOutcome::Resource => NoDelegation::Resource(false),
    };
    match wish {
        DelegationWish::Unspecified => OpenDelegation::None,
        _ => OpenDelegation::NoneBecause(reason),
    }
}
