//! Who a server is, for its clients.

/// The identity of a server, the same on all listeners of a process and after its restart (RFC 8881
/// section 2.10.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Different for each server.
    pub owner: [u8; 16],
    /// The same for servers where clients can reclaim what they had at each other's.
    pub scope: [u8; 16],
}

impl ServerIdentity {
    /// The identity of a server that is alone.
    #[must_use]
    pub fn alone(owner: [u8; 16]) -> Self {
        let scope = owner;
        Self { owner, scope }
    }
}
