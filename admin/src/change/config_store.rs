//! The configuration in force, and changes of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::audit::{self, Record};
use super::counts::{Counts, Outcome};
use super::edit::{edited, fields, summary};
use super::guarded;
use super::history::History;
use super::in_use;
use super::persist::{Disk, HostDisk, Staged, rewritten};
use super::{
    Author, ChangeError, ChangeReport, ChangeRequest, Current, Edit, FileComparison, Generation,
    HistoryEntry, Tag,
};
use crate::api::Certificates;
use crate::config::{self, Config, KeyChange, Source, diff, diff_while, edit_text, live_part};
use crate::control::Control;
use crate::events::EventLog;
use crate::status::{FieldProblem, ResourceUse};
use crate::{roles, token};

/// Keeps the configuration, its history and its file.
///
/// Changes are made one at a time, in order of arrival. In the meantime the store answers from the
/// configuration before the change, without waiting.
pub struct ConfigStore {
    control: Arc<dyn Control>,
    run: u64,
    file: Option<PathBuf>,
    disk: Box<dyn Disk>,
    /// Held while a change is made.
    changing: Mutex<()>,
    /// Never held while a change is applied.
    state: Mutex<ConfigStoreState>,
    pub(super) counts: Counts,
    events: Arc<EventLog>,
}

struct ConfigStoreState {
    generation: Generation,
    config: Arc<Config>,
    history: History,
    /// The content of the file when it was last read or written. `None` if the file did not have
    /// this configuration.
    file_text: Option<String>,
}

impl ConfigStore {
    /// A store with the configuration of the service's start, and its file.
    pub fn new(control: Arc<dyn Control>, config: Arc<Config>, file: Option<PathBuf>) -> Self {
        Self::with_disk(control, config, file, Box::new(HostDisk))
    }

