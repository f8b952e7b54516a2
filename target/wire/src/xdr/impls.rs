//! Layouts of the basic types.

use super::{Bulk, Decode, Decoder, Encode, Encoder, FixedLength, Result};

macro_rules! number {
    ($($type:ident),*) => {$(
        impl FixedLength for $type {
            const LENGTH: usize = size_of::<Self>();

            #[inline]
            fn put(&self, room: &mut [u8]) {
                // A store of a fixed length. There is always room.
                if let Some(room) = room.first_chunk_mut() {
                    *room = self.to_be_bytes();
                }
            }
        }
    )*};
}

macro_rules! word {
    ($($type:ident),*) => {$(
        impl Encode for $type {
            #[inline]
            fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
                out.$type(*self)
            }
        }

        impl Decode<'_> for $type {
            #[inline]
            fn decode(input: &mut Decoder<'_>) -> Result<Self> {
                input.$type()
            }
        }
    )*};
}

number!(u32, i32, u64, i64);
word!(u32, i32, u64, i64, bool);

impl Encode for () {
    fn encode(&self, _: &mut Encoder<'_>) -> Result<()> {
        Ok(())
    }
}

impl Decode<'_> for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self> {
        Ok(())
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        (**self).encode(out)
    }
}

impl Encode for [u8] {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.opaque(self)
    }
}

/// Counted bytes, bounded by the message only. A layer above checks names.
impl<'a> Decode<'a> for &'a [u8] {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        input.opaque(usize::MAX)
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.opaque_fixed(self)
    }
}

impl<const N: usize> Decode<'_> for [u8; N] {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        input.opaque_fixed()
    }
}

/// Optional data (RFC 4506 section 4.19), and unions of the same layout.
impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.bool(self.is_some())?;
        self.as_ref().map_or(Ok(()), |value| value.encode(out))
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        if input.bool()? {
            T::decode(input).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl Encode for Bulk<'_> {
    #[inline]
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.bulk(self)
    }
}

impl<'a> Decode<'a> for Bulk<'a> {
    #[inline]
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        input.bulk(usize::MAX)
    }
}
