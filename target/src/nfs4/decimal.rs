//! Owners and groups as decimal numbers (RFC 8881 section 5.9).

/// A number as text.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecimalText {
    digits: [u8; Self::MAX],
    start: usize,
}

impl DecimalText {
    /// Digits of the largest number.
    const MAX: usize = 10;

    pub fn new(mut number: u32) -> Self {
        let mut digits = [b'0'; Self::MAX];
        let mut start = Self::MAX;
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { digits, start };
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Parses a number: decimal digits without sign and leading zeros. The largest one means no owner
/// to the host.
pub(super) fn parse(text: &[u8]) -> Option<u32> {
    let has_leading_zero = text.len() > 1 && text.starts_with(b"0");
    let is_number = text.iter().all(u8::is_ascii_digit) && !has_leading_zero;
    if text.is_empty() || text.len() > DecimalText::MAX || !is_number {
        return None;
    }
    let number = text
        .iter()
        .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    u32::try_from(number)
        .ok()
        .filter(|number| *number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_attr_14_owners_are_decimal_numbers() {
        for number in [0, 7, 10, 65_534, 4_000_000_000, u32::MAX - 1] {
            let text = DecimalText::new(number);
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
            assert_eq!(parse(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "00",
            "07",
            "+1",
            "-1",
            " 1",
            "1 ",
            "a",
            "4294967295",
            "4294967296",
            "10000000000",
            "root",
            "root@domain",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
