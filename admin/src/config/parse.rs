//! Parsing and writing of [`Config`]; the only module that uses the YAML library.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeSeed;

use super::locate::{FOUND, Point, Walk};
use super::validate::{ConfigProblem, validate};
use super::{Config, ConfigError, ConfigErrors, KeyPath};
use crate::regular;

/// The most bytes a configuration file may have.
pub const TEXT_MAX: usize = 1 << 20;

/// The most brackets open at once. The YAML library takes quadratic time in their number.
const DEPTH_MAX: usize = 128;

/// Reads the configuration file at `path`.
///
/// # Errors
///
/// Those of [`parse`]; also that the file cannot be read or is not UTF-8.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    load_with_source(path).map(|(config, _)| config)
}

/// The source of a configuration, for the position of errors that only the service finds.
#[derive(Clone, Debug)]
pub struct Source {
    file: String,
    text: String,
}

impl Source {
    /// The error with the file and its position.
    pub fn error(&self, problem: ConfigProblem) -> ConfigError {
        let text = without_mark(&self.text);
        let place = nearest(text, &problem.path, problem.point);
        ConfigError {
            file: self.file.clone(),
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            path: problem.path,
            message: problem.message,
        }
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same for several, at most [`ConfigErrors::MAX`]; `None` without errors.
    pub fn errors(&self, problems: Vec<ConfigProblem>) -> Option<ConfigErrors> {
        let problems = problems.into_iter().take(ConfigErrors::MAX);
        ConfigErrors::from_list(problems.map(|problem| self.error(problem)).collect())
    }
}

/// Reads the configuration file at `path`, and keeps its text for [`Source::error`].
///
/// # Errors
///
/// Those of [`load`].
pub fn load_with_source(path: &Path) -> Result<(Config, Source), ConfigErrors> {
    let file_name = path.display().to_string();
    let unreadable = |message: String| {
        ConfigErrors::one(ConfigError {
            file: file_name.clone(),
            line: None,
            column: None,
            path: KeyPath::root(),
            message,
        })
    };
    let mut bytes = Vec::new();
    regular::open(path)
        .and_then(|(file, _)| file.take(TEXT_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    if bytes.len() > TEXT_MAX {
        return Err(unreadable(too_long()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        unreadable(format!(
            "byte {at} is not UTF-8; a configuration is UTF-8 text"
        ))
    })?;
    let config = parse(&text, &file_name)?;
    let source = Source {
        file: file_name,
        text,
    };
    Ok((config, source))
}

/// Parses a configuration from the text of a file; `file_name` is for the errors.
///
/// # Errors
///
/// The text is longer than [`TEXT_MAX`], not YAML, has an unknown, missing or repeated key, a
/// value of the wrong kind, or breaks a rule of [`validate`].
pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
    let error_at = |place: Option<(usize, usize)>, path: KeyPath, message: String| ConfigError {
        file: file_name.to_owned(),
        line: place.map(|(line, _)| line),
        column: place.map(|(_, column)| column),
        path,
        message,
    };
    if text.len() > TEXT_MAX {
        return Err(ConfigErrors::one(error_at(
            None,
            KeyPath::root(),
            too_long(),
        )));
    }
    let text = without_mark(text);
    if is_empty(text) {
        let message = "the file is empty; write `{}` for a server with all defaults".to_owned();
        return Err(ConfigErrors::one(error_at(
            Some((1, 1)),
            KeyPath::root(),
            message,
        )));
    }
    if let Some(place) = too_deep(text) {
        let message =
            format!("more than {DEPTH_MAX} brackets are open here; none needs more than 4");
        return Err(ConfigErrors::one(error_at(
            Some(place),
            KeyPath::root(),
            message,
        )));
    }
    let config: Config =
        match serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text)) {
            Ok(config) => config,
            Err(error) => {
                let (place, path, message) = explain(text, &error);
                return Err(ConfigErrors::one(error_at(place, path, message)));
            }
        };
    let errors = validate(&config)
        .into_iter()
        .take(ConfigErrors::MAX)
        .map(|problem| {
            let place = nearest(text, &problem.path, problem.point);
            error_at(place, problem.path, problem.message)
        })
        .collect();
    match ConfigErrors::from_list(errors) {
        None => Ok(config),
        Some(errors) => Err(errors),
    }
}

/// Writes a configuration as YAML that [`parse`] reads back to the same value.
pub fn to_yaml(config: &Config) -> String {
    // Serializing numbers, words and lists to a string does not fail.
    serde_yaml::to_string(config).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
}

/// Without the byte order mark that some editors write.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn too_long() -> String {
    format!("longer than {TEXT_MAX} bytes, the most a configuration may have")
}

