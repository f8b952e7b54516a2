//! Who may use what: exports and their rules, file handles, and the identity that a caller has
//! there.
//!
//! It is decided once for each handle of a call (`Access::object`); only a call that waited for a
//! long time looks again before it changes anything (`Access::check_writable_again`).

pub mod call_histograms;
pub mod export_counters;
pub mod exports;
pub mod handle;
mod security;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::Instant;

use millrace_store::{Caller, Handle, Store};

use call_histograms::ClassHistograms;
use export_counters::{AnsweredExportCalls, ExportsCounters};
use exports::{Export, ExportId, Exports};
use handle::{HandleError, HandleKey};
pub use security::{CallIdentity, Security, SecurityList};

use crate::latency::TurnEnd;

/// The exports of one reactor, as its programs share them.
#[derive(Debug)]
pub struct ServedExports<S> {
    table: RefCell<Exports<S>>,
    pub(crate) key: HandleKey,
    counters: ExportsCounters,
    answered: AnsweredExportCalls,
    /// Whether a store of the table writes at once.
    writes_at_once: Cell<bool>,
}

impl<S: Store> ServedExports<S> {
    /// Serves a table of exports.
    #[must_use]
    pub fn new(table: Exports<S>, key: HandleKey) -> Self {
        let counters = ExportsCounters::default();
        counters.count(&table);
        Self {
            writes_at_once: Cell::new(writes_at_once(&table)),
            table: RefCell::new(table),
            key,
            counters,
            answered: AnsweredExportCalls::default(),
        }
    }

    /// Puts another table in place. Calls that run finish with the one they began with.
    pub fn replace(&self, table: Exports<S>) {
        self.counters.count(&table);
        self.writes_at_once.set(writes_at_once(&table));
        *self.table.borrow_mut() = table;
    }

    /// The table now.
    #[must_use]
    pub fn table(&self) -> Exports<S> {
        self.table.borrow().clone()
    }

    /// Whether the store of any export executes writes without waiting.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.writes_at_once.get()
    }

    /// What calls have done with each export.
    #[must_use]
    pub fn counters(&self) -> &ExportsCounters {
        &self.counters
    }

    /// Counts a call on an export, of a client of a class, that moved so many bytes of file data:
    /// read, written.
    pub(crate) fn count(
        &self,
        export: &Export<S>,
        class: &ClassHistograms,
        success: bool,
        moved: (u32, u32),
        arrived: Instant,
    ) {
        self.answered.count(export, class, success, moved, arrived);
    }

    /// Times the calls of the turn that ends.
    pub(crate) fn turned(&self, end: &TurnEnd) {
        self.answered.settle(end);
    }

    /// Whether any export admits a client at this address.
    #[must_use]
    pub fn admits(&self, client: IpAddr) -> bool {
        let table = self.table.borrow();
        table.iter().any(|export| export.rules.admits(client))
    }
}

/// Why an object may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// The handle is none of this server's.
    BadHandle,
    /// The object, or its export, is gone.
    Stale,
    /// The export does not admit the client, or not with this security.
    NotAdmitted,
    /// Changes are refused.
    ReadOnly,
    /// The caller has become another user meanwhile.
    OtherCaller,
}

/// A call's view of the exports.
pub(crate) struct Access<'c, S> {
    pub served: &'c ServedExports<S>,
    /// The table that the call began with.
    pub exports: &'c Exports<S>,
    pub client: IpAddr,
    /// Who calls.
    pub identity: CallIdentity<'c>,
}

/// An object that a call may use.
#[derive(Clone)]
pub(crate) struct ExportedObject<'c, S> {
    pub export: &'c Export<S>,
    pub handle: Handle,
    /// The caller, as the export's rules leave it.
    pub caller: Cow<'c, Caller>,
    /// The view of the export's store for the call's client, if the store distinguishes clients.
    view: Option<S>,
    pub key: &'c HandleKey,
}

