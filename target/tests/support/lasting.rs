//! A store that outlives the service, with calls that end where the process would be killed, and
//! objects that have not been changed for long.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::pending;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_mempool::Slice;
use millrace_store::memory::MemoryStore;
use millrace_store::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, CookieVerifier, CopiedRange,
    CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData, FileHold, FileLease,
    FileRanges, FoundRange, Handle, LeaseBreak, Linked, Modified, Namespace, Properties,
    RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow, SpecialKind, Stability,
    StagedWrite, Statistics, Store, StoreError, Time, UsageAdvice, WriteVerifier, Written,
    forward_access_control, forward_extended_attributes, forward_file_data, forward_file_ranges,
    forward_namespace,
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
    /// Whether a call has ended where `killed` says.
    pub is_killed: Rc<Cell<bool>>,
    /// Whether names are looked up without end.
    pub hung: Rc<Cell<bool>>,
    /// Whether names cannot be looked up now.
    pub delayed: Rc<Cell<bool>>,
    /// Whether attributes cannot be set now.
    pub is_full: Rc<Cell<bool>>,
    /// Objects that were last changed an hour before they were.
    pub old: Rc<RefCell<HashSet<Handle>>>,
    /// Objects that were last changed an hour later.
    pub young: Rc<RefCell<HashSet<Handle>>>,
    /// The leases that were given; without, there are none.
    pub leases: Option<Rc<RefCell<Vec<GivenLease>>>>,
}

/// The store's side of a lease.
pub struct GivenLease {
    pub end: LeaseBreak,
    held: Weak<()>,
}

impl GivenLease {
    pub fn has_ended(&self) -> bool {
        self.held.upgrade().is_none()
    }
}

impl Lasting {
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            killed: Rc::default(),
            is_killed: Rc::default(),
            hung: Rc::default(),
            delayed: Rc::default(),
            is_full: Rc::default(),
            old: Rc::default(),
            young: Rc::default(),
            leases: None,
        }
    }

    async fn end(&self) {
        self.is_killed.set(true);
        pending::<()>().await;
    }

    fn aged(&self, object: Handle, mut attributes: Attributes) -> Attributes {
        for time in [&mut attributes.changed, &mut attributes.modified] {
            if self.old.borrow().contains(&object) {
                time.seconds -= 3600;
            }
            if self.young.borrow().contains(&object) {
                time.seconds += 3600;
            }
        }
        attributes
    }
}

/// Calls the same operation of the store in memory, and ends where the process is killed.
macro_rules! namespace {
    ($lasting:ident.attributes($object:ident)) => {{
        let found = $lasting.store.attributes($object).await?;
        Ok($lasting.aged($object, found))
    }};
    ($lasting:ident.lookup($caller:ident, $directory:ident, $name:ident)) => {{
        if $lasting.hung.get() {
            pending::<()>().await;
        }
        if $lasting.delayed.get() {
            return Err(StoreError::Delay);
        }
        let found = $lasting.store.lookup($caller, $directory, $name);
        let (handle, found) = found.await?;
        Ok((handle, $lasting.aged(handle, found)))
    }};
    ($lasting:ident.access($($argument:ident),*)) => {
        $lasting.store.access($($argument),*).await
    };
    ($lasting:ident.read_link($($argument:ident),*)) => {
        $lasting.store.read_link($($argument),*).await
    };
    ($lasting:ident.read_directory($($argument:ident),*)) => {
        $lasting.store.read_directory($($argument),*).await
    };
    ($lasting:ident.statistics($object:ident)) => {
        $lasting.store.statistics($object).await
    };
    ($lasting:ident.set_attributes($($argument:ident),*)) => {{
        if $lasting.is_full.get() {
            return Modified::failed(StoreError::NoSpace);
        }
        namespace!($lasting.change set_attributes($($argument),*))
    }};
    ($lasting:ident.$operation:ident($($argument:ident),*)) => {
        namespace!($lasting.change $operation($($argument),*))
    };
    ($lasting:ident.change $operation:ident($($argument:ident),*)) => {{
        if $lasting.killed.get() == Killed::Before {
            $lasting.end().await;
        }
        let done = $lasting.store.$operation($($argument),*).await;
        if $lasting.killed.get() == Killed::After {
            $lasting.end().await;
        }
        done
    }};
}

impl Namespace for Lasting {
    forward_namespace!(namespace);
}

macro_rules! file_data {
    ($lasting:ident.$operation:ident($($argument:ident),*)) => {
        $lasting.store.$operation($($argument),*).await
    };
}

impl FileData for Lasting {
    type Reservation = <MemoryStore as FileData>::Reservation;

    forward_file_data!(file_data);
}

impl FileRanges for Lasting {
    forward_file_ranges!(file_data);
}

impl AccessControl for Lasting {
    forward_access_control!(file_data);
}

impl ExtendedAttributes for Lasting {
    forward_extended_attributes!(file_data);
}

impl Store for Lasting {
    fn root(&self) -> Handle {
        self.store.root()
    }

    fn properties(&self) -> Properties {
        let leases = self.leases.is_some();
        Properties {
            leases,
            changes_elsewhere: leases,
            ..self.store.properties()
        }
    }

    fn outlives_process(&self) -> bool {
        true
    }

    async fn lease(&self, _: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
        if self.delayed.get() {
            return Ok(None);
        }
        let alive = Arc::new(());
        let held = Arc::downgrade(&alive);
        let lease = FileLease::new(alive, end.clone(), Duration::from_secs(10));
        let given = self.leases.as_ref().expect("there are leases");
        given.borrow_mut().push(GivenLease { end, held });
        Ok(Some(lease))
    }
}
