//! Figures of the last hour.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Latency;

/// Figures of the service, of an export or of a client over the last hour, by interval, the oldest
/// first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// Seconds between two points, but for a busy management plane.
    pub interval_seconds: f64,
    /// The intervals.
    pub points: Vec<FiguresPoint>,
}

/// The figures of one interval. Rates are by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FiguresPoint {
    /// The end of the interval, in milliseconds since 1970.
    pub unix_milliseconds: u64,
    /// Its length.
    pub seconds: f64,
    /// Calls answered.
    pub requests: f64,
    /// Of these, with a status other than success.
    pub errors: f64,
    /// Bytes of READ.
    pub bytes_read: f64,
    /// Bytes of WRITE.
    pub bytes_written: f64,
    /// Latency of calls that read file data; `null` without any, and for clients.
    pub read: Option<Latency>,
    /// Latency of calls that wrote file data; `null` without any, and for clients.
    pub write: Option<Latency>,
    /// Latency of other calls on exports; `null` without any, and for clients.
    pub other: Option<Latency>,
    /// The reactors; none for an export or a client.
    pub reactors: Vec<ReactorShare>,
}

/// How busy a reactor was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactorShare {
    /// Its name.
    pub name: String,
    /// The share of its time in which it had work, 0 to 1.
    pub busy: f64,
}
