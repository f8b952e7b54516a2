//! Gathered writes of plain bytes and registered memory to a socket.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use millrace_mempool::Slice;

/// Entries of one gathered write: the kernel's limit (`UIO_MAXIOV`).
const GATHER_MAX: usize = 1024;

/// A gathered write being prepared.
#[derive(Debug)]
pub struct GatheredWrite<'a> {
    vectors: ArrayVec<libc::iovec, GATHER_MAX>,
    bytes: usize,
    most: usize,
    sources: PhantomData<&'a [u8]>,
}

impl<'a> GatheredWrite<'a> {
    /// An empty one, with space for this number of bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            vectors: ArrayVec::new(),
            bytes: 0,
            most,
            sources: PhantomData,
        }
    }

    /// Bytes gathered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds plain bytes; `false` if there is no space for all of them.
    pub fn add_bytes(&mut self, bytes: &'a [u8]) -> bool {
        self.add(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Adds a range of a slice; `false` if there is no space for all of it.
    ///
    /// # Panics
    /// If the range is not within the slice.
    pub fn add_slice(&mut self, slice: &'a Slice, range: Range<usize>) -> bool {
        assert!(range.start <= range.end && range.end <= slice.len());
        self.add(slice.as_ptr().wrapping_add(range.start), range.len())
    }

    fn add(&mut self, base: *mut u8, length: usize) -> bool {
        let part = length.min(self.most - self.bytes);
        let vector = libc::iovec {
            iov_base: base.cast(),
            iov_len: part,
        };
        let fits = self.vectors.try_push(vector).is_ok();
        if fits {
            self.bytes += part;
        }
        fits && part == length
    }

    /// Passes everything to the kernel, which copies it, without waiting. Returns the number of
    /// bytes accepted.
    ///
    /// # Errors
    /// Those of `send` and `sendmsg`; [`io::ErrorKind::WouldBlock`] if the socket accepts nothing
    /// now.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let (socket, flags) = (socket.as_raw_fd(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        // One entry is sent without a message header, which the kernel does sooner.
        let sent = if let [one] = &self.vectors[..] {
            // SAFETY: the entry is a range of `'a` as those below are, and the kernel does the same
            // with it.
            unsafe { libc::send(socket, one.iov_base, one.iov_len, flags) }
        } else {
            // SAFETY: a message header of zeros is a valid one without address and control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = self.vectors.as_mut_ptr();
            message.msg_iovlen = self.vectors.len() as _;
            // SAFETY: every entry is a range of `'a`: plain bytes borrowed for it, or a range
            // within a slice borrowed for it (`add_slice` checks), which keeps its mapping alive.
            // The kernel only reads them, and has finished when the call returns; concurrent
            // changes of registered memory are harmless.
            unsafe { libc::sendmsg(socket, &raw const message, flags) }
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
