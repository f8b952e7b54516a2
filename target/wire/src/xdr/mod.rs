//! External data representation (RFC 4506) over borrowed slices.
//!
//! [`Decoder`] is a cursor over received bytes, [`Encoder`] a cursor over a slice to fill. Types
//! that have a layout implement [`Encode`] and [`Decode`].
//!
//! Over RDMA an opaque item may be outside of the stream, in a chunk (RFC 8166 section 3.4): the
//! stream keeps its length word, without the bytes and their round-up. Such an item is a [`Bulk`].
//! Both cursors convert between an index in their slice and a position in the whole stream, so
//! procedures do not depend on how the data travels.

mod array;
mod bulk;
mod bytes;
mod decoder;
mod encoder;
mod impls;
mod list;
#[macro_use]
mod macros;

pub use array::Array;
pub use bulk::{Bulk, Data, ITEMS_MAX, Padding, Taken};
pub use bytes::BoundedBytes;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use list::{List, encode_list};
pub(crate) use macros::{xdr_enum, xdr_struct, xdr_union};

/// Why bytes do not decode, or a value does not encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end, or an item taken out of the stream begins, before the value does.
    #[error("the bytes end inside a value")]
    Truncated,
    /// A counted item is longer than its bound allows.
    #[error("an item is longer than its bound")]
    TooLong,
    /// A word has a value that its type does not define.
    #[error("a word holds no value of its type")]
    Value,
    /// An item that was taken out does not agree with the stream: its length word has another
    /// length, or no item of the stream is at its position.
    #[error("an item taken out of the stream does not agree with the stream")]
    Misplaced,
    /// The slice to fill is too small.
    #[error("no room left to encode into")]
    Full,
}

/// A result of this module.
pub type Result<T> = core::result::Result<T, Error>;

/// A value that has an XDR layout.
pub trait Encode {
    /// Appends the value.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::TooLong`] or [`Error::Value`] if the value has no encoding.
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()>;
}

/// A value whose encodings all have one length.
pub trait FixedLength {
    /// That length in bytes.
    const LENGTH: usize;

    /// Fills `room`, which has that length, with the value.
    fn put(&self, room: &mut [u8]);
}

/// A value that can be read back from its XDR layout, borrowing its counted parts.
pub trait Decode<'a>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// Any but [`Error::Full`].
    fn decode(input: &mut Decoder<'a>) -> Result<Self>;
}

/// Decodes one value that begins with the first byte. Bytes behind it are ignored.
///
/// # Errors
/// As [`Decode::decode`].
pub fn from_bytes<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T> {
    T::decode(&mut Decoder::new(bytes))
}

/// Encodes one value into the front of `bytes` and returns how many bytes it took.
///
/// # Errors
/// As [`Encode::encode`].
pub fn to_bytes<T: Encode + ?Sized>(value: &T, bytes: &mut [u8]) -> Result<usize> {
    let mut out = Encoder::new(bytes);
    value.encode(&mut out)?;
    Ok(out.position())
}

/// Bytes that bring `length` to a multiple of four (RFC 4506 section 3), 0 to 3.
#[must_use]
pub const fn pad(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// `length` with its pad.
#[must_use]
pub const fn round_up(length: u64) -> u64 {
    length.saturating_add(3) & !3
}
