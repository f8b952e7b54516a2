//! The context of operations: the reactor's part of the volume, and the client.

use std::ops::Deref;

use millrace_mempool::Buffer;

use super::data::local::LocalData;
use super::engine::Engine;
use super::groups::Identities;
use super::objects::Objects;
use super::volume::Volume;
use crate::{ClientKey, Result, StoreError};

/// The store for one operation of a client.
#[derive(Clone, Copy)]
pub(super) struct ClientView<'a> {
    pub inner: &'a ReactorView,
    pub client: ClientKey,
}

impl ClientView<'_> {
    /// The engine for this client's operations.
    pub fn client_engine(&self) -> Engine {
        self.inner.engine.for_client(self.client)
    }
}

impl Deref for ClientView<'_> {
    type Target = ReactorView;

    fn deref(&self) -> &ReactorView {
        self.inner
    }
}

/// One reactor's part of a volume.
pub(super) struct ReactorView {
    pub volume: Volume,
    pub engine: Engine,
    /// The open objects of this reactor.
    pub objects: Objects,
    /// The state of this reactor's reads, writes and syncs.
    pub data: LocalData,
    /// Callers known to this reactor.
    pub identities: Identities,
}

impl ReactorView {
    /// Memory for one transfer, charged to the client.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: timeout, or the answer is no longer awaited.
    pub async fn memory(&self, bytes: usize) -> Result<Buffer> {
        let obtained = self.engine.pool().obtain_another(bytes).await;
        obtained.map_err(|_| StoreError::Delay)
    }
}
