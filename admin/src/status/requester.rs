//! Who asks the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::roles::Role;

/// The requester of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequesterStatus {
    /// Its name, as the audit trail has it; `null` if it has shown nothing of itself.
    pub name: Option<String>,
    /// What it may do; `null` without a role.
    pub role: Option<Role>,
    /// What it has shown of itself; `null` if nothing.
    pub by: Option<RequesterProof>,
}

/// What shows who a requester is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequesterProof {
    /// A token.
    Token,
    /// The user at the other end of the Unix socket.
    Socket,
    /// A client certificate.
    Certificate,
}
