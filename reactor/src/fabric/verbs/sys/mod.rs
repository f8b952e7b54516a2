//! The foreign libraries, libibverbs and librdmacm, as handles that own what they name.
//!
//! This is the only module that uses rdma-sys. Its functions are safe to call except those that
//! pass memory to a device, whose callers state how they meet the contract. The rules for every
//! `SAFETY` comment below:
//!
//! 1. *Handles own their objects.* A handle's private pointer comes from the library's own
//!    constructor, is never null, and is given back once, in `Drop`. So the object exists, and its
//!    fields may be read, while the handle is borrowed.
//! 2. *Children hold their parents*, by [`std::sync::Arc`]. So an object exists while anything made
//!    on it does, and is destroyed when nothing of it is in use.
//! 3. *Both libraries are thread-safe*, so handles may be used and dropped on any thread.
//! 4. *Memory belongs to its poster.* Memory that a device reads or writes is registered and
//!    therefore pinned: the device cannot access anything else. Posting is `unsafe`: its callers,
//!    the queues of the provider, keep the memory of each request until it completes or its queue
//!    pair is destroyed.
//! 5. *Device and connection manager are separate.* Queue pairs are made on our own contexts, and
//!    the connection manager only gets their numbers. So an unplugged device can be taken apart in
//!    our order, whatever the connection manager still holds.
//!
//! rdma-sys 0.3 cannot find extended verbs on 64-bit machines, and leaves what it then should have
//! filled uninitialised. So only base verbs are called, results are zeroed first, and its inline
//! helpers are passed over where they assert or overflow. `layout` compares its structures with
//! those of rdma-core while compiling.

mod address;
mod completion;
mod connection;
mod context;
mod layout;
mod manager;
mod memory;
mod queue_pair;
mod work;

#[cfg(test)]
pub use completion::CompletionKind;
pub use completion::{Completion, CompletionBatch, CompletionChannel, CompletionQueue, Status};
pub use connection::{
    ConnectionEvent, ConnectionEventKind, ConnectionId, ConnectionParameters, EventChannel,
    QueuePairAttributes, QueuePairState,
};
pub use context::{
    AsyncEvent, AsyncKind, Attributes, DeviceContext, device_names, open_device, open_devices,
};
pub use manager::let_manager_look;
pub use memory::{ProtectionDomain, Range, Region, RegionAccess, Window, next_window_key};
pub use queue_pair::{PostFailed, QueuePair, QueuePairSetup, SharedReceiveQueue};
pub use work::{ReceiveList, SendKind, SendList, SendRequest};

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

/// A pointer returned by a constructor, or its error (in `errno`).
fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// The result of a call of libibverbs, which returns the error's number.
fn verbs(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        // Some providers return the number negated, and some just -1 with `errno`.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// The result of a call of librdmacm, which returns -1 and sets `errno`.
fn manager(status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Logs that an object was not destroyed: it and its parents stay until the process ends.
fn destroyed(what: &'static str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::error!(%error, "cannot destroy a {what}");
    }
}

/// Makes a descriptor non-blocking.
fn unblock(descriptor: c_int) -> io::Result<()> {
    // SAFETY: the callers pass the descriptor of a handle that they have just made and still own
    // (rule 1), so it is open during this call.
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    let flags = rustix::fs::fcntl_getfl(descriptor)? | rustix::fs::OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags)?)
}

/// `None` where a non-blocking read found nothing.
fn unless_empty(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
