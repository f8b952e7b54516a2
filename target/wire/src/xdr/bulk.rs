//! Items whose data may be outside of the XDR stream.

/// An opaque item whose data may be in the stream or outside, in a chunk: the data of READ and
/// WRITE, and the text of symbolic links (RFC 8267 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk<'a> {
    /// The length word.
    pub length: u32,
    /// The data, or its position if it is elsewhere.
    pub data: Data<'a>,
}

/// Where the data of a [`Bulk`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// In the stream.
    Inline(&'a [u8]),
    /// Taken out of the stream: in a chunk, or in memory that the caller gathers in. The data
    /// belongs at this position of the stream.
    Apart(u32),
}

impl<'a> Bulk<'a> {
    /// Data to encode into the stream. A length of 2^32 or more does not encode.
    #[must_use]
    pub fn inline(data: &'a [u8]) -> Self {
        Self {
            length: u32::try_from(data.len()).unwrap_or(u32::MAX),
            data: Data::Inline(data),
        }
    }

    /// Data outside of the stream: only the length word is encoded. The encoder finds its position
    /// ([`Encoder::taken`](super::Encoder::taken)).
    #[must_use]
    pub const fn apart(length: u32) -> Self {
        Self {
            length,
            data: Data::Apart(0),
        }
    }

    /// The data, if it is in the stream.
    #[must_use]
    pub const fn as_inline(&self) -> Option<&'a [u8]> {
        match self.data {
            Data::Inline(bytes) => Some(bytes),
            Data::Apart(_) => None,
        }
    }
}

/// Most items of one message that an encoder leaves out.
pub const ITEMS_MAX: usize = 4;

/// An item that is missing from the stream that a decoder reads, or that an encoder left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The position of its data in the whole stream, from the first byte of the RPC message (RFC
    /// 8166 section 3.4.5).
    pub position: u32,
    /// Bytes outside of the stream: the item's length, or that with its round-up (RFC 8166
    /// section 3.4.5.2).
    pub length: u32,
}

/// Alignment of long opaque items in an RDMA_MSGP message (RFC 5666 section 3.9). Pad bytes before
/// the data of every opaque of `threshold` or more bytes bring the data to a multiple of `align`,
/// counted from the first byte of the RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Padding {
    /// Alignment in bytes, any number; 0 and 1 mean none.
    pub align: u32,
    /// Least length of an opaque that is aligned, in bytes.
    pub threshold: u32,
}

impl Padding {
    /// Pad bytes before the data of an opaque of `length` bytes that would begin at `position`.
    #[must_use]
    pub const fn before(self, length: usize, position: usize) -> usize {
        let align = self.align as usize;
        if align < 2 || length < self.threshold as usize {
            return 0;
        }
        match position % align {
            0 => 0,
            over => align - over,
        }
    }
}
