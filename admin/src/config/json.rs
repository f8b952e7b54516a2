//! A configuration as JSON: the same keys and values as in the file.

use serde_json::Value;
use serde_json::error::Category;

use super::parse::{key_path, plain_words};
use super::{Config, ConfigProblem, KeyPath};

/// A text that is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It has an unknown, missing or repeated key, or a value of the wrong kind.
    #[error("{}", .0.message)]
    Form(ConfigProblem),
}

/// Parses a configuration. The rules of [`super::validate`] are not checked.
///
/// # Errors
///
/// See [`JsonError`]; the first error is reported.
pub fn from_json(text: &[u8]) -> Result<Config, JsonError> {
    let mut input = serde_json::Deserializer::from_slice(text);
    let config = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        match error.inner().classify() {
            Category::Data => JsonError::Form(problem(&error)),
            Category::Syntax | Category::Eof | Category::Io => {
                JsonError::Syntax(error.inner().to_string())
            }
        }
    })?;
    let rest = input.end();
    rest.map_err(|error| JsonError::Syntax(error.to_string()))?;
    let value = serde_json::from_slice(text).unwrap_or_default();
    no_lists_for_sections(&value, &config).map_err(JsonError::Form)?;
    Ok(config)
}

/// The same for a JSON value.
///
/// # Errors
///
/// The value has an unknown or missing key, or a value of the wrong kind.
pub fn from_value(value: &Value) -> Result<Config, ConfigProblem> {
    let config = serde_path_to_error::deserialize(value).map_err(|error| problem(&error))?;
    no_lists_for_sections(value, &config)?;
    Ok(config)
}

/// Refuses lists in place of sections: the library would take their entries for the values of the
/// keys, one by one.
fn no_lists_for_sections(value: &Value, config: &Config) -> Result<(), ConfigProblem> {
    let read = serde_json::to_value(config).unwrap_or_default();
    match list_for_section(value, &read, &KeyPath::root()) {
        None => Ok(()),
        Some(path) => {
            let message = "wrong kind of value: sequence, expected keys with their values";
            Err(ConfigProblem::new(path, message))
        }
    }
}

fn list_for_section(value: &Value, read: &Value, path: &KeyPath) -> Option<KeyPath> {
    match (value, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.clone()),
        (Value::Array(values), Value::Array(read)) => {
            let mut pairs = values.iter().zip(read).enumerate();
            pairs.find_map(|(at, (value, read))| list_for_section(value, read, &path.index(at)))
        }
        (Value::Object(values), Value::Object(read)) => values.iter().find_map(|(key, value)| {
            list_for_section(value, read.get(key)?, &path.key(key.clone()))
        }),
        _ => None,
    }
}

fn problem(error: &serde_path_to_error::Error<serde_json::Error>) -> ConfigProblem {
    let inner = error.inner();
    let place = (inner.line() > 0).then(|| (inner.line(), inner.column()));
    let path = key_path(error.path());
    let message = plain_words(&inner.to_string(), place, &path);
    ConfigProblem::new(path, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::to_yaml;

    #[test]
    fn the_default_comes_back_as_it_went() {
        let config = Config::default();
        let text = serde_json::to_vec(&config).unwrap();
        assert_eq!(from_json(&text), Ok(config.clone()));
        let value = serde_json::to_value(&config).unwrap();
        assert_eq!(from_value(&value), Ok(config.clone()));
        assert_eq!(from_json(b"{}"), Ok(config.clone()));
        assert!(to_yaml(&config).contains("size: 256MiB"));
    }

    #[test]
    fn errors_name_the_key() {
        for (text, path, words) in [
            (
                r#"{"flow": {"credits": "many"}}"#,
                "flow.credits",
                "whole number",
            ),
            (
                r#"{"flow": {"credit": 1}}"#,
                "flow.credit",
                "unknown key `credit`",
            ),
            (r#"{"nothing": 1}"#, "nothing", "unknown key `nothing`"),
            (
                r#"{"exports": [{"path": "/a"}]}"#,
                "exports[0]",
                "missing key `store`",
            ),
            (
                r#"{"exports": [{"path": "/a", "store": {"kind": "memory", "size": "1GB"}}]}"#,
                "exports[0].store.size",
                "expected a size",
            ),
            (
                r#"{"exports": [{"path": "/a", "store": {"kind": "memory"}}]}"#,
                "exports[0].store",
                "needs the key `size`",
            ),
            (
                r#"{"limits": [{"clients": ["10.0.0.1/8"]}]}"#,
                "limits[0].clients[0]",
                "10.0.0.0/8",
            ),
            (r#"{"fabric": [7]}"#, "fabric[0]", "wrong kind of value"),
            ("[]", "", "wrong kind of value"),
            (r#"{"flow": [64]}"#, "flow", "wrong kind of value"),
            (
                r#"{"exports": [["/a", {"kind": "memory", "size": 1048576}]]}"#,
                "exports[0]",
                "keys",
            ),
        ] {
            let Err(JsonError::Form(problem)) = from_json(text.as_bytes()) else {
                panic!("{text}");
            };
            assert_eq!(problem.path.to_string(), path, "{text}: {problem:?}");
            assert!(problem.message.contains(words), "{text}: {problem:?}");
            assert!(!problem.message.contains("line"), "{problem:?}");
            let value = serde_json::from_str(text).unwrap();
            let problem = from_value(&value).unwrap_err();
            assert_eq!(problem.path.to_string(), path, "{text}: {problem:?}");
            assert!(problem.message.contains(words), "{text}: {problem:?}");
        }
        let twice = r#"{"log": "info", "log": "warn"}"#;
        let Err(JsonError::Form(problem)) = from_json(twice.as_bytes()) else {
            panic!("a key twice");
        };
        assert!(
            problem.message.contains("repeated key `log`"),
            "{problem:?}"
        );
    }

    #[test]
    fn what_is_no_json_is_told_apart() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "{}}", "{} {}", "log: info", "\0", deep.as_str()] {
            let error = from_json(text.as_bytes());
            assert!(
                matches!(error, Err(JsonError::Syntax(_))) || text == deep,
                "{text:.9}: {error:?}"
            );
        }
        assert!(from_json(deep.as_bytes()).is_err());
    }
}
