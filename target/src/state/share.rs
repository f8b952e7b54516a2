//! Share reservations: the access of opens, and the access that they deny to others (RFC 8881
//! section 9.7).

/// Reading, writing, both or neither: what an open accesses or denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareMode(u8);

impl ShareMode {
    /// Neither.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Writing.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);
    /// All four.
    pub(super) const ALL: [Self; 4] = [Self::NONE, Self::READ, Self::WRITE, Self::BOTH];

    /// The mode with these bits: 1 for reading, 2 for writing; `None` if there are others.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        let bits = u8::try_from(bits).ok()?;
        (bits <= Self::BOTH.0).then_some(Self(bits))
    }

    /// Its bits, as [`from_bits`](Self::from_bits) takes them.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether it has nothing.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether it has all of another one.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has any of another one.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What it has and another one has not.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What either has.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bit of a pair of access and deny in a set of such pairs.
    pub(super) fn pair_bit(access: Self, deny: Self) -> u16 {
        1 << (access.0 * 4 + deny.0)
    }

    /// The pairs of a set that are within `access` and `deny`, and the unions of both sides of
    /// them.
    pub(super) fn pairs_within(pairs: u16, access: Self, deny: Self) -> (u16, Self, Self) {
        let mut found = (0, Self::NONE, Self::NONE);
        for one_access in Self::ALL {
            for one_deny in Self::ALL {
                let bit = Self::pair_bit(one_access, one_deny);
                if pairs & bit != 0 && access.includes(one_access) && deny.includes(one_deny) {
                    found.0 |= bit;
                    found.1 = found.1.union(one_access);
                    found.2 = found.2.union(one_deny);
                }
            }
        }
        found
    }
}

/// How many opens of a file have each bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShareCounts {
    readers: usize,
    writers: usize,
    deny_reading: usize,
    deny_writing: usize,
}

impl ShareCounts {
    /// What opens access.
    pub fn access(&self) -> ShareMode {
        Self::mode(self.readers, self.writers)
    }

    /// What opens deny.
    pub fn deny(&self) -> ShareMode {
        Self::mode(self.deny_reading, self.deny_writing)
    }

    fn mode(reading: usize, writing: usize) -> ShareMode {
        ShareMode(u8::from(reading > 0) | u8::from(writing > 0) << 1)
    }

    /// Counts an open, or no longer.
    pub fn count(&mut self, access: ShareMode, deny: ShareMode, add: bool) {
        let counts = [
            (&mut self.readers, access, ShareMode::READ),
            (&mut self.writers, access, ShareMode::WRITE),
            (&mut self.deny_reading, deny, ShareMode::READ),
            (&mut self.deny_writing, deny, ShareMode::WRITE),
        ];
        for (count, mode, bit) in counts {
            match (mode.meets(bit), add) {
                (true, true) => *count += 1,
                (true, false) => *count -= 1,
                (false, _) => {}
            }
        }
    }
}
