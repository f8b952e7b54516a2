//! The memory that a stream reads and fills, as its user supplies it.

/// How an endpoint touches memory. Every call stays within the lengths that the same memory
/// reported; implementations check that and panic on a breach, which would be a bug of this crate.
pub trait Memory {
    /// Memory of a work request or an exposure: possibly several pieces, addressed as one range. The
    /// default has none.
    type Local: Default;
    /// A posted receive.
    type Receive;

    /// Length of the whole range in bytes.
    fn length(local: &Self::Local) -> usize;

    /// Moves the pieces of `from` into `to`, which has none. Memory with much room for few pieces
    /// does better than to exchange the two.
    fn hand_over(from: &mut Self::Local, to: &mut Self::Local) {
        std::mem::swap(from, to);
    }

    /// Copies `bytes` into the range from `offset` on.
    fn place(local: &Self::Local, offset: usize, bytes: &[u8]);

    /// Copies the range from `offset` on into `bytes`.
    fn fetch(local: &Self::Local, offset: usize, bytes: &mut [u8]);

    /// Size of a posted receive in bytes.
    fn capacity(receive: &Self::Receive) -> usize;

    /// Copies `bytes` into a posted receive from `offset` on.
    fn fill(receive: &mut Self::Receive, offset: usize, bytes: &[u8]);
}
