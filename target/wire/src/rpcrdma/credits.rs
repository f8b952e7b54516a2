//! Credits as a requester counts them (RFC 5666 sections 3.3 and 3.8, RFC 8166 section 3.3.1), the
//! same in both versions (version two draft section 6) and in both directions, each with a window
//! of its own (RFC 8167 section 4.1).

/// How many calls may be without a reply.
///
/// One until the first good reply, then the lower of what was granted last and what was asked for.
/// A grant of zero counts as one, so that the window never closes for good. A grant that shrinks
/// takes no call back: no other is sent until fewer are without a reply.
///
/// An RDMA_DONE takes a credit too (RFC 5666 section 3.8), from the reply that it is owed for on.
/// Nothing answers it, so its credit is back with the next reply, whichever that is, or at once if
/// no reply is owed any more.
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

    /// From now on one credit is kept back for an RDMA_DONE, unless there is only one.
    pub const fn keep_room(&mut self) {
        self.keeps_room = true;
    }

    /// The number that calls ask for.
    #[must_use]
    pub const fn wish(&self) -> u32 {
        self.wish
    }

    /// Calls without a reply.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a good reply has come yet.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Most calls that may be without a reply now.
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

    /// Whether an RDMA_DONE that is owed may be sent.
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

    /// A credit is back without a grant: its call was not sent after all, or was answered by a
    /// message whose credits are none (RFC 8167 section 4.1).
    pub const fn returned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.done = 0;
    }

    /// A reply came with this grant. An RDMA_ERROR is no `good` reply: it gives its own credit
    /// back, but does not open a new connection's window.
    pub const fn answered(&mut self, grant: u32, good: bool) {
        self.returned();
        self.open |= good;
        if self.open {
            self.grant = grant;
        }
    }
}
