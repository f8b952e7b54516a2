//! NFS version 4 as the program table has it.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_reactor::Clock;
use millrace_store::Store;
use millrace_wire::nfs4::{COMPOUND, CompoundHeader, CompoundReplyHeader, OperationStatus};
use millrace_wire::xdr::Decode;

use super::at_once::ReadOnlyCompound;
use super::compound::CompoundRun;
use super::counters::Nfs4Counters;
use super::export_tree::ExportTree;
use super::owners::{OwnerDomain, ReactorOwners};
use super::reply::CompoundReply;
use super::rules;
use super::seam::{CallOrigin, StateSeam};
use super::write_compound::WriteCompound;
use crate::access::ServedExports;
use crate::call::{Answer, Bulk, NoBulk, Reply, Shortage};
use crate::exports::Exports;
use crate::latency::TurnEnd;
use crate::rpc::ConnectionRef;
use crate::rpc::program::{Program, ProgramAnswer, ProgramCall, ProgramInfo, Unserved};

/// NFS version 4 over the exports of one reactor, with the state of clients behind `H`.
pub struct Nfs4<S, H> {
    exports: Rc<ServedExports<S>>,
    state: OnceCell<Rc<H>>,
    owners: OnceCell<ReactorOwners>,
    /// The folders above the exports of this table.
    tree: RefCell<Option<(Exports<S>, Rc<ExportTree>)>>,
    counters: Arc<Nfs4Counters>,
}

impl<S: Store, H: StateSeam> Nfs4<S, H> {
    /// Serves these exports, once there is state of clients.
    #[must_use]
    pub fn new(exports: Rc<ServedExports<S>>) -> Self {
        Self {
            exports,
            state: OnceCell::new(),
            owners: OnceCell::new(),
            tree: RefCell::new(None),
            counters: Arc::default(),
        }
    }

    /// The exports that it serves.
    #[must_use]
    pub fn exports(&self) -> &ServedExports<S> {
        &self.exports
    }

    /// Serves from now on, with this state of clients. The first one given counts.
    pub fn serve_with(&self, state: Rc<H>) {
        let _ = self.state.set(state);
    }

    /// Takes and tells owners by names of this domain from now on. The first one given counts.
    pub fn name_owners(&self, domain: OwnerDomain, clock: &Clock) {
        let clock = clock.clone();
        let _ = self.owners.set(ReactorOwners { domain, clock });
    }

    /// The state of clients, if it is served.
    #[must_use]
    pub fn state(&self) -> Option<&H> {
        self.state.get().map(|state| &**state)
    }

    /// What only NFS version 4 counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Nfs4Counters> {
        self.counters.clone()
    }

    /// The folders above a table of exports.
    fn tree(&self, exports: &Exports<S>) -> Rc<ExportTree> {
        let mut known = self.tree.borrow_mut();
        if let Some((table, tree)) = &*known
            && table.is(exports)
        {
            return Rc::clone(tree);
        }
        let tree = Rc::new(ExportTree::new(exports));
        *known = Some((exports.clone(), Rc::clone(&tree)));
        tree
    }

    /// Counts a call for its export.
    fn ended(
        &self,
        run: &CompoundRun<'_, S, H>,
        (answer, success): (Answer, bool),
        reply: &Reply,
        connection: &ConnectionRef,
        arrived: Instant,
    ) -> ProgramAnswer {
        if let Some(export) = run.export {
            let moved = (reply.account.read, reply.account.written);
            let class = connection.share().class();
            self.exports.count(export, &class, success, moved, arrived);
        }
        ProgramAnswer {
            answer,
            success,
            turned_away: run.turned_away,
        }
    }
}

fn origin<'c, B: Bulk>(call: &ProgramCall<'c, B>, header: &CompoundHeader<'_>) -> CallOrigin<'c> {
    CallOrigin {
        connection: call.connection,
        identity: call.identity,
        arrived: call.arrived,
        minor_version: header.minor_version,
    }
}

