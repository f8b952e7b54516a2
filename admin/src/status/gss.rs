//! Contexts of Kerberos, as values of the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A context of Kerberos: a user of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GssContext {
    /// The principal, with its realm.
    pub principal: String,
    /// The user that it is here; `null`: the anonymous user.
    pub uid: Option<u32>,
    /// The user's groups besides the primary one.
    pub groups: u64,
    /// The address that made it.
    pub client: String,
    /// Its encryption type.
    pub enctype: String,
    /// How long it has not been used.
    pub idle_seconds: f64,
    /// How long it lasts.
    pub left_seconds: f64,
}

/// The contexts of Kerberos.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GssContexts {
    /// How many there are.
    pub total: u64,
    /// Those used last, at most 1,000.
    pub contexts: Vec<GssContext>,
}

/// What a flush of contexts came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GssFlushed {
    /// How many contexts have ended.
    pub ended: u64,
}
