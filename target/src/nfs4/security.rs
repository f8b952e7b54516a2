//! SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29 and 18.45).

use millrace_store::Store;
use millrace_wire::nfs4::{OperationStatus, SecinfoStyle, SecurityFlavor};
use millrace_wire::rpc::{AUTH_NONE, AUTH_SYS};

use super::compound::CompoundRun;
use super::position::FilePosition;
use super::seam::StateSeam;
use crate::exports::Flavor;

/// Flavors in the order of preference.
type Flavors = &'static [SecurityFlavor<'static>];

const ALL: Flavors = &[
    SecurityFlavor::Flavor(AUTH_SYS),
    SecurityFlavor::Flavor(AUTH_NONE),
];

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// SECINFO: the flavors of a name in the current directory. Consumes the current handle.
    pub async fn security_of_name(&mut self, name: &[u8]) -> Result<Flavors, OperationStatus> {
        let found = match (self.find(name).await, self.position()?) {
            (Ok(found), _) => flavors(&found),
            // For a call under a weak flavor, objects in an export have the flavors of the export.
            (Err(OperationStatus::WrongSecurity), directory) => flavors(directory),
            (Err(status), _) => return Err(status),
        };
        self.current = None;
        Ok(found)
    }

    /// SECINFO_NO_NAME: the flavors of the current handle or of its parent. Consumes the current
    /// handle.
    pub async fn security_of_handle(
        &mut self,
        style: SecinfoStyle,
    ) -> Result<Flavors, OperationStatus> {
        let found = match (style, self.position()?) {
            (SecinfoStyle::Current, current) => flavors(current),
            (SecinfoStyle::Parent, current) => match self.parent().await {
                Ok(parent) => flavors(&parent),
                Err(OperationStatus::WrongSecurity) => flavors(current),
                Err(status) => return Err(status),
            },
        };
        self.current = None;
        Ok(found)
    }
}

/// What may use an object: in an export what its rules say, above exports everything.
fn flavors<S>(position: &FilePosition<'_, S>) -> Flavors {
    match position {
        FilePosition::Folder(_) => ALL,
        FilePosition::Object(object) => match object.export.rules.flavor {
            Flavor::None => ALL,
            Flavor::Sys => &ALL[..1],
            // There is no mechanism that would do.
            Flavor::Gss => &[],
        },
    }
}
