//! The four bytes of enhanced connection data that begin the private data (RFC 6581 section 9).

/// Bytes of connection data in front of the application's private data.
pub const CONNECTION_DATA_LENGTH: usize = 4;

/// The value of IRD or ORD that leaves the read depth to the application
/// (RFC 6581 section 9.1).
pub const DEPTH_BY_APPLICATION: u16 = 0x3fff;

/// Largest read depth that can be stated. Greater ones are stated as this one, since the next
/// value has a meaning of its own.
pub const DEPTH_MAX: u16 = 0x3ffe;

const DEPTH_MASK: u32 = 0x3fff;
const PEER_TO_PEER: u32 = 1 << 31;
const RTR_SEND: u32 = 1 << 30;
const RTR_WRITE: u32 = 1 << 15;
const RTR_READ: u32 = 1 << 14;

/// One kind of ready-to-receive indication (RFC 6581 section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RtrKind {
    /// A Send of no bytes (control flag B).
    Send,
    /// An RDMA Write of no bytes (control flag C).
    Write,
    /// An RDMA Read of no bytes (control flag D). The responder answers it with a read response
    /// of no bytes, so it needs an inbound read depth of at least one there.
    Read,
}

/// A set of kinds of ready-to-receive indications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RtrKinds {
    /// [`RtrKind::Send`] is in the set.
    pub send: bool,
    /// [`RtrKind::Write`] is in the set.
    pub write: bool,
    /// [`RtrKind::Read`] is in the set.
    pub read: bool,
}

impl RtrKinds {
    /// All kinds.
    pub const ALL: Self = Self {
        send: true,
        write: true,
        read: true,
    };
    /// No kind.
    pub const NONE: Self = Self {
        send: false,
        write: false,
        read: false,
    };

    /// The set of one kind.
    #[must_use]
    pub fn only(kind: RtrKind) -> Self {
        Self {
            send: kind == RtrKind::Send,
            write: kind == RtrKind::Write,
            read: kind == RtrKind::Read,
        }
    }

    /// Whether the set has no kind.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether the set has this kind.
    #[must_use]
    pub fn contains(self, kind: RtrKind) -> bool {
        match kind {
            RtrKind::Send => self.send,
            RtrKind::Write => self.write,
            RtrKind::Read => self.read,
        }
    }

    /// The kinds that both sets have.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }
}

/// Connection data of a request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionData {
    /// Control flag A: the peer-to-peer model is used, and the initiator's first message is a
    /// ready-to-receive indication.
    pub peer_to_peer: bool,
    /// Control flags B, C and D. Without `peer_to_peer` they are sent as zero and ignored.
    pub rtr: RtrKinds,
    /// Inbound read depth, 14 bits; [`DEPTH_BY_APPLICATION`] has its own meaning.
    pub ird: u16,
    /// Outbound read depth, 14 bits; [`DEPTH_BY_APPLICATION`] has its own meaning.
    pub ord: u16,
}

impl ConnectionData {
    /// Nothing is asked for: both depths are left to the application, no peer-to-peer model.
    pub const OPEN: Self = Self {
        peer_to_peer: false,
        rtr: RtrKinds::NONE,
        ird: DEPTH_BY_APPLICATION,
        ord: DEPTH_BY_APPLICATION,
    };

    /// Encodes the four bytes. Depths of more than 14 bits are stated as [`DEPTH_MAX`]; kinds
    /// are left out without `peer_to_peer` (RFC 6581 section 9.2).
    #[must_use]
    pub fn encode(self) -> [u8; CONNECTION_DATA_LENGTH] {
        let depth = |value: u16| {
            u32::from(if value > DEPTH_BY_APPLICATION {
                DEPTH_MAX
            } else {
                value
            })
        };
        let mut word = depth(self.ird) << 16 | depth(self.ord);
        if self.peer_to_peer {
            word |= PEER_TO_PEER;
            for (set, flag) in [
                (self.rtr.send, RTR_SEND),
                (self.rtr.write, RTR_WRITE),
                (self.rtr.read, RTR_READ),
            ] {
                if set {
                    word |= flag;
                }
            }
        }
        word.to_be_bytes()
    }

    /// Decodes the four bytes; every value has a meaning. Kinds without `peer_to_peer` are
    /// ignored (RFC 6581 section 9.2).
    #[must_use]
    pub fn decode(bytes: [u8; CONNECTION_DATA_LENGTH]) -> Self {
        let word = u32::from_be_bytes(bytes);
        let depth = |bits: u32| u16::try_from(bits & DEPTH_MASK).unwrap_or(DEPTH_BY_APPLICATION);
        let peer_to_peer = word & PEER_TO_PEER != 0;
        let rtr = if peer_to_peer {
            RtrKinds {
                send: word & RTR_SEND != 0,
                write: word & RTR_WRITE != 0,
                read: word & RTR_READ != 0,
            }
        } else {
            RtrKinds::NONE
        };
        Self {
            peer_to_peer,
            rtr,
            ird: depth(word >> 16),
            ord: depth(word),
        }
    }
}

/// A real read depth as it is stated to the peer: at most [`DEPTH_MAX`].
#[must_use]
pub fn stated(depth: u16) -> u16 {
    depth.min(DEPTH_MAX)
}
