//! Admission of decoded calls: detection of repetitions, limits, the journal.

use std::cell::{OnceCell, RefCell};
use std::time::Instant;

use millrace_reactor::Clock;

use super::call::Broken;
use super::connection::ConnectionRef;
use super::program::Unserved;
use crate::exports::ExportId;
use crate::flow::Flow;
use crate::replay::{
    CallKey, Entered, InterruptedCall, JournalPlace, Moment, ReplayCache, Ticket, Writer,
};

/// What decides on the admission of calls on one reactor.
pub(super) struct AdmissionControl {
    pub replay: ReplayCache,
    /// What this reactor's part of the cache is made to outlive the process with, and the clock of
    /// waits for it.
    pub journal: OnceCell<(RefCell<Writer>, Clock)>,
    /// What meters clients and exports, where anything does.
    pub flow: OnceCell<Flow>,
}

impl AdmissionControl {
    /// Looks a call up that must not be executed twice.
    pub async fn enter(&self, key: CallKey, arrived: Instant) -> Result<Ticket, Unserved> {
        match self.replay.enter(key, arrived).await {
            Entered::Execute(ticket) => Ok(ticket),
            Entered::Crowded => Err(Unserved::Silent),
            Entered::Replay(message) => Err(Unserved::Replay(message)),
        }
    }

    /// Whether a call may have to wait for a limit.
    pub fn may_wait(&self, connection: &ConnectionRef) -> bool {
        let flow = self.flow.get();
        flow.is_some_and(|flow| flow.may_wait(connection.share()))
    }

    /// Waits until the limits of the client and of the export let a call begin.
    ///
    /// # Errors
    /// The transport broke meanwhile: the call is not to be executed.
    pub async fn pass(
        &self,
        connection: &ConnectionRef,
        subject: &CallSubject<'_>,
    ) -> Result<(), Broken> {
        let Some(flow) = self.flow.get().filter(|flow| flow.has_limits()) else {
            return Ok(());
        };
        let export = subject.export.filter(|_| flow.has_limited_exports());
        let is_over = || connection.has_ended();
        flow.pass(connection.share(), export, subject.bytes, is_over)
            .await
    }
}

/// A name in a directory, given by the directory's handle.
pub type NamedEntry<'a> = (&'a [u8], &'a [u8]);

/// The properties of a call that its admission depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallSubject<'a> {
    /// The export that it is charged to: none if the client may not use it, and takes nothing
    /// from it.
    pub export: Option<ExportId>,
    /// Bytes of file data that it asks for.
    pub bytes: u64,
    /// Whether what it changes outlives the process.
    pub lasting: bool,
    /// The names that it changes.
    pub names: [Option<NamedEntry<'a>>; 2],
}

impl AdmissionControl {
    /// Records in the journal that names are used by a call that may be executed twice. The record
    /// ends when the guard is [done](JournalGuard::done).
    pub fn note_use(&self, key: &CallKey, subject: &CallSubject<'_>) -> Option<JournalGuard<'_>> {
        let (journal, _) = self.journal.get().filter(|_| subject.lasting)?;
        let targets = self.targets(subject);
        let guard = JournalGuard::begin(journal, key, Moment::now(), targets, false);
        self.replay.contest(key, targets);
        guard
    }

    /// Waits until other servers can read what has been recorded of a call, if they do.
    pub async fn written(&self, subject: &CallSubject<'_>) {
        let journal = self.journal.get().filter(|_| subject.lasting);
        let written = journal.and_then(|(journal, clock)| journal.borrow().written(clock));
        if let Some(written) = written {
            Box::pin(written).await;
        }
    }

    fn targets(&self, subject: &CallSubject<'_>) -> [u64; 2] {
        let target = |(directory, name)| self.replay.target(directory, name);
        subject.names.map(|name| name.map_or(0, target))
    }
}

/// Held while a call is executed. If it is dropped before [`Admission::record`], the call was not
/// executed; after that it is unknown, as the task may have panicked at any point.
pub(super) struct Admission<'a> {
    // Settled before a repetition may run.
    record: Option<JournalGuard<'a>>,
    ticket: Ticket,
}

impl<'a> Admission<'a> {
    /// The admission of a call that holds a ticket of the cache.
    pub fn new(ticket: Ticket) -> Self {
        Self {
            record: None,
            ticket,
        }
    }

    /// The call is about to be executed: that is recorded in the journal, if what it changes
    /// outlives the process.
    pub fn record(
        &mut self,
        control: &'a AdmissionControl,
        subject: &CallSubject<'_>,
    ) -> Option<InterruptedCall> {
        let again = self.ticket.again();
        let began = self.ticket.begin();
        if let (true, Some((journal, _)), Some(key)) =
            (subject.lasting, control.journal.get(), self.ticket.key())
        {
            let targets = control.targets(subject);
            let contested = again.is_some_and(|again| !again.alone);
            // Before the names are contested: a takeover at the same time sees one of the two.
            self.record = JournalGuard::begin(journal, key, began, targets, contested);
            control.replay.contest(key, targets);
        }
        again
    }

    /// The call was executed, and is answered so.
    pub fn executed(self, reply: &[u8], arrived: Instant) {
        if let Some(record) = self.record {
            record.done(reply);
        }
        self.ticket.finish(reply, arrived);
    }

    /// The call was not executed.
    pub fn void(self) {
        if let Some(record) = self.record {
            record.void();
        }
        self.ticket.void();
    }
}

/// A call that the journal records as begun. If this is dropped, the record stays: it is unknown
/// whether the call was executed.
pub(super) struct JournalGuard<'a> {
    journal: &'a RefCell<Writer>,
    place: Option<JournalPlace>,
}

impl<'a> JournalGuard<'a> {
    fn begin(
        journal: &'a RefCell<Writer>,
        key: &CallKey,
        began: Moment,
        targets: [u64; 2],
        contested: bool,
    ) -> Option<Self> {
        let place = journal.borrow_mut().begin(key, began, targets, contested);
        place.map(|place| Self {
            journal,
            place: Some(place),
        })
    }

    pub fn done(mut self, reply: &[u8]) {
        if let Some(place) = self.place.take() {
            self.journal.borrow_mut().done(&place, Moment::now(), reply);
        }
    }

    fn void(mut self) {
        if let Some(place) = self.place.take() {
            self.journal.borrow_mut().void(&place);
        }
    }
}

impl Drop for JournalGuard<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut journal = self.journal.borrow_mut();
            journal.unknown(&place, Moment::now());
        }
    }
}
