//! Rate limits for requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{ApiLimits, Rate};
use super::neighbour::neighbourhood;

/// Addresses with a bucket of their own. All others share one.
const ADDRESSES_MAX: usize = 1024;

/// The kind of a request; each kind has its own rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A request for the service's health.
    Health,
    /// Any other request.
    Other,
}

impl RequestKind {
    /// The kind of requests for a path.
    pub fn of(path: &str) -> Self {
        match path {
            "/healthz" | "/readyz" => Self::Health,
            _ => Self::Other,
        }
    }
}

/// Token buckets: one for each address, one for all, and others for requests for health.
#[derive(Debug)]
pub struct Gate {
    limits: ApiLimits,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    health: Buckets,
    other: Buckets,
    total: Bucket,
}

/// The time when a bucket is full again; `None` if it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Option<Instant>);

/// The buckets of one kind, by address.
#[derive(Debug, Default)]
struct Buckets {
    by_address: HashMap<IpAddr, Bucket>,
    strangers: Bucket,
}

impl Gate {
    /// Full buckets with the rates of these limits.
    pub fn new(limits: &ApiLimits) -> Self {
        Self {
            limits: limits.clone(),
            state: Mutex::default(),
        }
    }

    /// Lets a request in.
    ///
    /// # Errors
    ///
    /// How long its client has to wait.
    pub fn admit(&self, address: IpAddr, kind: RequestKind, now: Instant) -> Result<(), Duration> {
        let address = neighbourhood(address);
        let limits = &self.limits;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let GateState {
            health,
            other,
            total,
        } = &mut *state;
        if kind == RequestKind::Health {
            let bucket = health.bucket(address, now);
            bucket.wait(limits.health_rate, now)?;
            bucket.take(limits.health_rate, now);
            return Ok(());
        }
        let bucket = other.bucket(address, now);
        if address.is_loopback() {
            bucket.wait(limits.loopback_rate, now)?;
            bucket.take(limits.loopback_rate, now);
            return Ok(());
        }
        bucket.wait(limits.address_rate, now)?;
        total.wait(limits.total_rate, now)?;
        bucket.take(limits.address_rate, now);
        total.take(limits.total_rate, now);
        Ok(())
    }
}

fn interval(rate: Rate) -> Duration {
    Duration::from_secs(1) / rate.per_second.max(1)
}

impl Bucket {
    /// Time until the bucket has a token.
    fn wait(self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let missing = self
            .0
            .map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        let wait = missing.saturating_sub(interval(rate) * (rate.burst.max(1) - 1));
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    fn take(&mut self, rate: Rate, now: Instant) {
        let full = self.0.map_or(now, |full| full.max(now));
        self.0 = Some(full + interval(rate));
    }

    fn is_full(self, now: Instant) -> bool {
        self.0.is_none_or(|full| full <= now)
    }
}

impl Buckets {
    fn bucket(&mut self, address: IpAddr, now: Instant) -> &mut Bucket {
        let known = self.by_address.contains_key(&address);
        if !known && self.by_address.len() >= ADDRESSES_MAX {
            self.by_address.retain(|_, bucket| !bucket.is_full(now));
        }
        if !known && self.by_address.len() >= ADDRESSES_MAX {
            return &mut self.strangers;
        }
        self.by_address.entry(address).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> ApiLimits = || ApiLimits {
        address_rate: Rate {
            per_second: 10,
            burst: 3,
        },
        loopback_rate: Rate {
            per_second: 10,
            burst: 6,
        },
        total_rate: Rate {
            per_second: 10,
            burst: 5,
        },
        health_rate: Rate {
            per_second: 1,
            burst: 2,
        },
        ..ApiLimits::default()
    };

    const TENTH: Duration = Duration::from_millis(100);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The number of requests admitted now.
    fn admitted(gate: &Gate, text: &str, kind: RequestKind, now: Instant) -> usize {
        let address = address(text);
        (0..100)
            .take_while(|_| gate.admit(address, kind, now).is_ok())
            .count()
    }

    #[test]
    fn an_address_has_its_burst_and_then_its_rate() {
        let gate = Gate::new(&LIMITS());
        let start = Instant::now();
        assert_eq!(admitted(&gate, "192.0.2.1", RequestKind::Other, start), 3);
        let refused = gate.admit(address("192.0.2.1"), RequestKind::Other, start);
        assert_eq!(refused, Err(TENTH));
        assert_eq!(
            admitted(&gate, "192.0.2.1", RequestKind::Other, start + TENTH),
            1
        );
        assert_eq!(
            admitted(&gate, "192.0.2.1", RequestKind::Other, start + TENTH * 50),
            3
        );
    }

    #[test]
    fn many_addresses_share_the_total_and_this_host_has_its_own() {
        let gate = Gate::new(&LIMITS());
        let now = Instant::now();
        assert_eq!(admitted(&gate, "192.0.2.1", RequestKind::Other, now), 3);
        assert_eq!(admitted(&gate, "192.0.2.2", RequestKind::Other, now), 2);
        assert_eq!(admitted(&gate, "192.0.2.3", RequestKind::Other, now), 0);
        assert_eq!(admitted(&gate, "127.0.0.1", RequestKind::Other, now), 6);
        assert_eq!(admitted(&gate, "127.0.0.2", RequestKind::Other, now), 0);
        assert_eq!(admitted(&gate, "::1", RequestKind::Other, now), 0);
    }

    #[test]
    fn looks_at_the_health_count_apart() {
        let gate = Gate::new(&LIMITS());
        let now = Instant::now();
        assert_eq!(admitted(&gate, "192.0.2.1", RequestKind::Other, now), 3);
        assert_eq!(
            admitted(&gate, "192.0.2.1", RequestKind::of("/healthz"), now),
            2
        );
        assert_eq!(
            admitted(&gate, "192.0.2.1", RequestKind::of("/readyz"), now),
            0
        );
        assert_eq!(
            admitted(&gate, "192.0.2.2", RequestKind::of("/readyz"), now),
            2
        );
        assert_eq!(RequestKind::of("/healthz/"), RequestKind::Other);
    }

    #[test]
    fn the_memory_is_bounded() {
        let limits = ApiLimits {
            total_rate: Rate::per_second(1 << 20),
            ..LIMITS()
        };
        let gate = Gate::new(&limits);
        let now = Instant::now();
        let most = u32::try_from(ADDRESSES_MAX).unwrap();
        let numbered = |number: u32| IpAddr::V4((0x0a00_0000 + number).into());
        for number in 0..most + 3 {
            assert_eq!(
                gate.admit(numbered(number), RequestKind::Other, now),
                Ok(())
            );
        }
        // Unknown addresses share one bucket, which is empty by now; known ones have their own.
        assert!(
            gate.admit(numbered(most + 9), RequestKind::Other, now)
                .is_err()
        );
        assert_eq!(gate.admit(numbered(0), RequestKind::Other, now), Ok(()));
        let size = || gate.state.lock().unwrap().other.by_address.len();
        assert_eq!(size(), ADDRESSES_MAX);
        // Full buckets use no memory.
        let later = now + TENTH * 10;
        assert_eq!(
            gate.admit(numbered(most + 9), RequestKind::Other, later),
            Ok(())
        );
        assert_eq!(size(), 1);
    }
}
