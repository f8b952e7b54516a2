//! A store that outlives the service, with calls that end where the process would be killed, and
//! objects that have not been changed for long.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::pending;
use std::rc::Rc;

use millrace_mempool::Slice;
use millrace_store::memory::MemoryStore;
use millrace_store::{
    AccessMask, Attributes, Caller, CookieVerifier, CreateHow, DirectoryEntry, DirectoryOutcome,
    Handle, Linked, Modified, Properties, ReadOutcome, Renamed, Result, SetAttributes, SpecialKind,
    Stability, StagedWrite, Statistics, Store, Time, WriteVerifier, Written,
};

/// Where calls that change names or attributes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Killed {
    /// Nowhere: they are answered.
    #[default]
    Never,
    /// Before they are executed.
    Before,
    /// When they have been executed, before the answer.
    After,
}

#[derive(Clone)]
pub struct Lasting {
    pub store: MemoryStore,
    pub killed: Rc<Cell<Killed>>,
    /// Objects that were last changed an hour before they were.
    pub old: Rc<RefCell<HashSet<Handle>>>,
}

impl Lasting {
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            killed: Rc::default(),
            old: Rc::default(),
        }
    }

    fn aged(&self, object: Handle, mut attributes: Attributes) -> Attributes {
        if self.old.borrow().contains(&object) {
            for time in [&mut attributes.changed, &mut attributes.modified] {
                time.seconds -= 3600;
            }
        }
        attributes
    }
}

impl Store for Lasting {
    type Reservation = <MemoryStore as Store>::Reservation;

    fn root(&self) -> Handle {
        self.store.root()
    }

    fn properties(&self) -> Properties {
        self.store.properties()
    }

    fn outlives_process(&self) -> bool {
        true
    }

    async fn attributes(&self, object: Handle) -> Result<Attributes> {
        let found = self.store.attributes(object).await?;
        Ok(self.aged(object, found))
    }

    async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        let (handle, found) = self.store.lookup(caller, directory, name).await?;
        Ok((handle, self.aged(handle, found)))
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.set_attributes(caller, object, set, guard).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<(Handle, Attributes)> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.create(caller, directory, name, how).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self
            .store
            .make_directory(caller, directory, name, set)
            .await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.symlink(caller, directory, name, text, set).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self
            .store
            .make_node(caller, directory, name, kind, set)
            .await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn remove(&self, caller: &Caller, directory: Handle, name: &[u8]) -> Modified<()> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.remove(caller, directory, name).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.remove_directory(caller, directory, name).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn rename(&self, caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Renamed {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.rename(caller, from, to).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn link(
        &self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: &[u8],
    ) -> Linked {
        if self.killed.get() == Killed::Before {
            pending::<()>().await;
        }
        let done = self.store.link(caller, object, directory, name).await;
        if self.killed.get() == Killed::After {
            pending::<()>().await;
        }
        done
    }

    async fn read_link(
        &self,
        caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        self.store.read_link(caller, link, text).await
    }

    async fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        self.store.access(caller, object, wanted).await
    }

    async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        self.store.read(caller, file, offset, length, slices).await
    }

    async fn stage_write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Self::Reservation>> {
        self.store
            .stage_write(caller, file, offset, length, slices)
            .await
    }

    async fn commit_write(
        &self,
        staged: StagedWrite<Self::Reservation>,
        stability: Stability,
    ) -> Modified<Written> {
        self.store.commit_write(staged, stability).await
    }

    async fn commit(&self, file: Handle, offset: u64, length: u32) -> Modified<WriteVerifier> {
        self.store.commit(file, offset, length).await
    }

    async fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        self.store
            .read_directory(caller, directory, cookie, verifier, attributes, sink)
            .await
    }

    async fn statistics(&self, object: Handle) -> Result<Statistics> {
        self.store.statistics(object).await
    }
}
