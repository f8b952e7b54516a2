//! Listing directories. Cookies are the positions that the library reports with each entry; they
//! have the same meaning on every server and after restarts, so the cookie verifier is always zero.

use std::ops::Range;

use super::call::CallContext;
use super::handle::ObjectKey;
use super::permission::EXECUTE;
use super::sys::Directory;
use super::view::ClientView;
use crate::{
    Attributes, Caller, ClientKey, CookieVerifier, DirectoryEntry, DirectoryOutcome, Handle,
    Result, StoreError,
};

const VERIFIER: CookieVerifier = CookieVerifier([0; 8]);

/// The most entries of a batch, and after how many of them a batch ends early for other clients.
const LISTED: usize = 256;
const SLICE: usize = 32;

/// Some entries of a directory.
struct CephBatch {
    entries: Vec<BatchEntry>,
    names: Vec<u8>,
    /// Where to continue, if the directory does not end here.
    next: Option<u64>,
    directory: Attributes,
}

struct BatchEntry {
    cookie: u64,
    inode: u64,
    name: Range<usize>,
    found: Option<(Handle, Attributes)>,
}

impl ClientView<'_> {
    pub(super) async fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        let client = self.client;
        let mut from = cookie;
        loop {
            let batch = self.ask(caller, move |context| {
                let is_known = cookie == 0 || verifier == VERIFIER;
                read(context, client, directory, from, attributes, is_known)
            });
            let batch = batch.await?;
            let mut entries = batch.entries.iter();
            let taken = entries.all(|entry| {
                sink(DirectoryEntry {
                    cookie: entry.cookie,
                    name: &batch.names[entry.name.clone()],
                    inode: entry.inode,
                    handle: entry.found.map(|(handle, _)| handle),
                    attributes: entry.found.map(|(_, attributes)| attributes),
                })
            });
            let Some(next) = batch.next.filter(|_| taken) else {
                return Ok(DirectoryOutcome {
                    verifier: VERIFIER,
                    end: taken,
                    attributes: batch.directory,
                });
            };
            from = next;
        }
    }
}

/// Reads a batch of the entries after `cookie`. Runs on a helper.
fn read(
    context: &CallContext,
    client: ClientKey,
    directory: Handle,
    cookie: u64,
    attributes: bool,
    is_known: bool,
) -> Result<CephBatch> {
    let place = context.directory(directory)?;
    if !is_known {
        return Err(StoreError::BadCookie);
    }
    context.require(&place, super::permission::READ)?;
    // A caller who may list a directory but not search it gets names, but no attributes.
    let searchable = attributes && context.allows(&place, EXECUTE)?;
    let superuser = &context.session.superuser;
    let opened = Directory::open(&place.inode, superuser, cookie);
    let mut opened = opened.map_err(|error| match error {
        rustix::io::Errno::INVAL => StoreError::BadCookie,
        error => context.error(error),
    })?;
    let (mut entries, mut names) = (Vec::new(), Vec::new());
    let mut next = None;
    while let Some(entry) = opened.next().map_err(|error| context.error(error))? {
        // The library may not know the parent of a directory that was found by its number.
        let (inode, found) = if entry.name == b".." {
            let parent = context.parent(&place)?;
            let shown = (parent.handle, parent.attributes);
            (parent.attributes.inode, searchable.then_some(shown))
        } else if searchable && entry.found.mode != 0 {
            let key = ObjectKey::of(&entry.found);
            let shown = context.listed(&entry.found)?;
            let handle = key.handle(context.session.file_system);
            (key.inode, Some((handle, shown)))
        } else {
            (entry.found.inode, None)
        };
        let start = names.len();
        names.extend_from_slice(&entry.name);
        entries.push(BatchEntry {
            cookie: entry.cookie,
            inode,
            name: start..names.len(),
            found,
        });
        let count = entries.len();
        let gives_way =
            count.is_multiple_of(SLICE) && context.volume.names().is_wanted_by_others(client);
        if count >= LISTED || gives_way {
            next = Some(entry.cookie);
            break;
        }
    }
    Ok(CephBatch {
        entries,
        names,
        next,
        directory: context.attributes(&place)?,
    })
}
