//! Transfers by a ring of the kernel (io_uring), with registered memory.
//!
//! The ring owns the resources of its operations until the kernel has completed them, so it is safe
//! whatever its user does in the meantime.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use millrace_mempool::{Arena, RegionId, Slice};
use rustix::event::{EventfdFlags, eventfd};

use super::work::{HeldResources, Work, WorkEntry};

/// Slots for registered memory. Each takes a piece of an arena.
const BUFFERS: u32 = 4096;

/// The most bytes of one piece in the kernel.
const PIECE: usize = 1 << 30;

/// A ring, with at most one operation in progress per slot.
pub struct Ring {
    io: IoUring,
    /// By slot. Invariant: everything that the kernel may use is here.
    held: Box<[Option<HeldResources>]>,
    /// Completions; `taken` of them have been taken.
    completed: Vec<(usize, i32)>,
    taken: usize,
    arenas: Vec<Registered>,
    /// Whether the kernel has a table for registered memory.
    table: bool,
    /// The size of its pieces.
    piece: usize,
    /// Readable when the kernel has something for a sleeper. The ring's own descriptor is not, as
    /// completions are processed by this thread only.
    bell: OwnedFd,
    armed: bool,
    #[cfg(test)]
    recorded: tests::RecordedCalls,
}

/// An arena registered with the kernel.
struct Registered {
    region: RegionId,
    arena: Weak<Arena>,
    base: usize,
    first: u16,
    pieces: u16,
}

impl Ring {
    /// A ring for this thread, with this number of slots (32768 at most). `alone`: no other thread
    /// registers identities with it ([`Ring::registry`]).
    ///
    /// # Errors
    /// The system has no rings, forbids them, or lacks required features.
    pub fn new(places: u32, alone: bool) -> io::Result<Self> {
        let mut io = build(places.max(1).next_power_of_two(), alone)?;
        let mut probe = Probe::new();
        io.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        io.submitter().register_eventfd(bell.as_raw_fd())?;
        io.completion().disable_eventfd();
        let table = io.submitter().register_buffers_sparse(BUFFERS).is_ok();
        Ok(Self {
            completed: Vec::with_capacity(io.params().cq_entries() as usize),
            io,
            held: (0..places).map(|_| None).collect(),
            taken: 0,
            arenas: Vec::new(),
            table,
            piece: PIECE,
            bell,
            armed: false,
            #[cfg(test)]
            recorded: tests::RecordedCalls::default(),
        })
    }

    /// Registers an arena, so that its pages need not be looked up and pinned by each operation.
    /// Unregistered memory can be used too.
    ///
    /// # Errors
    /// The table is full, or the kernel may not pin this much (RLIMIT_MEMLOCK).
    pub fn register(&mut self, arena: &Arc<Arena>) -> io::Result<()> {
        self.forget_dead_arenas();
        if self.arenas.iter().any(|known| known.region == arena.id()) {
            return Ok(());
        }
        if !self.table {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let base = arena.base().as_ptr() as usize;
        let starts = (0..arena.len()).step_by(self.piece);
        let pieces: Vec<libc::iovec> = starts
            .map(|start| libc::iovec {
                iov_base: (base + start) as *mut libc::c_void,
                iov_len: self.piece.min(arena.len() - start),
            })
            .collect();
        let count = u16::try_from(pieces.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let first = self.room(count).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the pieces are the arena, which is mapped now. The kernel pins its pages until
        // they are replaced or the ring is dropped. An operation names them only together with a
        // slice of the arena that it holds, so the addresses are still those of the arena.
        let outcome = unsafe {
            self.io
                .submitter()
                .register_buffers_update(first.into(), &pieces, None)
        };
        if let Err(error) = outcome {
            self.clear(first, count);
            return Err(error);
        }
        self.arenas.push(Registered {
            region: arena.id(),
            arena: Arc::downgrade(arena),
            base,
            first,
            pieces: count,
        });
        Ok(())
    }

    /// Unregisters the pages of dropped arenas. No operation uses them, since it would hold the
    /// arena.
    fn forget_dead_arenas(&mut self) {
        let mut index = 0;
        while let Some(known) = self.arenas.get(index) {
            if known.arena.strong_count() > 0 {
                index += 1;
                continue;
            }
            let (first, pieces) = (known.first, known.pieces);
            self.arenas.swap_remove(index);
            self.clear(first, pieces);
        }
    }

    fn clear(&self, first: u16, pieces: u16) {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let empty = vec![none; pieces.into()];
        // SAFETY: empty slots refer to nothing. No operation uses what they held before.
        let _ = unsafe {
            self.io
                .submitter()
                .register_buffers_update(first.into(), &empty, None)
        };
    }

    /// The first of `count` consecutive free slots of the table.
    fn room(&self, count: u16) -> Option<u16> {
        let mut taken: Vec<_> = self.arenas.iter().map(|a| (a.first, a.pieces)).collect();
        taken.sort_unstable();
        let mut start = 0;
        for (first, pieces) in taken {
            if first - start >= count {
                break;
            }
            start = first + pieces;
        }
        (u32::from(start) + u32::from(count) <= BUFFERS).then_some(start)
    }

    /// Sets how many threads of the kernel may wait for devices on behalf of this thread's rings.
    ///
    /// # Errors
    /// The kernel does not support this limit (before Linux 5.15).
    pub fn set_workers(&self, most: u32) -> io::Result<()> {
        self.io
            .submitter()
            .register_iowq_max_workers(&mut [most, 0])
    }

    /// Sets the cores of those threads. They run on any core otherwise.
    ///
    /// # Errors
    /// The kernel does not support this (before Linux 5.14).
    pub fn set_worker_cores(&self, cores: &[usize]) -> io::Result<()> {
        // SAFETY: a set of cores is an array of numbers, all of which may be zero.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &core in cores
            .iter()
            .filter(|&&core| core < libc::CPU_SETSIZE as usize)
        {
            // SAFETY: the core is within the set.
            unsafe { libc::CPU_SET(core, &mut set) };
        }
        self.io.submitter().register_iowq_aff(&set)
    }

    /// Registers the current rights of this thread under a number, for operations.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn register_personality(&self) -> io::Result<u16> {
        self.io.submitter().register_personality()
    }

    /// Has other threads register their rights.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn registry(&self) -> io::Result<RingRegistry> {
        // SAFETY: the descriptor is open as long as the ring, which is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.io.as_raw_fd()) };
        ring.try_clone_to_owned().map(RingRegistry)
    }

