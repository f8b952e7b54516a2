//! Making, removing and renaming.

use super::Inner;
use crate::{
    Attributes, Caller, Consistency, CreateHow, Handle, Linked, Modified, Renamed, SetAttributes,
    SpecialKind, StoreError,
};

impl Inner {
    pub(super) async fn create(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
        _how: &CreateHow,
    ) -> Modified<(Handle, Attributes)> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn make_directory(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
        _set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn symlink(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
        _text: &[u8],
        _set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn make_node(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
        _kind: SpecialKind,
        _set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn remove(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
    ) -> Modified<()> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn remove_directory(
        &self,
        _caller: &Caller,
        _directory: Handle,
        _name: &[u8],
    ) -> Modified<()> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn rename(
        &self,
        _caller: &Caller,
        _from: (Handle, &[u8]),
        _to: (Handle, &[u8]),
    ) -> Renamed {
        Renamed {
            from: Consistency::default(),
            to: Consistency::default(),
            result: Err(StoreError::NotSupported),
        }
    }

    pub(super) async fn link(
        &self,
        _caller: &Caller,
        _object: Handle,
        _directory: Handle,
        _name: &[u8],
    ) -> Linked {
        Linked {
            object: None,
            directory: Consistency::default(),
            result: Err(StoreError::NotSupported),
        }
    }
}
