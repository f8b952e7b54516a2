//! READ, WRITE and COMMIT.

use std::rc::Rc;

use millrace_mempool::Slice;

use super::objects::Object;
use super::{Inner, identity::Identity};
use crate::{
    Caller, Handle, Modified, ReadOutcome, Result, Stability, StagedWrite, StoreError,
    WriteVerifier, Written,
};

/// What all reactors share of a file's data.
#[derive(Default)]
pub struct FileState {}

/// The memory of a staged write and where it shall go.
pub struct Reservation {
    _object: Rc<Object>,
    _slice: Option<Slice>,
    _identity: Identity,
}

impl Inner {
    pub(super) async fn read(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u32,
        _slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn stage_write(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u32,
        _slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Reservation>> {
        Err(StoreError::NotSupported)
    }

    pub(super) async fn commit_write(
        &self,
        _staged: StagedWrite<Reservation>,
        _stability: Stability,
    ) -> Modified<Written> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn commit(
        &self,
        _file: Handle,
        _offset: u64,
        _length: u32,
    ) -> Modified<WriteVerifier> {
        Modified::failed(StoreError::NotSupported)
    }
}
