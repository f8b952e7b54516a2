//! Finding objects by name, and asking about them.

use super::Inner;
use crate::{AccessMask, Attributes, Caller, Handle, Result, Statistics, StoreError};

impl Inner {
    pub(super) async fn attributes(&self, _object: Handle) -> Result<Attributes> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn lookup(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn access(
        &self,
        _caller: &Caller,
        _object: Handle,
        _wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn read_link(
        &self,
        _caller: &Caller,
        _link: Handle,
        _text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn statistics(&self, _object: Handle) -> Result<Statistics> {
        Err(StoreError::NotSupported)
    }
}
