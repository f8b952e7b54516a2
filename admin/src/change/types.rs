//! Orders for changes, and their reports.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Config, KeyChange};
use crate::control::ApplyError;
use crate::status::{FieldProblem, ReactorOutcome, ResourceUse};

/// The number of a configuration in one run of the service. The first is 1.
pub type Generation = u64;

/// Names a generation of one run of the service, as in the HTTP header `ETag` (RFC 9110 section
/// 8.8.3). Tags of one run match in no other run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Random, chosen at start.
    pub run: u64,
    /// The generation.
    pub generation: Generation,
}

impl Tag {
    /// The tag with this text between its quotes; `None` if it is not a tag of this server.
    pub fn of_opaque(text: &str) -> Option<Self> {
        let (run, generation) = text.split_once('-')?;
        let found = Self {
            run: u64::from_str_radix(run, 16).ok()?,
            generation: generation.parse().ok()?,
        };
        // Canonical texts only.
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

/// The origin of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Author {
    /// `token`, the name in a client certificate, `signal` for SIGHUP, or `start`.
    pub name: String,
    /// The client's address; `null` for a change from within the host.
    pub address: Option<String>,
}

/// Changes a configuration in place, or returns the field in conflict.
pub type EditFunction = Box<dyn FnOnce(&mut Config) -> Result<(), FieldProblem> + Send>;

/// The kind of a change.
pub enum Edit {
    /// Replace the configuration.
    Replace(Box<Config>),
    /// Apply an RFC 7396 merge patch to the current configuration.
    Merge(serde_json::Value),
    /// Change the current configuration by a function, which may refuse.
    With {
        /// Its name in the history and the log, such as `limits` or `listeners`.
        summary: Cow<'static, str>,
        /// The function.
        edit: EditFunction,
    },
    /// Go back to an earlier generation.
    Rollback(Generation),
    /// Read the file.
    Reload,
}

/// An order for a change.
pub struct ChangeRequest {
    /// The kind of change.
    pub edit: Edit,
    /// The tags of `If-Match`, one of which must be that of the current configuration; `None` for
    /// any configuration.
    pub expected: Option<Vec<Tag>>,
    /// The author.
    pub author: Author,
    /// Only check and compare.
    pub dry_run: bool,
    /// Write the file, too.
    pub persist: bool,
    /// Take away what is in use, too.
    pub force: bool,
}

/// The configuration and its tag.
#[derive(Clone, Debug)]
pub struct Current {
    /// The tag.
    pub tag: Tag,
    /// The configuration of the latest change. The running one may differ in keys that need a
    /// restart.
    pub config: Arc<Config>,
    /// Keys in which the running configuration differs.
    pub restart_required: Vec<KeyChange>,
}

/// The result of a change, or of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeReport {
    /// The generation in force after the change; with a dry run, the one in force now.
    pub generation: Generation,
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// Whether the file was written.
    pub persisted: bool,
    /// Keys that change, each with its effect.
    pub changes: Vec<KeyChange>,
    /// Keys in which the running configuration differs until the next restart, from this change and
    /// earlier ones.
    pub restart_required: Vec<KeyChange>,
    /// Warnings about effects of the configuration that may be unexpected.
    pub notes: Vec<String>,
    /// The result of each reactor; empty with a dry run and without changes.
    pub reactors: Vec<ReactorOutcome>,
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Its generation.
    pub generation: Generation,
    /// When, in seconds since 1970.
    pub time_seconds: f64,
    /// The author.
    pub author: Author,
    /// The action: `start`, `put`, `patch`, `limits`, `listeners`, `log`, `rollback to 3`, `reload`
    /// and the like.
    pub summary: String,
    /// Keys that changed since the previous generation.
    pub changes: Vec<KeyChange>,
    /// Whether it was written to the configuration file, or read from there, while it was in force.
    /// If not, a restart would have lost it.
    #[serde(default)]
    pub persisted: bool,
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
    /// The generation of the configuration.
    pub generation: Generation,
    /// Keys in which the running configuration differs until the next restart: `before` is the
    /// running value.
    pub restart_required: Vec<KeyChange>,
    /// The configuration file, compared with the configuration; `null` if the server was started
    /// without one.
    #[serde(default)]
    pub file: Option<FileComparison>,
}

/// The configuration file, compared with the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileComparison {
    /// The file.
    pub path: String,
    /// Whether it was edited since the server read or wrote it. A reload applies it.
    pub edited: bool,
    /// Keys that differ: `before` is the value of the file, which a restart would apply.
    pub unsaved: Vec<KeyChange>,
    /// Why they are not known; `null` if they are.
    pub error: Option<String>,
}

/// The reason for refusing a change. The configuration is then unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Another change came first; with the current tag.
    #[error("the configuration has changed in the meantime; the current one is {0}")]
    Stale(Tag),
    /// The configuration is invalid; with the errors.
    #[error("{} of its values are not possible", .0.len())]
    Invalid(Vec<FieldProblem>),
    /// It takes away what is in use, and is not forced; with the uses.
    #[error(
        "it takes away what is in use, so nothing was changed; to make it all the same, force it \
         (`--force` of millracectl, `?force=true`)"
    )]
    InUse(Vec<ResourceUse>),
    /// There is no such generation in the history.
    #[error("generation {0} is not in the history")]
    NoGeneration(Generation),
    /// The service was not started from a file.
    #[error("there is no configuration file to reload from or to write to")]
    NoFile,
    /// The file was changed since it was read.
    #[error(
        "{0} was edited since the server read it, and would be overwritten; apply it (`millracectl \
         config reload`) or undo the edits, and make the change again"
    )]
    FileChanged(String),
    /// The server may not write the file.
    #[error(
        "{file}: {error}; the server has no right to write it. As root on its host, over the \
         server's socket, millracectl writes the file itself; or edit the file, and reload"
    )]
    FileDenied {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file cannot be written; the change was undone.
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
