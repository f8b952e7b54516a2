//! Inspection of the objects after the server's restart.

use anyhow::{Context as _, Result, bail, ensure};
use millrace_wire::nfs3::{CreateHow, FileHandle, FileType, Stability, Status, WriteVerifier};

use super::content::{self, Kept};
use super::operation::{Id, NamePlace};
use super::tree::{DirectoryContents, Object, Tree};
use crate::requester::Session;

/// Bytes of one READ, and of one WRITE.
const READ: u64 = 1 << 20;
const WRITE: u64 = 256 << 10;

/// Bytes of one READDIRPLUS.
const LIST: u32 = 64 << 10;

/// Name of the file that is asked for the write verifier.
pub const PROBE: &[u8] = b"probe";

/// Counts of the inspected objects, over all cycles.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Found {
    /// Bytes compared.
    pub bytes: u64,
    /// Bytes that were answered as unstable, or not answered, and may have been lost.
    pub open: u64,
    /// Those of them that were there.
    pub kept: u64,
    /// Bytes written again because their state was unknown.
    pub rewritten: u64,
    /// Names compared.
    pub names: u64,
    /// Files made by exclusive CREATE of which the verifier was checked.
    pub exclusive: u64,
    /// Handles of removed objects that were dead.
    pub dead: u64,
}

/// What all directories of the run hold.
///
/// # Errors
/// If a handle from before is no good, or there is anything else.
pub fn look(
    session: &mut Session,
    tree: &Tree,
    base: FileHandle,
) -> Result<Vec<DirectoryContents>> {
    let mut beside = list(session, base).context("the run's own folder")?;
    for directory in &tree.directories {
        let found = beside.remove(directory.name.as_bytes());
        ensure!(found.is_some(), "`{}` is lost", directory.name);
    }
    ensure!(beside.remove(PROBE).is_some(), "the probe is lost");
    if let Some((name, _)) = beside.first_key_value() {
        bail!("`{}` must not be there", String::from_utf8_lossy(name));
    }
    let directories = tree.directories.iter();
    directories
        .map(|directory| {
            list(session, directory.handle).with_context(|| format!("`{}`", directory.name))
        })
        .collect()
}

fn list(session: &mut Session, directory: FileHandle) -> Result<DirectoryContents> {
    let mut seen = DirectoryContents::new();
    let (mut cookie, mut verifier) = (0, [0; 8]);
    loop {
        let part = session.readdirplus(directory, cookie, verifier, LIST, LIST)?;
        verifier = part.verifier;
        let last = part.entries.last().map(|entry| entry.cookie);
        for entry in part.entries {
            if entry.name != b"." && entry.name != b".." {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let before = seen.insert(entry.name, (entry.fileid, entry.handle));
                ensure!(before.is_none(), "`{name}` is listed twice");
            }
        }
        match last {
            _ if part.eof => return Ok(seen),
            Some(last) => cookie = last,
            None => bail!("neither entries nor the end"),
        }
    }
}

/// One name of every object.
fn names(tree: &Tree) -> Vec<(Id, NamePlace)> {
    let mut names: Vec<(Id, NamePlace)> = Vec::new();
    for (number, directory) in tree.directories.iter().enumerate() {
        for (name, &id) in &directory.names {
            if names.iter().all(|(known, _)| *known != id) {
                let place = NamePlace {
                    directory: number,
                    name: name.clone(),
                };
                names.push((id, place));
            }
        }
    }
    names
}

/// Compares every object with its expected state, by its handle from before the restart, and
/// rewrites data of unknown state.
///
/// # Errors
/// The first thing that must not be.
pub fn objects(
    session: &mut Session,
    tree: &mut Tree,
    verifier: WriteVerifier,
    found: &mut Found,
) -> Result<()> {
    for (id, place) in names(tree) {
        let directory = &tree.directories[place.directory];
        let name = format!(
            "{}/{}",
            directory.name,
            String::from_utf8_lossy(&place.name)
        );
        found.names += 1;
        let at = (directory.handle, &place.name[..]);
        let newest = tree.newest();
        let stamp = tree.new_stamp();
        let Some(object) = tree.objects.get_mut(&id) else {
            bail!("`{name}` has no object");
        };
        if object.handle.is_none() {
            let looked_up = session.lookup(at.0, at.1);
            object.handle = Some(looked_up.with_context(|| format!("`{name}`"))?.object);
        }
        one(session, object, at, (verifier, newest, stamp), found)
            .with_context(|| format!("`{name}`"))?;
    }
    for &handle in &tree.gone {
        match session.getattr(handle) {
            Err(error) if error.status() == Some(Status::Stale) => found.dead += 1,
            Ok(attributes) => bail!("a removed file is alive: {attributes:?}"),
            Err(error) => return Err(error).context("the handle of a removed file"),
        }
    }
    Ok(())
}