/// The position where too many brackets are open. Brackets in comments and quotes count too: no
/// valid configuration needs that many.
fn too_deep(text: &str) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    for (line_number, line) in text.lines().enumerate() {
        for (column, character) in line.chars().enumerate() {
            match character {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > DEPTH_MAX {
                return Some((line_number + 1, column + 1));
            }
        }
    }
    None
}

/// Whether there is nothing but white space, comments and document markers.
fn is_empty(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#') || line == "---" || line == "...")
}

type Explained = (Option<(usize, usize)>, KeyPath, String);

/// Finds the position, path and plain message of an error of the YAML library.
fn explain(text: &str, error: &serde_path_to_error::Error<serde_yaml::Error>) -> Explained {
    let inner = error.inner();
    let own_place = inner.location().map(|place| (place.line(), place.column()));
    let path = key_path(error.path());
    let message = plain_words(&inner.to_string(), own_place, &path);
    let own_place = own_place.or_else(|| last_document(text));
    if let Some(key) = quoted_after(&message, "repeated key `") {
        let path = path.key(key.to_owned());
        let place = locate(text, &path, Point::Key(2));
        return (place.or(own_place), path, message);
    }
    let point = match message.starts_with("unknown key `") {
        true => Point::Key(1),
        false => Point::Value,
    };
    // The library's position is that of the syntax error, which may come after the parsed value, or
    // that of the enclosing mapping, which comes before it: the later one is closer.
    (locate(text, &path, point).max(own_place), path, message)
}

/// The library's path as a key path.
pub(super) fn key_path(path: &serde_path_to_error::Path) -> KeyPath {
    let mut found = KeyPath::root();
    for segment in path {
        found = match segment {
            serde_path_to_error::Segment::Map { key } => found.key(key.clone()),
            serde_path_to_error::Segment::Seq { index } => found.index(*index),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {
                found
            }
        };
    }
    found
}

/// The library's message without position and path, which are reported separately, and in terms of
/// configuration: a key, not a field; a value, not a variant.
pub(super) fn plain_words(message: &str, place: Option<(usize, usize)>, path: &KeyPath) -> String {
    let without_place = match place {
        Some((line, column)) => {
            message.replacen(&format!(" at line {line} column {column}"), "", 1)
        }
        None => message.to_owned(),
    };
    let mut message = without_place.as_str();
    let mut prefix = Some(path.clone());
    while let Some(path) = prefix {
        if let Some(rest) = message.strip_prefix(&format!("{path}: ")) {
            message = rest;
            break;
        }
        prefix = path.parent();
    }
    const STRUCT: &str = ", expected keys with their values";
    for (library, ours) in [
        ("unknown field `", "unknown key `"),
        ("missing field `", "missing key `"),
        ("duplicate field `", "repeated key `"),
        ("unknown variant `", "unknown value `"),
        ("invalid type: ", "wrong kind of value: "),
        ("invalid value: ", "wrong value: "),
    ] {
        if let Some(rest) = message.strip_prefix(library) {
            let rest = rest.split(", expected struct ").next().unwrap_or(rest);
            let tail = if rest.len() < message.len() - library.len() {
                STRUCT
            } else {
                ""
            };
            return format!("{ours}{rest}{tail}").replace("unit value", "nothing");
        }
    }
    message.to_owned()
}

/// The start of the last document of a text with several, for errors without a position.
fn last_document(text: &str) -> Option<(usize, usize)> {
    let marker = |line: &str| line.starts_with("---");
    text.lines()
        .enumerate()
        .filter(|(_, line)| marker(line))
        .last()
        .map(|(at, _)| (at + 1, 1))
}

fn quoted_after<'a>(message: &'a str, start: &str) -> Option<&'a str> {
    message.strip_prefix(start)?.split('`').next()
}

/// Line and column of the path, or of the closest enclosing value in the text: a problem may be in
/// a default.
fn nearest(text: &str, path: &KeyPath, point: Point) -> Option<(usize, usize)> {
    locate(text, path, point).or_else(|| {
        let mut enclosing = path.parent();
        while let Some(path) = enclosing {
            if let Some(place) = locate(text, &path, Point::Value) {
                return Some(place);
            }
            enclosing = path.parent();
        }
        None
    })
}

pub(super) fn locate(text: &str, path: &KeyPath, point: Point) -> Option<(usize, usize)> {
    let walk = Walk {
        rest: path.segments(),
        point,
    };
    let error = walk
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()?;
    let place = error.location()?;
    error
        .to_string()
        .contains(FOUND)
        .then(|| (place.line(), place.column()))
}
