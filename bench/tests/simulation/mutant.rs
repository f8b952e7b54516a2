//! Ways to be wrong on purpose, each of which the checks must find.

use millrace::call::{Answer, Broken, Bulk, Call, Reply, Serve, TurnEnd};
use millrace::rpc::program::ProcedureInfo;
use millrace::service::ReactorPrograms;
use millrace_mempool::Slice;
use millrace_store::memory::MemoryStore;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// WRITEs are acknowledged though their data was never fetched.
    AcknowledgesEarly,
    /// Replies are not remembered, so repeated calls are executed again.
    ForgetsReplies,
    /// The responder's provider leaves a Write out.
    DropsWrites,
    /// It sends a reply before the data.
    SendsFirst,
    /// It writes behind the place that it should.
    WritesTooFar,
    /// It writes something else.
    WritesOtherBytes,
    /// It loses receives.
    LosesReceives,
    /// It never gives the memory of some work requests back.
    KeepsMemory,
}

impl Mutant {
    pub const ALL: [Self; 8] = [
        Self::AcknowledgesEarly,
        Self::ForgetsReplies,
        Self::DropsWrites,
        Self::SendsFirst,
        Self::WritesTooFar,
        Self::WritesOtherBytes,
        Self::LosesReceives,
        Self::KeepsMemory,
    ];
}

/// The real programs, and one mutant.
#[derive(Clone)]
pub struct Programs {
    pub service: ReactorPrograms<MemoryStore>,
    pub early: bool,
}

impl Serve for Programs {
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer {
        if self.early {
            self.service.serve(call, &mut Unfetched, reply).await
        } else {
            self.service.serve(call, bulk, reply).await
        }
    }

    fn procedure(&self, message: &[u8]) -> Option<&'static ProcedureInfo> {
        self.service.procedure(message)
    }

    fn turned(&self, end: &TurnEnd) {
        self.service.turned(end);
    }
}

/// Says that data is there which nobody fetched.
struct Unfetched;

impl Bulk for Unfetched {
    async fn pull(&mut self, _: usize, _: &[Slice]) -> Result<(), Broken> {
        Ok(())
    }
}
