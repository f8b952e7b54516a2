//! Calls from the server to its client, by NFS version 4.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use millrace_wire::nfs4::{OperationStatus, share};
use millrace_wire::rpc::Accepted;

use super::context::Context;
use super::{Case, Outcome};
use crate::requester::session::{ClientSession, Error, OpenedFile, RecalledDelegation};
use crate::requester::{RpcError, Session};

/// Calls that the server may have underway.
const REVERSE_CREDITS: u32 = 4;
/// How long a file is opened again and again until a delegation is granted: a server first tests
/// whether it can call the client, and Linux grants none in the grace period of its lock manager.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn cases(list: &mut Vec<Case>) {
    list.push(Case::new(
        "a delegation by version 4.1 is granted, recalled and returned",
        recall,
    ));
}

/// Whether the server said that it does not serve version 4.1.
fn is_not_served(error: &Error) -> bool {
    matches!(
        error,
        Error::Nfs4(_, OperationStatus::MinorVersionMismatch)
            | Error::Rpc(RpcError::Failed(Accepted::ProgramMismatch { .. }))
    )
}

fn recall(context: &mut Context) -> Result<Outcome> {
    let (name, _) = context.file()?;
    let outcome = recall_of(context, &name);
    context.remove(&name)?;
    outcome
}

fn recall_of(context: &Context, name: &[u8]) -> Result<Outcome> {
    let directory = context.path();
    let path = (directory.as_str(), std::str::from_utf8(name)?);
    let mut holder = context.session_with(|settings| settings.reverse_credits = REVERSE_CREDITS)?;
    let callbacks = holder.serve_callbacks();
    let mut session = match holder.create_session(1, b"millrace-cases.holder", [1; 8], 1) {
        Err(error) if is_not_served(&error) => {
            return Ok(Outcome::Note(format!("version 4.1 is not served: {error}")));
        }
        Err(error @ Error::Nfs4(_, OperationStatus::EncryptionNotSupported)) => {
            return Ok(Outcome::Note(format!(
                "callbacks under Kerberos are not served: {error}"
            )));
        }
        session => session.context("the holder's session")?,
    };
    let Some((held, delegation)) = delegated(&mut holder, &mut session, path)? else {
        holder.leave(&session)?;
        return Ok(Outcome::Note("no delegation was granted".to_owned()));
    };
    let mut other = context.session_with(|_| {})?;
    let mut others = other.create_session(1, b"millrace-cases.other", [1; 8], 1)?;
    let refused = other.open_path(&mut others, path, share::WRITE | share::WANT_NONE);
    ensure!(
        matches!(refused, Err(Error::Nfs4(_, OperationStatus::Delay))),
        "an OPEN against the delegation: {refused:?}"
    );
    let start = Instant::now();
    let recalled = loop {
        if let Some(recalled) = callbacks.next_recalled() {
            break recalled;
        }
        if start.elapsed() > context.client.options.timeout {
            bail!("no CB_RECALL came");
        }
        holder.turn(&mut |_| {});
    };
    ensure!(
        recalled
            == RecalledDelegation {
                handle: held.handle.clone(),
                delegation
            },
        "another delegation was recalled: {recalled:?}"
    );
    holder.return_delegation(&mut session, &recalled)?;
    let opened = other.open_path(&mut others, path, share::WRITE | share::WANT_NONE);
    let opened = opened.context("the OPEN again, when the delegation was returned")?;
    ensure!(callbacks.next_recalled().is_none(), "it was recalled twice");
    other.end_session(others, &opened)?;
    holder.end_session(session, &held)?;
    Ok(Outcome::Pass)
}

/// Opens a file for reading until that brings a delegation.
fn delegated(
    holder: &mut Session,
    session: &mut ClientSession,
    path: (&str, &str),
) -> Result<Option<(OpenedFile, millrace_wire::nfs4::StateId)>, Error> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let opened = holder.open_path(session, path, share::READ | share::WANT_READ)?;
        match opened.delegation {
            Some(delegation) => return Ok(Some((opened, delegation))),
            None => holder.close_file(session, &opened)?,
        }
    }
    Ok(None)
}
