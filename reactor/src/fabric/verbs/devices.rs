//! The RDMA devices of the process.

use millrace_mempool::Registry;

use super::report::DeviceReport;

/// Why there are no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DevicesError {
    /// The kernel has no RDMA at all, or no device.
    #[error(
        "this machine has no RDMA device (`rdma link` lists them; a software device comes with \
         `rdma link add siw0 type siw netdev eth0`)"
    )]
    None,
    /// There are devices, and they cannot be used.
    #[error("the RDMA devices cannot be used: {0}")]
    Unusable(String),
}

/// The RDMA devices of the process, shared by all reactors. Clones share them.
#[derive(Clone, Debug)]
pub struct Devices {}

impl Devices {
    /// Opens all devices and registers the memory of `registry` with them, now and when there is
    /// more. Takes about 0.1 s per GiB and more; not for a reactor.
    ///
    /// # Errors
    /// [`DevicesError`].
    pub fn open(_registry: &Registry) -> Result<Self, DevicesError> {
        Err(DevicesError::None)
    }

    /// What there is now.
    pub fn report(&self) -> Vec<DeviceReport> {
        Vec::new()
    }
}

/// Looks what devices there are, without using them.
///
/// # Errors
/// [`DevicesError`].
pub fn survey() -> Result<Vec<DeviceReport>, DevicesError> {
    Err(DevicesError::None)
}
