//! The programs of one reactor.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use millrace_primitives::Counter;
use millrace_reactor::Clock;
use millrace_store::Store;

use crate::access::ServedExports;
use crate::export_counters::ExportsCounters;
use crate::exports::Exports;
use crate::handle::HandleKey;
use crate::mount3::{Mount3, MountTable};
use crate::nfs3::{Nfs3, Nfs3Counters};
use crate::nfs4::{ClientState, Nfs4, Nfs4Counters, OwnerDomain};
use crate::replay::ReplayCache;
use crate::rpc::dispatch::Dispatcher;
use crate::rpcbind::{Offers, Rpcbind};

/// The program table of this service.
pub type ProgramTable<S> = (Nfs3<S>, (Nfs4<S, ClientState>, (Mount3<S>, (Rpcbind, ()))));

/// The programs of one reactor. Clones share everything.
pub type ReactorPrograms<S> = Dispatcher<ProgramTable<S>>;

impl<S: Store> ReactorPrograms<S> {
    /// The programs over a table of exports. `replay` and `clients` are those of the whole
    /// process.
    #[must_use]
    pub fn new(
        exports: Exports<S>,
        key: HandleKey,
        replay: ReplayCache,
        clients: MountTable,
    ) -> Self {
        let exports = Rc::new(ServedExports::new(exports, key));
        let nfs3 = Nfs3::new(Rc::clone(&exports));
        let nfs4 = Nfs4::new(Rc::clone(&exports));
        let mount3 = Mount3::new(exports, clients);
        let others = (mount3, (Rpcbind::default(), ()));
        Self::over((nfs3, (nfs4, others)), replay)
    }

    /// Adds the port mapper's programs for calls over RDMA (RFC 5666 section 10). Before `offers`
    /// is set they return nothing. Only the first value has an effect.
    #[must_use]
    pub fn with_rpcbind(self, offers: &Arc<OnceLock<Offers>>) -> Self {
        self.rpcbind().serve(offers);
        self
    }

    /// With NFS version 4, over this state of clients.
    #[must_use]
    pub fn with_nfs4(self, state: ClientState) -> Self {
        self.nfs3().respect(state.delegations());
        self.nfs4().serve_with(Rc::new(state));
        self
    }

    /// With owners by name in NFS version 4.
    #[must_use]
    pub fn with_owner_domain(self, domain: OwnerDomain, clock: &Clock) -> Self {
        self.nfs4().name_owners(domain, clock);
        self
    }

    /// Without NFS version 3 and MOUNT.
    #[must_use]
    pub fn without_nfs3(self) -> Self {
        self.nfs3().end();
        self.mount3().end();
        self
    }

    /// The state of clients, where NFS version 4 is served.
    #[must_use]
    pub fn client_state(&self) -> Option<&ClientState> {
        self.nfs4().state()
    }

    /// Changes the answers of the port mapper's programs, if they are served.
    pub fn replace_offers(&self, offers: &Arc<Offers>) {
        self.rpcbind().replace(offers);
    }

    /// Replaces the table of exports. Running calls finish with the one they began with.
    pub fn replace_exports(&self, exports: Exports<S>) {
        self.nfs3().exports().replace(exports);
    }

    /// The current table of exports.
    #[must_use]
    pub fn exports(&self) -> Exports<S> {
        self.nfs3().exports().table()
    }

    /// The counters of each export.
    #[must_use]
    pub fn export_counters(&self) -> ExportsCounters {
        self.nfs3().exports().counters().clone()
    }

    /// Uses of file handles that were not made under the present secret.
    #[must_use]
    pub fn other_handles(&self) -> Arc<Counter> {
        self.nfs3().exports().key.others_used()
    }

    /// Counters of NFS version 3 only.
    #[must_use]
    pub fn nfs3_counters(&self) -> Arc<Nfs3Counters> {
        self.nfs3().counters()
    }

    /// Counters of NFS version 4 only.
    #[must_use]
    pub fn nfs4_counters(&self) -> Arc<Nfs4Counters> {
        self.nfs4().counters()
    }

    fn nfs3(&self) -> &Nfs3<S> {
        &self.programs().0
    }

    fn nfs4(&self) -> &Nfs4<S, ClientState> {
        &self.programs().1.0
    }

    fn mount3(&self) -> &Mount3<S> {
        &self.programs().1.1.0
    }

    fn rpcbind(&self) -> &Rpcbind {
        &self.programs().1.1.1.0
    }
}
