//! What operations work with: what the reactor has of the volume, and for whom they are.

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

/// What one reactor has of a volume.
pub(super) struct ReactorView {
    pub volume: Volume,
    pub engine: Engine,
    /// What this reactor has open.
    pub objects: Objects,
    /// What this reactor's reads, writes and syncs are at.
    pub data: LocalData,
    /// Callers that this reactor has met.
    pub identities: Identities,
}

impl ReactorView {
    /// Memory for one transfer, charged to whoever is served.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: none came in time, or nobody waits for the answer any more.
    pub async fn memory(&self, bytes: usize) -> Result<Buffer> {
        let obtained = self.engine.pool().obtain_another(bytes).await;
        obtained.map_err(|_| StoreError::Delay)
    }
}
