//! Metrics of Kerberos.

use std::time::Duration;

use millrace_admin::metrics::{Families, catalogue};
use millrace_gss::{EndReason, FailureReason, GssService};

/// The services, as calls under them are secured.
const SERVICES: [&str; 3] = ["krb5", "krb5i", "krb5p"];

/// The families of contexts and of the calls under them. Queries no reactor.
pub(super) fn gss(out: &mut Families, contexts: &GssService) {
    let counters = contexts.counters();
    for (family, count) in [
        (&catalogue::GSS_CONTEXTS, &counters.contexts),
        (&catalogue::GSS_CREATED, &counters.created),
        (&catalogue::GSS_PENDING, &counters.pending),
        (&catalogue::GSS_NAMES_UNKNOWN, &counters.names_unknown),
    ] {
        out.number(family, &[], count.get());
    }
    for reason in FailureReason::ALL {
        let count = counters.failed(reason).get();
        out.number(&catalogue::GSS_CREATIONS_FAILED, &[reason.name()], count);
    }
    for reason in EndReason::ALL {
        let count = counters.ended(reason).get();
        out.number(&catalogue::GSS_ENDED, &[reason.name()], count);
    }
    let took = counters.creation_seconds();
    out.histogram(&catalogue::GSS_CREATION_SECONDS, &[], &took);
    let took = counters.name_lookup_seconds();
    out.histogram(&catalogue::GSS_NAME_LOOKUP_SECONDS, &[], &took);
    let age = contexts.keytab_age();
    out.seconds(&catalogue::GSS_KEYTAB_AGE, &[], age);
    for calls in contexts.all_call_counters() {
        for (index, service) in SERVICES.into_iter().enumerate() {
            let count = calls.calls[index].get();
            out.number(&catalogue::GSS_CALLS, &[service], count);
            for (direction, bytes) in [
                ("in", &calls.received_bytes[index]),
                ("out", &calls.sent_bytes[index]),
            ] {
                let labels = &[service, direction];
                out.number(&catalogue::GSS_PROTECTED_BYTES, labels, bytes.get());
            }
        }
        for (reason, count) in [
            ("credential", &calls.credential_problems),
            ("context", &calls.context_problems),
            ("malformed", &calls.malformed),
            ("body", &calls.damaged_bodies),
        ] {
            out.number(&catalogue::GSS_REFUSED, &[reason], count.get());
        }
        for (reason, count) in [("old", &calls.dropped_old), ("seen", &calls.dropped_seen)] {
            out.number(&catalogue::GSS_DROPPED, &[reason], count.get());
        }
        let unverified = calls.unverified_replies.get();
        out.number(&catalogue::GSS_REPLIES_UNVERIFIED, &[], unverified);
        let crypto = Duration::from_nanos(calls.crypto_nanoseconds.get());
        out.seconds(&catalogue::GSS_CRYPTO_SECONDS, &[], crypto);
    }
}
