//! The side of a change on one reactor.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_reactor::Context;

use super::ticket::{
    Change, ChangeDecision, ChangeRefused, ChangeTicket, Commit, NewListener, ReactorAnswer, Ready,
    Resume,
};
use crate::call::Serve;
use crate::exports::{ExportId, Exports, Rules};
use crate::nfs4::ClientState;
use crate::rdma::{FabricId, FabricSlot, Responder};
use crate::rpcbind::{Offers, RpcbindServer};
use crate::service::folders::ReactorStores;
use crate::service::{ReactorPrograms, devices, plan};
use crate::tcp::{PreparedListener, TcpServer};
use millrace_store::any::{AnyStore, AnyVolume};

/// Programs that can be changed while they serve.
pub trait ChangeablePrograms: Serve {
    /// Prepares a table of these exports.
    ///
    /// # Errors
    /// They cannot be served.
    fn prepare_exports(
        &self,
        exports: &[(Rules, AnyVolume)],
        room: &ReactorStores,
    ) -> Result<Exports<AnyStore>, ChangeRefused>;

    /// Serves these exports from now on.
    fn take_exports(&self, exports: Exports<AnyStore>, room: &ReactorStores);

    /// Returns these addresses from now on.
    fn take_offers(&self, offers: &Arc<Offers>);

    /// The state of clients, where NFS version 4 is served.
    fn client_state(&self) -> Option<&ClientState>;

    /// What an export serves from, if others have its files, too.
    fn volume(&self, export: ExportId) -> Option<AnyVolume>;
}

impl ChangeablePrograms for ReactorPrograms<AnyStore> {
    fn prepare_exports(
        &self,
        exports: &[(Rules, AnyVolume)],
        room: &ReactorStores,
    ) -> Result<Exports<AnyStore>, ChangeRefused> {
        let stores = room.stores(exports, Some(&self.exports()));
        let stores = stores.map_err(|error| {
            let mut volumes = exports.iter().map(|(_, volume)| volume);
            let folder = volumes.position(|volume| volume.posix().is_some());
            let key = format!("exports[{}].store.kind", folder.unwrap_or_default());
            ChangeRefused::new(key, error.to_string())
        })?;
        Exports::new(stores).map_err(|error| ChangeRefused::new("exports", error.to_string()))
    }

    fn take_exports(&self, exports: Exports<AnyStore>, room: &ReactorStores) {
        room.serve(&exports);
        self.replace_exports(exports);
    }

    fn take_offers(&self, offers: &Arc<Offers>) {
        self.replace_offers(offers);
    }

    fn client_state(&self) -> Option<&ClientState> {
        Self::client_state(self)
    }

    fn volume(&self, export: ExportId) -> Option<AnyVolume> {
        match &self.exports().by_id(export)?.store {
            AnyStore::Memory(_) => None,
            AnyStore::Posix(store) => Some(AnyVolume::Posix(store.volume().clone())),
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => Some(AnyVolume::Ceph(store.volume().clone())),
        }
    }
}

/// The parts of a reactor that a change may touch.
pub struct Parts<'a, S: Serve, F: Future<Output = ()>> {
    pub context: &'a Context,
    pub responder: &'a mut Responder<S, F>,
    pub tcp: &'a mut TcpServer<S>,
    pub rpcbind: Option<&'a RpcbindServer>,
    pub room: &'a ReactorStores,
    /// New connections are refused now.
    pub drains: bool,
    /// There are other reactors to hand connections to.
    pub hands_over: bool,
}

/// A prepared change that is not decided yet.
pub struct Pending {
    ticket: ChangeTicket,
    prepared: PreparedParts,
}

/// The parts of a change that one reactor has prepared.
#[derive(Default)]
struct PreparedParts {
    exports: Option<Exports<AnyStore>>,
    slots: Vec<FabricSlot>,
    rpc: Option<PreparedListener>,
}

