//! Registered memory for the stream, and the scattered receive into it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use millrace_iwarp::{Direct, DirectTarget, Memory};
use millrace_mempool::{Buffer, Slice};

use crate::fabric::Slices;
use crate::gather::GatheredWrite;

/// Entries of one scattered receive: the pieces of one payload and the common buffer.
const SCATTER_MAX: usize = crate::fabric::SLICES_MAX + 1;

/// The memory of work requests, exposures and receives.
pub(super) struct Registered;

/// Iterates over the pieces of a range in each slice: slice, offset in it, length.
fn pieces(
    local: &Slices,
    offset: usize,
    length: usize,
) -> impl Iterator<Item = (&Slice, usize, usize)> {
    let mut skip = offset;
    let mut left = length;
    local.iter().filter_map(move |slice| {
        let begin = skip.min(slice.len());
        skip -= begin;
        let count = left.min(slice.len() - begin);
        left -= count;
        (count > 0).then_some((slice, begin, count))
    })
}

impl Memory for Registered {
    type Local = Slices;
    type Receive = Buffer;

    #[inline]
    fn length(local: &Slices) -> usize {
        match &local[..] {
            [slice] => slice.len(),
            slices => slices.iter().map(Slice::len).sum(),
        }
    }

    #[inline(always)] // One slice, the common case, is then moved once.
    fn hand_over(from: &mut Slices, to: &mut Slices) {
        // One slice, the common case, is moved directly: a drain costs several times as much.
        if from.len() > 1 {
            to.extend(from.drain(..));
        } else if let Some(slice) = from.pop() {
            to.push(slice);
        }
    }

    fn place(local: &Slices, offset: usize, bytes: &[u8]) {
        if let [slice] = &local[..] {
            slice.copy_from(offset, bytes);
            return;
        }
        let mut rest = bytes;
        for (slice, begin, count) in pieces(local, offset, bytes.len()) {
            let (now, later) = rest.split_at(count);
            slice.copy_from(begin, now);
            rest = later;
        }
        assert!(rest.is_empty(), "inside the memory");
    }

    fn fetch(local: &Slices, offset: usize, bytes: &mut [u8]) {
        if let [slice] = &local[..] {
            slice.copy_to(offset, bytes);
            return;
        }
        let length = bytes.len();
        let mut rest = bytes;
        for (slice, begin, count) in pieces(local, offset, length) {
            let (now, later) = rest.split_at_mut(count);
            slice.copy_to(begin, now);
            rest = later;
        }
        assert!(rest.is_empty(), "inside the memory");
    }

    fn capacity(receive: &Buffer) -> usize {
        receive.capacity()
    }

    fn fill(receive: &mut Buffer, offset: usize, bytes: &[u8]) {
        receive[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// Adds a range of registered memory to a gathered write; `false` if not all of it fits.
pub(super) fn gather<'a>(
    write: &mut GatheredWrite<'a>,
    local: &'a Slices,
    offset: usize,
    length: usize,
) -> bool {
    if let [slice] = &local[..] {
        return write.add_slice(slice, offset..offset + length);
    }
    pieces(local, offset, length)
        .all(|(slice, begin, count)| write.add_slice(slice, begin..begin + count))
}

/// A scattered receive being prepared.
pub(super) struct Scatter<'a> {
    vectors: ArrayVec<libc::iovec, SCATTER_MAX>,
    bytes: usize,
    sinks: PhantomData<&'a mut [u8]>,
}

impl<'a> Scatter<'a> {
    pub(super) fn new() -> Self {
        Self {
            vectors: ArrayVec::new(),
            bytes: 0,
            sinks: PhantomData,
        }
    }

    /// Bytes of its ranges.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the destination of the rest of a payload.
    pub(super) fn add_direct(&mut self, direct: Direct<'a, Slices, Buffer>) {
        let Direct {
            target,
            offset,
            length,
            ..
        } = direct;
        match target {
            DirectTarget::Receive(buffer) => self.add_bytes(&mut buffer[offset..offset + length]),
            DirectTarget::Local(local) => {
                for (slice, begin, count) in pieces(local, offset, length) {
                    self.add(slice.as_ptr().wrapping_add(begin), count);
                }
            }
        }
    }

    /// Adds plain bytes.
    pub(super) fn add_bytes(&mut self, bytes: &'a mut [u8]) {
        self.add(bytes.as_mut_ptr(), bytes.len());
    }

    fn add(&mut self, base: *mut u8, length: usize) {
        self.vectors.push(libc::iovec {
            iov_base: base.cast(),
            iov_len: length,
        });
        self.bytes += length;
    }

    /// Fills the ranges in order with received bytes; 0 is the end of the stream. One range is
    /// received without a message header, which the kernel does sooner.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let (socket, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
        let received = if let [one] = &self.vectors[..] {
            // SAFETY: the entry is a range of `'a` as those below are, and the kernel does the same
            // with it.
            unsafe { libc::recv(socket, one.iov_base, one.iov_len, flags) }
        } else {
            // SAFETY: a message header of zeros is a valid one without address and control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = self.vectors.as_mut_ptr();
            message.msg_iovlen = self.vectors.len() as _;
            // SAFETY: every entry is a range of `'a`: plain bytes borrowed exclusively for it, or a
            // range within a slice borrowed for it, which keeps its mapping alive and to whose
            // bytes there are no references. The kernel has finished when the call returns.
            unsafe { libc::recvmsg(socket, &raw mut message, flags) }
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}
