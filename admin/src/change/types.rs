//! What goes into a change and what comes out of it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Config, KeyChange};
use crate::control::ApplyError;
use crate::status::{FieldProblem, ReactorOutcome};

/// Numbers the configurations of one run of the service; the one it started with is 1.
pub type Generation = u64;

/// Names a generation of one run of the service, as in the HTTP header `ETag` (RFC 9110 section
/// 8.8.3): a run's tags match in no other run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Chosen at random at start.
    pub run: u64,
    /// The generation.
    pub generation: Generation,
}

impl Tag {
    /// The tag of which this is the part between the quotes; `None` for tags of others.
    pub fn of_opaque(text: &str) -> Option<Self> {
        let (run, generation) = text.split_once('-')?;
        let found = Self {
            run: u64::from_str_radix(run, 16).ok()?,
            generation: generation.parse().ok()?,
        };
        // One way of writing each only.
        (found.opaque() == text).then_some(found)
    }

    fn opaque(&self) -> String {
        format!("{:016x}-{}", self.run, self.generation)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.opaque())
    }
}

/// Who asks for a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Author {
    /// `token`, the name in a client certificate, `signal` for SIGHUP, or `start`.
    pub name: String,
    /// The address it came from; `null` for what came from within the host.
    pub address: Option<String>,
}

/// Changes a configuration in place, or says which of its fields stands in the way.
pub type EditFunction = Box<dyn FnOnce(&mut Config) -> Result<(), FieldProblem> + Send>;

/// What is to become of the configuration.
pub enum Edit {
    /// This instead.
    Replace(Box<Config>),
    /// The present one with an RFC 7396 merge patch on it.
    Merge(serde_json::Value),
    /// The present one with changes by a function, which may refuse.
    With {
        /// What the history and the log call it, such as `limits` or `listeners`.
        summary: Cow<'static, str>,
        /// The function.
        edit: EditFunction,
    },
    /// That of an earlier generation.
    Rollback(Generation),
    /// That of the file.
    Reload,
}

/// A change that is asked for.
pub struct ChangeRequest {
    /// What.
    pub edit: Edit,
    /// The tags that the one who asks has seen, one of which must be the present one's; `None`
    /// for those who need not say.
    pub expected: Option<Vec<Tag>>,
    /// Who.
    pub author: Author,
    /// Only check and compare.
    pub dry_run: bool,
    /// Write the file, too.
    pub persist: bool,
}

/// The configuration and its name.
#[derive(Clone, Debug)]
pub struct Current {
    /// The name.
    pub tag: Tag,
    /// What was asked for last; what runs may differ in keys that need a restart.
    pub config: Arc<Config>,
    /// Keys in which what runs differs from it.
    pub restart_required: Vec<KeyChange>,
}

/// What became, or would become, of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeReport {
    /// The generation in force from here on; with a dry run, the one in force now.
    pub generation: Generation,
    /// Whether this was only tried.
    pub dry_run: bool,
    /// Whether the file was written.
    pub persisted: bool,
    /// Keys that change, each with what it takes.
    pub changes: Vec<KeyChange>,
    /// Keys in which what runs differs from the configuration until the next restart, of this
    /// change and of earlier ones.
    pub restart_required: Vec<KeyChange>,
    /// What the configuration means that one may not expect.
    pub notes: Vec<String>,
    /// How each reactor took it; empty with a dry run and where nothing changes.
    pub reactors: Vec<ReactorOutcome>,
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Its generation.
    pub generation: Generation,
    /// When, in seconds since 1970.
    pub time_seconds: f64,
    /// Who.
    pub author: Author,
    /// What it was: `start`, `put`, `patch`, `limits`, `listeners`, `log`, `rollback to 3`,
    /// `reload` and the like.
    pub summary: String,
    /// Keys that changed against the generation before.
    pub changes: Vec<KeyChange>,
}

/// The body of `/api/v1/config/history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeHistory {
    /// The changes, the latest first.
    pub history: Vec<HistoryEntry>,
}

/// The body of `/api/v1/config/pending`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pending {
    /// The generation of the configuration that it is about.
    pub generation: Generation,
    /// Keys in which what runs differs from the configuration until the next restart: `before` is
    /// what runs.
    pub restart_required: Vec<KeyChange>,
}

/// A change that did not come about; everything is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Somebody else was faster: the present tag.
    #[error("the configuration has changed meanwhile; the present one is {0}")]
    Stale(Tag),
    /// What is wrong with it.
    #[error("{} of its values cannot be", .0.len())]
    Invalid(Vec<FieldProblem>),
    /// There is no such generation in the history.
    #[error("generation {0} is not in the history")]
    NoGeneration(Generation),
    /// The service was not started from a file.
    #[error("there is no configuration file to reload from or to write to")]
    NoFile,
    /// The file is not the one that was read.
    #[error(
        "{0} was edited since the server read it, and would be overwritten; look at it, put it in \
         force (`millracectl config reload`) or take it back, and make the change again"
    )]
    FileChanged(String),
    /// The server has no right to write the file; nothing was changed.
    #[error(
        "{file}: {error}; the server has no right to keep changes there. As root on its host, \
         millracectl writes the file itself, over the server's socket; or edit the file, and reload"
    )]
    FileDenied {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file cannot be written; the change was taken back.
    #[error("{file}: {error}")]
    Persist {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// The service could not apply it.
    #[error("{0}")]
    Apply(#[from] ApplyError),
}