impl Pending {
    /// Prepares a change and answers. `None` if it is already aborted, or not possible.
    pub fn prepare<S, F>(ticket: ChangeTicket, parts: &mut Parts<'_, S, F>) -> Option<Self>
    where
        S: ChangeablePrograms,
        F: Future<Output = ()>,
    {
        if ticket.change.decision.get().is_some() {
            return None;
        }
        match make(&ticket.change, ticket.reactor, parts) {
            Ok((prepared, ready)) => {
                ticket.answer(ReactorAnswer::Prepared(Ok(ready)));
                Some(Self { ticket, prepared })
            }
            Err(refused) => {
                ticket.answer(ReactorAnswer::Prepared(Err(refused)));
                None
            }
        }
    }

    /// Whether it is decided.
    pub fn is_decided(&self) -> bool {
        self.ticket.change.decision.get().is_some()
    }

    /// Applies the change, or aborts it. Returns the removed listeners.
    pub fn settle<S, F>(self, parts: &mut Parts<'_, S, F>) -> Vec<FabricId>
    where
        S: ChangeablePrograms,
        F: Future<Output = ()>,
    {
        let Self { ticket, prepared } = self;
        let Some(ChangeDecision::Commit(commit)) = ticket.change.decision.get() else {
            return Vec::new();
        };
        put_in_force(commit, prepared.exports, ticket.reactor, parts);
        for mut slot in prepared.slots {
            if parts.drains {
                slot.stop_listening();
            }
            parts.responder.add_fabric(slot);
        }
        for &id in &commit.removed {
            if let Some(slot) = parts.responder.fabric(id) {
                slot.stop_listening();
            }
        }
        if let Some(rpc) = prepared.rpc.filter(|_| !parts.drains) {
            parts.tcp.take_listener(rpc);
        }
        parts.responder.shared().flow.limits_changed();
        ticket.answer(ReactorAnswer::Applied);
        commit.removed.clone()
    }
}

fn make<S, F>(
    change: &Change,
    reactor: usize,
    parts: &mut Parts<'_, S, F>,
) -> Result<(PreparedParts, Ready), ChangeRefused>
where
    S: ChangeablePrograms,
    F: Future<Output = ()>,
{
    let mut ready = Ready::default();
    let mut prepared = PreparedParts::default();
    if let Some(exports) = &change.exports {
        let shared = parts.responder.shared();
        let table = shared.programs.prepare_exports(exports, parts.room)?;
        prepared.exports = Some(table.made_at(change.made));
    }
    let provider_core = plan::ProviderCore {
        index: reactor,
        core: parts.context.core(),
    };
    for new in &change.listeners {
        let path = format!("fabric[{}]", new.index);
        let devices = change.devices.as_ref();
        let made = plan::provider(new.id, &new.fabric, new.limits, provider_core, devices);
        let (mut slot, counters) =
            made.map_err(|error| ChangeRefused::new(path.as_str(), error.to_string()))?;
        ready.counters.push(counters);
        if reactor == 0 {
            listen(new, &mut slot, parts).map_err(|error| {
                let address = new.fabric.listen;
                let told = devices::listen_error(&new.fabric, &error);
                let mut reason = format!("cannot listen on {address}: {told}");
                if let (std::io::ErrorKind::AddrInUse, Some(behind)) = (error.kind(), new.behind) {
                    reason += &format!(
                        "; the listener at {behind} uses the port: remove it first, and add this \
                         one in a separate change"
                    );
                }
                ChangeRefused::new(format!("{path}.listen"), reason)
            })?;
            let address = slot.address().unwrap_or(new.fabric.listen);
            ready.fabric.push((new.id, address));
        }
        prepared.slots.push(slot);
    }
    if let (0, Some(address)) = (reactor, change.rpc) {
        let listener = parts.tcp.prepare_listener(address).map_err(|error| {
            ChangeRefused::new("rpc.listen", format!("cannot listen on {address}: {error}"))
        })?;
        ready.rpc = Some(listener.address());
        prepared.rpc = Some(listener);
    }
    Ok((prepared, ready))
}

/// Opens a new listener; if one at the same address is removed, on its socket, so that no
/// connection is refused meanwhile.
fn listen<S, F>(
    new: &NewListener,
    slot: &mut FabricSlot,
    parts: &mut Parts<'_, S, F>,
) -> std::io::Result<()>
where
    F: Future<Output = ()>,
    S: Serve,
{
    let before = new.replaces.and_then(|id| parts.responder.fabric(id));
    match before.map(|before| before.socket()) {
        Some(socket) => slot.listen_on(socket?, parts.hands_over),
        None => slot.listen(new.fabric.listen, parts.hands_over),
    }
}

fn put_in_force<S, F>(
    commit: &Commit,
    exports: Option<Exports<AnyStore>>,
    reactor: usize,
    parts: &mut Parts<'_, S, F>,
) where
    S: ChangeablePrograms,
    F: Future<Output = ()>,
{
    let shared = parts.responder.shared();
    let before = shared.settings.replace(commit.settings);
    parts.tcp.limit_transfers(commit.settings.transfers);
    if let Some(state) = shared.programs.client_state() {
        state.change_terms(commit.state_terms);
    }
    if let Some(exports) = exports {
        shared.programs.take_exports(exports, parts.room);
    }
    if let Some(offers) = &commit.offers {
        shared.programs.take_offers(offers);
        if let Some(rpcbind) = parts.rpcbind {
            rpcbind.replace_offers(offers);
        }
    }
    if let Some(arena) = commit.arenas.get(reactor).and_then(taken) {
        parts.room.add_arena(arena.arena());
        shared.pool.add(arena);
    }
    parts.context.set_poll_mode(commit.poll);
    for &(id, limits) in &commit.limits {
        if let Some(slot) = parts.responder.fabric(id) {
            slot.limit(limits);
        }
    }
    let deeper = |of: &crate::rdma::Settings| (of.credits, of.exposures.connection);
    if deeper(&commit.settings) != deeper(&before) {
        parts.responder.deepen_receives();
    }
}

/// Takes data left by another thread, once.
fn taken<T>(left: &Mutex<Option<T>>) -> Option<T> {
    left.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Listens again at all addresses, or at none.
///
/// # Errors
/// The address that cannot be used.
pub fn listen_again<S, F>(resume: &Resume, parts: &mut Parts<'_, S, F>) -> Result<(), String>
where
    S: Serve,
    F: Future<Output = ()>,
{
    let mut all = || {
        for &(id, address) in &resume.fabric {
            if let Some(slot) = parts.responder.fabric(id) {
                let listens = slot.listen(address, parts.hands_over);
                listens.map_err(|error| format!("cannot listen on {address}: {error}"))?;
            }
        }
        if let Some(address) = resume.rpc {
            let listens = parts.tcp.listen(address);
            listens.map_err(|error| format!("cannot listen on {address}: {error}"))?;
        }
        Ok(())
    };
    let done = all();
    if done.is_err() {
        for &(id, _) in &resume.fabric {
            if let Some(slot) = parts.responder.fabric(id) {
                slot.stop_listening();
            }
        }
        parts.tcp.stop_listening();
    }
    done
}
