//! The configuration's generations.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{
    Author, ChangeError, ChangeReport, ChangeRequest, Current, Edit, Generation, HistoryEntry, Tag,
};
use crate::config::{self, Config, KeyChange, diff, live_part};
use crate::control::Control;
use crate::status::FieldProblem;

/// Keeps the configuration, its history and its file. One change at a time.
pub struct Ledger {
    control: Arc<dyn Control>,
    run: u64,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    generation: Generation,
    config: Arc<Config>,
    history: Vec<(HistoryEntry, Arc<Config>)>,
}

impl Ledger {
    /// Begins with the configuration that the service was started with, and the file that it was
    /// read from.
    pub fn new(control: Arc<dyn Control>, config: Arc<Config>, file: Option<PathBuf>) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let entry = HistoryEntry {
            generation: 1,
            time_seconds: now(),
            author: Author {
                name: "start".to_owned(),
                address: None,
            },
            summary: "start".to_owned(),
            changes: Vec::new(),
        };
        Self {
            control,
            run: RandomState::new().hash_one(()),
            file,
            state: Mutex::new(State {
                generation: 1,
                history: vec![(entry, Arc::clone(&config))],
                config,
            }),
        }
    }

    /// The configuration now.
    pub fn current(&self) -> Current {
        let state = self.lock();
        self.current_of(&state)
    }

    /// Makes a change, or tries it; see [`super`].
    ///
    /// # Errors
    ///
    /// See [`ChangeError`]; everything is as before then.
    pub fn change(&self, request: ChangeRequest) -> Result<ChangeReport, ChangeError> {
        let mut state = self.lock();
        let current = self.current_of(&state);
        if let Some(expected) = &request.expected
            && !expected.contains(&current.tag)
        {
            return Err(ChangeError::Stale(current.tag));
        }
        let (next, summary) = self.edited(&state, request.edit)?;
        let next = Arc::new(next);
        let problems = config::validate(&next)
            .into_iter()
            .chain(self.control.check(&next));
        let problems: Vec<FieldProblem> = problems
            .map(|problem| FieldProblem {
                path: problem.path.to_string(),
                message: problem.message,
            })
            .collect();
        if !problems.is_empty() {
            return Err(ChangeError::Invalid(problems));
        }
        let changes = diff(&state.config, &next);
        let mut report = ChangeReport {
            generation: state.generation,
            dry_run: request.dry_run,
            persisted: false,
            restart_required: self.restart_required(&next),
            notes: next.notes(),
            changes,
            reactors: Vec::new(),
        };
        if request.dry_run {
            return Ok(report);
        }
        let running = self.control.config();
        let live = live_part(&running, &next);
        if live != *running {
            report.reactors = self.control.apply(Arc::new(live))?;
        }
        report.restart_required = self.restart_required(&next);
        state.generation += 1;
        state.config = Arc::clone(&next);
        report.generation = state.generation;
        let entry = HistoryEntry {
            generation: state.generation,
            time_seconds: now(),
            author: request.author,
            summary,
            changes: report.changes.clone(),
        };
        state.history.push((entry, next));
        Ok(report)
    }

    /// The changes so far, the latest first.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let state = self.lock();
        state
            .history
            .iter()
            .rev()
            .map(|(entry, _)| entry.clone())
            .collect()
    }

    /// The configuration of a generation that the history has.
    pub fn generation(&self, generation: Generation) -> Option<Arc<Config>> {
        let state = self.lock();
        let mut entries = state.history.iter();
        let found = entries.find(|(entry, _)| entry.generation == generation)?;
        Some(Arc::clone(&found.1))
    }

    fn edited(&self, state: &State, edit: Edit) -> Result<(Config, String), ChangeError> {
        let whole = |message: String| {
            ChangeError::Invalid(vec![FieldProblem {
                path: String::new(),
                message,
            }])
        };
        Ok(match edit {
            Edit::Replace(config) => (*config, "put".to_owned()),
            Edit::Merge(patch) => {
                let mut document = serde_json::to_value(&*state.config)
                    .map_err(|error| whole(error.to_string()))?;
                json_patch::merge(&mut document, &patch);
                let merged =
                    serde_json::from_value(document).map_err(|error| whole(error.to_string()))?;
                (merged, "patch".to_owned())
            }
            Edit::With { summary, edit } => {
                let mut config = (*state.config).clone();
                edit(&mut config).map_err(|problem| ChangeError::Invalid(vec![problem]))?;
                (config, summary.into_owned())
            }
            Edit::Rollback(generation) => {
                let found = state
                    .history
                    .iter()
                    .find(|(e, _)| e.generation == generation);
                let (_, config) = found.ok_or(ChangeError::NoGeneration(generation))?;
                ((**config).clone(), format!("rollback to {generation}"))
            }
            Edit::Reload => {
                let file = self.file.as_deref().ok_or(ChangeError::NoFile)?;
                let config = config::load(file).map_err(|errors| whole(errors.to_string()))?;
                (config, "reload".to_owned())
            }
        })
    }

    fn restart_required(&self, wanted: &Config) -> Vec<KeyChange> {
        let running = self.control.config();
        let live = live_part(&running, wanted);
        diff(&live, wanted)
    }

    fn current_of(&self, state: &State) -> Current {
        Current {
            tag: Tag {
                run: self.run,
                generation: state.generation,
            },
            config: Arc::clone(&state.config),
            restart_required: self.restart_required(&state.config),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
