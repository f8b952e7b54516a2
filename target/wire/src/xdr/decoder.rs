//! The cursor over received bytes.

use super::{Bulk, Data, Error, Padding, Result, Taken, pad, round_up};

/// The items that are missing from the bytes.
#[derive(Clone, Copy, Debug)]
enum Missing<'a> {
    /// Items at known positions, in ascending order (read chunks).
    At(&'a [Taken]),
    /// The next eligible items, in order; `None` for an item that is in the stream (write chunks).
    Next(&'a [Option<u32>]),
}

/// Reads XDR values from the front of a slice. To look ahead, copy the decoder.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    /// The bytes up to the next missing item or the end, for ordinary reads.
    front: &'a [u8],
    /// Where that ends.
    limit: usize,
    /// The position in the whole stream minus the index in `bytes`: bytes taken out so far, minus
    /// alignment pads so far. It wraps; its sum with an index is the true position.
    shift: usize,
    missing: Missing<'a>,
    padding: Padding,
}

impl<'a> Decoder<'a> {
    /// A decoder of complete bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            front: bytes,
            limit: bytes.len(),
            shift: 0,
            missing: Missing::At(&[]),
            padding: Padding {
                align: 0,
                threshold: 0,
            },
        }
    }

    /// A decoder of an RPC message from which items were taken out into read chunks. `bytes` begin
    /// with the RPC message; `taken` is in ascending order of position, one entry for each chunk
    /// (equal positions joined).
    #[must_use]
    pub fn with_taken(bytes: &'a [u8], taken: &'a [Taken]) -> Self {
        let mut decoder = Self {
            missing: Missing::At(taken),
            ..Self::new(bytes)
        };
        decoder.move_to(0);
        decoder
    }

    /// A decoder of an RPC reply whose eligible items were put into write chunks. `chunks` has an
    /// entry for each chunk offered, in order: the bytes that the peer says it wrote there, or
    /// `None` for a chunk without segments, whose item stayed in the stream (RFC 8267 section 5.1).
    #[must_use]
    pub const fn with_results(bytes: &'a [u8], chunks: &'a [Option<u32>]) -> Self {
        let mut decoder = Self::new(bytes);
        decoder.missing = Missing::Next(chunks);
        decoder
    }

    /// Reads the message as one of type RDMA_MSGP.
    #[must_use]
    pub const fn padded(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Bytes of the slice consumed so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.limit - self.front.len()
    }

    /// Position in the whole stream: consumed bytes, including items taken out and their round-up,
    /// without alignment pads.
    #[must_use]
    pub const fn stream_position(&self) -> usize {
        self.position().wrapping_add(self.shift)
    }

    /// Bytes of the slice not yet consumed, up to its end.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position()
    }

    /// The bytes not yet consumed.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position()..).unwrap_or_default()
    }

    /// Whether items are missing from the slice.
    #[must_use]
    pub const fn is_reduced(&self) -> bool {
        match self.missing {
            Missing::At(taken) => !taken.is_empty(),
            Missing::Next(chunks) => !chunks.is_empty(),
        }
    }

    /// Checks that every item at a known position was met. Bytes left over are no error.
    ///
    /// # Errors
    /// [`Error::Misplaced`]: a position is inside another item, behind the end, or at an item that
    /// cannot be taken out.
    pub const fn finish(&self) -> Result<()> {
        match self.missing {
            Missing::At([]) | Missing::Next(_) => Ok(()),
            Missing::At(_) => Err(Error::Misplaced),
        }
    }

    /// Continues at an index of the bytes, before the remaining missing items.
    fn move_to(&mut self, at: usize) {
        self.limit = match self.missing {
            Missing::At([next, ..]) => {
                // A position already passed leaves no room at all, so decoding fails.
                let here = at.wrapping_add(self.shift);
                let ahead = (next.position as usize).saturating_sub(here);
                self.bytes.len().min(at.saturating_add(ahead))
            }
            _ => self.bytes.len(),
        };
        self.front = self.bytes.get(at..self.limit).unwrap_or_default();
    }

    /// The next `length` bytes, without pad.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self
            .front
            .split_at_checked(length)
            .ok_or(Error::Truncated)?;
        self.front = rest;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.front.split_first_chunk().ok_or(Error::Truncated)?;
        self.front = rest;
        Ok(*bytes)
    }

    /// An unsigned integer (RFC 4506 section 4.2).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A signed integer (RFC 4506 section 4.1).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned hyper integer (RFC 4506 section 4.5).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A signed hyper integer (RFC 4506 section 4.5).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// Several unsigned integers, for which there is one check of the length.
    ///
    /// # Errors
    /// [`Error::Truncated`]: not all of them are there, and none is consumed.
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N]> {
        let (words, _) = self.front.as_chunks();
        let words: &[[u8; 4]; N] = words.first_chunk().ok_or(Error::Truncated)?;
        self.front = self.front.get(4 * N..).unwrap_or_default();
        // `map` is not always compiled in line.
        let mut values = [0; N];
        let mut at = 0;
        while at < N {
            values[at] = u32::from_be_bytes(words[at]);
            at += 1;
        }
        Ok(values)
    }

    /// A boolean: 0 or 1 and nothing else (RFC 4506 section 4.4).
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Value`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Value),
        }
    }

    /// Opaque bytes of a length that the type fixes (RFC 4506 section 4.9), with their pad.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.array()?;
        self.skip_pad(N)?;
        Ok(bytes)
    }

    /// Counted opaque bytes, at most `bound` (RFC 4506 section 4.10), with their pad.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::TooLong`].
    #[inline]
    pub fn opaque(&mut self, bound: usize) -> Result<&'a [u8]> {
        let length = self.length(bound)?;
        self.opaque_data(length)
    }

    /// A string, as bytes: peers do not keep to the character set of RFC 4506 section 4.11.
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque).
    #[inline]
    pub fn string(&mut self, bound: usize) -> Result<&'a [u8]> {
        self.opaque(bound)
    }

    /// A count of at most `bound`.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::TooLong`].
    #[inline]
    pub fn length(&mut self, bound: usize) -> Result<usize> {
        let length = self.u32()? as usize;
        if length > bound {
            Err(Error::TooLong)
        } else {
            Ok(length)
        }
    }

    #[inline]
    fn opaque_data(&mut self, length: usize) -> Result<&'a [u8]> {
        let align = self.padding.before(length, self.position());
        if align > 0 {
            // Positions do not count these bytes, so the next missing item moves on with them.
            if align > self.remaining() {
                return Err(Error::Truncated);
            }
            self.shift = self.shift.wrapping_sub(align);
            self.move_to(self.position() + align);
        }
        let bytes = self.take(length)?;
        self.skip_pad(length)?;
        Ok(bytes)
    }

    /// Skips the pad behind an item of `length` bytes, whatever its bytes are. Where items were
    /// taken out, the pad of the last item before the end may be missing too.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn skip_pad(&mut self, length: usize) -> Result<()> {
        let wanted = pad(length);
        let left = self.front.len();
        if left < wanted && self.is_reduced() && self.limit == self.bytes.len() {
            self.shift = self.shift.wrapping_add(wanted - left);
            self.move_to(self.limit);
            return Ok(());
        }
        self.take(wanted).map(|_| ())
    }

    /// Counted opaque bytes that may have been taken out of the stream. Only this function reads
    /// past a missing item.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::TooLong`]; [`Error::Misplaced`] if the length word and the
    /// chunk do not agree (the chunk may be longer by the round-up).
    pub fn bulk(&mut self, bound: usize) -> Result<Bulk<'a>> {
        let length = self.length(bound)?;
        let word = u32::try_from(length).map_err(|_| Error::TooLong)?;
        let moved = match self.missing {
            Missing::At([next, rest @ ..]) if next.position as usize == self.stream_position() => {
                self.missing = Missing::At(rest);
                Some(next.length)
            }
            Missing::Next([chunk, rest @ ..]) => {
                self.missing = Missing::Next(rest);
                *chunk
            }
            _ => None,
        };
        let Some(moved) = moved else {
            let data = Data::Inline(self.opaque_data(length)?);
            return Ok(Bulk { length: word, data });
        };
        let rounded = round_up(u64::from(word));
        if moved != word && u64::from(moved) != rounded {
            return Err(Error::Misplaced);
        }
        let position = u32::try_from(self.stream_position()).map_err(|_| Error::TooLong)?;
        let rounded = usize::try_from(rounded).map_err(|_| Error::TooLong)?;
        self.shift = self.shift.wrapping_add(rounded);
        self.move_to(self.position());
        Ok(Bulk {
            length: word,
            data: Data::Apart(position),
        })
    }
}
