//! SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29 and 18.45).

use arrayvec::ArrayVec;
use millrace_store::Store;
use millrace_wire::nfs4::{GssMechanism, OperationStatus, SecinfoStyle, SecurityFlavor};

use super::compound::CompoundRun;
use super::position::FilePosition;
use super::seam::StateSeam;
use crate::access::Security;
use crate::exports::{Exports, Rules};

/// Ways to authenticate in the order of preference.
type Flavors = ArrayVec<SecurityFlavor<'static>, { Security::ALL.len() }>;

/// The mechanism Kerberos, 1.2.840.113554.1.2.2 (RFC 8881 section 2.2.1.1.1.2).
const KERBEROS: &[u8] = &millrace_gss::KERBEROS_OID;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// SECINFO: the flavors of a name in the current directory. Consumes the current handle.
    pub async fn security_of_name(&mut self, name: &[u8]) -> Result<Flavors, OperationStatus> {
        let found = match (self.find(name).await, self.position()?) {
            (Ok(found), _) => flavors(self.access.exports, &found),
            // For a call under a weak flavor, objects in an export have the flavors of the export.
            (Err(OperationStatus::WrongSecurity), directory) => {
                flavors(self.access.exports, directory)
            }
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
            (SecinfoStyle::Current, current) => flavors(self.access.exports, current),
            (SecinfoStyle::Parent, current) => match self.parent().await {
                Ok(parent) => flavors(self.access.exports, &parent),
                Err(OperationStatus::WrongSecurity) => flavors(self.access.exports, current),
                Err(status) => return Err(status),
            },
        };
        self.current = None;
        Ok(found)
    }
}

/// What may use an object: in an export what its rules say; above exports everything, first what
/// needs no tickets.
fn flavors<S>(exports: &Exports<S>, position: &FilePosition<'_, S>) -> Flavors {
    let flavor = |security: Security| match security.service() {
        None => SecurityFlavor::Flavor(security.pseudo_flavor()),
        Some(service) => SecurityFlavor::Gss(GssMechanism {
            mechanism: KERBEROS,
            quality: 0,
            service,
        }),
    };
    match position {
        FilePosition::Folder(_) => {
            let used = |security: &Security| {
                let takes = |rules: &Rules| rules.security.contains(*security);
                security.service().is_some() && exports.iter().any(|export| takes(&export.rules))
            };
            let kerberos = Security::ALL.into_iter().filter(used);
            let weak = [Security::Sys, Security::None];
            weak.into_iter().chain(kerberos).map(flavor).collect()
        }
        FilePosition::Object(object) => object.export.rules.security.iter().map(flavor).collect(),
    }
}
