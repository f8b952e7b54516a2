//! Requests and answers.

use std::fmt::Write;

use serde::de::DeserializeOwned;

use crate::status::Problem;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Show; changes nothing.
    Get,
    /// Replace.
    Put,
    /// Change parts.
    Patch,
    /// Add, or start an action.
    Post,
    /// Remove, or end an action.
    Delete,
}

impl Method {
    pub(super) fn http(self) -> hyper::Method {
        match self {
            Self::Get => hyper::Method::GET,
            Self::Put => hyper::Method::PUT,
            Self::Patch => hyper::Method::PATCH,
            Self::Post => hyper::Method::POST,
            Self::Delete => hyper::Method::DELETE,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Order {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    pub(super) if_match: Option<String>,
    pub(super) last_event: Option<String>,
}

impl Order {
    /// A request for a path such as `/api/v1/version`, without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
            if_match: None,
            last_event: None,
        }
    }

    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        self.method != Method::Get
    }

    /// Adds a query parameter. The value may have letters, digits, `-`, `.` and `_` only.
    #[must_use]
    pub fn with_query(mut self, name: &str, value: &str) -> Self {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        // Writing to a string does not fail.
        let _ = write!(self.path, "{mark}{name}={value}");
        self
    }

    /// Adds a body of this media type.
    #[must_use]
    pub fn with_body(mut self, media_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some((media_type, body.into()));
        self
    }

    /// Requires that the configuration still has this tag, from [`Answer::tag`].
    #[must_use]
    pub fn if_match(mut self, tag: impl Into<String>) -> Self {
        self.if_match = Some(tag.into());
        self
    }

    /// Begins a stream of events after the one with this identifier.
    #[must_use]
    pub fn after_event(mut self, id: impl Into<String>) -> Self {
        self.last_event = Some(id.into());
        self
    }
}

/// An answer of the API, with any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The header `ETag`, with its quotes: the tag of the configuration.
    pub tag: Option<String>,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as a value.
    ///
    /// # Errors
    ///
    /// It is not JSON, or not of this shape.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.body)
    }

    /// The problem details of the answer (RFC 9457), if it has any.
    pub fn problem(&self) -> Option<Problem> {
        self.value().ok()
    }
}
