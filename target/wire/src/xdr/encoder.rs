//! The cursor over a slice to fill.

use arrayvec::ArrayVec;

use super::{Bulk, Data, Error, FixedLength, ITEMS_MAX, Padding, Result, Taken, pad, round_up};

/// Appends XDR values to the front of a slice.
#[derive(Debug)]
pub struct Encoder<'b> {
    bytes: &'b mut [u8],
    at: usize,
    /// The position in the stream minus the index, as in the decoder.
    shift: usize,
    taken: ArrayVec<Taken, ITEMS_MAX>,
    padding: Padding,
}

impl<'b> Encoder<'b> {
    /// An encoder that begins at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'b mut [u8]) -> Self {
        let padding = Padding {
            align: 0,
            threshold: 0,
        };
        Self {
            bytes,
            at: 0,
            shift: 0,
            taken: ArrayVec::new_const(),
            padding,
        }
    }

    /// Writes the message as one of type RDMA_MSGP.
    #[must_use]
    pub const fn padded(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Position in the whole stream: written bytes, including items left out and their round-up,
    /// without alignment pads.
    #[must_use]
    pub const fn stream_position(&self) -> usize {
        self.at.wrapping_add(self.shift)
    }

    /// Bytes left in the slice.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What has been written.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.bytes.get(..self.at).unwrap_or_default()
    }

    /// The items left out, with their exact lengths and their positions in the stream.
    #[must_use]
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Discards all that was written from `position` on. That part must not have items that were
    /// left out.
    pub const fn rewind(&mut self, position: usize) {
        if position < self.at {
            self.at = position;
        }
    }

    #[inline]
    fn room(&mut self, length: usize) -> Result<&mut [u8]> {
        let end = self.at.checked_add(length).ok_or(Error::Full)?;
        let room = self.bytes.get_mut(self.at..end).ok_or(Error::Full)?;
        self.at = end;
        Ok(room)
    }

    /// Bytes as they are, without pad.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn zeros(&mut self, length: usize) -> Result<()> {
        self.room(length)?.fill(0);
        Ok(())
    }

    /// A value whose encodings all have one length, so that the space is checked once.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn fixed<T: FixedLength>(&mut self, value: &T) -> Result<()> {
        value.put(self.room(T::LENGTH)?);
        Ok(())
    }

    /// An unsigned integer.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<()> {
        self.fixed(&value)
    }

    /// Several unsigned integers, for which there is one check of the room.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn words<const N: usize>(&mut self, values: [u32; N]) -> Result<()> {
        let (words, _) = self.room(4 * N)?.as_chunks_mut();
        if let Some(words) = words.first_chunk_mut::<N>() {
            // `map` is not always compiled in line.
            let mut at = 0;
            while at < N {
                words[at] = values[at].to_be_bytes();
                at += 1;
            }
        }
        Ok(())
    }

    /// A signed integer.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn i32(&mut self, value: i32) -> Result<()> {
        self.fixed(&value)
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<()> {
        self.fixed(&value)
    }

    /// A signed hyper integer.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn i64(&mut self, value: i64) -> Result<()> {
        self.fixed(&value)
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`Error::Full`].
    #[inline]
    pub fn bool(&mut self, value: bool) -> Result<()> {
        self.u32(u32::from(value))
    }

    /// Opaque bytes of a length that the type fixes, with their pad.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn opaque_fixed(&mut self, bytes: &[u8]) -> Result<()> {
        self.raw(bytes)?;
        self.zeros(pad(bytes.len()))
    }

    /// Counted opaque bytes, with their pad.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::TooLong`] for 2^32 bytes or more.
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<()> {
        self.u32(u32::try_from(bytes.len()).map_err(|_| Error::TooLong)?)?;
        if bytes.is_empty() && self.padding.align < 2 {
            return Ok(());
        }
        let align = self.padding.before(bytes.len(), self.at);
        self.zeros(align)?;
        self.shift = self.shift.wrapping_sub(align);
        self.opaque_fixed(bytes)
    }

    /// Counted opaque bytes, or only their length word if the data is outside of the stream.
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque); [`Error::TooLong`] also if the stream grows beyond 2^32 bytes,
    /// or has more than [`ITEMS_MAX`] items outside of it;
    /// [`Error::Value`] if the length is not that of the data in the stream.
    pub fn bulk(&mut self, bulk: &Bulk<'_>) -> Result<()> {
        match bulk.data {
            Data::Inline(bytes) if bytes.len() == bulk.length as usize => self.opaque(bytes),
            Data::Inline(_) => Err(Error::Value),
            Data::Apart(_) => {
                self.u32(bulk.length)?;
                let position = u32::try_from(self.stream_position()).map_err(|_| Error::TooLong)?;
                let length = bulk.length;
                let item = Taken { position, length };
                self.taken.try_push(item).map_err(|_| Error::TooLong)?;
                let rounded = round_up(u64::from(bulk.length));
                let rounded = usize::try_from(rounded).map_err(|_| Error::TooLong)?;
                self.shift = self.shift.wrapping_add(rounded);
                Ok(())
            }
        }
    }

    /// Overwrites the word at `position`, which must have been written before.
    ///
    /// # Errors
    /// [`Error::Full`] if it has not.
    pub fn patch_u32(&mut self, position: usize, value: u32) -> Result<()> {
        let end = position.checked_add(4).ok_or(Error::Full)?;
        if end > self.at {
            return Err(Error::Full);
        }
        let word = self.bytes.get_mut(position..end).ok_or(Error::Full)?;
        word.copy_from_slice(&value.to_be_bytes());
        Ok(())
    }
}
