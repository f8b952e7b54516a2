//! What is recorded of calls that must not be executed twice.

use std::cell::RefCell;

use millrace_store::Store;
use millrace_wire::nfs3::Procedure;
use millrace_wire::xdr::Decoder;

use super::Service;
use crate::exports::ExportId;
use crate::nfs3::Context;
use crate::replay::{Moment, Place, Ticket, Writer};

/// Longest name that is looked at; a longer one is no name of any store.
const NAME_MAX: usize = 1024;

/// A call that stands in the journal as begun. Dropped, it stays so: nobody knows whether it was
/// executed.
pub(super) struct Noted<'a> {
    journal: &'a RefCell<Writer>,
    place: Option<Place>,
}

impl Noted<'_> {
    /// It was executed, and is answered so.
    pub fn done(mut self, reply: &[u8]) {
        if let Some(place) = self.place.take() {
            self.journal.borrow_mut().done(&place, Moment::now(), reply);
        }
    }

    /// It was not executed.
    pub fn void(mut self) {
        if let Some(place) = self.place.take() {
            self.journal.borrow_mut().void(&place);
        }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut journal = self.journal.borrow_mut();
            journal.unknown(&place, Moment::now());
        }
    }
}

impl<S: Store> Service<S> {
    /// Records that a call is about to be executed, if its export outlives the process.
    pub(super) fn note(
        &self,
        context: &Context<'_, S>,
        ticket: &Ticket,
        arguments: &[u8],
    ) -> Option<Noted<'_>> {
        let journal = self.inner.journal.get()?;
        let handle = Decoder::new(arguments).opaque(64).ok()?;
        let (export, _) = context.key.open(handle).ok()?;
        let export = context.exports.by_id(ExportId(export))?;
        if !export.store.outlives_process() {
            return None;
        }
        let targets = self.targets(context.procedure, arguments).unwrap_or([0; 2]);
        let key = ticket.key()?;
        self.inner.replay.contest(key, targets);
        let again = ticket.again();
        let began = again.map_or_else(Moment::now, |again| again.began);
        let contested = again.is_some_and(|again| !again.alone);
        let place = journal.borrow_mut().begin(key, began, targets, contested);
        place.map(|place| Noted {
            journal,
            place: Some(place),
        })
    }

    /// The names that a call changes.
    fn targets(&self, procedure: Procedure, arguments: &[u8]) -> Option<[u64; 2]> {
        let mut input = Decoder::new(arguments);
        if procedure == Procedure::Link {
            input.opaque(64).ok()?;
        }
        let mut target = || {
            let directory = input.opaque(64).ok()?;
            let name = input.opaque(NAME_MAX).ok()?;
            Some(self.inner.replay.target(directory, name))
        };
        match procedure {
            Procedure::Setattr => None,
            Procedure::Rename => Some([target()?, target()?]),
            _ => Some([target()?, 0]),
        }
    }
}