    /// Unregisters those rights. Submitted operations keep them.
    pub fn unregister_personality(&self, personality: u16) {
        if let Err(error) = self.io.submitter().unregister_personality(personality) {
            tracing::warn!(%error, personality, "a ring does not forget an identity");
        }
    }

    /// Queues an operation, in a free slot, with the rights of a personality (0: this thread's
    /// own). Returns the number of bytes of the entry that it covers.
    ///
    /// # Panics
    /// If the slot is taken or does not exist, or if the entry reaches beyond its slice.
    pub fn push(
        &mut self,
        place: usize,
        held: HeldResources,
        entry: &WorkEntry,
        personality: u16,
    ) -> usize {
        assert!(self.held[place].is_none(), "one operation for each place");
        let (operation, length) = self.operation(&held, entry);
        let operation = operation.user_data(place as u64).personality(personality);
        #[cfg(test)]
        self.recorded.begin(&operation, &held.file);
        self.held[place] = Some(held);
        // SAFETY: file and memory live in `held` until the completion is reaped, and the range is
        // inside the slice. There are no references to the bytes of a slice.
        let queued = unsafe { self.io.submission().push(&operation) };
        queued.expect("the queue has an entry for each place");
        length
    }

    fn operation(&self, held: &HeldResources, entry: &WorkEntry) -> (squeue::Entry, usize) {
        let file = Fd(held.file.as_raw_fd());
        let flags = entry.work.flags();
        if let Work::Sync { attributes } = entry.work {
            let how = if attributes {
                FsyncFlags::empty()
            } else {
                FsyncFlags::DATASYNC
            };
            return (opcode::Fsync::new(file).flags(how).build(), 0);
        }
        let slice = held.slice.as_ref().expect("transfers have memory");
        assert!(entry.from + entry.length <= slice.len(), "within the slice");
        let address = slice.as_ptr().wrapping_add(entry.from);
        let (buffer, length) = self.buffer(slice, entry);
        let bytes = u32::try_from(length).expect("at most a piece");
        let operation = match (entry.work, buffer) {
            (Work::Read { .. }, Some(buffer)) => {
                let read = opcode::ReadFixed::new(file, address, bytes, buffer);
                read.offset(entry.offset).rw_flags(flags).build()
            }
            (Work::Read { .. }, None) => {
                let read = opcode::Read::new(file, address, bytes);
                read.offset(entry.offset).rw_flags(flags).build()
            }
            (_, Some(buffer)) => {
                let write = opcode::WriteFixed::new(file, address, bytes, buffer);
                write.offset(entry.offset).rw_flags(flags).build()
            }
            (_, None) => {
                let write = opcode::Write::new(file, address, bytes);
                write.offset(entry.offset).rw_flags(flags).build()
            }
        };
        (operation, length)
    }

    /// The piece of registered memory in which an entry begins, and how much of the entry it holds.
    fn buffer(&self, slice: &Slice, entry: &WorkEntry) -> (Option<u16>, usize) {
        let region = slice.region();
        let Some(known) = self.arenas.iter().find(|known| known.region == region) else {
            return (None, entry.length.min(self.piece));
        };
        let start = slice.as_ptr() as usize - known.base + entry.from;
        let piece = u16::try_from(start / self.piece).expect("as many were registered");
        let length = entry.length.min(self.piece - start % self.piece);
        (Some(known.first + piece), length)
    }

