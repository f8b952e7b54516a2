//! The clocks of the journal.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A point in time by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Nanoseconds of the host's life.
    pub boot: u64,
    /// Nanoseconds since 1970.
    pub wall: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self {
            boot: nanoseconds(clock_gettime(ClockId::Boottime)),
            // The clock of the files' time stamps, which advances with the kernel's ticks. On
            // shared virtual processors ticks are late (90 ms were observed). By the exact clock a
            // file changed by a call would then seem older than the call.
            wall: nanoseconds(clock_gettime(ClockId::RealtimeCoarse)),
        }
    }
}

/// What the times of a journal are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    /// Nanoseconds from there until the host's start.
    offset: u64,
}

impl Timeline {
    /// The host's start, for journals that never leave the host.
    pub const HOST: Self = Self { offset: 0 };

    /// The year 1970, for journals that several hosts read. The clock of this host is read once: if
    /// it is set later, the order of the calls of this process stays.
    pub fn of_all_hosts() -> Self {
        let wall = nanoseconds(clock_gettime(ClockId::Realtime));
        Self {
            offset: wall.wrapping_sub(Moment::now().boot),
        }
    }

    /// A moment by this timeline.
    pub fn time(self, moment: Moment) -> u64 {
        moment.boot.wrapping_add(self.offset)
    }

    /// A time of a journal, in nanoseconds of the host's life. Another host may have been started
    /// later than that: it wraps around then.
    pub fn boot(self, time: u64) -> u64 {
        time.wrapping_sub(self.offset)
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec.unsigned_abs())
}
