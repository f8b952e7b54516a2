//! Pieces of memory: getting them, cutting them and copying between them.

use millrace_mempool::{Buffer, Class, Pool, Slice};

/// Fresh memory of so many bytes.
pub(super) fn buffers(pool: &Pool, mut length: usize) -> Option<Vec<Slice>> {
    let mut slices = Vec::new();
    while length > 0 {
        let part = length.min(Class::Large.size());
        slices.push(
            pool.try_acquire(Class::for_size(part)?)?
                .into_slice(0..part),
        );
        length -= part;
    }
    Some(slices)
}

/// A copy of the pieces, one behind the other.
pub(super) fn collect(pool: &Pool, pieces: &[Slice]) -> Option<Vec<Slice>> {
    let copy = buffers(pool, pieces.iter().map(Slice::len).sum())?;
    copy_pieces(pieces, &copy);
    Some(copy)
}

/// Copies from pieces to pieces, until one side ends.
pub(super) fn copy_pieces(from: &[Slice], to: &[Slice]) {
    let mut to = to.iter();
    let mut target = to.next();
    let mut offset = 0;
    for source in from {
        let mut done = 0;
        while done < source.len() {
            let Some(slice) = target else { return };
            let part = (source.len() - done).min(slice.len() - offset);
            slice.copy_from_slice(offset, source, done..done + part);
            done += part;
            offset += part;
            if offset == slice.len() {
                target = to.next();
                offset = 0;
            }
        }
    }
}

/// The part of some memory from one place to another.
pub(super) fn range(
    memory: &[Slice],
    from: usize,
    to: usize,
) -> impl Iterator<Item = Slice> + Clone + '_ {
    let mut start = 0;
    memory.iter().filter_map(move |slice| {
        let (first, last) = (from.max(start), to.min(start + slice.len()));
        let part = (first < last).then(|| slice.slice(first - start..last - start));
        start += slice.len();
        part
    })
}

/// Copies bytes to a place in some memory.
pub(super) fn put(memory: &[Slice], at: usize, mut bytes: &[u8]) {
    for slice in range(memory, at, at + bytes.len()) {
        let (now, later) = bytes.split_at(slice.len());
        slice.copy_from(0, now);
        bytes = later;
    }
}

/// A reply that was fetched, in one piece.
pub(super) enum Gathered {
    /// In one buffer, which is where it was fetched to.
    Buffer(Buffer, usize),
    /// Joined from several buffers.
    Joined(Vec<u8>),
}

impl Gathered {
    pub fn new(mut memory: Vec<Slice>, length: usize) -> Self {
        if memory.len() == 1
            && let Some(slice) = memory.pop()
        {
            match slice.try_into_buffer() {
                Ok(buffer) => return Self::Buffer(buffer, length),
                Err(slice) => memory.push(slice),
            }
        }
        let mut bytes = vec![0; length];
        let mut at = 0;
        for slice in range(&memory, 0, length) {
            slice.copy_to(0, &mut bytes[at..at + slice.len()]);
            at += slice.len();
        }
        Self::Joined(bytes)
    }

    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Buffer(buffer, length) => buffer.get_mut(..*length),
            Self::Joined(bytes) => Some(bytes),
        }
    }
}
