//! Tests of the configuration: accepted values, errors of each rule with their positions, and
//! unusual YAML.

mod accepted;
mod ceph;
mod differences;
mod gateways;
mod gss;
mod odd_yaml;
mod rules;
mod tls;

use super::{Config, ConfigErrors, parse};

const FILE: &str = "test.yaml";

fn accept(text: &str) -> Config {
    parse(text, FILE).unwrap_or_else(|errors| panic!("refused:\n{errors}\n---\n{text}"))
}

fn refuse(text: &str) -> ConfigErrors {
    match parse(text, FILE) {
        Ok(config) => panic!("accepted:\n{text}\n---\n{config:?}"),
        Err(errors) => errors,
    }
}

/// Expects one error at this position of this key, whose message has all these words.
fn refuse_at(text: &str, line: usize, column: usize, path: &str, words: &[&str]) {
    let errors = refuse(text);
    let listed: Vec<_> = errors.iter().collect();
    assert_eq!(listed.len(), 1, "{errors}\n---\n{text}");
    let error = listed[0];
    assert_eq!(error.file, FILE);
    assert_eq!(
        (error.line, error.column, error.path.to_string().as_str()),
        (Some(line), Some(column), path),
        "{errors}\n---\n{text}"
    );
    for word in words {
        assert!(error.message.contains(word), "no `{word}` in: {error}");
    }
    assert!(
        errors
            .to_string()
            .starts_with(&format!("{FILE}:{line}:{column}: {path}"))
    );
}
