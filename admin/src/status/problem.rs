//! Error responses of the API as values, and their types.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReactorOutcome;

/// The types of problems. Each has an entry in the guide for operators.
///
/// A type is a name and no address (RFC 9457 section 3.1.1): it stays the same wherever the guide
/// is kept, and programs compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemType {
    /// The request cannot be read.
    BadRequest,
    /// The query has a key that the operation does not have, or a value that it cannot have.
    Query,
    /// The token is missing or wrong.
    Token,
    /// The request is not permitted to its client.
    Forbidden,
    /// There is nothing of this name.
    NotFound,
    /// The path does not have this method.
    Method,
    /// The body did not arrive in time.
    Slow,
    /// The request conflicts with the current state.
    Conflict,
    /// The server may not write its configuration file.
    FileDenied,
    /// The request takes away what is in use, and is not forced.
    InUse,
    /// The configuration is not the one that `If-Match` names.
    Stale,
    /// The body is too long.
    TooLong,
    /// The type of the body is not accepted.
    MediaType,
    /// `Host` is no name of the server.
    Host,
    /// The body has values that are not possible.
    Invalid,
    /// The header `If-Match` is missing.
    TagMissing,
    /// Too many requests, connections or wrong tokens.
    TooMany,
    /// The answer could not be composed.
    Internal,
    /// The service, or a part of it, does not answer now.
    Unavailable,
}

impl ProblemType {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::BadRequest,
        Self::Query,
        Self::Token,
        Self::Forbidden,
        Self::NotFound,
        Self::Method,
        Self::Slow,
        Self::Conflict,
        Self::FileDenied,
        Self::InUse,
        Self::Stale,
        Self::TooLong,
        Self::MediaType,
        Self::Host,
        Self::Invalid,
        Self::TagMissing,
        Self::TooMany,
        Self::Internal,
        Self::Unavailable,
    ];

    /// The URI, as `type` has it.
    pub const fn uri(self) -> &'static str {
        match self {
            Self::BadRequest => "urn:millrace:problem:bad-request",
            Self::Query => "urn:millrace:problem:query",
            Self::Token => "urn:millrace:problem:token",
            Self::Forbidden => "urn:millrace:problem:forbidden",
            Self::NotFound => "urn:millrace:problem:not-found",
            Self::Method => "urn:millrace:problem:method",
            Self::Slow => "urn:millrace:problem:slow",
            Self::Conflict => "urn:millrace:problem:conflict",
            Self::FileDenied => "urn:millrace:problem:file-denied",
            Self::InUse => "urn:millrace:problem:in-use",
            Self::Stale => "urn:millrace:problem:stale",
            Self::TooLong => "urn:millrace:problem:too-long",
            Self::MediaType => "urn:millrace:problem:media-type",
            Self::Host => "urn:millrace:problem:host",
            Self::Invalid => "urn:millrace:problem:invalid",
            Self::TagMissing => "urn:millrace:problem:tag-missing",
            Self::TooMany => "urn:millrace:problem:too-many",
            Self::Internal => "urn:millrace:problem:internal",
            Self::Unavailable => "urn:millrace:problem:unavailable",
        }
    }

    /// The status of its responses.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::Query => 400,
            Self::Token => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Slow => 408,
            Self::Conflict | Self::FileDenied | Self::InUse => 409,
            Self::Stale => 412,
            Self::TooLong => 413,
            Self::MediaType => 415,
            Self::Host => 421,
            Self::Invalid => 422,
            Self::TagMissing => 428,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// The usual type of a status: the first that has it.
    pub fn of_status(status: u16) -> Self {
        let mut all = Self::ALL.into_iter();
        let usual = all.find(|kind| kind.status() == status);
        usual.unwrap_or(match status {
            400..500 => Self::BadRequest,
            _ => Self::Internal,
        })
    }
}

/// The body of an error response (RFC 9457), of type `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The type of the problem, such as `urn:millrace:problem:in-use`. The guide for operators has
    /// one entry for each.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The error in this case.
    pub detail: String,
    /// The invalid parts of the request; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// The result of each reactor for a failed change; absent for other problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reactors: Vec<ReactorOutcome>,
    /// What the request would take away while it is in use; absent for other problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<ResourceUse>,
}

/// A resource in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceUse {
    /// The resource, such as `exports[/data]` or `connection 7`.
    pub resource: String,
    /// What it is used for.
    pub message: String,
    /// The addresses of some of its clients, at most 16.
    pub clients: Vec<String>,
}

/// The error of one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// The field, such as `exports[0].clients[1]`; empty for the whole.
    pub path: String,
    /// The error and the accepted values.
    pub message: String,
}

impl From<crate::config::ConfigProblem> for FieldProblem {
    fn from(problem: crate::config::ConfigProblem) -> Self {
        Self {
            path: problem.path.to_string(),
            message: problem.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The name of a type, as the anchors of the guide have it.
    fn name(kind: ProblemType) -> &'static str {
        kind.uri().rsplit(':').next().unwrap()
    }

    #[test]
    fn every_type_has_its_anchor_in_the_guide_and_every_anchor_its_type() {
        let guide = include_str!("../../../deploy/OPERATIONS.md");
        let anchors = guide.split("<a id=\"problem-").skip(1);
        let anchors: Vec<&str> = anchors
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        let found: BTreeSet<&str> = anchors.iter().copied().collect();
        assert_eq!(found.len(), anchors.len(), "an anchor stands twice");
        let expected: BTreeSet<&str> = ProblemType::ALL.into_iter().map(name).collect();
        assert_eq!(
            expected.len(),
            ProblemType::ALL.len(),
            "a name stands twice"
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn the_guide_names_the_status_of_every_type() {
        let guide = include_str!("../../../deploy/OPERATIONS.md");
        for kind in ProblemType::ALL {
            let anchor = format!("<a id=\"problem-{}\"></a>", name(kind));
            let line = guide.lines().find(|line| line.contains(&anchor)).unwrap();
            assert!(
                line.starts_with(&format!("| {} |", kind.status())),
                "{line}"
            );
        }
    }

    #[test]
    fn a_status_without_a_type_of_its_own_has_one_all_the_same() {
        assert_eq!(ProblemType::of_status(400), ProblemType::BadRequest);
        assert_eq!(ProblemType::of_status(409), ProblemType::Conflict);
        assert_eq!(ProblemType::of_status(418), ProblemType::BadRequest);
        assert_eq!(ProblemType::of_status(502), ProblemType::Internal);
    }
}
