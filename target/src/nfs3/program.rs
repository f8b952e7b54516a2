//! NFS version 3 as the program table has it: decode, admit, execute, encode.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_store::Store;
use millrace_wire::nfs3::{Failure, Procedure};
use millrace_wire::xdr::Encode;

use super::arguments::Arguments;
use super::context::Context;
use super::status_counters::Nfs3Counters;
use super::{
    attributes, create, delegations, directory, lookup, read, remove, rules, system, write,
};
use crate::access::ServedExports;
use crate::call::{Answer, Bulk, NoBulk, Reply};
use crate::exports::Export;
use crate::latency::TurnEnd;
use crate::rpc::program::{Program, ProgramAnswer, ProgramCall, ProgramInfo, Unserved};
use crate::rpc::{CallSubject, ConnectionRef};
use crate::state::DelegationGate;

/// NFS version 3 over the exports of one reactor.
pub struct Nfs3<S> {
    exports: Rc<ServedExports<S>>,
    counters: Arc<Nfs3Counters>,
    /// What is asked before files are used, where clients of other versions have delegations.
    delegations: OnceCell<DelegationGate>,
    is_off: Cell<bool>,
}

impl<S: Store> Nfs3<S> {
    /// Serves these exports.
    #[must_use]
    pub fn new(exports: Rc<ServedExports<S>>) -> Self {
        Self {
            exports,
            counters: Arc::default(),
            delegations: OnceCell::new(),
            is_off: Cell::new(false),
        }
    }

    /// Serves nothing from now on.
    pub fn end(&self) {
        self.is_off.set(true);
    }

    /// Respects delegations from now on. The first gate given counts.
    pub fn respect(&self, delegations: DelegationGate) {
        let _ = self.delegations.set(delegations);
    }

    /// The exports that it serves.
    #[must_use]
    pub fn exports(&self) -> &ServedExports<S> {
        &self.exports
    }

    /// What only NFS version 3 counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Nfs3Counters> {
        self.counters.clone()
    }

    /// Executes a call that was admitted.
    async fn execute<B: Bulk>(
        &self,
        context: &Context<'_, S>,
        arguments: &Arguments<'_>,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        let header = &call.header();
        macro_rules! answered {
            ($results:expr) => {{
                let results = $results.await;
                Ok(self.answer(call, reply, &results))
            }};
        }
        match arguments {
            Arguments::Getattr(_) => answered!(attributes::getattr(context)),
            Arguments::Setattr(setattr) => answered!(attributes::setattr(context, setattr)),
            Arguments::Lookup(entry) => answered!(lookup::lookup(context, entry)),
            Arguments::Access(access) => answered!(attributes::access(context, access)),
            Arguments::Readlink(_) => answered!(lookup::readlink(context, reply)),
            Arguments::Read(read) => match read::shortage(context, read, reply.limits()) {
                Some(shortage) => Ok(ProgramAnswer::new(Answer::TooLarge(shortage), false)),
                None => answered!(read::read(context, read, reply)),
            },
            Arguments::Write(write) => {
                let results = write::write(context, write, call, reply).await?;
                Ok(self.answer(call, reply, &results))
            }
            Arguments::Create(create) => answered!(create::create(context, create)),
            Arguments::Mkdir(mkdir) => answered!(create::mkdir(context, mkdir)),
            Arguments::Symlink(symlink) => {
                // By the table, transports put a text that came in a chunk back.
                let text = symlink.text.as_inline().ok_or(Unserved::Garbage)?;
                answered!(create::symlink(context, symlink, text))
            }
            Arguments::Mknod(mknod) => answered!(create::mknod(context, mknod)),
            Arguments::Remove(entry) | Arguments::Rmdir(entry) => {
                answered!(remove::remove(context, entry))
            }
            Arguments::Rename(rename) => answered!(remove::rename(context, rename)),
            Arguments::Link(link) => answered!(remove::link(context, link)),
            Arguments::Readdir(readdir) => {
                let listed = directory::readdir(context, readdir, header, reply).await;
                Ok(self.listing(call, reply, listed))
            }
            Arguments::Readdirplus(readdir) => {
                let listed = directory::readdirplus(context, readdir, header, reply).await;
                Ok(self.listing(call, reply, listed))
            }
            Arguments::Fsstat(_) => answered!(system::fsstat(context)),
            Arguments::Fsinfo(_) => answered!(system::fsinfo(context)),
            Arguments::Pathconf(_) => answered!(system::pathconf(context)),
            Arguments::Commit(commit) => answered!(write::commit(context, commit)),
        }
    }

    /// Executes a call that was admitted, if it has to wait for nothing and succeeds.
    #[inline]
    fn execute_at_once(
        &self,
        context: &Context<'_, S>,
        arguments: &Arguments<'_>,
        call: &ProgramCall<'_, NoBulk>,
        reply: &mut Reply,
    ) -> Option<ProgramAnswer> {
        macro_rules! answered {
            ($results:expr) => {{
                let results = $results?;
                self.answer(call, reply, &results)
            }};
        }
        Some(match arguments {
            Arguments::Getattr(_) => answered!(attributes::getattr_at_once(context)),
            Arguments::Lookup(entry) => answered!(lookup::lookup_at_once(context, entry)),
            Arguments::Access(access) => answered!(attributes::access_at_once(context, access)),
            Arguments::Read(read) => answered!(read::read_at_once(context, read, reply)),
            Arguments::Write(write) => {
                answered!(write::write_at_once(context, write, call, reply))
            }
            _ => return None,
        })
    }

    /// Counts a call for its export.
    fn ended(
        &self,
        context: &Context<'_, S>,
        done: &mut ProgramAnswer,
        reply: &Reply,
        connection: &ConnectionRef,
        arrived: Instant,
    ) {
        done.turned_away = context.turned_away.get();
        if let Some(export) = context.export {
            let moved = (reply.account.read, reply.account.written);
            let class = connection.share().class();
            self.exports
                .count(export, &class, done.success, moved, arrived);
        }
    }

    /// Encodes results, and counts their status.
    fn answer<T, F, B: Bulk>(
        &self,
        call: &ProgramCall<'_, B>,
        reply: &mut Reply,
        results: &Result<T, Failure<F>>,
    ) -> ProgramAnswer
    where
        Result<T, Failure<F>>: Encode,
    {
        if let Err(failure) = results {
            self.counters.statuses.count(failure.status);
        }
        call.answer(reply, results, results.is_ok())
    }

    fn listing<B: Bulk>(
        &self,
        call: &ProgramCall<'_, B>,
        reply: &mut Reply,
        listed: directory::Listed,
    ) -> ProgramAnswer {
        match listed {
            Ok(length) => {
                reply.set_length(length);
                ProgramAnswer::new(Answer::Send, true)
            }
            Err(failure) => self.answer(call, reply, &Err::<(), _>(failure)),
        }
    }
}

