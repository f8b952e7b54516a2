//! Copies between lists of slices.

use millrace_mempool::Slice;

/// The number of bytes of a list.
pub(super) fn length<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> usize {
    slices.into_iter().map(Slice::len).sum()
}

/// Copies all of `from` to the front of `to`, which must be large enough.
pub(super) fn gather(from: &[Slice], to: &mut [u8]) {
    let mut filled = 0;
    for slice in from {
        slice.copy_to(0, &mut to[filled..filled + slice.len()]);
        filled += slice.len();
    }
}

/// Copies all of `from` to offset `to_at` of a list.
///
/// # Panics
/// If the list is too short.
pub(super) fn fill(to: &[Slice], mut to_at: usize, mut from: &[u8]) {
    for slice in to {
        let skip = to_at.min(slice.len());
        to_at -= skip;
        let step = from.len().min(slice.len() - skip);
        slice.copy_from(skip, &from[..step]);
        from = &from[step..];
    }
    assert!(from.is_empty(), "enough room");
}

/// Copies `length` bytes from offset `from_at` of one list to offset `to_at` of another.
///
/// # Panics
/// If either list is too short.
pub(super) fn copy<'a>(
    (from, mut from_at): (impl IntoIterator<Item = &'a Slice>, usize),
    (to, mut to_at): (impl IntoIterator<Item = &'a Slice>, usize),
    mut length: usize,
) {
    let (mut sources, mut sinks) = (from.into_iter(), to.into_iter());
    let (mut source, mut sink) = (sources.next(), sinks.next());
    while length > 0 {
        let (from, to) = (source.expect("enough to copy"), sink.expect("enough room"));
        if from_at >= from.len() {
            from_at -= from.len();
            source = sources.next();
        } else if to_at >= to.len() {
            to_at -= to.len();
            sink = sinks.next();
        } else {
            let step = length.min(from.len() - from_at).min(to.len() - to_at);
            to.copy_from_slice(to_at, from, from_at..from_at + step);
            from_at += step;
            to_at += step;
            length -= step;
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};

    use super::{copy, fill, gather, length};

    fn cut(pool: &Pool, bytes: &[u8], lengths: &[usize]) -> Vec<Slice> {
        let mut start = 0;
        let mut buffer = pool.try_acquire(Class::Control).unwrap();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let whole = buffer.into_slice(0..bytes.len());
        let mut part = |&length| {
            start += length;
            whole.slice(start - length..start)
        };
        lengths.iter().map(&mut part).collect()
    }

    #[test]
    fn lists_of_every_cut_are_copied_whole() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 1 }).unwrap();
        for from_cut in [[0, 10, 0], [3, 0, 7], [1, 2, 7], [9, 1, 0]] {
            for to_cut in [[12, 0, 0], [2, 3, 7], [0, 1, 11], [6, 6, 0]] {
                let from = cut(&pool, b"0123456789", &from_cut);
                let to = cut(&pool, b"............", &to_cut);
                assert_eq!((length(&from), length(&to)), (10, 12));
                copy((&from, 2), (&to, 3), 8);
                let mut bytes = [0; 12];
                gather(&to, &mut bytes);
                assert_eq!(&bytes, b"...23456789.");
                copy((&from, 0), (&to, 0), 0);
                fill(&to, 4, b"abcdefg");
                gather(&to, &mut bytes);
                assert_eq!(&bytes, b"...2abcdefg.");
            }
        }
    }
}
