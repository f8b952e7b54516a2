//! From what is asked to the configuration that is wanted.

use std::path::Path;
use std::sync::Arc;

use super::{ChangeError, Edit, Generation};
use crate::config::{self, Config, ConfigError, ConfigErrors};
use crate::status::FieldProblem;

/// What the history and the log call it.
pub fn summary(edit: &Edit) -> String {
    match edit {
        Edit::Replace(_) => "put".to_owned(),
        Edit::Merge(_) => "patch".to_owned(),
        Edit::With { summary, .. } => summary.clone().into_owned(),
        Edit::Rollback(generation) => format!("rollback to {generation}"),
        Edit::Reload => "reload".to_owned(),
    }
}

/// The configuration that is wanted, where `config` is the present one, `earlier` knows those
/// before and `file` is where the service has its own from.
pub fn edited(
    edit: Edit,
    config: &Config,
    earlier: impl FnOnce(Generation) -> Option<Arc<Config>>,
    file: Option<&Path>,
) -> Result<Config, ChangeError> {
    match edit {
        Edit::Replace(config) => Ok(*config),
        Edit::Merge(patch) => {
            let mut document = serde_json::to_value(config).map_err(|error| {
                let path = String::new();
                let message = format!("the present configuration is no JSON: {error}");
                ChangeError::Invalid(vec![FieldProblem { path, message }])
            })?;
            json_patch::merge(&mut document, &patch);
            config::from_value(&document)
                .map_err(|problem| ChangeError::Invalid(vec![problem.into()]))
        }
        Edit::With { edit, .. } => {
            let mut config = config.clone();
            edit(&mut config).map_err(|problem| ChangeError::Invalid(vec![problem]))?;
            Ok(config)
        }
        Edit::Rollback(generation) => earlier(generation)
            .map(|config| (*config).clone())
            .ok_or(ChangeError::NoGeneration(generation)),
        Edit::Reload => {
            let file = file.ok_or(ChangeError::NoFile)?;
            config::load(file).map_err(|errors| ChangeError::Invalid(fields(&errors)))
        }
    }
}

/// The errors of a file by key; the messages begin with file, line and column.
fn fields(errors: &ConfigErrors) -> Vec<FieldProblem> {
    let field = |error: &ConfigError| {
        let place = [error.line, error.column].map(|number| number.map(|n| format!(":{n}")));
        let [line, column] = place.map(Option::unwrap_or_default);
        FieldProblem {
            path: error.path.to_string(),
            message: format!("{}{line}{column}: {}", error.file, error.message),
        }
    };
    errors.iter().map(field).collect()
}