impl<S: Store> Program for Nfs3<S> {
    const INFO: &'static ProgramInfo = &rules::INFO;

    fn is_served(&self) -> bool {
        !self.is_off.get()
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
        let procedure = Procedure::from_number(call.number).ok_or(Unserved::NoProcedure)?;
        if procedure == Procedure::Null {
            return Ok(call.answer(reply, &(), true));
        }
        // They are large to move.
        let decoded = Arguments::decode(procedure, call);
        let arguments = match &decoded {
            Ok(arguments) => arguments,
            Err(unserved) => return Err(unserved.clone()),
        };
        let exports = self.exports.table();
        let access = call.access(&self.exports, &exports);
        let times = &self.counters.store;
        let mut context = Context::new(procedure, access, times, arguments.handle());
        if !call.is_admitted_at_once() {
            let lasting = |export: &Export<S>| export.store.outlives_process();
            let subject = CallSubject {
                export: context.subject().ok().map(|object| object.export.id),
                bytes: arguments.bytes(),
                lasting: call.procedure.once && context.export.is_some_and(lasting),
                names: arguments.names(),
            };
            context.again = call.admit(subject).await?;
        }
        if let Some(gate) = self.delegations.get()
            && !gate.is_idle()
            && let Err(status) = Box::pin(delegations::settle(&context, arguments, gate)).await
        {
            context.subject = Err(status);
        }
        let mut done = self.execute(&context, arguments, call, reply).await?;
        self.ended(&context, &mut done, reply, call.connection, call.arrived);
        Ok(done)
    }

    fn serve_at_once(
        &self,
        call: &mut ProgramCall<'_, NoBulk>,
        reply: &mut Reply,
    ) -> Option<ProgramAnswer> {
        let procedure = Procedure::from_number(call.number)?;
        if self.delegations.get().is_some_and(|gate| !gate.is_idle()) {
            return None;
        }
        let decoded = Arguments::decode(procedure, call);
        let arguments = decoded.as_ref().ok()?;
        let exports = self.exports.table();
        let access = call.access(&self.exports, &exports);
        let times = &self.counters.store;
        let context = Context::new(procedure, access, times, arguments.handle());
        let mut done = self.execute_at_once(&context, arguments, call, reply)?;
        if !matches!(done.answer, Answer::Send) {
            return None;
        }
        self.ended(&context, &mut done, reply, call.connection, call.arrived);
        Some(done)
    }

    fn turned(&self, end: &TurnEnd) {
        self.exports.turned(end);
    }
}
