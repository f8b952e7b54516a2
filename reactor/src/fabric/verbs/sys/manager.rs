//! Device contexts kept by librdmacm.
//!
//! It opens every device that an identifier uses, and keeps it open. The kernel releases an
//! unplugged device only when that is closed, too. The library does so when it lists devices and
//! one is missing; but it lists them only when requested, and with no device left at all it does
//! not compare. So a listing is requested ([`let_manager_look`]), and where it would not compare,
//! the descriptors of its open devices are replaced by `/dev/null`, which it then closes when the
//! next device is added.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use rdma_sys::{rdma_free_devices, rdma_get_devices};

use super::context::device_names;

/// A context of the library.
#[derive(Clone, Copy, Debug)]
struct ManagedContext {
    commands: c_int,
    events: c_int,
    /// The number of the device's node.
    node: u64,
}

/// All of them, at the last listing.
static HELD: Mutex<Vec<ManagedContext>> = Mutex::new(Vec::new());

/// Makes librdmacm list devices: it opens new ones, and closes missing ones. To be called when
/// devices were added, before identifiers use them, and after they were removed.
pub fn let_manager_look() {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the function accepts a null pointer where the number of devices is not asked for.
    let list = unsafe { rdma_get_devices(std::ptr::null_mut()) };
    if list.is_null() {
        // No device, or no connection manager, or one of the devices does not open.
        if device_names().is_ok_and(|names| names.is_empty()) {
            held.drain(..).for_each(ManagedContext::let_go);
        }
        return;
    }
    held.clear();
    for index in 0.. {
        // SAFETY: the library ends the list with null, and keeps its contexts until the list is
        // freed below.
        let (commands, events) = unsafe {
            let context = *list.add(index);
            if context.is_null() {
                break;
            }
            ((*context).cmd_fd, (*context).async_fd)
        };
        held.extend(node(commands).map(|node| ManagedContext {
            commands,
            events,
            node,
        }));
    }
    // SAFETY: made by `rdma_get_devices` above, given back here only, and not used afterwards.
    unsafe { rdma_free_devices(list) };
}

impl ManagedContext {
    /// Closes the device but keeps the descriptors' numbers in use.
    fn let_go(self) {
        // Closed by the library in the meantime, and possibly reused.
        if node(self.commands) != Some(self.node) {
            return;
        }
        // SAFETY: the path is a constant text that ends with zero.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if null < 0 {
            return;
        }
        for descriptor in [self.events, self.commands] {
            // SAFETY: numbers of open descriptors that the library owns. What it has open of a
            // device that is gone answers nothing but errors, as its replacement does.
            unsafe { libc::dup3(null, descriptor, libc::O_CLOEXEC) };
        }
        // SAFETY: opened above, and known to nobody else.
        unsafe { libc::close(null) };
    }
}

/// The inode number of an open descriptor's node; none if it is not open.
fn node(descriptor: c_int) -> Option<u64> {
    // SAFETY: the structure has numbers only, for which zeros are valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the result is a variable of ours; any number may be asked about.
    let found = unsafe { libc::fstat(descriptor, &raw mut status) };
    (found == 0).then_some(status.st_rdev)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_held_is_turned_to_nothing_unless_it_is_anothers_by_now() {
        let zero = File::open("/dev/zero").unwrap();
        let [commands, events] = [(); 2].map(|()| zero.try_clone().unwrap());
        let numbers = [&commands, &events].map(AsRawFd::as_raw_fd);
        let own = node(zero.as_raw_fd()).unwrap();
        let held = |node| ManagedContext {
            commands: numbers[0],
            events: numbers[1],
            node,
        };
        held(own + 1).let_go();
        assert_eq!(numbers.map(node), [Some(own); 2]);
        held(own).let_go();
        let null = node(File::open("/dev/null").unwrap().as_raw_fd());
        assert_eq!(numbers.map(node), [null; 2]);
        assert_eq!(node(-1), None);
    }

    #[test]
    fn looking_without_devices_does_nothing() {
        let_manager_look();
        let_manager_look();
    }
}
