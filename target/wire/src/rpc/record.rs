//! Record marks, which separate RPC messages on a byte stream (RFC 5531 section 11).

/// The word before a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// Whether this fragment ends the record.
    pub last: bool,
    /// Bytes in the fragment, below 2^31.
    pub length: u32,
}

impl RecordMark {
    /// Longest fragment.
    pub const MAX: u32 = 0x7fff_ffff;

    /// The mark of a record sent as one fragment, or `None` if it is too long for one.
    #[must_use]
    pub fn whole(length: usize) -> Option<Self> {
        let length = u32::try_from(length)
            .ok()
            .filter(|&length| length <= Self::MAX)?;
        Some(Self { last: true, length })
    }

    /// The mark's bytes. A length of 2^31 or more loses its top bit.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        let last = if self.last { !Self::MAX } else { 0 };
        (self.length & Self::MAX | last).to_be_bytes()
    }

    /// Decodes a mark.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 4]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self {
            last: word > Self::MAX,
            length: word & Self::MAX,
        }
    }
}

/// The next item that a [`RecordScanner`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// More bytes of the current record, never empty.
    Bytes(&'a [u8]),
    /// The record is complete.
    End,
}

/// Why a byte stream cannot be decoded any further. The connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record claims more bytes than allowed.
    #[error("a record of more than {0} bytes")]
    TooLong(usize),
    /// Fragments without bytes that do not end the record, one after the other.
    #[error("too many empty fragments")]
    Empty,
}

/// Empty fragments accepted in one record. They are legal and useless. Without a bound a peer could
/// send a record that never ends.
const MAX_EMPTY: u32 = 16;

/// Finds the records in a byte stream that arrives in pieces of any size, without storing them.
#[derive(Clone, Debug)]
pub struct RecordScanner {
    max: usize,
    mark: [u8; 4],
    mark_bytes: usize,
    left: usize,
    last: bool,
    record: usize,
    empty: u32,
}

impl RecordScanner {
    /// A scanner at the start of a stream whose records have at most `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            mark: [0; 4],
            mark_bytes: 0,
            left: 0,
            last: false,
            record: 0,
            empty: 0,
        }
    }

    /// Whether the stream is between two records.
    #[must_use]
    pub const fn between_records(&self) -> bool {
        self.mark_bytes == 0 && self.record == 0 && self.empty == 0 && !self.last
    }

    /// Bytes of the current record by the marks so far, received or not: the least size of a buffer
    /// for it. Never above the maximum.
    #[must_use]
    pub const fn announced(&self) -> usize {
        self.record
    }

    /// Bytes of the fragment that has begun which have not been seen.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Notes that so many of the bytes that are left of the fragment were read elsewhere.
    ///
    /// # Panics
    /// If that is more than are left.
    pub const fn skip(&mut self, count: usize) {
        assert!(count <= self.left, "the fragment is over");
        self.left -= count;
    }

    /// Takes the next item from the front of `bytes`; `None` if more bytes are needed. After an
    /// error every call returns it again.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Fragment<'a>>, RecordError> {
        loop {
            if self.left > 0 {
                let (now, later) = bytes.split_at(bytes.len().min(self.left));
                if now.is_empty() {
                    return Ok(None);
                }
                self.left -= now.len();
                *bytes = later;
                return Ok(Some(Fragment::Bytes(now)));
            }
            if self.last {
                *self = Self::new(self.max);
                return Ok(Some(Fragment::End));
            }
            while self.mark_bytes < self.mark.len() {
                let Some((first, later)) = bytes.split_first() else {
                    return Ok(None);
                };
                if let Some(slot) = self.mark.get_mut(self.mark_bytes) {
                    *slot = *first;
                }
                self.mark_bytes += 1;
                *bytes = later;
            }
            let mark = RecordMark::from_bytes(self.mark);
            let record = self.record.saturating_add(mark.length as usize);
            if record > self.max {
                return Err(RecordError::TooLong(self.max));
            }
            if mark.length == 0 && !mark.last {
                if self.empty == MAX_EMPTY {
                    return Err(RecordError::Empty);
                }
                self.empty += 1;
            }
            self.record = record;
            self.mark_bytes = 0;
            self.left = mark.length as usize;
            self.last = mark.last;
        }
    }
}
