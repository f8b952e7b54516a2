//! What is asked, and what is answered.

use std::fmt::Write;

use serde::de::DeserializeOwned;

use crate::status::Problem;

/// What is to be done with what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Show it; changes nothing.
    Get,
    /// Replace it.
    Put,
    /// Change parts of it.
    Patch,
    /// Add to it, or begin something.
    Post,
    /// Take it away, or end it.
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
}

impl Order {
    /// For a path such as `/api/v1/version`, without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
            if_match: None,
        }
    }

    /// Whether it asks for more than to be shown something.
    pub fn is_change(&self) -> bool {
        self.method != Method::Get
    }

    /// With a query parameter. The value may have letters, digits, `-`, `.` and `_` only.
    #[must_use]
    pub fn with_query(mut self, name: &str, value: &str) -> Self {
        let mark = if self.path.contains('?') { '&' } else { '?' };
        // Writing into a string has no way to fail.
        let _ = write!(self.path, "{mark}{name}={value}");
        self
    }

    /// With a body of this media type.
    #[must_use]
    pub fn with_body(mut self, media_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some((media_type, body.into()));
        self
    }

    /// Only if the configuration still has this tag, as [`Answer::tag`] gave it.
    #[must_use]
    pub fn if_match(mut self, tag: impl Into<String>) -> Self {
        self.if_match = Some(tag.into());
        self
    }
}

/// An answer of the API, of whatever status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The header `ETag`, with its quotes: the name of the configuration's generation.
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

    /// What went wrong, if the answer says so in the way of RFC 9457.
    pub fn problem(&self) -> Option<Problem> {
        self.value().ok()
    }
}