fn one(
    session: &mut Session,
    object: &mut Object,
    (directory, name): (FileHandle, &[u8]),
    (verifier, newest, stamp): (WriteVerifier, u32, u32),
    found: &mut Found,
) -> Result<()> {
    let handle = object.handle.context("no handle")?;
    // First: it finishes a file that the server had made and not answered.
    if let Some(made_by) = object.exclusive.take() {
        exclusive(session, (directory, name), handle, made_by)?;
        found.exclusive += 1;
    }
    let attributes = session.getattr(handle).context("the handle from before")?;
    let kind = if object.directory {
        FileType::Directory
    } else {
        FileType::Regular
    };
    ensure!(
        attributes.kind == kind,
        "it is a {}",
        attributes.kind.text()
    );
    let fileid = *object.fileid.get_or_insert(attributes.fileid);
    ensure!(
        attributes.fileid == fileid,
        "the handle leads to another file"
    );
    let mode = attributes.mode & 0o7777;
    ensure!(
        object.modes.is_empty() || object.modes.contains(&mode),
        "its mode is {mode:#o} and must be one of {}",
        object
            .modes
            .iter()
            .map(|mode| format!("{mode:#o} "))
            .collect::<String>()
    );
    object.modes = vec![mode];
    if object.directory {
        return Ok(());
    }
    ensure!(
        attributes.links == object.links,
        "it has {} links and must have {}",
        attributes.links,
        object.links
    );
    content(
        session,
        object,
        attributes.size,
        (verifier, newest, stamp),
        found,
    )
}

/// The verifier of an exclusive CREATE is still known: the same call succeeds, another does not.
fn exclusive(
    session: &mut Session,
    (directory, name): (FileHandle, &[u8]),
    handle: FileHandle,
    verifier: [u8; 8],
) -> Result<()> {
    let again = session.create(directory, name, CreateHow::Exclusive(verifier));
    let again = again.context("the same exclusive CREATE again")?;
    let same = again.object.is_none_or(|object| object == handle);
    ensure!(same, "the same exclusive CREATE made another file");
    let other = verifier.map(|byte| !byte);
    match session.create(directory, name, CreateHow::Exclusive(other)) {
        Err(error) if error.status() == Some(Status::Exists) => Ok(()),
        Err(error) => Err(error).context("an exclusive CREATE with another verifier"),
        Ok(_) => bail!("an exclusive CREATE with another verifier succeeded"),
    }
}

fn content(
    session: &mut Session,
    object: &mut Object,
    size: u64,
    (verifier, newest, stamp): (WriteVerifier, u32, u32),
    found: &mut Found,
) -> Result<()> {
    let handle = object.handle.context("no handle")?;
    let kept = Kept::Verifier(verifier);
    let content = &mut object.content;
    if let Some(new) = object.resized.take()
        && size == new
    {
        content.resize(new);
    }
    let sizes = content.sizes(kept);
    ensure!(
        sizes.contains(&size),
        "its size is {size} and must be {} to {}",
        sizes.start(),
        sizes.end()
    );
    let mut at = 0;
    while at < size {
        let length = (size - at).min(READ) as usize;
        let room = session.buffer(length)?.into_slice(0..length);
        let done = session.read(handle, at, std::slice::from_ref(&room))?;
        ensure!(
            done.count as usize == length,
            "a short READ of {} bytes",
            done.count
        );
        let mut data = vec![0; length];
        room.copy_to(0, &mut data);
        let checked = content
            .check(kept, at, &data, newest)
            .map_err(|wrong| anyhow::anyhow!("{wrong}"))?;
        found.bytes += checked.bytes;
        found.open += checked.open;
        found.kept += checked.newest;
        at += length as u64;
    }
    rewrite(session, handle, content, (verifier, stamp), found)
}

/// Writes data of unknown state again, as a client does.
fn rewrite(
    session: &mut Session,
    handle: FileHandle,
    content: &mut content::Content,
    (verifier, stamp): (WriteVerifier, u32),
    found: &mut Found,
) -> Result<()> {
    let unsettled = content.unsettled(verifier);
    if unsettled.is_empty() {
        return Ok(());
    }
    for (start, end) in unsettled {
        let mut at = start;
        while at < end {
            let length = (end - at).min(WRITE);
            let mut buffer = session.buffer(length as usize)?;
            content::bytes(stamp, at, &mut buffer[..length as usize]);
            let data = [buffer.into_slice(0..length as usize)];
            content.begin(at, length, stamp);
            let done = session.write(handle, at, &data, Stability::FileSync)?;
            ensure!(
                u64::from(done.count) == length && done.committed == Stability::FileSync,
                "a short or unstable WRITE: {done:?}"
            );
            content.end((at, length), stamp, Stability::FileSync, done.verifier, 0);
            found.rewritten += length;
            at += length;
        }
    }
    let size = session.getattr(handle)?.size;
    let sizes = content.sizes(Kept::Verifier(verifier));
    ensure!(
        sizes.contains(&size),
        "its size after writing again is {size} and must be {} to {}",
        sizes.start(),
        sizes.end()
    );
    content.settle(size);
    Ok(())
}
