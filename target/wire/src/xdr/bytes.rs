//! Counted bytes with a bound.

use super::{Decode, Decoder, Encode, Encoder, Error, Result};

/// Counted opaque bytes or a string, at most `MAX` of them (RFC 4506 section 4.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct BoundedBytes<'a, const MAX: usize>(pub &'a [u8]);

impl<const MAX: usize> Encode for BoundedBytes<'_, MAX> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        if self.0.len() > MAX {
            return Err(Error::TooLong);
        }
        out.opaque(self.0)
    }
}

impl<'a, const MAX: usize> Decode<'a> for BoundedBytes<'a, MAX> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        input.opaque(MAX).map(Self)
    }
}
