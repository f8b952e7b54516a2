//! Who a credential says is calling.

use millrace_store::Caller;
use millrace_wire::rpc::{AUTH_SHORT, AuthStatus, CallOutcome, Credential, Denied, ReplyHeader};

/// The answer to a call whose credential is refused.
pub(crate) fn denied_to(xid: u32, status: AuthStatus) -> ReplyHeader<'static> {
    ReplyHeader {
        xid,
        outcome: CallOutcome::Denied(Denied::Auth(status)),
    }
}

/// The caller that a credential identifies; `None` for an anonymous caller.
#[inline]
pub(crate) fn caller(credential: Credential<'_>) -> Result<Option<Caller>, AuthStatus> {
    match credential {
        Credential::None => Ok(None),
        Credential::Sys(auth) => Ok(Some(Caller {
            uid: auth.uid,
            gid: auth.gid,
            groups: auth.gids.into(),
        })),
        // No short hands are given out, so this one is of another server or another time.
        Credential::Other(auth) if auth.flavor == AUTH_SHORT => Err(AuthStatus::RejectedCredential),
        Credential::Malformed | Credential::Other(_) => Err(AuthStatus::BadCredential),
    }
}
