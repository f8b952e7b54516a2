//! Encoding of attributes straight into a reply.

use super::{Attribute, AttributeNumber, Bitmap};
use crate::xdr::{Encode, Encoder, Error, Result};

/// An object's attributes, one at a time.
pub trait AttributeSource {
    /// Appends the value of an attribute. False if it is not served for this object.
    ///
    /// # Errors
    /// As [`Attribute::encode_value`].
    fn encode_attribute(&self, number: AttributeNumber, out: &mut Encoder<'_>) -> Result<bool>;
}

impl<S: AttributeSource + ?Sized> AttributeSource for &S {
    fn encode_attribute(&self, number: AttributeNumber, out: &mut Encoder<'_>) -> Result<bool> {
        (**self).encode_attribute(number, out)
    }
}

/// Appends the attributes of `wanted` that are served, in ascending order (`fattr4`; RFC 8881
/// section 18.7.3). The others are left out of the bitmap.
///
/// # Errors
/// [`Error::Full`].
pub fn encode_attributes(
    out: &mut Encoder<'_>,
    wanted: Bitmap,
    source: &impl AttributeSource,
) -> Result<()> {
    let words = wanted.length();
    out.u32(u32::try_from(words).map_err(|_| Error::TooLong)?)?;
    let mask = out.position();
    for _ in 0..words {
        out.u32(0)?;
    }
    let length = out.position();
    out.u32(0)?;
    let start = out.position();
    // Words at the end may become zero: their count was written before the values were known.
    for ((at, word), first) in wanted
        .words()
        .into_iter()
        .take(words)
        .enumerate()
        .zip((0..).step_by(32))
    {
        let (mut left, mut served) = (word, 0);
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let Some(number) = AttributeNumber::from_number(first + bit) else {
                continue;
            };
            if !source.encode_attribute(number, out)? {
                continue;
            }
            served |= 1 << bit;
        }
        out.patch_u32(mask + 4 * at, served)?;
    }
    let bytes = u32::try_from(out.position() - start).map_err(|_| Error::TooLong)?;
    out.patch_u32(length, bytes)
}

/// Attributes in any order.
impl AttributeSource for [Attribute<'_>] {
    fn encode_attribute(&self, number: AttributeNumber, out: &mut Encoder<'_>) -> Result<bool> {
        let found = self.iter().find(|one| one.number() == number);
        found.map_or(Ok(false), |one| one.encode_value(out).map(|()| true))
    }
}

impl super::Attributes<'_> {
    /// Encodes these attributes, of which no two are the same, into `values` and returns them as
    /// they stand in arguments.
    ///
    /// # Errors
    /// As [`encode_attributes`]; [`Error::Value`] also if one is there twice.
    pub fn build<'v>(
        attributes: &[Attribute<'_>],
        values: &'v mut [u8],
    ) -> Result<super::Attributes<'v>> {
        let mut mask = Bitmap::EMPTY;
        for attribute in attributes {
            if mask.has(attribute.number()) {
                return Err(Error::Value);
            }
            mask.insert(attribute.number().number());
        }
        let mut out = Encoder::new(values);
        for number in mask.iter() {
            let mut all = attributes.iter();
            let found = all.find(|one| one.number().number() == number);
            found.map_or(Ok(()), |one| one.encode_value(&mut out))?;
        }
        let length = out.position();
        let values = values.get(..length).unwrap_or_default();
        Ok(super::Attributes { mask, values })
    }
}

impl Encode for super::Attributes<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.mask.encode(out)?;
        out.opaque(self.values)
    }
}
