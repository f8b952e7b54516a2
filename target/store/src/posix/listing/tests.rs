//! Tests of listing. Helpers are blocked and released by the tests, so that nothing depends on
//! speed.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};

use super::batch::{DESCRIBED, SLICE};
use crate::posix::PosixStore;
use crate::posix::engine::Backend;
use crate::posix::helpers::{HelperLimits, Job};
use crate::posix::posix_machine::*;
use crate::posix::volume::{Direct, Limits, Volume, VolumeConfig};
use crate::{ClientKey, CookieVerifier, Namespace, Result, Store};

const ENTRIES: usize = 2 * DESCRIBED;

/// A folder with many files and one helper, and a machine that has the folder open.
struct Listing {
    machine: Machine,
    volume: Volume,
    store: PosixStore,
    _folder: Folder,
}

impl Listing {
    fn new() -> Self {
        let [_disk, folder] = Folder::both("listing");
        for number in 0..ENTRIES {
            fs::write(folder.0.join(number.to_string()), b"").unwrap();
        }
        let helpers = HelperLimits {
            threads: 1,
            queue: 100,
        };
        let limits = Limits {
            helpers,
            ..Limits::default()
        };
        let config = VolumeConfig {
            limits,
            ..config(&folder.0, Direct::Never)
        };
        let volume = Volume::open(config).unwrap();
        let machine = Machine::new(Backend::Threads);
        let store = machine.store(&volume);
        let by = store.clone();
        machine.run(async move { by.attributes(by.root()).await.unwrap() });
        Self {
            machine,
            volume,
            store,
            _folder: folder,
        }
    }

    /// Blocks the helper until it is released.
    fn hold(&self) -> Sender<()> {
        let (begun, has_begun) = channel();
        let (go, may_go) = channel();
        let held: Job<()> = self.volume.helpers().run(ClientKey::OWN, move || {
            begun.send(()).unwrap();
            let _ = may_go.recv();
        });
        drop(held);
        has_begun.recv().unwrap();
        go
    }

    /// Begins a client's listing, which counts its entries.
    fn list(&self, client: ClientKey) -> (Pending<Result<usize>>, Rc<Cell<usize>>) {
        let store = self.store.for_client(client).unwrap();
        let found = Rc::new(Cell::new(0));
        let counted = Rc::clone(&found);
        let listing = self.machine.begin(async move {
            let mut sink = |_: crate::DirectoryEntry<'_>| {
                counted.set(counted.get() + 1);
                true
            };
            let verifier = CookieVerifier::default();
            let root = store.root();
            let done = store
                .read_directory(&ROOT, root, 0, verifier, true, &mut sink)
                .await;
            done.map(|_| counted.get())
        });
        self.machine.turn();
        (listing, found)
    }
}

#[test]
fn a_long_listing_holds_up_another_client_for_a_slice() {
    let listing = Listing::new();
    let [one, other] = [1, 2].map(ClientKey::new);
    let go = listing.hold();
    let (long, found) = listing.list(one);
    // Another client's job is queued behind it.
    let (done, is_done) = channel();
    let (leave, may_leave) = channel::<()>();
    let job = listing.volume.helpers().run(other, move || {
        done.send(()).unwrap();
        let _ = may_leave.recv();
    });
    assert_eq!(listing.volume.helpers().load().queued, 2);
    go.send(()).unwrap();
    is_done.recv().unwrap();
    // The second batch does not start before that job has ended.
    listing.machine.until(|| found.get() > 0);
    assert_eq!(found.get(), SLICE, "it gave way after a slice");
    drop((leave, job));
    assert_eq!(
        listing.machine.wait(&long),
        Ok(ENTRIES + 2),
        "nothing is missing"
    );
}

#[test]
fn a_long_listing_gives_way_to_nobody_of_the_same_client() {
    let listing = Listing::new();
    let one = ClientKey::new(1);
    let go = listing.hold();
    let (long, found) = listing.list(one);
    let job = listing.volume.helpers().run(one, || ());
    go.send(()).unwrap();
    listing.machine.until(|| found.get() > 0);
    // The next part may already be there.
    assert!(found.get() >= DESCRIBED);
    assert_eq!(listing.machine.wait(&long), Ok(ENTRIES + 2));
    drop(job);
}
