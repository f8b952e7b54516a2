//! Sizes, bandwidths and durations with their units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::scalar::text_scalar;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A number of bytes, written `4096`, `4KiB`, `256MiB`, `1GiB` or `2TiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Bytes per second, written `2GiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub u64);

/// An invalid size, bandwidth or duration; the text says what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// Not a size.
    #[error(
        "expected a size: a whole number of bytes or one with KiB, MiB, GiB or TiB, such as 256MiB"
    )]
    Size,
    /// Not a bandwidth.
    #[error("expected a bandwidth: a size per second, such as 2GiB/s")]
    Bandwidth,
    /// Not a duration.
    #[error("expected a duration: a whole number with us, ms, s, m or h, such as 100us or 10m")]
    Duration,
    /// The number does not fit in 64 bits of the smallest unit.
    #[error("the number is too large")]
    TooLarge,
}

impl ByteSize {
    /// `count` KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count * KIB)
    }

    /// `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count * MIB)
    }

    /// `count` GiB.
    pub const fn gib(count: u64) -> Self {
        Self(count * GIB)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let units = [
            ("KiB", KIB),
            ("MiB", MIB),
            ("GiB", GIB),
            ("TiB", TIB),
            ("", 1),
        ];
        number_with_unit(text, &units, ParseUnitError::Size).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0 => (1, ""),
            bytes if bytes.is_multiple_of(TIB) => (TIB, "TiB"),
            bytes if bytes.is_multiple_of(GIB) => (GIB, "GiB"),
            bytes if bytes.is_multiple_of(MIB) => (MIB, "MiB"),
            bytes if bytes.is_multiple_of(KIB) => (KIB, "KiB"),
            _ => (1, ""),
        };
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl FromStr for Bandwidth {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let size = text.strip_suffix("/s").ok_or(ParseUnitError::Bandwidth)?;
        match size.parse::<ByteSize>() {
            Ok(size) => Ok(Self(size.0)),
            Err(ParseUnitError::TooLarge) => Err(ParseUnitError::TooLarge),
            Err(_) => Err(ParseUnitError::Bandwidth),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0))
    }
}

text_scalar!(
    ByteSize,
    "a size such as 4096, 4KiB, 256MiB or 1GiB",
    number = ByteSize
);
text_scalar!(Bandwidth, "a bandwidth such as 2GiB/s");

/// Parses `100us`, `5ms`, `10s`, `5m` or `2h`.
///
/// # Errors
///
/// The unit is missing or unknown, the number is not whole, or it is too large.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    const SECOND: u64 = 1_000_000;
    let units = [
        ("us", 1),
        ("ms", 1_000),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3_600 * SECOND),
    ];
    number_with_unit(text, &units, ParseUnitError::Duration).map(Duration::from_micros)
}

/// Writes a duration in the largest unit up to seconds that keeps it whole, as accepted by [`parse_duration`];
/// parts of a microsecond are dropped.
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros.is_multiple_of(1_000_000) {
        format!("{}s", micros / 1_000_000)
    } else if micros.is_multiple_of(1_000) {
        format!("{}ms", micros / 1_000)
    } else {
        format!("{micros}us")
    }
}

fn number_with_unit(
    text: &str,
    units: &[(&str, u64)],
    error: ParseUnitError,
) -> Result<u64, ParseUnitError> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err(error);
    }
    let unit = unit.trim_start();
    let &(_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(error)?;
    let number = digits
        .parse::<u64>()
        .map_err(|_| ParseUnitError::TooLarge)?;
    number.checked_mul(factor).ok_or(ParseUnitError::TooLarge)
}

/// Durations as a field attribute: `#[serde(with = "units::duration")]`.
pub(super) mod duration {
    use std::fmt;
    use std::time::Duration;

    use serde::{Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(duration: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::format_duration(*duration))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, such as 100us, 5ms, 10s or 2h")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                super::parse_duration(text)
                    .map_err(|error| E::custom(format_args!("`{text}`: {error}")))
            }
        }
        input.deserialize_any(Visitor)
    }
}
