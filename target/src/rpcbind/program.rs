//! The port mapper over RDMA (RFC 5666 section 10); over TCP and UDP it has sockets of its own.

use std::cell::{OnceCell, RefCell};
use std::sync::{Arc, OnceLock};

use millrace_wire::rpcbind::{PORTMAP_VERSION, PROGRAM, RPCBIND_VERSIONS};

use super::{Offers, answer};
use crate::call::{Answer, Bulk, Reply, TransportKind};
use crate::rpc::program::{
    ProcedureInfo, Program, ProgramAnswer, ProgramCall, ProgramInfo, Unserved,
};

/// The program table's entry for the port mapper and rpcbind (RFC 1833).
pub const INFO: ProgramInfo = ProgramInfo {
    number: PROGRAM,
    name: "rpcbind",
    versions: PORTMAP_VERSION..=RPCBIND_VERSIONS[1],
    procedures: &[ProcedureInfo::plain("any").free(); 13],
    counted: false,
};

/// The port mapper, if it is served at all.
#[derive(Default)]
pub struct Rpcbind {
    /// The offers that are reported over RDMA. None are reported before it is set.
    offers: OnceCell<Arc<OnceLock<Offers>>>,
    /// The same after listeners have changed.
    later: RefCell<Option<Arc<Offers>>>,
}

impl Rpcbind {
    /// Sets the offers to report. Only the first call has an effect.
    pub fn serve(&self, offers: &Arc<OnceLock<Offers>>) {
        let _ = self.offers.set(Arc::clone(offers));
    }

    /// Replaces the offers to report, if it is served at all.
    pub fn replace(&self, offers: &Arc<Offers>) {
        self.later.replace(Some(Arc::clone(offers)));
    }
}

impl Program for Rpcbind {
    const INFO: &'static ProgramInfo = &INFO;

    fn is_served(&self) -> bool {
        self.offers.get().is_some()
    }

    async fn serve<B: Bulk>(
        &self,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        let later = self.later.borrow();
        let first = || self.offers.get().and_then(|offers| offers.get());
        let offers = later.as_deref().or_else(first);
        let (TransportKind::Rdma, Some(offers)) = (call.connection.transport(), offers) else {
            return Err(Unserved::NoProgram);
        };
        let length = answer(offers, call.client(), call.message, reply.room());
        reply.set_length(length.ok_or(Unserved::Silent)?);
        Ok(ProgramAnswer::new(Answer::Send, true))
    }
}
