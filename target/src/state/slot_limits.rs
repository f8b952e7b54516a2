//! How many slots of a session may be used, which changes while it is used (RFC 8881 section
//! 2.10.6.1).
//!
//! The home sets a target. The limit that is enforced follows when the client has shown that it
//! knows what it was told: it sends a new request in a slot whose last reply told it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The highest slots of a session: the one that clients are to use, and the one that is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighestSlots {
    /// The highest slot that the client is to use.
    pub target: u32,
    /// The highest slot that requests may use.
    pub enforced: u32,
}

impl HighestSlots {
    fn of_bits(bits: u64) -> Self {
        #[allow(clippy::cast_possible_truncation)] // The low half.
        let enforced = bits as u32;
        let target = u32::try_from(bits >> 32).unwrap_or(u32::MAX);
        Self { target, enforced }
    }

    fn bits(self) -> u64 {
        u64::from(self.target) << 32 | u64::from(self.enforced)
    }
}

/// The limits of a session, or what a slot's last reply told about them. Each change is one
/// compare-exchange.
#[derive(Debug)]
pub(super) struct SlotLimits(AtomicU64);

/// What follows when the client knows a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnforcedChange {
    pub from: u32,
    pub to: u32,
}

impl SlotLimits {
    pub fn new(highest: u32) -> Self {
        Self::told(HighestSlots {
            target: highest,
            enforced: highest,
        })
    }

    pub fn told(highest: HighestSlots) -> Self {
        Self(AtomicU64::new(highest.bits()))
    }

    pub fn get(&self) -> HighestSlots {
        HighestSlots::of_bits(self.0.load(Ordering::Acquire))
    }

    /// Remembers what a reply tells.
    pub fn tell(&self, highest: HighestSlots) {
        self.0.store(highest.bits(), Ordering::Release);
    }

    /// Sets the target; returns whether it is another one than before.
    pub fn set_target(&self, target: u32) -> bool {
        let change = |bits| {
            let now = HighestSlots::of_bits(bits);
            (now.target != target).then(|| HighestSlots { target, ..now }.bits())
        };
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.fetch_update(set, fetch, change).is_ok()
    }

    /// Has the enforced limit follow the target, as the client knows `told` and uses no slot above
    /// `used`. Returns the change.
    pub fn follow(&self, told: HighestSlots, used: u32) -> Option<EnforcedChange> {
        let HighestSlots { target, enforced } = self.get();
        let is_known = if target < enforced {
            told.target == target && used <= target
        } else {
            // Slots above a lowered limit begin anew, so the client has to know of the lowering.
            target > enforced && told.enforced == enforced
        };
        let (from, to) = (
            HighestSlots { target, enforced },
            HighestSlots {
                target,
                enforced: target,
            },
        );
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let exchange = || self.0.compare_exchange(from.bits(), to.bits(), set, fetch);
        (is_known && exchange().is_ok()).then_some(EnforcedChange {
            from: enforced,
            to: target,
        })
    }
}
