//! Vectors of RFC 3961, RFC 3962 and RFC 8009, and tokens.

mod tokens;
mod vectors;

/// Bytes written as hexadecimal digits; spaces do not count.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| u8::try_from(digit.to_digit(16).expect("a digit")).expect("small"))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
