//! Sentences for operators: cause and remedy, with the library's own text behind them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::keytab::Keytab;
use crate::sys::LibraryFailure;
use crate::{Failure, FailureReason, status};

/// Minor status of the Kerberos error 0 (MIT's error table `krb5`).
const KERBEROS_ERRORS: i32 = -1_765_328_384;
/// `KRB5KRB_AP_ERR_BAD_INTEGRITY`.
const BAD_INTEGRITY: i32 = 31;
/// `KRB5KRB_AP_ERR_TKT_EXPIRED`.
const TICKET_EXPIRED: i32 = 32;
/// `KRB5KRB_AP_ERR_TKT_NYV`.
const TICKET_NOT_YET_VALID: i32 = 33;
/// `KRB5KRB_AP_ERR_REPEAT`.
const REPLAYED: i32 = 34;
/// `KRB5KRB_AP_ERR_NOT_US`.
const NOT_US: i32 = 35;
/// `KRB5KRB_AP_ERR_SKEW`.
const SKEW: i32 = 37;
/// `KRB5KRB_AP_ERR_BADKEYVER`.
const BAD_KEY_VERSION: i32 = 44;
/// `KRB5KRB_AP_ERR_NOKEY`.
const NO_KEY: i32 = 45;

/// A failure of the library as the service reports it.
pub fn explain(failure: LibraryFailure, keytab: &Keytab, now: SystemTime) -> Failure {
    let LibraryFailure { major, minor, text } = failure;
    let error = minor.cast_signed().wrapping_sub(KERBEROS_ERRORS);
    let (reason, advice) = match error {
        SKEW | TICKET_NOT_YET_VALID => {
            let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let advice = format!(
                "the clocks of client and server differ by more than 300 s; here it is {} UTC; run \
                 a time service on both",
                utc(seconds)
            );
            (FailureReason::Clock, advice)
        }
        TICKET_EXPIRED => {
            let advice = "the ticket has ended and the client must renew it".to_owned();
            (FailureReason::Expired, advice)
        }
        REPLAYED => {
            let advice = "the token was used before, which is not checked here".to_owned();
            (FailureReason::Other, advice)
        }
        NOT_US | NO_KEY => {
            let names = keytab.principals();
            let advice =
                format!("the ticket is for another service; the keytab has keys of {names}");
            (FailureReason::Key, advice)
        }
        // As MIT says it: "found in keytab but not with enctype X".
        BAD_KEY_VERSION if text.contains("not with enctype") => {
            let advice =
                "add a key of this encryption type to the keytab, or drop the type at the \
                          KDC"
                .to_owned();
            (FailureReason::Key, advice)
        }
        BAD_KEY_VERSION => {
            let advice =
                "the ticket has another version of the key; fetch the keys again".to_owned();
            (FailureReason::Key, advice)
        }
        BAD_INTEGRITY => {
            let advice = "the ticket cannot be decrypted: its encryption type is not permitted in \
                          krb5.conf, or the keys are those of another KDC"
                .to_owned();
            (FailureReason::Key, advice)
        }
        _ if major == status::DEFECTIVE_TOKEN => {
            let advice = "what the client sent is not a token of Kerberos".to_owned();
            (FailureReason::Token, advice)
        }
        _ => {
            let advice = "the library refuses the client's token".to_owned();
            (FailureReason::Other, advice)
        }
    };
    Failure {
        major,
        minor,
        reason,
        text: format!("{advice} ({text})"),
    }
}

/// A time as `YYYY-MM-DD hh:mm:ss`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + later;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_795_559_221, "2026-11-24 22:27:01"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn gss_ctx_07_each_error_of_kerberos_has_a_reason_and_a_remedy() {
        for (error, text, reason, advice) in [
            (
                37,
                "Clock skew too great",
                FailureReason::Clock,
                "time service",
            ),
            (
                33,
                "Ticket not yet valid",
                FailureReason::Clock,
                "time service",
            ),
            (32, "Ticket expired", FailureReason::Expired, "renew"),
            (
                34,
                "Request is a replay",
                FailureReason::Other,
                "used before",
            ),
            (
                35,
                "ticket server nfs/x not found",
                FailureReason::Key,
                "keys of",
            ),
            (
                44,
                "kvno 3 not found in keytab",
                FailureReason::Key,
                "fetch the keys",
            ),
            (
                44,
                "found in keytab but not with enctype aes256-sha2",
                FailureReason::Key,
                "add a key",
            ),
            (
                31,
                "cannot decrypt ticket",
                FailureReason::Key,
                "another KDC",
            ),
            (7, "anything", FailureReason::Other, "refuses"),
        ] {
            let failure = LibraryFailure {
                major: status::FAILURE,
                minor: (KERBEROS_ERRORS + error).cast_unsigned(),
                text: text.to_owned(),
            };
            let minor = failure.minor;
            let explained = explain(failure, &Keytab::default(), UNIX_EPOCH);
            assert_eq!(explained.reason, reason, "{error}");
            assert_eq!((explained.major, explained.minor), (status::FAILURE, minor));
            let sentence = explained.text;
            assert!(
                sentence.contains(advice) && sentence.contains(text),
                "{sentence}"
            );
        }
    }
}
