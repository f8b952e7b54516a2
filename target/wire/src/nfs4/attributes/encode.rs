//! Encoding of attributes straight into a reply.

use super::{Attribute, AttributeNumber, Bitmap};
use crate::xdr::{Encode, Encoder, Error, Result};

/// An object's attributes, one at a time.
pub trait AttributeSource {
    /// The value of an attribute, or `None` if it is not served for this object.
    fn attribute(&self, number: AttributeNumber) -> Option<Attribute<'_>>;
}

impl<S: AttributeSource + ?Sized> AttributeSource for &S {
    fn attribute(&self, number: AttributeNumber) -> Option<Attribute<'_>> {
        (**self).attribute(number)
    }
}

/// Appends the attributes of `wanted` that are served, in ascending order (`fattr4`; RFC 8881
/// section 18.7.3). The others are left out of the bitmap.
///
/// # Errors
/// [`Error::Full`]; [`Error::Value`] if the source gives another attribute than that asked for.
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
    let mut served = Bitmap::EMPTY;
    for number in wanted.iter() {
        let number = AttributeNumber::from_number(number);
        let Some(attribute) = number.and_then(|number| source.attribute(number)) else {
            continue;
        };
        if number != Some(attribute.number()) {
            return Err(Error::Value);
        }
        attribute.encode_value(out)?;
        served.insert(attribute.number().number());
    }
    // Words at the end may be zero: the count was written before the values were known.
    for (at, word) in served.words().into_iter().take(words).enumerate() {
        out.patch_u32(mask + 4 * at, word)?;
    }
    let bytes = u32::try_from(out.position() - start).map_err(|_| Error::TooLong)?;
    out.patch_u32(length, bytes)
}

/// Attributes in any order.
impl AttributeSource for [Attribute<'_>] {
    fn attribute(&self, number: AttributeNumber) -> Option<Attribute<'_>> {
        self.iter().find(|one| one.number() == number).copied()
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
