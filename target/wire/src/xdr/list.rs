//! Linked lists: optional data in a chain (RFC 4506 section 4.19).

use core::fmt;
use core::marker::PhantomData;

use super::{Decode, Decoder, Encode, Encoder, Result};

/// A linked list as received: checked once, then read without errors.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    start: Decoder<'a>,
    count: usize,
    item: PhantomData<T>,
}

impl<'a, T: Decode<'a>> List<'a, T> {
    /// Items in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut input = self.start;
        (0..self.count).map_while(move |_| Option::decode(&mut input).ok().flatten())
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for List<'a, T> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        let start = *input;
        let mut count = 0;
        while Option::<T>::decode(input)?.is_some() {
            count += 1;
        }
        Ok(Self {
            start,
            count,
            item: PhantomData,
        })
    }
}

impl<'a, T: Decode<'a> + Encode> Encode for List<'a, T> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        encode_list(self.iter(), out)
    }
}

impl<'a, T: Decode<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Decode<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

/// Appends a linked list of these items.
///
/// # Errors
/// As encoding an item.
pub fn encode_list<T: Encode>(
    items: impl IntoIterator<Item = T>,
    out: &mut Encoder<'_>,
) -> Result<()> {
    for item in items {
        out.bool(true)?;
        item.encode(out)?;
    }
    out.bool(false)
}