    /// The same with another implementation of files.
    pub(super) fn with_disk(
        control: Arc<dyn Control>,
        config: Arc<Config>,
        file: Option<PathBuf>,
        disk: Box<dyn Disk>,
    ) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let read = file.as_deref().and_then(|file| {
            let bytes = disk.read(&disk.resolve(file).ok()?).ok()?;
            String::from_utf8(bytes).ok()
        });
        // The file may have changed since the service read it.
        let is_read = |text: &String| config::parse(text, "").is_ok_and(|read| read == *config);
        let file_text = read.filter(is_read);
        let entry = HistoryEntry {
            generation: 1,
            time_seconds: now(),
            author: Author {
                name: "start".to_owned(),
                address: None,
            },
            summary: "start".to_owned(),
            changes: Vec::new(),
            persisted: file_text.is_some(),
        };
        let mut history = History::default();
        history.push(entry, Arc::clone(&config));
        let run = RandomState::new().hash_one(());
        Self {
            control,
            run,
            events: Arc::new(EventLog::new(run)),
            file,
            disk,
            changing: Mutex::default(),
            state: Mutex::new(ConfigStoreState {
                generation: 1,
                config,
                history,
                file_text,
            }),
            counts: Counts::new(now()),
        }
    }

    /// The configuration in force. Does not wait for a change in progress.
    pub fn current(&self) -> Current {
        let (generation, config) = self.latest();
        Current {
            tag: self.tag(generation),
            restart_required: self.restart_required(&config),
            config,
        }
    }

    /// The configuration of the latest change. The running one may differ in keys that need a
    /// restart.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.latest().1
    }

    /// The tag of a generation of this run.
    pub fn tag(&self, generation: Generation) -> Tag {
        Tag {
            run: self.run,
            generation,
        }
    }

    /// Makes a change, or only checks it; see [`super`]. Each attempt writes an audit record.
    ///
    /// # Errors
    ///
    /// See [`ChangeError`]. The configuration is then unchanged.
    pub fn change(&self, request: ChangeRequest) -> Result<ChangeReport, ChangeError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let author = request.author.clone();
        let mut summary = summary(&request.edit);
        if request.force {
            summary.push_str(" by force");
        }
        let (dry_run, reload) = (request.dry_run, matches!(request.edit, Edit::Reload));
        // The change itself may change the destination of audit records.
        let (before, config) = self.latest();
        let result = self.make(request, &summary);
        let outcome = match &result {
            Ok(_) if dry_run => Outcome::Tried,
            Ok(report) if report.generation == before => Outcome::Unchanged,
            Ok(_) => Outcome::Applied,
            Err(error) => Outcome::of(error),
        };
        self.counts.change(outcome);
        if reload && !dry_run {
            self.counts.reload(result.is_ok(), now());
        }
        let record = Record {
            author: &author,
            summary: &summary,
            outcome: outcome.name(),
            generation: result.as_ref().map_or(before, |report| report.generation),
            changes: result.as_ref().map_or(&[], |report| &report.changes),
            error: result.as_ref().err(),
        };
        audit::record(&record, now(), config.admin.audit_file.as_deref());
        if !matches!(outcome, Outcome::Tried | Outcome::Unchanged) {
            self.events.publish(audit::change_event(&record));
        }
        result
    }

    /// Writes an audit record for an action that does not change the configuration.
    pub fn note(&self, author: &Author, summary: &str, outcome: &str) {
        let (generation, config) = self.latest();
        let record = Record {
            author,
            summary,
            outcome,
            generation,
            changes: &[],
            error: None,
        };
        audit::record(&record, now(), config.admin.audit_file.as_deref());
        self.events.publish(audit::action_event(&record));
    }

    /// The latest events: those of changes and actions, and what else is published there.
    pub(crate) fn events(&self) -> Arc<EventLog> {
        Arc::clone(&self.events)
    }

    /// The configuration file as it is now, compared with the configuration; `None` without a file.
    pub fn file_comparison(&self) -> Option<FileComparison> {
        let file = self.file.as_deref()?;
        let (config, known) = {
            let state = self.lock();
            (Arc::clone(&state.config), state.file_text.clone())
        };
        let mut comparison = FileComparison {
            path: file.display().to_string(),
            edited: true,
            unsaved: Vec::new(),
            error: None,
        };
        let read = self
            .disk
            .resolve(file)
            .and_then(|file| self.disk.read(&file));
        let parsed = read
            .map_err(|error| error.to_string())
            .and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()))
            .and_then(|text| {
                comparison.edited = known.is_none_or(|known| known != text);
                config::parse(&text, &comparison.path).map_err(|errors| errors.to_string())
            });
        match parsed {
            Ok(saved) => comparison.unsaved = diff(&saved, &config),
            Err(error) => comparison.error = Some(error),
        }
        Some(comparison)
    }

    /// The changes so far, the latest first, at most 64.
    pub fn history(&self) -> Vec<HistoryEntry> {
        self.lock().history.latest_first()
    }

    /// The configuration of a generation that the history has.
    pub fn generation(&self, generation: Generation) -> Option<Arc<Config>> {
        self.lock().history.find(generation)
    }

    /// Makes one change. The caller holds the lock for changes.
    fn make(&self, request: ChangeRequest, summary: &str) -> Result<ChangeReport, ChangeError> {
        let (generation, config) = self.latest();
        if let Some(expected) = &request.expected
            && !expected.contains(&self.tag(generation))
        {
            return Err(ChangeError::Stale(self.tag(generation)));
        }
        let earlier = |wanted| self.generation(wanted);
        let persist = request.persist;
        let (next, source) = edited(request.edit, &config, earlier, self.file.as_deref())?;
        self.validate(&config, &next, source.as_ref())?;
        let next = Arc::new(next);
        let running = self.control.config();
        let mut report = ChangeReport {
            generation,
            dry_run: request.dry_run,
            persisted: false,
            changes: diff_while(&running, &config, &next),
            restart_required: self.restart_required(&next),
            notes: lost(&running, &next)
                .chain(next.notes())
                .chain(token::note(&next))
                .chain(roles::note(&next))
                .collect(),
            reactors: Vec::new(),
        };
        let uses = in_use::taken(&*self.control, &config, &next);
        if request.dry_run {
            let used = |one: &ResourceUse| {
                format!("needs force: {} is in use: {}", one.resource, one.message)
            };
            report.notes.extend(uses.iter().map(used));
            return Ok(report);
        }
        if !uses.is_empty() && !request.force {
            return Err(ChangeError::InUse(uses));
        }
        // All steps that can fail for lack of space or permission come before it is in force.
        let mut written = None;
        let mut staged = None;
        if persist {
            let (file, old) = self.file_as_read()?;
            let edited = edit_text(&old, &next);
            if edited.is_none() {
                report.notes.push(format!(
                    "{}: its form does not permit changes of single values; it was rewritten, and \
                     its comments are in the backup",
                    file.display()
                ));
            }
            let text = edited.unwrap_or_else(|| rewritten(&next));
            staged = Some(self.stage(file, old, &text)?);
            written = Some(text);
        }
        let live = live_part(&running, &next);
        let differs = live != *running;
        if differs {
            let applied = self.control.apply(Arc::new(live))?;
            report.reactors = applied.reactors;
            report.notes.extend(applied.pending);
        }
        if let Some(staged) = staged {
            if let Err(error) = staged.commit() {
                return Err(self.take_back(differs.then_some(running), error));
            }
            report.persisted = true;
        }
        let text = written.or_else(|| source.map(|source| source.text().to_owned()));
        let persisted = text.is_some();
        if persisted {
            self.lock().file_text = text;
        }
        report.restart_required = self.restart_required(&next);
        if *next == *config {
            if persisted {
                self.lock().history.latest_is_persisted();
            }
            return Ok(report);
        }
        report.generation = generation + 1;
        let entry = HistoryEntry {
            generation: report.generation,
            time_seconds: now(),
            author: request.author,
            summary: summary.to_owned(),
            changes: report.changes.clone(),
            persisted,
        };
        let mut state = self.lock();
        state.generation = report.generation;
        state.config = Arc::clone(&next);
        state.history.push(entry, next);
        Ok(report)
    }

    /// The errors of `next`, with their positions in `source` if it was read from there.
    fn validate(
        &self,
        before: &Config,
        next: &Config,
        source: Option<&Source>,
    ) -> Result<(), ChangeError> {
        // The service's check applies to configurations that follow the rules only.
        let mut problems = config::validate(next);
        if problems.is_empty() {
            problems = self.control.check(next);
            // A reload is made by root; all other changes by a token's holder at most.
            if source.is_none() {
                problems.extend(guarded::check(before, next));
            }
            // The next start would fail. Files already in use are not checked.
            if next.admin.tls != before.admin.tls
                && let Some(tls) = &next.admin.tls
                && let Err(error) = Certificates::load(tls)
            {
                problems.push(error.into());
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        if let Some(errors) = source.and_then(|source| source.errors(problems.clone())) {
            return Err(ChangeError::Invalid(fields(&errors)));
        }
        let problems = problems.into_iter().take(config::ConfigErrors::MAX);
        Err(ChangeError::Invalid(
            problems.map(FieldProblem::from).collect(),
        ))
    }

    /// The file and its content, which must be unchanged since it was read.
    fn file_as_read(&self) -> Result<(&Path, String), ChangeError> {
        let file = self.file.as_deref().ok_or(ChangeError::NoFile)?;
        let read = self
            .disk
            .resolve(file)
            .and_then(|file| self.disk.read(&file));
        let old = read.map_err(|error| persist_error(file, error))?;
        let known = self.lock().file_text.clone();
        match known.filter(|known| known.as_bytes() == old) {
            Some(old) => Ok((file, old)),
            None => Err(ChangeError::FileChanged(file.display().to_string())),
        }
    }

    fn stage(&self, file: &Path, old: String, text: &str) -> Result<Staged<'_>, ChangeError> {
        let staged = Staged::new(&*self.disk, file, old.into_bytes(), text);
        staged.map_err(|error| persist_error(file, error))
    }

    /// Puts `before` in force again, if needed. Does not change the file.
    fn take_back(&self, before: Option<Arc<Config>>, error: io::Error) -> ChangeError {
        let mut error = error;
        if let Some(Err(failure)) = before.map(|before| self.control.apply(before)) {
            tracing::error!(%failure, "a change that could not be written to the file could not be \
                rolled back");
            let told = format!("{error}; and the change could not be rolled back: {failure}");
            error = io::Error::new(error.kind(), told);
        }
        persist_error(self.file.as_deref().unwrap_or(Path::new("")), error)
    }

    fn restart_required(&self, wanted: &Config) -> Vec<KeyChange> {
        let running = self.control.config();
        let live = live_part(&running, wanted);
        diff(&live, wanted)
    }

    fn latest(&self) -> (Generation, Arc<Config>) {
        let state = self.lock();
        (state.generation, Arc::clone(&state.config))
    }

    fn lock(&self) -> MutexGuard<'_, ConfigStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn persist_error(file: &Path, error: io::Error) -> ChangeError {
    let denied = [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
    ];
    let file = file.display().to_string();
    match denied.contains(&error.kind()) {
        true => ChangeError::FileDenied { file, error },
        false => ChangeError::Persist { file, error },
    }
}

