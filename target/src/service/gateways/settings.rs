//! Settings that all gateways need to have the same.

use std::fs;
use std::io;

use millrace_admin::config;

use super::folder::GatewayFolder;
use crate::service::durable_file::write_durably;
use crate::state::GatewayRecords;

/// A setting that is on or off.
pub(super) struct SharedSetting {
    /// Its key in the section `gateways`.
    pub key: &'static str,
    /// The file in the folder of a gateway that says how it is there.
    file: &'static str,
    is_on: fn(&config::Gateways) -> bool,
    /// What may happen if it differs.
    pub consequence: &'static str,
}

/// These settings.
pub(super) const SHARED_SETTINGS: [SharedSetting; 2] = [
    SharedSetting {
        key: "share_reservations",
        file: "share-reservations",
        is_on: |gateways| gateways.share_reservations.is_on(),
        consequence: "it may let clients open what those of this one deny, or the other way round",
    },
    SharedSetting {
        key: "shared_replies",
        file: "shared-replies",
        is_on: |gateways| gateways.shared_replies.is_on(),
        consequence: "if one takes the place of the other, calls that are repeated may fail",
    },
];

impl SharedSetting {
    /// Tells other gateways how the setting is here. Returns those where it is not the same. To be
    /// called while no other one does the same.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn compare(
        &self,
        folder: &GatewayFolder,
        records: &GatewayRecords,
        gateways: &config::Gateways,
    ) -> io::Result<Vec<String>> {
        let text = |is_on| if is_on { "on\n" } else { "off\n" };
        let own = text((self.is_on)(gateways));
        write_durably(&folder.own().join(self.file), own.as_bytes())?;
        let is_other = |name: &&String| {
            let theirs = fs::read_to_string(folder.path().join(name).join(self.file));
            // Earlier versions have it off, and do not say so.
            **name != folder.name() && theirs.as_deref().unwrap_or(text(false)) != own
        };
        Ok(records.0.keys().filter(is_other).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use millrace_admin::config::Switch;

    use super::*;

    #[test]
    fn gateways_tell_who_has_another_setting() {
        let shared = tempfile::tempdir().unwrap();
        for (index, setting) in SHARED_SETTINGS.iter().enumerate() {
            let gateway = |name, switch| {
                let mut gateways = config::Gateways::new(name, shared.path());
                *[
                    &mut gateways.share_reservations,
                    &mut gateways.shared_replies,
                ][index] = switch;
                gateways
            };
            let mut records = GatewayRecords::default();
            let compare = |name, switch, records: &GatewayRecords| {
                let gateways = gateway(name, switch);
                let folder = GatewayFolder::open(&gateways).unwrap();
                setting.compare(&folder, records, &gateways).unwrap()
            };
            records.start("a", false);
            assert!(compare("a", Switch::On, &records).is_empty());
            records.start("b", false);
            // An earlier version says nothing.
            assert_eq!(compare("a", Switch::On, &records), ["b"]);
            assert_eq!(compare("b", Switch::Off, &records), ["a"]);
            assert_eq!(compare("a", Switch::On, &records), ["b"]);
            assert!(compare("a", Switch::Off, &records).is_empty());
            assert!(compare("b", Switch::Off, &records).is_empty());
        }
    }
}
