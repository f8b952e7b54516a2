//! Credits as a requester counts them (RFC 5666 sections 3.3 and 3.8, RFC 8166 section 3.3.1), the
//! same in both versions (version two draft section 6) and in both directions, each with a window
//! of its own (RFC 8167 section 4.1).

/// The window of calls that may be in flight.
///
/// It is one until the first good reply, and then the lower of the latest grant and the number
/// asked for. A grant of zero counts as one, so that the window never closes for good. When a grant
/// shrinks, calls in flight go on, and no new one is sent until fewer are in flight.
///
/// An RDMA_DONE takes a credit too (RFC 5666 section 3.8), from the time of the reply that requires
/// it. It has no answer, so its credit returns with the next reply to any call, or at once if no
/// call is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditWindow {
    wish: u32,
    grant: u32,
    in_flight: u32,
    open: bool,
    /// RDMA_DONEs that are owed, and that were sent since the last reply.
    owed: u32,
    done: u32,
    /// Replies with read chunks may come.
    keeps_room: bool,
}

impl CreditWindow {
    /// The window of a new connection that asks for `wish` credits (at least one).
    #[must_use]
    pub fn new(wish: u32) -> Self {
        Self {
            wish: wish.max(1),
            grant: 1,
            in_flight: 0,
            open: false,
            owed: 0,
            done: 0,
            keeps_room: false,
        }
    }

    /// Keeps one credit for an RDMA_DONE from now on, unless there is only one.
    pub const fn keep_room(&mut self) {
        self.keeps_room = true;
    }

    /// The number of credits that calls ask for.
    #[must_use]
    pub const fn wish(&self) -> u32 {
        self.wish
    }

    /// Calls in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a good reply has come yet.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Most calls that may be in flight now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.grant.min(self.wish).max(1)
    }

    /// Whether one more call may be sent.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let limit = match self.limit() {
            limit if self.keeps_room && limit > 1 => limit - 1,
            limit => limit,
        };
        self.in_flight + self.owed + self.done < limit
    }

    /// Whether a pending RDMA_DONE may be sent.
    #[must_use]
    pub fn has_room_for_done(&self) -> bool {
        self.owed > 0 && self.in_flight + self.done < self.limit()
    }

    /// A reply with read chunks came, which an RDMA_DONE will follow.
    pub const fn owe_done(&mut self) {
        self.owed += 1;
    }

    /// An RDMA_DONE was sent.
    pub const fn sent_done(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        if self.in_flight > 0 {
            self.done += 1;
        }
    }

    /// A call was sent, or is about to be.
    pub fn sent(&mut self) {
        debug_assert!(self.has_room());
        self.in_flight += 1;
    }

    /// Returns a credit without a grant: its call was not sent, or was answered by a message that
    /// carries no credits (RFC 8167 section 4.1).
    pub const fn returned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.done = 0;
    }

    /// Takes the grant of a reply. An RDMA_ERROR is no `good` reply: it returns its credit, but
    /// does not open the window of a new connection.
    pub const fn answered(&mut self, grant: u32, good: bool) {
        self.returned();
        self.open |= good;
        if self.open {
            self.grant = grant;
        }
    }
}
