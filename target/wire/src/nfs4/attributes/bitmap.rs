//! Sets of small numbers: attributes, operations, hints, types of recallable state.

use core::fmt;

use super::AttributeNumber;
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result};

/// Words that are kept. No number defined so far needs more.
pub const WORDS_MAX: usize = 3;

/// A set of the numbers 0 to 95 (`bitmap4`). A longer one is read, and it is noted whether it had
/// further numbers; none is written.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Bitmap {
    words: [u32; WORDS_MAX],
    has_unknown: bool,
}

impl Bitmap {
    /// No numbers.
    pub const EMPTY: Self = Self {
        words: [0; WORDS_MAX],
        has_unknown: false,
    };

    /// The set of these words, lowest numbers first.
    #[must_use]
    pub const fn from_words(words: [u32; WORDS_MAX]) -> Self {
        Self {
            words,
            has_unknown: false,
        }
    }

    /// The set of these attributes.
    #[must_use]
    pub const fn of(attributes: &[AttributeNumber]) -> Self {
        let mut words = [0; WORDS_MAX];
        let mut rest = attributes;
        while let [first, others @ ..] = rest {
            words[first.number() as usize / 32] |= 1 << (first.number() % 32);
            rest = others;
        }
        Self::from_words(words)
    }

    /// Its words, lowest numbers first.
    #[must_use]
    pub const fn words(&self) -> [u32; WORDS_MAX] {
        self.words
    }

    /// Whether it had numbers above 95 when it was read.
    #[must_use]
    pub const fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Whether it has, and had, no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Whether it has a number.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 32);
        word.is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Whether it has an attribute.
    #[must_use]
    pub fn has(&self, attribute: AttributeNumber) -> bool {
        self.contains(attribute.number())
    }

    /// Adds a number; returns whether the bitmap can hold it.
    pub fn insert(&mut self, number: u32) -> bool {
        let word = self.words.get_mut(number as usize / 32);
        word.is_some_and(|word| {
            *word |= 1 << (number % 32);
            true
        })
    }

    /// What both have. Unknown numbers are in no intersection.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let [one, two, three] = self.words;
        let [first, second, third] = other.words;
        Self::from_words([one & first, two & second, three & third])
    }

    /// What this has and the other has not, unknown numbers included.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let [one, two, three] = self.words;
        let [first, second, third] = other.words;
        Self {
            words: [one & !first, two & !second, three & !third],
            has_unknown: self.has_unknown,
        }
    }

    /// The numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        let mut first = 0;
        words.into_iter().flat_map(move |mut word| {
            let base = first;
            first += 32;
            core::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.checked_sub(1)?;
                Some(base + bit)
            })
        })
    }

    /// Words that it takes on the wire, without its count.
    pub(super) fn length(&self) -> usize {
        let used = self.words.iter().rposition(|&word| word != 0);
        used.map_or(0, |last| last + 1)
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = out.debug_set();
        set.entries(self.iter());
        if self.has_unknown {
            set.entry(&"unknown");
        }
        set.finish()
    }
}

impl Encode for Bitmap {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        let length = self.length();
        out.u32(u32::try_from(length).map_err(|_| Error::TooLong)?)?;
        let mut words = self.words.iter().take(length);
        words.try_for_each(|&word| out.u32(word))
    }
}

impl Decode<'_> for Bitmap {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        let count = input.u32()? as usize;
        let mut bitmap = Self::EMPTY;
        for word in bitmap.words.iter_mut().take(count) {
            *word = input.u32()?;
        }
        let further = count.saturating_sub(WORDS_MAX);
        let further = input.take(further.checked_mul(4).ok_or(Error::Truncated)?)?;
        bitmap.has_unknown = further.iter().any(|&byte| byte != 0);
        Ok(bitmap)
    }
}
