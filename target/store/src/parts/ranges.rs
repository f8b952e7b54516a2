//! Ranges of files: their space, holes and copies within a store.

use crate::{Caller, Handle, Modified, Result, Stability, WriteVerifier};

/// What [`FileRanges::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeContent {
    /// Bytes that have been written, or may have been.
    Data,
    /// Bytes without storage, which read as zeros. There is one behind the end of each file.
    Hole,
}

/// Where [`FileRanges::seek`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRange {
    /// First byte of what was looked for; the size of the file where there is none.
    pub offset: u64,
    /// Whether that is the end of the file.
    pub end_of_file: bool,
}

/// What a copy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedRange {
    /// Bytes copied, from the first one on; fewer than asked for if the copy took too long.
    pub length: u64,
    /// How durable they are.
    pub stability: Stability,
    /// The verifier.
    pub verifier: WriteVerifier,
}

/// How a file will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageAdvice {
    /// In no particular way.
    Normal,
    /// In ascending order.
    Sequential,
    /// In no order.
    Random,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
}

part! { $
/// Ranges of files. A store answers [`StoreError::NotSupported`](crate::StoreError::NotSupported)
/// to what it, or the file system below it, cannot do.
pub trait FileRanges, forwarded by forward_file_ranges, with {} {
    /// Takes the space for a range, so that writes to it do not fail for lack of space. The file
    /// grows to the end of the range. Without space enough nothing changes.
    async fn allocate(&self, caller: &Caller, file: Handle, offset: u64, length: u64) -> Modified<()>;

    /// Makes a range read as zeros and releases its space, as far as it is whole units of it. The
    /// size stays.
    async fn deallocate(&self, caller: &Caller, file: Handle, offset: u64, length: u64) -> Modified<()>;

    /// Finds the next data or hole at or behind an offset. At the end of the file or behind:
    /// [`StoreError::NoDevice`](crate::StoreError::NoDevice).
    async fn seek(&self, caller: &Caller, file: Handle, offset: u64, content: RangeContent) -> Result<FoundRange>;

    /// Makes a range of a file share the storage of a range of another file or of the same one:
    /// all of it or nothing. Offsets and length are multiples of
    /// [`Properties::clone_block`](crate::Properties::clone_block), but for a length that reaches
    /// the end of the source. The ranges do not overlap.
    async fn clone_range(&self, caller: &Caller, from: (Handle, u64), to: (Handle, u64), length: u64) -> Modified<()>;

    /// Copies bytes within the store, from the first on, as many as it can in a short time. The
    /// range is inside of the source, and the files are different.
    async fn copy_range(&self, caller: &Caller, from: (Handle, u64), to: (Handle, u64), length: u64) -> Modified<CopiedRange>;

    /// Tells how a range will be used; zero bytes are all to the end. Whether the store makes use
    /// of that.
    async fn advise(&self, caller: &Caller, file: Handle, offset: u64, length: u64, advice: UsageAdvice) -> Result<bool>;
}
}
