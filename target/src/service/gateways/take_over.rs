//! Taking the place of another gateway.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::control::{ControlError, GatewayControl};
use millrace_admin::status::{GatewayList, GatewayState, GatewayTakeover};
use millrace_store::any::AnyVolume;

use super::member::{GatewayError, GatewayMember};
use super::replies;
use crate::service::control::ServiceControl;

/// How long the other gateways have to stop granting.
const OTHERS_WAIT: Duration = Duration::from_secs(8);
const OTHERS_PAUSE: Duration = Duration::from_millis(50);

impl From<GatewayError> for ControlError {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::State(error) => error,
            GatewayError::Folder(error) => {
                Self::Unavailable(format!("gateways.directory: {error}"))
            }
        }
    }
}

fn unavailable(error: io::Error) -> ControlError {
    GatewayError::Folder(error).into()
}

impl GatewayControl for ServiceControl {
    fn list(&self) -> Result<GatewayList, ControlError> {
        let gateway = self.gateway.as_ref();
        gateway.map_or_else(|| Ok(GatewayList::default()), GatewayMember::status)
    }

    fn take_over(
        &self,
        name: &str,
        is_fenced: bool,
    ) -> Result<Option<GatewayTakeover>, ControlError> {
        match &self.gateway {
            Some(gateway) => gateway.take_over(name, is_fenced, self),
            None => Ok(None),
        }
    }
}

impl GatewayMember {
    /// The state of all gateways.
    ///
    /// # Errors
    /// The shared folder cannot be used.
    fn status(&self) -> Result<GatewayList, ControlError> {
        let records = self.records().map_err(unavailable)?;
        let own = self.folder().name();
        let state = |(name, record): (&String, &crate::state::GatewayRecord)| GatewayState {
            name: name.clone(),
            this: name == own,
            grants: !record.enforces,
            recovers: record.recovers,
            replaced: record.is_replaced,
        };
        Ok(GatewayList {
            gateways: records.0.iter().map(state).collect(),
        })
    }

    /// Takes the place of another gateway, which must not be going on: its sessions in the cluster
    /// are ended. `None` if there is no such gateway.
    ///
    /// # Errors
    /// [`ControlError::Conflict`]: it is this one, or others grant; the reason says what to do. The
    /// order can be repeated.
    fn take_over(
        &self,
        of: &str,
        is_fenced: bool,
        control: &ServiceControl,
    ) -> Result<Option<GatewayTakeover>, ControlError> {
        let _step = self.begin_step();
        let (folder, name) = (self.folder(), self.folder().name());
        let records = self.records().map_err(unavailable)?;
        if of == name {
            let text = format!("{of} is the name of this gateway; name the one that is gone");
            return Err(ControlError::Conflict(text));
        }
        if !records.0.contains_key(of) {
            return Ok(None);
        }
        let volumes = control.export_volumes();
        let unfenced: Vec<&str> = volumes
            .iter()
            .filter(|(_, volume)| !is_fenced && !can_fence(volume))
            .map(|(path, _)| &**path)
            .collect();
        if !unfenced.is_empty() {
            let text = format!(
                "{of} may still write in {}, where this gateway cannot keep it from that: make sure \
                 that it is off, and say so (--fenced)",
                unfenced.join(", ")
            );
            return Err(ControlError::Conflict(text));
        }
        let own = records.0.get(name).copied().unwrap_or_default();
        self.stop_granting(&own)?;
        folder
            .change(|records| records.begin_take_over(name))
            .map_err(unavailable)?;
        self.wait_for_others(of)?;
        let before = folder.change(|records| {
            folder.take_clients(of)?;
            Ok::<_, io::Error>(records.replace(of, name).unwrap_or_default())
        });
        let before = before.and_then(|before| before).map_err(unavailable)?;
        let mut was_kept = true;
        for (path, volume) in &volumes {
            was_kept &= match volume.fence(&folder.session_name(of, path)) {
                Ok(was_kept) => was_kept,
                Err(error) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(error) => {
                    let text = format!("{path}: {of} cannot be fenced: {error}");
                    return Err(ControlError::Unavailable(text));
                }
            };
        }
        let (is_that, others) = folder
            .change(|records| (records.fence(of), records.granting(name).count()))
            .map_err(unavailable)?;
        if let Some(own) = self.replies() {
            replies::take_over(own, folder, of);
        }
        // Others that are replaced and may still go on could be granted what is free now.
        let is_proved = before.recovers && before.is_proved || was_kept && is_that;
        if is_proved && others == 0 {
            folder.prove_taken(of).map_err(unavailable)?;
        }
        let mut clients = 0;
        let may_reclaim = folder.may_reclaim(of).map_err(unavailable)?;
        if may_reclaim {
            // With those that it had taken itself.
            for taken in folder.all_taken().map_err(unavailable)? {
                clients += taken.clients.len() as u64;
                self.ask(move |home, now| home.adopt(taken.clients, taken.lease, now))?;
            }
        }
        tracing::warn!(
            gateway = of,
            clients,
            may_reclaim,
            "this gateway has taken the place of another one"
        );
        Ok(Some(GatewayTakeover {
            clients,
            may_reclaim,
        }))
    }

    /// Waits until no gateway grants anything but the one whose place is taken, and those that are
    /// replaced already.
    fn wait_for_others(&self, of: &str) -> Result<(), ControlError> {
        let begun = Instant::now();
        loop {
            let records = self.records().map_err(unavailable)?;
            let others = records.granting(self.folder().name());
            let is_waited_for = |name: &&str| *name != of && !records.0[*name].is_replaced;
            let granting: Vec<&str> = others.filter(is_waited_for).collect();
            if granting.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > OTHERS_WAIT {
                let names = granting.join(", ");
                let text = format!(
                    "{names} may still grant opens and locks, and does not answer: if it is gone, take \
                     its place first; nothing has changed"
                );
                return Err(ControlError::Conflict(text));
            }
            thread::sleep(OTHERS_PAUSE);
        }
    }
}

/// Whether this gateway can keep another one from a volume.
fn can_fence(volume: &AnyVolume) -> bool {
    match volume {
        AnyVolume::Posix(volume) => volume.config().exclusive,
        _ => true,
    }
}
