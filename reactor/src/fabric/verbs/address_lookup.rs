//! The device of an address.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::sys::{ConnectionId, EventChannel};

/// The device and port of a listener at this address, for any TCP or RDMA port; none if the address
/// is no device's, or that of all. The connection manager is queried, as it alone knows the network
/// interfaces of devices.
///
/// # Errors
/// The connection manager cannot be reached.
pub fn device_at(address: SocketAddr) -> io::Result<Option<(String, u8)>> {
    let channel = EventChannel::new()?;
    let id = ConnectionId::new(&channel, 0)?;
    let mut any_port = address;
    any_port.set_port(0);
    match id.bind(any_port) {
        Ok(()) => Ok(id.device_name().map(|name| (name, id.port_number()))),
        Err(error) if is_nobodys(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether binding an address failed because no device has it.
fn is_nobodys(error: &io::Error) -> bool {
    let known = [Errno::NODEV, Errno::ADDRNOTAVAIL, Errno::NETUNREACH];
    known
        .iter()
        .any(|known| error.raw_os_error() == Some(known.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::verbs::survey;

    #[test]
    fn an_address_of_another_host_is_no_device_s() {
        let foreign = "192.0.2.77:20049".parse().expect("an address");
        match device_at(foreign) {
            Ok(found) => assert_eq!(found, None),
            // Without RDMA there is no connection manager to query.
            Err(_) => assert!(survey().is_err()),
        }
    }

    #[test]
    fn errors_that_mean_no_device_are_told_from_others() {
        assert!(is_nobodys(&io::Error::from(Errno::NODEV)));
        assert!(!is_nobodys(&io::Error::from(Errno::ACCESS)));
        assert!(!is_nobodys(&io::Error::other("another")));
    }
}
