//! Lists of work requests: filled, posted together, and reused.

use rdma_sys::{
    bind_mw_t, ibv_mw_bind_info, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode,
    rdma_t,
};

use super::memory::{Range, Region, Window};

/// One request for a send queue, without its ranges.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // Flags of the request.
pub struct SendRequest<'a> {
    /// The poster's identifier.
    pub id: u64,
    /// The operation.
    pub kind: SendKind<'a>,
    /// Whether its success completes.
    pub signalled: bool,
    /// Whether the bytes are in the request itself.
    pub inline: bool,
    /// Whether the peer may be woken.
    pub solicited: bool,
    /// Whether it waits for the Reads before it.
    pub fence: bool,
}

/// The operation of a request.
#[derive(Clone, Copy)]
pub enum SendKind<'a> {
    /// A message.
    Send,
    /// A message that invalidates a key of the peer.
    SendInvalidate(u32),
    /// Into the peer's memory.
    Write {
        /// The peer's key.
        key: u32,
        /// The address under the key.
        address: u64,
    },
    /// From the peer's memory.
    Read {
        /// The peer's key.
        key: u32,
        /// The address under the key.
        address: u64,
    },
    /// Opens a window for the peer.
    Bind {
        /// The window.
        window: &'a Window,
        /// The memory.
        region: &'a Region,
        /// Its new key (see [`super::next_window_key`]).
        key: u32,
        /// The first byte, by the region's own addresses.
        address: u64,
        /// Bytes.
        length: u64,
        /// Whether the peer may read.
        remote_read: bool,
        /// Whether the peer may write.
        remote_write: bool,
    },
    /// Closes one of our windows.
    Invalidate(u32),
}

/// Requests for one send queue, in order.
pub struct SendList {
    requests: Vec<ibv_send_wr>,
    ranges: Vec<ibv_sge>,
}

// SAFETY: pointers to requests and ranges are set and used in the posting call alone. Those to
// windows and regions may be used on any thread (rule 3), as long as the contract of
// `QueuePair::post_send` is kept.
unsafe impl Send for SendList {}

impl SendList {
    /// Space for this many requests with this many ranges in total.
    pub fn with_capacity(requests: usize, ranges: usize) -> Self {
        Self {
            requests: Vec::with_capacity(requests),
            ranges: Vec::with_capacity(ranges),
        }
    }

    /// Adds a request.
    pub fn push(&mut self, request: SendRequest<'_>, ranges: impl IntoIterator<Item = Range>) {
        // SAFETY: the structure has numbers, pointers and unions of both, for which zeros are
        // valid.
        let mut raw: ibv_send_wr = unsafe { std::mem::zeroed() };
        raw.wr_id = request.id;
        for (wanted, flag) in [
            (request.signalled, ibv_send_flags::IBV_SEND_SIGNALED),
            (request.inline, ibv_send_flags::IBV_SEND_INLINE),
            (request.solicited, ibv_send_flags::IBV_SEND_SOLICITED),
            (request.fence, ibv_send_flags::IBV_SEND_FENCE),
        ] {
            if wanted {
                raw.send_flags |= flag.0;
            }
        }
        let remote = |key, address| rdma_t {
            remote_addr: address,
            rkey: key,
        };
        match request.kind {
            SendKind::Send => raw.opcode = ibv_wr_opcode::IBV_WR_SEND,
            SendKind::SendInvalidate(key) => {
                raw.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
                raw.imm_data_invalidated_rkey_union.invalidated_rkey = key;
                // siw's library (`push_send_wqe` of providers/siw/siw.c, rdma-core 44) reads the
                // key from here; libraries that read the right field do not use this one.
                raw.wr.rdma = remote(key, 0);
            }
            SendKind::Write { key, address } => {
                raw.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                raw.wr.rdma = remote(key, address);
            }
            SendKind::Read { key, address } => {
                raw.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                raw.wr.rdma = remote(key, address);
            }
            SendKind::Bind {
                window,
                region,
                key,
                address,
                length,
                remote_read,
                remote_write,
            } => {
                raw.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                let flags = super::RegionAccess {
                    remote_read,
                    remote_write,
                    ..super::RegionAccess::default()
                };
                raw.bind_mw_tso_union.bind_mw = bind_mw_t {
                    mw: window.as_ptr(),
                    rkey: key,
                    bind_info: ibv_mw_bind_info {
                        mr: region.as_ptr(),
                        addr: address,
                        length,
                        mw_access_flags: flags.flags(),
                    },
                };
            }
            SendKind::Invalidate(key) => {
                raw.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
                raw.imm_data_invalidated_rkey_union.invalidated_rkey = key;
            }
        }
        let before = self.ranges.len();
        self.ranges.extend(ranges.into_iter().map(|range| range.0));
        raw.num_sge = (self.ranges.len() - before) as i32;
        self.requests.push(raw);
    }

