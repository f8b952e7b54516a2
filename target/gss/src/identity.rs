//! Who made a context.

use std::sync::Arc;

/// A user of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Other groups.
    pub groups: Arc<[u32]>,
}

/// A principal and the user that it was mapped to when the context was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name with realm, such as `alice@EXAMPLE.COM`.
    pub principal: Arc<str>,
    /// The user; `None`: anonymous.
    pub user: Option<User>,
}
