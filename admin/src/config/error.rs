//! Errors of a configuration, for operators.

use std::fmt;

use super::KeyPath;

/// One error of a configuration file.
///
/// Displays as `file:line:column: key.path: error and accepted values`, the form that editors and
/// terminals turn into a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the caller named it.
    pub file: String,
    /// Line from 1; `None` when the file could not be read at all.
    pub line: Option<usize>,
    /// Column from 1, in characters; present whenever `line` is.
    pub column: Option<usize>,
    /// The invalid key; the root if the text is not YAML.
    pub path: KeyPath,
    /// The error and the accepted values.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        f.write_str(": ")?;
        if !self.path.segments().is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// All errors found in a configuration file, one per line; never empty.
///
/// Errors of syntax and type end the parsing at the first; broken rules are all reported, up to
/// [`ConfigErrors::MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The most errors reported for one file.
    pub const MAX: usize = 32;

    pub(super) fn one(error: ConfigError) -> Self {
        Self {
            errors: vec![error],
        }
    }

    /// `None` without errors.
    pub(super) fn from_list(errors: Vec<ConfigError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self { errors })
    }

    /// The errors, in the order of the file's sections.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.errors.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.errors.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
