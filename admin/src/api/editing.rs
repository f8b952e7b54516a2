//! Common parts of requests that change a part of the configuration.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;

use super::auth::Authorized;
use super::change_request::{ChangeOptions, change};
use super::config::{Required, expected};
use super::context::AdminState;
use crate::change::{Edit, Tag};
use crate::config::Config;
use crate::status::FieldProblem;

/// The client, options and expected configuration of a request that changes a part. As an argument
/// of a handler it refuses requests as [`Authorized`], [`ChangeOptions`] and the header `If-Match`
/// do. This header is optional.
pub struct Editing {
    who: Authorized,
    options: ChangeOptions,
    expected: Option<Vec<Tag>>,
}

impl FromRequestParts<AdminState> for Editing {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        let who = Authorized::from_request_parts(parts, state).await?;
        let options = ChangeOptions::from_request_parts(parts, state).await?;
        Ok(Self {
            who,
            options,
            expected: expected(&parts.headers, Required::No)?,
        })
    }
}

impl Editing {
    /// Makes the change. `summary` is its name in the history.
    ///
    /// # Errors
    ///
    /// The response to send if the change was not made.
    pub async fn make<F>(
        self,
        state: &AdminState,
        summary: &'static str,
        edit: F,
    ) -> Result<Response, Response>
    where
        F: FnOnce(&mut Config) -> Result<(), FieldProblem> + Send + 'static,
    {
        let edit = Edit::With {
            summary: Cow::Borrowed(summary),
            edit: Box::new(edit),
        };
        let request = self.options.request(edit, self.expected, self.who);
        change(state, request).await
    }
}
