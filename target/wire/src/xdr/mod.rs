//! External data representation (RFC 4506) over borrowed slices.
//!
//! [`Decoder`] is a cursor over received bytes, [`Encoder`] a cursor over a slice to fill. Types
//! that have a layout implement [`Encode`] and [`Decode`].
//!
//! Over RDMA an opaque item may travel apart from the stream, in a chunk (RFC 8166 section 3.4):
//! its length word stays, its bytes and their round-up are taken out. Such an item is a [`Bulk`];
//! both cursors know the difference between a place in their slice and a position in the whole
//! stream, so procedures need not care how the data came.

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
    /// A word holds none of the values that its type has.
    #[error("a word holds no value of its type")]
    Value,
    /// Pad bytes are not zero, where that is asked for.
    #[error("pad bytes are not zero")]
    Pad,
    /// An item that was taken out of the stream does not agree with the stream: its length word
    /// says otherwise, or nothing in the stream belongs to it.
    #[error("an item taken out of the stream does not agree with the stream")]
    Misplaced,
    /// The slice to fill has no room left.
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
    /// [`Error::Full`]; [`Error::TooLong`] or [`Error::Value`] where the value itself has no
    /// encoding.
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

/// Decodes one value that begins with the first byte. Bytes behind it are not looked at.
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
