//! Changing attributes.

use super::Inner;
use crate::{Caller, Handle, Modified, SetAttributes, StoreError, Time};

impl Inner {
    pub(super) async fn set_attributes(
        &self,
        _caller: &Caller,
        _object: Handle,
        _set: &SetAttributes,
        _guard: Option<Time>,
    ) -> Modified<()> {
        Modified::failed(StoreError::NotSupported)
    }
}
