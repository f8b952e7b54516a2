//! The versions of the protocol.

use super::{FIRST_WORDS, Lists, MIN_INLINE, version2};

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 8166, and the parts of RFC 5666 that it removed.
    One,
    /// The version two draft.
    Two,
}

impl Version {
    /// The version word.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The version with this version word.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    /// Bytes before the chunk lists, in messages without padding.
    #[must_use]
    pub const fn before_lists(self) -> usize {
        match self {
            Self::One => FIRST_WORDS,
            Self::Two => version2::BEFORE_LISTS,
        }
    }

    /// Bytes of a header without chunks and without padding.
    #[must_use]
    pub const fn shortest(self) -> usize {
        self.before_lists() + Lists::EMPTY_LENGTH
    }

    /// Bytes that every receiver accepts in one Send (RFC 8166 section 3.3.3, version two draft
    /// section 2.3).
    #[must_use]
    pub const fn min_inline(self) -> usize {
        match self {
            Self::One => MIN_INLINE,
            Self::Two => version2::MIN_INLINE,
        }
    }
}

/// The versions that a peer serves: a range, as in ERR_VERS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    low: Version,
    high: Version,
}

impl Versions {
    /// Version one alone.
    pub const ONE: Self = Self::new(Version::One, Version::One);
    /// Version two alone.
    pub const TWO: Self = Self::new(Version::Two, Version::Two);
    /// Both versions.
    pub const BOTH: Self = Self::new(Version::One, Version::Two);

    /// The range between two versions, both included, in either order.
    #[must_use]
    pub const fn new(one: Version, other: Version) -> Self {
        let (low, high) = if one.number() <= other.number() {
            (one, other)
        } else {
            (other, one)
        };
        Self { low, high }
    }

    /// The lowest version.
    #[must_use]
    pub const fn low(self) -> Version {
        self.low
    }

    /// The highest version.
    #[must_use]
    pub const fn high(self) -> Version {
        self.high
    }

    /// Whether a version is among them.
    #[must_use]
    pub const fn serves(self, version: Version) -> bool {
        self.low.number() <= version.number() && version.number() <= self.high.number()
    }

    /// The version with this version word, if it is among them.
    #[must_use]
    pub const fn find(self, number: u32) -> Option<Version> {
        match Version::from_number(number) {
            Some(version) if self.serves(version) => Some(version),
            _ => None,
        }
    }
}

impl Default for Versions {
    fn default() -> Self {
        Self::BOTH
    }
}
