//! How much the server moves in one call.

use std::borrow::Cow;

use millrace_mempool::{Class, Slice};
use millrace_wire::nfs3::{FileHandle, FsinfoOk, Procedure};

use super::{Error, Session};
use crate::requester::PROTECTED_DATA_MAX;

/// Sizes of READ and WRITE that a server told by FSINFO (RFC 1813 section 3.3.19).
///
/// RDMA does not change them: a server may refuse chunks for more, and Linux's does, with
/// ERR_CHUNK instead of a short READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Most bytes of a READ.
    pub read_max: usize,
    /// Best size of a READ in bytes.
    pub read_preferred: usize,
    /// Most bytes of a WRITE.
    pub write_max: usize,
    /// Best size of a WRITE in bytes.
    pub write_preferred: usize,
}

impl Transfer {
    /// The sizes in an answer, at most so large. `None` if there is a zero.
    fn new(info: &FsinfoOk, most: usize) -> Option<Self> {
        let size = |told: u32| (told > 0).then_some((told as usize).min(most));
        let (read_max, write_max) = (size(info.read_max)?, size(info.write_max)?);
        Some(Self {
            read_max,
            read_preferred: size(info.read_preferred).map_or(read_max, |size| size.min(read_max)),
            write_max,
            write_preferred: size(info.write_preferred)
                .map_or(write_max, |size| size.min(write_max)),
        })
    }
}

impl Session {
    /// Asks the server for its sizes, unless that was done before. From then on READ and WRITE
    /// keep to them.
    ///
    /// # Errors
    /// Those of FSINFO; [`Error::Protocol`] if the server would move nothing.
    pub fn transfer(&mut self, object: FileHandle) -> Result<Transfer, Error> {
        if let Some(transfer) = self.transfer {
            return Ok(transfer);
        }
        let context = self.connection.context();
        let most = match context.is_some_and(|context| context.protects_bodies()) {
            true => PROTECTED_DATA_MAX,
            false => Class::Large.size(),
        };
        let transfer = Transfer::new(&self.fsinfo(object)?, most).ok_or(Error::Protocol {
            procedure: Procedure::Fsinfo,
            what: "a transfer size of zero",
        })?;
        self.transfer = Some(transfer);
        Ok(transfer)
    }

    /// Keeps to sizes that another session has asked for.
    pub const fn keep_to(&mut self, transfer: Transfer) {
        self.transfer = Some(transfer);
    }

    /// The front of the memory, as far as one READ may fill it.
    pub(super) fn readable<'a>(&self, room: &'a [Slice]) -> Cow<'a, [Slice]> {
        front(room, self.transfer.map(|transfer| transfer.read_max))
    }

    /// The front of the memory, as far as one WRITE may carry it.
    pub(super) fn writable<'a>(&self, data: &'a [Slice]) -> Cow<'a, [Slice]> {
        front(data, self.transfer.map(|transfer| transfer.write_max))
    }
}

fn front(slices: &[Slice], most: Option<usize>) -> Cow<'_, [Slice]> {
    let total: usize = slices.iter().map(Slice::len).sum();
    let Some(mut left) = most.filter(|&most| total > most) else {
        return Cow::Borrowed(slices);
    };
    let mut kept = Vec::new();
    for slice in slices {
        let length = slice.len().min(left);
        kept.push(slice.slice(0..length));
        left -= length;
        if left == 0 {
            break;
        }
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
    use millrace_wire::nfs3::Time;

    use super::*;

    fn info(read: (u32, u32), write: (u32, u32)) -> FsinfoOk {
        FsinfoOk {
            attributes: None,
            read_max: read.0,
            read_preferred: read.1,
            read_multiple: 1,
            write_max: write.0,
            write_preferred: write.1,
            write_multiple: 1,
            readdir_preferred: 4096,
            max_file_size: u64::MAX,
            time_delta: Time {
                seconds: 0,
                nanoseconds: 1,
            },
            properties: 0,
        }
    }

    #[test]
    fn sizes_are_bounded_by_the_buffer_and_by_each_other() {
        let transfer = Transfer::new(&info((262_144, 1 << 30), (1 << 30, 0)), 1 << 20);
        assert_eq!(
            transfer,
            Some(Transfer {
                read_max: 262_144,
                read_preferred: 262_144,
                write_max: 1 << 20,
                write_preferred: 1 << 20,
            })
        );
        assert_eq!(Transfer::new(&info((0, 0), (4096, 4096)), 1 << 20), None);
        assert_eq!(Transfer::new(&info((4096, 4096), (0, 0)), 1 << 20), None);
    }

    #[test]
    fn the_front_of_memory_ends_at_the_limit() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
        let whole = pool.try_acquire(Class::Medium).expect("a buffer");
        let whole = whole.into_slice(0..1000);
        let pieces = [whole.slice(0..300), whole.slice(300..600), whole];
        let lengths = |most| {
            let front = front(&pieces, most);
            front.iter().map(Slice::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(None), [300, 300, 1000]);
        assert_eq!(lengths(Some(1600)), [300, 300, 1000]);
        assert_eq!(lengths(Some(1599)), [300, 300, 999]);
        assert_eq!(lengths(Some(600)), [300, 300]);
        assert_eq!(lengths(Some(1)), [1]);
    }
}