/// Warnings about data lost with removed exports.
fn lost<'a>(running: &'a Config, next: &'a Config) -> impl Iterator<Item = String> + 'a {
    let stays = |path| next.exports.iter().any(|export| export.path == path);
    let is_memory = |export: &&config::Export| matches!(export.store, config::Store::Memory { .. });
    let exports = running.exports.iter().filter(is_memory);
    exports
        .filter(move |export| !stays(export.path.clone()))
        .map(|export| {
            format!(
                "exports: the files of {} are in memory and are lost when it is removed; after a \
                 rollback it is empty",
                export.path
            )
        })
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_removed_exports_in_memory_lose_their_files() {
        let config = |exports: &str| {
            let text = format!("exports: [{exports}]");
            config::parse(&text, "test").expect("a valid configuration")
        };
        let memory = |path| format!("{{ path: {path}, store: {{ kind: memory, size: 1MiB }} }}");
        let folder = "{ path: /folder, store: { kind: posix, root: /srv } }";
        let running = config(&[&memory("/gone"), folder, &memory("/stays")].join(", "));
        let next = config(&memory("/stays"));
        let [note] = &lost(&running, &next).collect::<Vec<_>>()[..] else {
            panic!("a note for one export");
        };
        assert!(
            note.starts_with("exports: the files of /gone are in memory"),
            "{note}"
        );
        assert_eq!(lost(&next, &running).count(), 0, "nothing is removed");
    }

    #[test]
    fn want_of_rights_is_told_from_other_failures_of_the_file() {
        let file = Path::new("/etc/millrace/millraced.yaml");
        for (kind, denied) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::ReadOnlyFilesystem, true),
            (io::ErrorKind::StorageFull, false),
        ] {
            let error = persist_error(file, kind.into());
            assert_eq!(
                matches!(error, ChangeError::FileDenied { .. }),
                denied,
                "{kind}"
            );
            // millracectl checks for this.
            assert!(
                error
                    .to_string()
                    .starts_with("/etc/millrace/millraced.yaml: ")
            );
        }
    }
}
