//! The devices at the last check, and the changes at a new one.

use std::collections::BTreeMap;

/// The number of checks after which a device that failed while plugged in is tried again: its
/// driver may be resetting it.
const REST: u32 = 5;

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Opened by us, usable or not.
    Open,
    /// Opening failed; retried at every check.
    Closed,
    /// Failed while plugged in; this many checks until a retry.
    Failed(u32),
}

/// The known devices, by name.
#[derive(Debug, Default)]
pub struct DeviceSet(BTreeMap<String, Standing>);

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Open devices that the kernel no longer lists.
    pub left: Vec<String>,
    /// Devices to open, and whether for the first time since they appeared.
    pub wanted: Vec<(String, bool)>,
}

impl DeviceSet {
    /// Records that a device is open.
    pub fn opened(&mut self, name: &str) {
        self.0.insert(name.to_owned(), Standing::Open);
    }

    /// Records that a device could not be opened.
    pub fn not_opened(&mut self, name: &str) {
        self.0.insert(name.to_owned(), Standing::Closed);
    }

    /// Records that an open device reported its failure.
    pub fn failed(&mut self, name: &str) {
        self.0.insert(name.to_owned(), Standing::Failed(REST));
    }

    /// Compares the known devices with the kernel's list.
    pub fn look(&mut self, listed: &[String]) -> Changes {
        let mut changes = Changes::default();
        self.0.retain(|name, standing| {
            if listed.contains(name) {
                return true;
            }
            if *standing == Standing::Open {
                changes.left.push(name.clone());
            }
            false
        });
        for name in listed {
            match self.0.get_mut(name) {
                None => changes.wanted.push((name.clone(), true)),
                Some(Standing::Open) => {}
                Some(Standing::Closed | Standing::Failed(0)) => {
                    changes.wanted.push((name.clone(), false));
                }
                Some(Standing::Failed(rest)) => *rest -= 1,
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    fn wanted(name: &str, is_new: bool) -> Changes {
        Changes {
            wanted: vec![(name.to_owned(), is_new)],
            ..Changes::default()
        }
    }

    #[test]
    fn devices_come_go_and_come_back() {
        let mut device_set = DeviceSet::default();
        device_set.opened("mlx5_0");
        let nothing = Changes::default();
        assert_eq!(device_set.look(&names(&["mlx5_0"])), nothing);
        assert_eq!(
            device_set.look(&names(&["mlx5_0", "siw0"])),
            wanted("siw0", true)
        );
        device_set.opened("siw0");
        assert_eq!(device_set.look(&names(&["siw0", "mlx5_0"])), nothing);
        let gone = Changes {
            left: names(&["mlx5_0"]),
            ..Changes::default()
        };
        assert_eq!(device_set.look(&names(&["siw0"])), gone);
        assert_eq!(device_set.look(&names(&["siw0"])), nothing, "said once");
        assert_eq!(
            device_set.look(&names(&["mlx5_0", "siw0"])),
            wanted("mlx5_0", true)
        );
    }

    #[test]
    fn a_device_that_does_not_open_is_tried_at_every_look() {
        let mut device_set = DeviceSet::default();
        let listed = names(&["irdma0"]);
        assert_eq!(device_set.look(&listed), wanted("irdma0", true));
        device_set.not_opened("irdma0");
        assert_eq!(device_set.look(&listed), wanted("irdma0", false));
        device_set.not_opened("irdma0");
        assert_eq!(device_set.look(&[]), Changes::default(), "never was open");
        assert_eq!(device_set.look(&listed), wanted("irdma0", true));
    }

    #[test]
    fn a_device_that_failed_rests_before_it_is_tried_again() {
        let mut device_set = DeviceSet::default();
        let listed = names(&["mlx5_0"]);
        device_set.opened("mlx5_0");
        device_set.failed("mlx5_0");
        for _ in 0..REST {
            assert_eq!(device_set.look(&listed), Changes::default());
        }
        assert_eq!(device_set.look(&listed), wanted("mlx5_0", false));
        // Unplugged while it waits for a retry: it is new when it returns.
        device_set.failed("mlx5_0");
        assert_eq!(device_set.look(&[]), Changes::default());
        assert_eq!(device_set.look(&listed), wanted("mlx5_0", true));
    }
}
