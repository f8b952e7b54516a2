//! The outcome of a case.

use std::fmt;

/// Why a case did not pass.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    /// The case says nothing about this server, and why.
    Skip(String),
    /// The server did something else than the row asks for.
    Fail(Difference),
}

/// The expected and the actual bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Difference {
    /// In words, with the name of the field if it is about one.
    pub what: String,
    /// Where in the message the bytes differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<usize>,
    /// In hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// In hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<String>,
}

/// How a case ends.
pub(crate) type Done = Result<(), Stop>;

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.what)?;
        if let Some(at) = self.at {
            write!(out, " (at byte {at})")?;
        }
        if let Some(expected) = &self.expected {
            write!(out, "\n      expected {expected}")?;
        }
        if let Some(got) = &self.got {
            write!(out, "\n      got      {got}")?;
        }
        Ok(())
    }
}

/// A failure in words.
pub(crate) fn fail(what: impl Into<String>) -> Stop {
    Stop::Fail(Difference {
        what: what.into(),
        ..Difference::default()
    })
}

/// A failure by a message that should not be.
pub(crate) fn fail_by(what: impl Into<String>, got: &[u8]) -> Stop {
    Stop::Fail(Difference {
        what: what.into(),
        got: Some(hex(got)),
        ..Difference::default()
    })
}

/// Nothing to be said about this server.
pub(crate) fn skip(why: impl Into<String>) -> Stop {
    Stop::Skip(why.into())
}

/// Passes if it holds.
pub(crate) fn ensure(holds: bool, what: impl Into<String>) -> Done {
    if holds { Ok(()) } else { Err(fail(what)) }
}

/// Passes if the bytes are the same.
pub(crate) fn same(field: &str, expected: &[u8], got: &[u8]) -> Done {
    if expected == got {
        return Ok(());
    }
    let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    // The bytes around the difference are enough.
    let window = |bytes: &[u8]| {
        let start = at.saturating_sub(8).min(bytes.len());
        hex(&bytes[start..bytes.len().min(at + 24)])
    };
    Err(Stop::Fail(Difference {
        what: format!(
            "{field}: {} bytes expected, {} came",
            expected.len(),
            got.len()
        ),
        at: Some(at),
        expected: Some(window(expected)),
        got: Some(window(got)),
    }))
}

/// The expected value of a word of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    Is(u32),
    AtLeast(u32),
    Any,
}

/// Passes if the message consists of exactly these words.
pub(crate) fn consists_of(got: &[u8], fields: &[(&str, Want)]) -> Done {
    begins_with(got, fields)?;
    if got.len() != 4 * fields.len() {
        return Err(fail_by(
            format!(
                "a message of {} bytes expected, {} came",
                4 * fields.len(),
                got.len()
            ),
            got,
        ));
    }
    Ok(())
}

/// Passes if the message begins with these words.
pub(crate) fn begins_with(got: &[u8], fields: &[(&str, Want)]) -> Done {
    for (index, &(field, want)) in fields.iter().enumerate() {
        let Some(found) = word(got, index) else {
            return Err(fail_by(format!("the message ends before {field}"), got));
        };
        let (right, expected) = match want {
            Want::Is(value) => (found == value, format!("{value:08x}")),
            Want::AtLeast(value) => (found >= value, format!("{value:08x} or more")),
            Want::Any => (true, String::new()),
        };
        if !right {
            return Err(Stop::Fail(Difference {
                what: format!("{field} is wrong"),
                at: Some(4 * index),
                expected: Some(expected),
                got: Some(format!("{found:08x} in {}", hex(got))),
            }));
        }
    }
    Ok(())
}

/// A word of a message.
pub(crate) fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let bytes = bytes.get(4 * index..4 * index + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Hexadecimal digits in groups of four bytes; of long messages the beginning.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 96;
    let mut text = String::new();
    for (index, byte) in bytes.iter().take(SHOWN).enumerate() {
        if index > 0 && index % 4 == 0 {
            text.push(' ');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    if bytes.len() > SHOWN {
        text.push_str(&format!(" ... ({} bytes)", bytes.len()));
    }
    if bytes.is_empty() {
        text.push_str("nothing");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(done: Done) -> Difference {
        match done {
            Err(Stop::Fail(difference)) => difference,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_are_compared_by_name() {
        let message = [0, 0, 0, 7, 0, 0, 0, 1];
        let fields = [("rdma_xid", Want::Is(7)), ("rdma_vers", Want::AtLeast(1))];
        assert!(consists_of(&message, &fields).is_ok());
        let wrong = difference(begins_with(&message, &[("rdma_xid", Want::Is(8))]));
        assert_eq!(
            (wrong.at, wrong.what.as_str()),
            (Some(0), "rdma_xid is wrong")
        );
        assert_eq!(wrong.expected.as_deref(), Some("00000008"));
        let short = difference(consists_of(&message, &fields[..1]));
        assert!(short.what.contains("4 bytes expected, 8 came"));
        let long = difference(begins_with(&message[..4], &fields));
        assert!(long.what.contains("ends before rdma_vers"));
        let less = [("rdma_xid", Want::Any), ("rdma_credit", Want::AtLeast(2))];
        assert_eq!(difference(begins_with(&message, &less)).at, Some(4));
    }

    #[test]
    fn bytes_are_compared_with_their_place() {
        assert!(same("data", b"abc", b"abc").is_ok());
        let wrong = difference(same("data", b"abcdef", b"abcxef"));
        assert_eq!(wrong.at, Some(3));
        assert_eq!(wrong.got.as_deref(), Some("61626378 6566"));
        let cut = difference(same("data", b"abc", b"ab"));
        assert_eq!(cut.at, Some(2));
    }
}