/// Answers a COMPOUND of which no operation is executed.
fn refuse<B: Bulk>(
    call: &ProgramCall<'_, B>,
    reply: &mut Reply,
    header: &CompoundHeader<'_>,
    status: OperationStatus,
) -> ProgramAnswer {
    let results = CompoundReplyHeader {
        status,
        tag: header.tag,
        results: 0,
    };
    call.answer(reply, &results, status == OperationStatus::Ok)
}

impl<S: Store, H: StateSeam> Program for Nfs4<S, H> {
    const INFO: &'static ProgramInfo = &rules::INFO;

    fn is_served(&self) -> bool {
        self.state.get().is_some()
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.exports.admits(client)
    }

    fn fetches_small_data(&self) -> bool {
        self.exports.writes_at_once()
    }

    async fn serve<B: Bulk>(
        &self,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        let state = self.state().ok_or(Unserved::NoProgram)?;
        match call.number {
            0 => return Ok(call.answer(reply, &(), true)),
            COMPOUND => {}
            _ => return Err(Unserved::NoProcedure),
        }
        let mut input = call.input();
        let header = CompoundHeader::decode(&mut input)?;
        let status = if !state.minor_versions().contains(&header.minor_version) {
            OperationStatus::MinorVersionMismatch
        } else if std::str::from_utf8(header.tag.0).is_err() {
            OperationStatus::Invalid
        } else {
            OperationStatus::Ok
        };
        if status != OperationStatus::Ok || header.operations == 0 {
            return Ok(refuse(call, reply, &header, status));
        }
        let Ok(mut results) =
            CompoundReply::begin(reply, &self.counters, &call.header(), header.tag.0)
        else {
            return Ok(refuse(call, reply, &header, OperationStatus::ReplyTooBig));
        };
        let exports = self.exports.table();
        let tree = self.tree(&exports);
        let (access, origin) = (call.access(&self.exports, &exports), origin(call, &header));
        let times = &self.counters.store;
        let mut run = CompoundRun::new(access, &tree, state, origin, times, self.owners.get());
        let ended = run.execute(call, &header, input, &mut results).await;
        let success = results.status() == OperationStatus::Ok;
        let answer = match ended {
            Ok(true) => {
                results.finish();
                Answer::Send
            }
            // A cached reply does not fit into the room that the client offers now.
            Ok(false) => {
                reply.clear();
                Answer::TooLarge(Shortage {
                    processed: true,
                    ..Shortage::default()
                })
            }
            Err(unserved) => return Err(unserved),
        };
        Ok(self.ended(
            &run,
            (answer, success),
            reply,
            call.connection,
            call.arrived,
        ))
    }

    fn serve_at_once(
        &self,
        call: &mut ProgramCall<'_, NoBulk>,
        reply: &mut Reply,
    ) -> Option<ProgramAnswer> {
        let state = self.state().filter(|_| call.number == COMPOUND)?;
        let mut input = call.input();
        let header = CompoundHeader::decode(&mut input).ok()?;
        if !header.tag.0.is_empty() || !state.minor_versions().contains(&header.minor_version) {
            return None;
        }
        let reading = ReadOnlyCompound::decode(&header, input);
        let results = CompoundReply::begin(reply, &self.counters, &call.header(), &[]);
        let mut results = results.ok()?;
        let exports = self.exports.table();
        let tree = self.tree(&exports);
        let (access, origin) = (call.access(&self.exports, &exports), origin(call, &header));
        let times = &self.counters.store;
        let mut run = CompoundRun::new(access, &tree, state, origin, times, self.owners.get());
        match &reading {
            Some(reading) => run.execute_at_once(call, &header, reading, &mut results)?,
            None => {
                let writing = WriteCompound::decode(&header, input)?;
                run.write_at_once(call, &header, &writing, &mut results)?;
            }
        }
        let success = results.status() == OperationStatus::Ok;
        results.finish();
        Some(self.ended(
            &run,
            (Answer::Send, success),
            reply,
            call.connection,
            call.arrived,
        ))
    }

    fn turned(&self, end: &TurnEnd) {
        self.exports.turned(end);
    }
}
