//! Items that may travel apart from the stream.

/// An opaque item whose data may stand in the stream or travel apart from it: the data of READ
/// and WRITE, the text of symbolic links (RFC 8267 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk<'a> {
    /// The length word.
    pub length: u32,
    /// The data itself, or that it is elsewhere.
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

    /// Data that travels apart: only the length word is encoded. Its position comes to be known
    /// by encoding ([`Encoder::taken`](super::Encoder::taken)).
    #[must_use]
    pub const fn apart(length: u32) -> Self {
        Self {
            length,
            data: Data::Apart(0),
        }
    }

    /// The data if it stands in the stream.
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
    /// Where its data would begin, counted in the whole stream from the first byte of the RPC
    /// message (RFC 8166 section 3.4.5).
    pub position: u32,
    /// Bytes that travel apart: the item's length, or that with its round-up (RFC 8166
    /// section 3.4.5.2).
    pub length: u32,
}

/// Alignment of long opaque items in an RDMA_MSGP message (RFC 5666 section 3.9): as many pad
/// bytes stand before the data of every opaque of `threshold` or more bytes as bring the data to a
/// multiple of `align`, counted from the first byte of the RPC message.
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
