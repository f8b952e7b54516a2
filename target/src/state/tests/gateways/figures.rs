//! What has happened in a run.

/// Counts of what has happened, and times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayFigures {
    pub grants: u64,
    pub reclaims: u64,
    /// Locks that could not be reclaimed.
    pub lost: u64,
    /// Those of them that were refused as others had the bytes.
    pub conflicts: u64,
    /// Locks that were revoked, or forgotten with their client.
    pub revoked: u64,
    pub denied: u64,
    pub starts: u64,
    pub crashes: u64,
    pub stops: u64,
    pub take_overs: u64,
    pub given_up: u64,
    /// Clients of other gateways that were to reclaim.
    pub adopted: u64,
    /// Starts with clients that were not allowed to reclaim.
    pub unproved: u64,
    pub evictions: u64,
    /// Sessions that were opened while a gateway ran.
    pub reopened: u64,
    /// The longest time in which no gateway granted.
    pub longest_grace: u64,
    /// From the last fault until all clients were served.
    pub quiet: u64,
}

impl GatewayFigures {
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.reclaims += other.reclaims;
        self.lost += other.lost;
        self.conflicts += other.conflicts;
        self.revoked += other.revoked;
        self.denied += other.denied;
        self.starts += other.starts;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.take_overs += other.take_overs;
        self.given_up += other.given_up;
        self.adopted += other.adopted;
        self.unproved += other.unproved;
        self.evictions += other.evictions;
        self.reopened += other.reopened;
        self.longest_grace = self.longest_grace.max(other.longest_grace);
        self.quiet = self.quiet.max(other.quiet);
    }
}