    /// Empties it, keeping its capacity.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.ranges.clear();
    }

    /// Links the requests and their ranges, and returns the first one (null if there is none).
    pub(super) fn link(&mut self) -> *mut ibv_send_wr {
        let ranges = self.ranges.as_mut_ptr();
        let mut range = 0;
        let mut next: *mut ibv_send_wr = std::ptr::null_mut();
        for request in &mut self.requests {
            request.sg_list = ranges.wrapping_add(range);
            range += request.num_sge as usize;
        }
        for request in self.requests.iter_mut().rev() {
            request.next = next;
            next = request;
        }
        next
    }

    /// The index of the request that a pointer into the list refers to.
    pub(super) fn position(&self, request: *const ibv_send_wr) -> usize {
        let all = self.requests.as_ptr_range();
        if !all.contains(&request) {
            return 0;
        }
        (request as usize - all.start as usize) / size_of::<ibv_send_wr>()
    }
}

/// Receives for one queue, in order.
pub struct ReceiveList {
    requests: Vec<ibv_recv_wr>,
    ranges: Vec<ibv_sge>,
}

// SAFETY: the pointers in it are set by `link` and used in the posting call alone.
unsafe impl Send for ReceiveList {}

impl ReceiveList {
    /// With this capacity.
    pub fn with_capacity(requests: usize) -> Self {
        Self {
            requests: Vec::with_capacity(requests),
            ranges: Vec::with_capacity(requests),
        }
    }

    /// Adds a receive.
    pub fn push(&mut self, id: u64, range: Range) {
        self.requests.push(ibv_recv_wr {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 1,
        });
        self.ranges.push(range.0);
    }

    /// Empties it, keeping its capacity.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.ranges.clear();
    }

    /// As [`SendList::link`].
    pub(super) fn link(&mut self) -> *mut ibv_recv_wr {
        let mut next: *mut ibv_recv_wr = std::ptr::null_mut();
        for (request, range) in self.requests.iter_mut().zip(&mut self.ranges).rev() {
            request.sg_list = range;
            request.next = next;
            next = request;
        }
        next
    }

    /// As [`SendList::position`].
    pub(super) fn position(&self, request: *const ibv_recv_wr) -> usize {
        let all = self.requests.as_ptr_range();
        if !all.contains(&request) {
            return 0;
        }
        (request as usize - all.start as usize) / size_of::<ibv_recv_wr>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(number: u32) -> Range {
        Range(ibv_sge {
            addr: u64::from(number) << 12,
            length: number,
            lkey: 7,
        })
    }

    fn request(id: u64, kind: SendKind<'_>) -> SendRequest<'_> {
        SendRequest {
            id,
            kind,
            signalled: id.is_multiple_of(2),
            inline: false,
            solicited: false,
            fence: false,
        }
    }

    #[test]
    fn requests_are_linked_in_order_with_their_own_ranges() {
        let mut list = SendList::with_capacity(4, 8);
        for round in 0..2 {
            let write = SendKind::Write {
                key: 5,
                address: u64::MAX,
            };
            list.push(request(1, write), [range(1), range(2)]);
            list.push(request(2, SendKind::SendInvalidate(9)), [range(3)]);
            list.push(request(3, SendKind::Send), []);
            let mut next = list.link();
            let mut seen = Vec::new();
            while !next.is_null() {
                assert_eq!(list.position(next), seen.len());
                // SAFETY: `link` made it a pointer into the list, which is not changed in between.
                let found = unsafe { &*next };
                let lengths = (0..found.num_sge as usize)
                    // SAFETY: `link` gives each request as many ranges of the list as it counts.
                    .map(|index| unsafe { (*found.sg_list.add(index)).length });
                seen.push((found.wr_id, found.send_flags, lengths.collect::<Vec<_>>()));
                next = found.next;
            }
            assert_eq!(
                seen,
                [(1, 0, vec![1, 2]), (2, 2, vec![3]), (3, 0, vec![])],
                "round {round}"
            );
            list.clear();
            assert!(list.link().is_null());
        }
    }

    #[test]
    fn the_key_to_invalidate_is_where_each_library_looks() {
        let mut list = SendList::with_capacity(1, 1);
        list.push(request(1, SendKind::SendInvalidate(9)), [range(1)]);
        // SAFETY: `link` made it a pointer into the list, which is not changed in between.
        let raw = unsafe { &*list.link() };
        // SAFETY: `push` wrote both variants, and any bits are a number.
        let keys = unsafe {
            (
                raw.imm_data_invalidated_rkey_union.invalidated_rkey,
                raw.wr.rdma.rkey,
            )
        };
        assert_eq!(keys, (9, 9));
    }

    #[test]
    fn receives_are_linked_in_order() {
        let mut list = ReceiveList::with_capacity(2);
        list.push(1, range(1));
        list.push(2, range(2));
        let first = list.link();
        // SAFETY: `link` made both pointers into the list, which is not changed in between.
        let (one, two) = unsafe { (&*first, &*(*first).next) };
        assert_eq!((one.wr_id, two.wr_id), (1, 2));
        assert_eq!(list.position(two), 1);
        assert!(two.next.is_null());
        // SAFETY: `link` gave it one range of the list.
        assert_eq!(unsafe { (*two.sg_list).length }, 2);
    }
}
