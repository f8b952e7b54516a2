//! Limits of clients and exports: what a call will move, seen before it is executed.

use millrace_store::Store;
use millrace_wire::nfs3::Procedure;
use millrace_wire::xdr::Decoder;

use super::Service;
use crate::call::{Broken, Bulk};
use crate::exports::ExportId;
use crate::flow::Flow;
use crate::nfs3::{Context, TRANSFER_MAX};

impl<S: Store> Service<S> {
    /// The gate before execution, if there is any limit at all.
    pub(super) fn limits(&self) -> Option<&Flow> {
        self.inner.flow.get().filter(|flow| flow.has_limits())
    }
}

/// Waits until the limits of the client and of the export let a call begin. READ and WRITE count
/// with the bytes that they ask for.
///
/// # Errors
/// The transport broke meanwhile: the call is not to be executed.
pub(super) async fn throttle<S: Store>(
    flow: &Flow,
    context: &Context<'_, S>,
    arguments: &[u8],
    bulk: &impl Bulk,
) -> Result<(), Broken> {
    if context.procedure == Procedure::Null {
        return Ok(());
    }
    let (handle, bytes) = asked(context.procedure, arguments).unwrap_or_default();
    let export = if flow.has_limited_exports() {
        export(context, handle)
    } else {
        None
    };
    let is_over = || bulk.is_broken();
    flow.pass(context.peer.address, export, bytes, is_over)
        .await
}

/// The handle that arguments begin with, and the bytes of data that they ask for (RFC 1813
/// section 3.3). Nothing if they will not decode either.
fn asked(procedure: Procedure, arguments: &[u8]) -> Option<(&[u8], u64)> {
    let mut input = Decoder::new(arguments);
    let handle = input.opaque(64).ok()?;
    if !matches!(procedure, Procedure::Read | Procedure::Write) {
        return Some((handle, 0));
    }
    input.u64().ok()?;
    let count = input.u32().ok()?;
    Some((handle, u64::from(count.min(TRANSFER_MAX))))
}

/// The export of a handle, if the client may use it: who may not takes nothing from it.
fn export<S: Store>(context: &Context<'_, S>, handle: &[u8]) -> Option<ExportId> {
    let (export, _) = context.key.open(handle).ok()?;
    let export = context.exports.by_id(ExportId(export))?;
    let admitted = export.rules.admits(context.peer.address);
    admitted.then_some(export.id)
}