impl<'c, S: Store> Access<'c, S> {
    /// The export and the object that a handle names.
    pub fn find(&self, handle: &[u8]) -> Result<(&'c Export<S>, Handle), AccessError> {
        let key = &self.served.key;
        let (export, handle) = key.open(handle).map_err(|error| match error {
            HandleError::Malformed => AccessError::BadHandle,
            HandleError::Foreign => AccessError::Stale,
        })?;
        // If the export no longer exists, its objects are stale.
        let export = self.exports.by_id(ExportId(export));
        Ok((export.ok_or(AccessError::Stale)?, handle))
    }

    /// The object that was found, if the caller may use it.
    #[inline(always)] // What it returns is large to move.
    pub fn object(
        &self,
        (export, handle): (&'c Export<S>, Handle),
    ) -> Result<ExportedObject<'c, S>, AccessError> {
        self.admit(export)?;
        Ok(self.exported(export, handle))
    }

    /// The object that was found, if the client's address may see it. Whether the
    /// security of the call will do is asked when the object is put to use ([`Access::takes`]).
    pub fn visible(
        &self,
        (export, handle): (&'c Export<S>, Handle),
    ) -> Result<ExportedObject<'c, S>, AccessError> {
        if export.rules.admits(self.client) {
            Ok(self.exported(export, handle))
        } else {
            Err(AccessError::NotAdmitted)
        }
    }

    /// Whether an export takes calls secured as this one.
    pub fn takes(&self, export: &Export<S>) -> bool {
        export.rules.security.contains(self.identity.security)
    }

    #[inline(always)] // What it returns is large to move.
    fn exported(&self, export: &'c Export<S>, handle: Handle) -> ExportedObject<'c, S> {
        ExportedObject {
            export,
            handle,
            caller: export.rules.squash(self.identity.caller),
            view: export.store.for_client(self.client.into()),
            key: &self.served.key,
        }
    }

    /// The same for a call that only looks at an object: the root of an export may be looked at
    /// with any security, so that clients can ask for the file system before they know which
    /// security it takes (RFC 2623 section 2.3.2).
    #[cold]
    pub fn root(
        &self,
        (export, handle): (&'c Export<S>, Handle),
    ) -> Result<ExportedObject<'c, S>, AccessError> {
        let object = self.visible((export, handle))?;
        match object.view().root() == handle {
            true => Ok(object),
            false => Err(AccessError::NotAdmitted),
        }
    }

    fn admit(&self, export: &Export<S>) -> Result<(), AccessError> {
        let rules = &export.rules;
        if rules.admits(self.client) && self.takes(export) {
            Ok(())
        } else {
            Err(AccessError::NotAdmitted)
        }
    }

    /// Whether an object that was writable still is, for a call that waited in between.
    pub fn check_writable_again(&self, object: &ExportedObject<'_, S>) -> Result<(), AccessError> {
        let latest = self.served.table.borrow();
        if latest.is(self.exports) {
            return Ok(());
        }
        let export = latest.by_id(object.export.id).ok_or(AccessError::Stale)?;
        self.admit(export)?;
        if export.rules.read_only {
            return Err(AccessError::ReadOnly);
        }
        if export.rules.squash(self.identity.caller) != object.caller {
            // The caller's permissions were decided for another user.
            return Err(AccessError::OtherCaller);
        }
        Ok(())
    }
}

/// Whether the store of any export executes writes without waiting.
fn writes_at_once<S: Store>(table: &Exports<S>) -> bool {
    let mut stores = table.iter().map(|export| &export.store);
    stores.any(|store| store.immediate().is_some_and(|store| store.is_complete()))
}

impl<S: Store> ExportedObject<'_, S> {
    /// Another object of the same export.
    pub fn at(&self, handle: Handle) -> Self {
        Self {
            handle,
            ..self.clone()
        }
    }

    /// The store as the client of the call uses it.
    pub fn view(&self) -> &S {
        self.view.as_ref().unwrap_or(&self.export.store)
    }
}
