//! Protection of a client's state by its machine credential (SP4_MACH_CRED, RFC 8881 section
//! 2.10.8.3).

use super::StateError;

/// Who asks for something that concerns the whole state of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCaller {
    /// The principal.
    pub principal: Box<[u8]>,
    /// Whether nobody can have changed the call on its way (integrity or privacy of RPCSEC_GSS).
    pub has_integrity: bool,
}

/// An operation that a machine credential can protect. EXCHANGE_ID is protected in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedOperation {
    /// BACKCHANNEL_CTL.
    ControlBackchannel,
    /// BIND_CONN_TO_SESSION.
    BindConnection,
    /// CREATE_SESSION.
    CreateSession,
    /// DESTROY_SESSION.
    DestroySession,
    /// DESTROY_CLIENTID.
    DestroyClient,
    /// DELEGPURGE, which is not served; clients may ask for it all the same.
    PurgeDelegations,
}

/// The operations of a client that need its machine credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardedOperations(u8);

impl GuardedOperations {
    /// These and one more.
    #[must_use]
    pub fn with(self, operation: GuardedOperation) -> Self {
        Self(self.0 | 1 << operation as u8)
    }

    /// Whether an operation is among them.
    #[must_use]
    pub fn contains(self, operation: GuardedOperation) -> bool {
        self.0 & 1 << operation as u8 != 0
    }
}

/// The machine credential of a client, and what needs it.
#[derive(Clone, Debug)]
pub(super) struct StateProtection {
    pub principal: Box<[u8]>,
    pub operations: GuardedOperations,
}

impl StateProtection {
    /// Whether a call has the machine credential.
    pub fn is_by(&self, caller: &StateCaller) -> bool {
        caller.has_integrity && caller.principal == self.principal
    }

    /// Refuses an operation that needs the machine credential and does not have it.
    ///
    /// # Errors
    /// [`StateError::WrongCred`].
    pub fn check(
        &self,
        operation: GuardedOperation,
        caller: &StateCaller,
    ) -> Result<(), StateError> {
        match self.operations.contains(operation) && !self.is_by(caller) {
            true => Err(StateError::WrongCred),
            false => Ok(()),
        }
    }
}
