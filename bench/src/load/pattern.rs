//! Data that tells where it belongs.

use millrace_mempool::Slice;

/// The bytes of a file: every eight bytes are a mix of their offset and a seed, so that data of
/// another place or another file does not pass for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The pattern of one file.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn word(self, index: u64) -> [u8; 8] {
        // The finalizer of SplitMix64.
        let mut word = (index ^ self.seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    }

    /// Fills `bytes` as those from `offset` on.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let skip = (offset % 8) as usize;
        let mut index = offset / 8;
        let (head, rest) = bytes.split_at_mut(bytes.len().min((8 - skip) % 8));
        if !head.is_empty() {
            head.copy_from_slice(&self.word(index)[skip..skip + head.len()]);
            index += 1;
        }
        for chunk in rest.chunks_mut(8) {
            chunk.copy_from_slice(&self.word(index)[..chunk.len()]);
            index += 1;
        }
    }

    /// Fills memory as the bytes from `offset` on. `scratch` is of at least as many bytes.
    pub fn fill_slice(self, offset: u64, slice: &Slice, scratch: &mut [u8]) {
        let scratch = &mut scratch[..slice.len()];
        self.fill(offset, scratch);
        slice.copy_from(0, scratch);
    }

    /// Whether memory holds the bytes from `offset` on. `scratch` is twice as long.
    pub fn holds(self, offset: u64, slice: &Slice, scratch: &mut [u8]) -> bool {
        let (expected, found) = scratch.split_at_mut(slice.len());
        let found = &mut found[..slice.len()];
        self.fill(offset, expected);
        slice.copy_to(0, found);
        expected == found
    }
}

/// Reads a pattern, up to an end.
pub struct PatternReader {
    pub pattern: Pattern,
    /// Offset of the next byte.
    pub at: u64,
    pub end: u64,
}

impl std::io::Read for PatternReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        self.pattern.fill(self.at, &mut buffer[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

/// Compares what is written with a pattern.
pub struct PatternChecker {
    pub pattern: Pattern,
    /// Offset of the next byte.
    pub at: u64,
    /// Whether all was the pattern so far.
    pub same: bool,
    pub scratch: Vec<u8>,
}

impl std::io::Write for PatternChecker {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.scratch.resize(buffer.len(), 0);
        self.pattern.fill(self.at, &mut self.scratch);
        self.same &= self.scratch == buffer;
        self.at += buffer.len() as u64;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn any_cut_of_the_pattern_is_the_same_bytes() {
        let mut whole = [0; 100];
        Pattern::new(5).fill(0, &mut whole);
        for start in 0..40_usize {
            for length in 0..40 {
                let mut part = vec![0; length];
                Pattern::new(5).fill(start as u64, &mut part);
                assert_eq!(part, whole[start..start + length], "{start} {length}");
            }
        }
        let mut other = [0; 100];
        Pattern::new(6).fill(0, &mut other);
        assert_ne!(whole, other);
    }
}