    /// Submits all queued operations, lets the kernel process pending work of this ring, and
    /// collects completions. Returns the number of submissions and completions.
    pub fn turn(&mut self) -> usize {
        let mut work = 0;
        if self.armed {
            self.disarm();
        }
        if self.has_work_for_kernel() {
            // Operations not submitted now are submitted next time: the kernel lacks memory, or a
            // signal arrived.
            work += self.io.submit().unwrap_or(0);
        }
        self.reap();
        work + (self.completed.len() - self.taken)
    }

    fn has_work_for_kernel(&mut self) -> bool {
        let queue = self.io.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn reap(&mut self) {
        if self.taken == self.completed.len() {
            self.completed.clear();
            self.taken = 0;
        }
        let completions = self.io.completion();
        self.completed.extend(completions.map(|completion| {
            let place = usize::try_from(completion.user_data()).expect("64-bit");
            (place, completion.result())
        }));
        #[cfg(test)]
        self.recorded.reap(&mut self.completed, self.taken);
    }

    /// Takes a completed operation: its slot, the kernel's result, and the resources held.
    pub fn take(&mut self) -> Option<(usize, i32, HeldResources)> {
        let &(place, outcome) = self.completed.get(self.taken)?;
        self.taken += 1;
        let held = self.held[place].take().expect("one completion for each");
        Some((place, outcome, held))
    }

    /// To be called before a sleep: until the next turn, work makes the descriptor readable. False
    /// if there is work already.
    pub fn arm(&mut self) -> bool {
        if !self.armed {
            self.armed = true;
            self.io.completion().enable_eventfd();
            // The kernel checks the bell after it has published work, so we check for work after
            // arming the bell.
            fence(SeqCst);
        }
        let quiet = self.taken == self.completed.len()
            && self.io.completion().is_empty()
            && !self.has_work_for_kernel();
        if !quiet {
            self.disarm();
        }
        quiet
    }

    /// Whether the descriptor reports work now.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.io.completion().disable_eventfd();
        // It may have been signalled. A late signal ends the next sleep at once, and no other.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Readable when there are completions, once [armed](Self::arm).
    pub fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Asks the kernel to cancel one operation, without waiting for the outcome. One that it has not
    /// begun completes with `ECANCELED`.
    pub fn cancel(&self, place: usize) {
        // Before Linux 6.0 there is no such request, and the operation takes its time.
        let _ = self.io.submitter().register_sync_cancel(
            Some(Timespec::new()),
            CancelBuilder::user_data(place as u64),
        );
    }

    /// Asks the kernel to cancel operations, with a timeout.
    pub fn cancel_all(&mut self) {
        let _ = self.io.submit();
        let second = Timespec::new().sec(1);
        // If the kernel does not support this, operations in progress complete by themselves.
        let _ = self
            .io
            .submitter()
            .register_sync_cancel(Some(second), CancelBuilder::any());
    }

    /// Waits for a completion, with a timeout.
    pub fn wait(&mut self, most: Duration) {
        let most = Timespec::from(most);
        let wait = SubmitArgs::new().timespec(&most);
        // However it ends, the caller checks for completions.
        let _ = self.io.submitter().submit_with_args(1, &wait);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for held in &mut self.held {
            // The kernel may use it until the process ends, so it is leaked.
            std::mem::forget(held.take());
        }
    }
}

/// A ring's table of identities, for other threads than the ring's.
pub struct RingRegistry(OwnedFd);

/// `IORING_REGISTER_PERSONALITY`.
const REGISTER_PERSONALITY: libc::c_uint = 9;

impl RingRegistry {
    /// As [`Ring::register_personality`].
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn register_personality(&self) -> io::Result<u16> {
        let (ring, none) = (self.0.as_raw_fd(), std::ptr::null::<libc::c_void>());
        // SAFETY: this operation takes no argument, and reads and writes no memory.
        let number = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                ring,
                REGISTER_PERSONALITY,
                none,
                0,
            )
        };
        u16::try_from(number).map_err(|_| io::Error::last_os_error())
    }
}

/// A ring with the best completion mode of this kernel. Only a ring that its thread uses `alone` can
/// defer completions.
fn build(entries: u32, alone: bool) -> io::Result<IoUring> {
    // Completions are processed when this thread asks, not at each of its system calls.
    let mut deferred = IoUring::builder();
    deferred.setup_single_issuer().setup_defer_taskrun();
    // The same without deferral (before Linux 6.1).
    let mut cooperative = IoUring::builder();
    cooperative.setup_coop_taskrun();
    let builders = [alone.then_some(&mut deferred), Some(&mut cooperative)];
    for builder in builders.into_iter().flatten() {
        builder.setup_taskrun_flag().setup_submit_all().dontfork();
        match builder.build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            done => return done,
        }
    }
    IoUring::builder().dontfork().build(entries)
}

#[cfg(test)]
mod tests;
