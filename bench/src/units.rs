//! Sizes and durations as people write them.

use std::time::Duration;

/// Reads `4096`, `4KiB`, `1MiB`, `2GiB`, `1TiB` (also `4K`, `1M`, `2G`, `1T`) as bytes.
///
/// # Errors
/// A text that says what is expected.
pub fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1_usize << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return Err("expected a size such as 4096, 4KiB, 1MiB".to_owned()),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| "expected a size such as 4096, 4KiB, 1MiB".to_owned())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "that is too large".to_owned())
}

/// Reads `500ms`, `5s`, `2m` as a duration.
///
/// # Errors
/// A text that says what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 500ms, 5s, 2m".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let seconds = match text[digits.len()..].trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(expected()),
    };
    let number: f64 = digits.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

/// Bytes as people write them: the largest unit that divides them.
#[must_use]
pub fn show_size(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4KiB"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        assert!(size("4 kilos").is_err());
        assert!(size("").is_err());
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert!(duration("soon").is_err());
        assert_eq!(show_size(4096), "4 KiB");
        assert_eq!(show_size(5), "5 B");
    }
}
