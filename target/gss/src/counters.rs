//! What is counted. Creation is rare and counted by many threads; calls are counted by reactor.

use std::array;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_primitives::{Counter, Histogram, HistogramSnapshot};

/// Why a context was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum FailureReason {
    /// Not a token, or damaged.
    Token,
    /// Another mechanism than Kerberos.
    Mechanism,
    /// Clocks differ.
    Clock,
    /// The ticket has ended.
    Expired,
    /// No key for the ticket.
    Key,
    /// Encryption type excluded.
    Enctype,
    /// The keytab cannot be used.
    Keytab,
    /// The context to continue is unknown.
    NoContext,
    /// Too many creations wait, the deadline passed, or the table is full.
    Unavailable,
    /// Anything else.
    Other,
}

impl FailureReason {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Token,
        Self::Mechanism,
        Self::Clock,
        Self::Expired,
        Self::Key,
        Self::Enctype,
        Self::Keytab,
        Self::NoContext,
        Self::Unavailable,
        Self::Other,
    ];

    /// Label of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Mechanism => "mechanism",
            Self::Clock => "clock",
            Self::Expired => "expired",
            Self::Key => "key",
            Self::Enctype => "enctype",
            Self::Keytab => "keytab",
            Self::NoContext => "no_context",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }
}

/// Why a context ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum EndReason {
    /// By the client.
    Destroyed,
    /// The ticket or `gss.lifetime` ended.
    Expired,
    /// Not used for `gss.idle`.
    Idle,
    /// Made space for another.
    Evicted,
    /// By the operator.
    Flushed,
    /// Its creation took too long.
    Abandoned,
}

impl EndReason {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Destroyed,
        Self::Expired,
        Self::Idle,
        Self::Evicted,
        Self::Flushed,
        Self::Abandoned,
    ];

    /// Label of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Destroyed => "destroyed",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::Flushed => "flushed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A number that any thread may change.
#[derive(Debug, Default)]
pub struct Counts(AtomicU64);

impl Counts {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Takes one away.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// Sets it to zero.
    pub(crate) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of contexts and their creation, of the whole process.
#[derive(Debug, Default)]
pub struct GssCounters {
    /// Contexts now.
    pub contexts: Counts,
    /// Contexts created.
    pub created: Counts,
    /// Creations that wait for a helper, or run.
    pub pending: Counts,
    /// Principals without user of this host.
    pub names_unknown: Counts,
    /// Keytabs that could not be taken up since the last one that could.
    pub keytab_failures: Counts,
    failed: [Counts; FailureReason::ALL.len()],
    ended: [Counts; EndReason::ALL.len()],
    creation: Mutex<Histogram>,
    name_lookup: Mutex<Histogram>,
}

impl GssCounters {
    /// Creations that failed.
    pub fn failed(&self, reason: FailureReason) -> &Counts {
        &self.failed[reason as usize]
    }

    /// Contexts that ended.
    pub fn ended(&self, reason: EndReason) -> &Counts {
        &self.ended[reason as usize]
    }

    /// Times of creations, from the token to the result.
    pub fn creation_seconds(&self) -> HistogramSnapshot {
        snapshot(&self.creation)
    }

    /// Times of lookups of users and groups.
    pub fn name_lookup_seconds(&self) -> HistogramSnapshot {
        snapshot(&self.name_lookup)
    }

    pub(crate) fn observe_creation(&self, took: Duration) {
        observe(&self.creation, took);
    }

    pub(crate) fn observe_name_lookup(&self, took: Duration) {
        observe(&self.name_lookup, took);
    }
}

/// The lock makes the writer of the histogram the only one.
fn observe(histogram: &Mutex<Histogram>, took: Duration) {
    let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    if let Ok(histogram) = histogram.lock() {
        histogram.observe(nanoseconds);
    }
}

fn snapshot(histogram: &Mutex<Histogram>) -> HistogramSnapshot {
    histogram
        .lock()
        .map(|histogram| histogram.snapshot())
        .unwrap_or_default()
}

/// Counters of calls of one reactor, which is the writer; arrays go by service minus one.
#[derive(Debug)]
pub struct CallCounters {
    /// Calls by service.
    pub calls: [Counter; 3],
    /// Refused with RPCSEC_GSS_CREDPROBLEM.
    pub credential_problems: Counter,
    /// Refused with RPCSEC_GSS_CTXPROBLEM.
    pub context_problems: Counter,
    /// Refused with AUTH_BADCRED, AUTH_BADVERF or AUTH_REJECTEDCRED.
    pub malformed: Counter,
    /// Answered with GARBAGE_ARGS for a damaged body.
    pub damaged_bodies: Counter,
    /// Dropped: below the window.
    pub dropped_old: Counter,
    /// Dropped: seen before.
    pub dropped_seen: Counter,
    /// Replies to calls to clients that are not the client's.
    pub unverified_replies: Counter,
    /// Bytes of bodies verified or decrypted, by service.
    pub received_bytes: [Counter; 3],
    /// Bytes of bodies signed or encrypted, by service.
    pub sent_bytes: [Counter; 3],
    /// Time of cryptography.
    pub crypto_nanoseconds: Counter,
}

impl Default for CallCounters {
    fn default() -> Self {
        Self {
            calls: array::from_fn(|_| Counter::new()),
            credential_problems: Counter::new(),
            context_problems: Counter::new(),
            malformed: Counter::new(),
            damaged_bodies: Counter::new(),
            dropped_old: Counter::new(),
            dropped_seen: Counter::new(),
            unverified_replies: Counter::new(),
            received_bytes: array::from_fn(|_| Counter::new()),
            sent_bytes: array::from_fn(|_| Counter::new()),
            crypto_nanoseconds: Counter::new(),
        }
    }
}
