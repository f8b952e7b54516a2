//! Counted arrays (RFC 4506 section 4.13).

use core::fmt;

use super::{Decode, Decoder, Encode, Encoder, Error, Result};

/// A counted array of at most `MAX` items: as received, checked once, then walked without errors;
/// or of items that are given.
pub struct Array<'a, T, const MAX: usize = { u32::MAX as usize }> {
    items: Items<'a, T>,
}

enum Items<'a, T> {
    Received { start: Decoder<'a>, count: usize },
    Given(&'a [T]),
}

impl<'a, T: Decode<'a> + Clone, const MAX: usize> Array<'a, T, MAX> {
    /// An array of these items. More than `MAX` do not encode.
    #[must_use]
    pub const fn new(items: &'a [T]) -> Self {
        Self {
            items: Items::Given(items),
        }
    }

    /// Items in the array.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.items {
            Items::Received { count, .. } => count,
            Items::Given(items) => items.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, MAX> {
        let (mut input, received, given) = match self.items {
            Items::Received { start, count } => (start, count, Default::default()),
            Items::Given(items) => (Decoder::new(&[]), 0, items),
        };
        (0..received)
            .map_while(move |_| T::decode(&mut input).ok())
            .chain(given.iter().cloned())
    }
}

impl<'a, T: Decode<'a>, const MAX: usize> Decode<'a> for Array<'a, T, MAX> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        let count = input.length(MAX)?;
        let start = *input;
        for _ in 0..count {
            T::decode(input)?;
        }
        Ok(Self {
            items: Items::Received { start, count },
        })
    }
}

impl<'a, T: Decode<'a> + Encode + Clone, const MAX: usize> Encode for Array<'a, T, MAX> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        if self.len() > MAX {
            return Err(Error::TooLong);
        }
        out.u32(u32::try_from(self.len()).map_err(|_| Error::TooLong)?)?;
        self.iter().try_for_each(|item| item.encode(out))
    }
}

impl<T> Clone for Items<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Items<'_, T> {}

impl<T, const MAX: usize> Clone for Array<'_, T, MAX> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const MAX: usize> Copy for Array<'_, T, MAX> {}

impl<'a, T: Decode<'a> + Clone + PartialEq, const MAX: usize> PartialEq for Array<'a, T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + Clone + Eq, const MAX: usize> Eq for Array<'a, T, MAX> {}

impl<'a, T: Decode<'a> + Clone + fmt::Debug, const MAX: usize> fmt::Debug for Array<'a, T, MAX> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}
