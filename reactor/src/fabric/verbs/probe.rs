//! Queries of devices without using them.

use super::device::windows_hold;
use super::devices::DevicesError;
use super::report::{DeviceReport, Features, PortReport};
use super::sys::{self, DeviceContext};

/// The most entries of a port's address table that are read.
const ADDRESSES_MAX: u32 = 256;

/// Queries the existing devices, without using them: nothing is registered, and opened devices are
/// closed again. Devices that do not open are skipped, unless none does.
///
/// # Errors
/// [`DevicesError`].
pub fn survey() -> Result<Vec<DeviceReport>, DevicesError> {
    let found = sys::open_devices().map_err(DevicesError::unusable)?;
    if found.is_empty() {
        return Err(DevicesError::None);
    }
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for (name, context) in found {
        match context {
            Ok(context) => reports.push(describe(&context)),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    if reports.is_empty() {
        return Err(DevicesError::Unusable(failed.join(", ")));
    }
    for reason in failed {
        tracing::warn!("an RDMA device cannot be opened: {reason}");
    }
    Ok(reports)
}

/// The properties of an open device.
pub(super) fn describe(context: &DeviceContext) -> DeviceReport {
    let attributes = context.attributes();
    DeviceReport {
        name: context.name().to_owned(),
        transport: attributes.transport,
        firmware: attributes.firmware.clone(),
        numa_node: context.numa_node(),
        completion_vectors: context.completion_vectors(),
        ports: (1..=attributes.ports)
            .filter_map(|number| port(context, number))
            .collect(),
        queue_pairs_max: attributes.max_qp,
        work_requests_max: attributes.max_qp_wr,
        ranges_max: attributes.max_sge,
        read_ranges_max: attributes.max_sge_rd,
        completions_max: attributes.max_cqe,
        reads_served_max: attributes.max_qp_rd_atom,
        reads_open_max: attributes.max_qp_init_rd_atom,
        registration_max: attributes.max_mr_size,
        features: Features {
            memory_windows: windows_hold(attributes),
            shared_receive_queues: attributes.max_srq > 0,
            send_invalidate: attributes.has_send_invalidate,
        },
    }
}

/// None if the device is being removed.
fn port(context: &DeviceContext, number: u8) -> Option<PortReport> {
    let port = context.port(number).ok()?;
    let gids =
        (0..port.gids.min(ADDRESSES_MAX)).filter_map(|index| context.gid(number, index).ok());
    Some(PortReport {
        number,
        is_active: port.is_active,
        state: port.state,
        mtu: port.mtu,
        gids: gids.filter(|gid| !gid.is_unspecified()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mempool::{HugepagePolicy, Registry};

    /// With a device, opening and querying agree on it; without, both report that and how to get
    /// one.
    #[test]
    fn opening_and_looking_agree() {
        let registry = Registry::new(HugepagePolicy::Off);
        match (survey(), super::super::Devices::open(&registry)) {
            (Ok(seen), Ok(opened)) => {
                let names = |reports: &[DeviceReport]| -> Vec<String> {
                    reports.iter().map(|report| report.name.clone()).collect()
                };
                assert_eq!(names(&seen), names(&opened.report()));
            }
            (Err(error), Err(other)) => {
                assert_eq!(error, other);
                assert_eq!(error, DevicesError::None);
                assert!(error.to_string().contains("rdma link add siw0"));
            }
            (seen, opened) => panic!("{seen:?} and {opened:?}"),
        }
    }
}
