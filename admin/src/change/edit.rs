//! Computes the wanted configuration from an order.

use std::path::Path;
use std::sync::Arc;

use super::{ChangeError, Edit, Generation};
use crate::config::{self, Config, ConfigError, ConfigErrors, Source};
use crate::status::FieldProblem;

/// The name of an order in the history and the log.
pub fn summary(edit: &Edit) -> String {
    match edit {
        Edit::Replace(_) => "put".to_owned(),
        Edit::Merge(_) => "patch".to_owned(),
        Edit::With { summary, .. } => summary.clone().into_owned(),
        Edit::Rollback(generation) => format!("rollback to {generation}"),
        Edit::Reload => "reload".to_owned(),
    }
}

/// The wanted configuration, with the text of the file if it was read from there. `config` is the
/// current one, `earlier` has the history, and `file` is the configuration file.
pub fn edited(
    edit: Edit,
    config: &Config,
    earlier: impl FnOnce(Generation) -> Option<Arc<Config>>,
    file: Option<&Path>,
) -> Result<(Config, Option<Source>), ChangeError> {
    let config = match edit {
        Edit::Reload => {
            let file = file.ok_or(ChangeError::NoFile)?;
            let (config, source) = config::load_with_source(file)
                .map_err(|errors| ChangeError::Invalid(fields(&errors)))?;
            return Ok((config, Some(source)));
        }
        Edit::Replace(config) => *config,
        Edit::Merge(patch) => {
            let mut document = serde_json::to_value(config).map_err(|error| {
                let path = String::new();
                let message = format!("the current configuration is no JSON: {error}");
                ChangeError::Invalid(vec![FieldProblem { path, message }])
            })?;
            json_patch::merge(&mut document, &patch);
            config::from_value(&document)
                .map_err(|problem| ChangeError::Invalid(vec![problem.into()]))?
        }
        Edit::With { edit, .. } => {
            let mut config = config.clone();
            edit(&mut config).map_err(|problem| ChangeError::Invalid(vec![problem]))?;
            config
        }
        Edit::Rollback(generation) => earlier(generation)
            .map(|config| (*config).clone())
            .ok_or(ChangeError::NoGeneration(generation))?,
    };
    Ok((config, None))
}

/// The errors of a file by key; the messages begin with file, line and column.
pub fn fields(errors: &ConfigErrors) -> Vec<FieldProblem> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{diff, validate};

    fn merged(patch: Value, config: &Config) -> Result<Config, ChangeError> {
        edited(Edit::Merge(patch), config, |_| None, None).map(|(config, _)| config)
    }

    #[test]
    fn null_takes_a_key_back_to_its_default_and_lists_are_replaced() {
        let config = Config::default();
        let patch = json!({ "flow": { "credits": 7 }, "fabric": [], "log": "warn" });
        let one = merged(patch, &config).unwrap();
        assert_eq!(
            (one.flow.credits, one.fabric.len(), one.log.as_str()),
            (7, 0, "warn")
        );
        let patch = json!({ "flow": null, "fabric": null });
        let other = merged(patch, &one).unwrap();
        assert_eq!(
            other,
            Config {
                log: "warn".to_owned(),
                ..config
            }
        );
    }

    /// Known keys and values, also in positions where they are invalid.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(vec![
                "1GiB",
                "auto",
                "off",
                "127.0.0.1:1",
                "10.0.0.0/8",
                "5s",
                "/a",
                "memory",
                "",
            ])
            .prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let keys = prop::sample::select(vec![
                "flow",
                "credits",
                "fabric",
                "listen",
                "exports",
                "path",
                "store",
                "kind",
                "size",
                "limits",
                "clients",
                "iops",
                "admin",
                "log",
                "rpcrdma",
                "inline",
                "reactors",
                "cores",
                "provider",
                "mempool",
                "done_window",
                "nothing",
            ]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys, inner, 0..6).prop_map(|map| {
                    map.into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn random_patches_get_an_answer(patch in values()) {
            let config = Config::default();
            match merged(patch, &config) {
                Ok(next) => {
                    prop_assert_eq!(diff(&config, &next).is_empty(), config == next);
                    validate(&next);
                }
                Err(ChangeError::Invalid(errors)) => {
                    prop_assert!(errors.iter().all(|error| !error.message.is_empty()));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
