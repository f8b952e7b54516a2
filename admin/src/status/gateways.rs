//! Gateways to the same files, as values of the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GatewayState {
    /// Its name.
    pub name: String,
    /// Whether it is the one that answers.
    pub this: bool,
    /// Whether it may grant new opens and locks. None does while clients of one may reclaim.
    pub grants: bool,
    /// Whether its clients may reclaim, now or after its next start.
    pub recovers: bool,
    /// Whether another one has taken its place.
    pub replaced: bool,
}

/// The gateways to the same files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GatewayList {
    /// All of them; none if the server is alone.
    pub gateways: Vec<GatewayState>,
}

/// What taking the place of a gateway came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GatewayTakeover {
    /// How many clients may reclaim here what they had there.
    pub clients: u64,
    /// Whether they may: not if others may have been granted it in between.
    pub may_reclaim: bool,
}
