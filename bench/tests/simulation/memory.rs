//! A client's memory with a border that nobody may touch.

use millrace_mempool::{Class, Pool, Slice};

use super::dice::Dice;

/// What stands around the data.
const BORDER: u8 = 0xc5;
/// Most bytes before the data.
const FRONT: usize = 61;

/// A buffer, a part of which is offered.
pub struct Memory {
    whole: Slice,
    start: usize,
    length: usize,
    /// The part, in pieces.
    pub pieces: Vec<Slice>,
}

impl Memory {
    /// Room for `length` bytes, if there is any.
    pub fn new(pool: &Pool, dice: &mut Dice, length: usize) -> Option<Self> {
        let class = Class::for_size(length + 2 * FRONT)?;
        let mut buffer = pool.try_acquire(class)?;
        let size = length + 2 * FRONT;
        buffer[..size].fill(BORDER);
        let whole = buffer.into_slice(0..size);
        let start = dice.below(FRONT);
        let mut cuts = vec![start, start + length];
        if length > 0 {
            for _ in 0..dice.pick(&[0, 0, 1, 4]) {
                cuts.push(start + dice.below(length));
            }
        }
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| whole.slice(cut[0]..cut[1]));
        let pieces = pieces.collect();
        Some(Self {
            whole,
            start,
            length,
            pieces,
        })
    }

    /// Puts bytes into the part.
    pub fn fill(&self, bytes: &[u8]) {
        self.whole.copy_from(self.start, bytes);
    }

    /// The front of the part.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length.min(self.length)];
        self.whole.copy_to(self.start, &mut bytes);
        bytes
    }

    /// Whether the border is as it was.
    pub fn is_whole(&self) -> bool {
        let mut bytes = vec![0; self.whole.len()];
        self.whole.copy_to(0, &mut bytes);
        let (front, back) = (&bytes[..self.start], &bytes[self.start + self.length..]);
        front.iter().chain(back).all(|byte| *byte == BORDER)
    }
}
