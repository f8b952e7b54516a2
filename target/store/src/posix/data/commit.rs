//! COMMIT: one sync of a file at a time, shared by all calls that arrived before it began.

use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use super::in_flight::KernelWork;
use super::sync_group::Turn;
use crate::posix::errors::io_error;
use crate::posix::objects::{Object, Use};
use crate::posix::view::ClientView;
use crate::{Consistency, Handle, Modified, Result, StoreError, WriteVerifier};

/// How often the first sync of an object is repeated while another reactor syncs the same file.
const REPEATS: usize = 4;

impl ClientView<'_> {
    pub(in crate::posix) async fn commit(
        &self,
        file: Handle,
        _offset: u64,
        _length: u32,
    ) -> Modified<WriteVerifier> {
        // The whole file: the kernel has no narrower sync that includes the metadata needed to find
        // the data.
        let object = match self.objects.get(self.client, file).await {
            Ok(object) => object,
            Err(error) => return Modified::failed(error),
        };
        let synced = match object.require_regular() {
            Ok(()) => self.sync(&object).await,
            Err(error) => Err(error),
        };
        if synced.is_ok() {
            self.data.counters.commits.add(1);
        }
        let consistency = Consistency {
            before: None,
            after: object.attributes(self.client).await.ok(),
        };
        Modified {
            consistency,
            // Read after the sync, to observe errors of other syncs.
            result: synced.map(|()| self.volume.verifier()),
        }
    }

    /// Makes all bytes written to a file so far durable, with a sync of its own or a shared one.
    pub(super) async fn sync(&self, object: &Rc<Object>) -> Result<()> {
        for _ in 0..REPEATS {
            self.sync_once(object).await?;
            if object.local.is_settled(&object.shared.data) {
                break;
            }
        }
        Ok(())
    }

    async fn sync_once(&self, object: &Rc<Object>) -> Result<()> {
        // A file that is no longer writable may still need a sync.
        let file = match object.data(self.client, Use::Write, false).await {
            Err(StoreError::ReadOnly) => object.data(self.client, Use::Read, false).await?,
            file => file?,
        };
        let place = object.local.group.join();
        loop {
            if let Turn::Done(outcome) = place.turn().await {
                return outcome;
            }
            let ticket = self.data.in_flight.begin(self.client, object, 0).await?;
            // Another call may have begun it while this one waited for admission.
            if place.look(None) != Some(Turn::Lead) {
                continue;
            }
            object.local.group.begin();
            object.shared.data.syncing.fetch_add(1, SeqCst);
            let bytes = object.shared.data.dirty.swap(0, SeqCst);
            let hold = ticket.hold(KernelWork::Sync { bytes });
            let ended = self
                .client_engine()
                .sync(&file.file, true, Some(hold))
                .await;
            match (place.look(None), ended) {
                (Some(Turn::Done(outcome)), _) => return outcome,
                // It was not submitted to the kernel.
                (_, Err(error)) => return Err(io_error(&error)),
                (_, Ok(())) => unreachable!("its hold was told"),
            }
        }
    }
}
