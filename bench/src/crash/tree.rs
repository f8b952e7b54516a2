//! The possible names and attributes of the run's objects.

use std::collections::{BTreeMap, HashSet, VecDeque};

use millrace_wire::nfs3::{FileHandle, Stability, Status};

use super::content::{Content, Kept, Stamp};
use super::operation::{CrashAnswer, CrashOperation, Handles, Id, NamePlace};

/// Removed objects that are kept to check that their handles are stale.
const GONE: usize = 24;

/// An object that the run has made.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Its handle, once somebody has told it.
    pub handle: Option<FileHandle>,
    /// Its number, once somebody has told it.
    pub fileid: Option<u64>,
    /// A directory, and not a file.
    pub directory: bool,
    /// Names.
    pub links: u32,
    /// Modes that it may have; all if there are none.
    pub modes: Vec<u32>,
    /// What it may hold.
    pub content: Content,
    /// The verifier by which it was made, until something else is done to it.
    pub exclusive: Option<[u8; 8]>,
    /// Its owner.
    pub owner: usize,
    /// READs, WRITEs and COMMITs underway.
    pub data_calls: u32,
    /// Ranges of READs underway: start and length.
    pub reads: Vec<(u64, u64)>,
    /// A call that changes its names or mode is underway.
    pub names_busy: bool,
    /// A call that changes its size or removes it is underway.
    pub closed: bool,
    /// A size that a call without an answer may have set.
    pub resized: Option<u64>,
}

/// A directory of the run, which stays.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Its handle.
    pub handle: FileHandle,
    /// Its name, in the run's own folder.
    pub name: String,
    /// Its entries.
    pub names: BTreeMap<Vec<u8>, Id>,
}

/// The listed content of a directory: numbers and handles by name.
pub type DirectoryContents = BTreeMap<Vec<u8>, (u64, Option<FileHandle>)>;

/// What an answer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Done.
    Done,
    /// Not now.
    Delayed,
    /// Done by the same call before the server died, which it does not remember.
    DoneBefore,
}

/// All that the run has made.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Directories that stay.
    pub directories: Vec<Directory>,
    /// Everything else.
    pub objects: BTreeMap<Id, Object>,
    /// Names that calls are underway for.
    pub busy: HashSet<NamePlace>,
    /// Handles that must be dead.
    pub gone: VecDeque<FileHandle>,
    /// Answers so far.
    pub events: u64,
    next: Id,
    stamps: Stamp,
}

impl Handles for Tree {
    fn object(&self, object: Id) -> FileHandle {
        let handle = self.objects.get(&object).and_then(|object| object.handle);
        handle.expect("calls are made on objects with handles")
    }

    fn directory(&self, directory: usize) -> FileHandle {
        self.directories[directory].handle
    }
}

impl Tree {
    /// A number for a new object.
    pub fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// A name for a new write.
    pub fn new_stamp(&mut self) -> Stamp {
        self.stamps += 1;
        self.stamps
    }

    /// The newest write.
    #[must_use]
    pub const fn newest(&self) -> Stamp {
        self.stamps
    }

    /// The object of a name.
    #[must_use]
    pub fn at(&self, place: &NamePlace) -> Option<Id> {
        let names = &self.directories[place.directory].names;
        names.get(&place.name).copied()
    }

    fn get(&mut self, object: Id) -> &mut Object {
        self.objects.get_mut(&object).expect("it is known")
    }

    /// Names and objects that a call is about.
    fn places(operation: &CrashOperation) -> Vec<&NamePlace> {
        match operation {
            CrashOperation::Create { place, .. }
            | CrashOperation::MakeDirectory { place, .. }
            | CrashOperation::Remove { place }
            | CrashOperation::RemoveDirectory { place }
            | CrashOperation::Link { place, .. } => vec![place],
            CrashOperation::Rename { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// A call is sent: nothing that might get in its way may be sent before it has ended.
    pub fn begin(&mut self, operation: &CrashOperation, owner: usize) {
        for place in Self::places(operation) {
            self.busy.insert(place.clone());
        }
        match operation {
            &CrashOperation::Write {
                file,
                start,
                length,
                stamp,
                ..
            } => {
                let file = self.get(file);
                file.content.begin(start, u64::from(length), stamp);
                file.data_calls += 1;
                file.exclusive = None;
            }
            &CrashOperation::Read {
                file,
                start,
                length,
                ..
            } => {
                let file = self.get(file);
                file.reads.push((start, u64::from(length)));
                file.data_calls += 1;
                file.exclusive = None;
            }
            &CrashOperation::Commit { file, .. } => {
                let file = self.get(file);
                file.data_calls += 1;
                file.exclusive = None;
            }
            &CrashOperation::Resize { file, .. } => {
                let file = self.get(file);
                file.closed = true;
                file.exclusive = None;
            }
            &CrashOperation::Mode { object, .. } => {
                let object = self.get(object);
                object.names_busy = true;
                object.exclusive = None;
            }
            CrashOperation::Create { object, how, .. } => {
                let new = Object {
                    owner,
                    modes: how.iter().copied().collect(),
                    exclusive: how.err(),
                    ..Object::default()
                };
                self.objects.insert(*object, new);
            }
            CrashOperation::MakeDirectory { object, mode, .. } => {
                let new = Object {
                    owner,
                    directory: true,
                    modes: vec![*mode],
                    ..Object::default()
                };
                self.objects.insert(*object, new);
            }
            CrashOperation::Remove { place } | CrashOperation::RemoveDirectory { place } => {
                self.doom(place);
            }
            CrashOperation::Rename { from, to } => {
                if let Some(object) = self.at(from) {
                    self.get(object).names_busy = true;
                }
                self.doom(to);
            }
            CrashOperation::Link { object, .. } => self.get(*object).names_busy = true,
        }
    }

    /// The object of a name may lose it.
    fn doom(&mut self, place: &NamePlace) {
        if let Some(object) = self.at(place) {
            let object = self.get(object);
            object.names_busy = true;
            object.closed |= object.directory || object.links == 1;
        }
    }

    /// Handles the end of a call: releases its reservations, and applies its effect if it is
    /// `done`. An effect that was found after the restart is not applied again.
    pub fn finish(&mut self, operation: &CrashOperation, done: bool) {
        let mut involved = Vec::new();
        for place in Self::places(operation) {
            self.busy.remove(place);
            involved.extend(self.at(place));
        }
        match operation {
            CrashOperation::Read {
                file,
                start,
                length,
                ..
            } => {
                let file = self.get(*file);
                file.data_calls -= 1;
                let range = (*start, u64::from(*length));
                if let Some(at) = file.reads.iter().position(|&read| read == range) {
                    file.reads.swap_remove(at);
                }
            }
            CrashOperation::Write { file, .. } | CrashOperation::Commit { file, .. } => {
                self.get(*file).data_calls -= 1;
            }
            CrashOperation::Resize { file, .. } => self.get(*file).closed = false,
            CrashOperation::Mode { object, .. } | CrashOperation::Link { object, .. } => {
                involved.push(*object);
            }
            CrashOperation::Create { object, .. }
            | CrashOperation::MakeDirectory { object, .. }
                if !done =>
            {
                self.objects.remove(object);
            }
            _ => {}
        }
        for object in involved {
            if let Some(object) = self.objects.get_mut(&object) {
                (object.names_busy, object.closed) = (false, false);
            }
        }
        if done {
            self.apply(operation);
        }
    }

    fn apply(&mut self, operation: &CrashOperation) {
        match operation {
            CrashOperation::Create { object, place, .. }
            | CrashOperation::MakeDirectory { object, place, .. }
            | CrashOperation::Link { object, place } => {
                self.get(*object).links += 1;
                self.name(place, *object);
            }
            CrashOperation::Remove { place } | CrashOperation::RemoveDirectory { place } => {
                self.unname(place);
            }
            CrashOperation::Rename { from, to } => {
                if let Some(object) = self.directories[from.directory].names.remove(&from.name) {
                    self.unname(to);
                    self.name(to, object);
                }
            }
            CrashOperation::Mode { object, mode } => self.get(*object).modes = vec![*mode],
            CrashOperation::Resize { file, size } => self.get(*file).content.resize(*size),
            CrashOperation::Write { .. }
            | CrashOperation::Read { .. }
            | CrashOperation::Commit { .. } => {}
        }
    }

    fn name(&mut self, place: &NamePlace, object: Id) {
        let names = &mut self.directories[place.directory].names;
        names.insert(place.name.clone(), object);
    }

    fn unname(&mut self, place: &NamePlace) {
        let names = &mut self.directories[place.directory].names;
        let Some(id) = names.remove(&place.name) else {
            return;
        };
        let object = self.get(id);
        object.links -= 1;
        if object.links == 0 {
            let handle = object.handle;
            self.objects.remove(&id);
            self.gone.extend(handle);
            if self.gone.len() > GONE {
                self.gone.pop_front();
            }
        }
    }

    /// Takes the answer of a call. `again`: it was sent again after the server died, and whether
    /// it was seen to be done already (and [`finish`](Self::finish) was called then).
    ///
    /// # Errors
    /// What is wrong about it.
    pub fn answered(
        &mut self,
        operation: &CrashOperation,
        answer: &CrashAnswer,
        again: Option<bool>,
    ) -> Result<Meaning, String> {
        self.events += 1;
        let seen_done = again == Some(true);
        if let &CrashAnswer::Failed(status) = answer {
            if status == Status::Jukebox {
                if let &CrashOperation::Write {
                    file,
                    start,
                    length,
                    stamp,
                    ..
                } = operation
                {
                    let content = &mut self.get(file).content;
                    content.abandon((start, u64::from(length)), stamp);
                }
                if !seen_done {
                    self.finish(operation, false);
                }
                return Ok(Meaning::Delayed);
            }
            if seen_done && operation.done_before() == Some(status) {
                return Ok(Meaning::DoneBefore);
            }
            return Err(format!("{} ({})", status.name(), status.text()));
        }
        match (operation, answer) {
            (
                &CrashOperation::Write {
                    file,
                    start,
                    length,
                    stamp,
                    stable,
                },
                &CrashAnswer::Wrote {
                    count,
                    committed,
                    verifier,
                },
            ) => {
                if count != length {
                    return Err(format!("{count} of {length} bytes were written"));
                }
                if (committed as u32) < stable as u32 {
                    return Err(format!("{} for {}", committed.name(), stable.name()));
                }
                let number = self.events;
                let content = &mut self.get(file).content;
                let range = (start, u64::from(length));
                content.end(range, stamp, committed, verifier, number);
            }
            (
                &CrashOperation::Read {
                    file,
                    start,
                    length,
                    size,
                },
                CrashAnswer::Data(data),
            ) => {
                let newest = self.newest();
                let content = &self.get(file).content;
                // A server that lost its cache answers a READ that is sent again before unstable
                // bytes are written again (RFC 1813 section 4.8).
                let (kept, size) = match again {
                    None => (Kept::All, size),
                    Some(_) => (Kept::Stable, size.min(*content.sizes(Kept::Stable).start())),
                };
                let least = size.saturating_sub(start).min(u64::from(length));
                if (data.len() as u64) < least {
                    let read = data.len();
                    return Err(format!("{read} of {least} bytes were read"));
                }
                let checked = content.check(kept, start, data, newest);
                checked.map_err(|wrong| wrong.to_string())?;
            }
            (
                &CrashOperation::Commit {
                    file,
                    start,
                    length,
                    after,
                },
                &CrashAnswer::Committed(verifier),
            ) => {
                let end = match length {
                    0 => u64::MAX,
                    _ => start + u64::from(length),
                };
                let content = &mut self.get(file).content;
                content.commit(start, end, verifier, after);
            }
            (
                CrashOperation::Create { object, .. }
                | CrashOperation::MakeDirectory { object, .. },
                CrashAnswer::Made { handle, attributes },
            ) => {
                if let Some(object) = self.objects.get_mut(object) {
                    if let (Some(one), Some(other)) = (object.handle, *handle)
                        && one != other
                    {
                        return Err("the answer names another handle".to_owned());
                    }
                    object.handle = object.handle.or(*handle);
                    let told = attributes.map(|attributes| attributes.fileid);
                    object.fileid = object.fileid.or(told);
                    if let (Some(one), Some(other)) = (object.fileid, told)
                        && one != other
                    {
                        return Err("the answer names another file".to_owned());
                    }
                }
            }
            (_, CrashAnswer::Done) => {}
            (_, CrashAnswer::Bad(why)) => return Err(why.clone()),
            (_, answer) => return Err(format!("{answer:?}")),
        }
        if !seen_done {
            self.finish(operation, true);
        }
        Ok(Meaning::Done)
    }

    /// A call that will have no answer: of data, or of attributes. Whether it was done is to be
    /// seen by the file.
    pub fn abandon(&mut self, operation: &CrashOperation) {
        match *operation {
            CrashOperation::Write {
                file,
                start,
                length,
                stamp,
                ..
            } => {
                let content = &mut self.get(file).content;
                content.abandon((start, u64::from(length)), stamp);
            }
            CrashOperation::Mode { object, mode } => {
                // Where none was told, it may still be any.
                let modes = &mut self.get(object).modes;
                if !modes.is_empty() {
                    modes.push(mode);
                }
            }
            CrashOperation::Resize { file, size } => self.get(file).resized = Some(size),
            _ => {}
        }
        self.finish(operation, false);
    }

    /// Whether a call about names has been done, according to the directories.
    ///
    /// # Errors
    /// If it was half done.
    pub fn is_done(
        &self,
        operation: &CrashOperation,
        seen: &[DirectoryContents],
    ) -> Result<bool, String> {
        let look = |place: &NamePlace| {
            let found = seen[place.directory].get(&place.name);
            found.map(|&(fileid, _)| fileid)
        };
        let number = |id: Option<Id>| {
            let object = id.and_then(|id| self.objects.get(&id));
            object.and_then(|object| object.fileid)
        };
        let text = |place: &NamePlace| String::from_utf8_lossy(&place.name).into_owned();
        match operation {
            CrashOperation::Create { place, .. } | CrashOperation::MakeDirectory { place, .. } => {
                Ok(look(place).is_some())
            }
            CrashOperation::Remove { place } | CrashOperation::RemoveDirectory { place } => {
                match look(place) {
                    None => Ok(true),
                    found if found == number(self.at(place)) => Ok(false),
                    _ => Err(format!("`{}` is another file", text(place))),
                }
            }
            CrashOperation::Rename { from, to } => {
                let (object, target) = (number(self.at(from)), number(self.at(to)));
                match (look(from), look(to)) {
                    (None, moved) if moved == object && moved.is_some() => Ok(true),
                    (kept, found) if kept == object && found == target => Ok(false),
                    _ => Err(format!("half done, `{}` to `{}`", text(from), text(to))),
                }
            }
            CrashOperation::Link { object, place } => match look(place) {
                None => Ok(false),
                found if found == number(Some(*object)) => Ok(true),
                _ => Err(format!("`{}` is another file", text(place))),
            },
            _ => Ok(false),
        }
    }

    /// Compares the directories with their expected entries, and learns handles and numbers that
    /// are unknown.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&mut self, seen: &[DirectoryContents]) -> Result<(), String> {
        for (directory, seen) in self.directories.iter().zip(seen) {
            let show =
                |name: &[u8]| format!("{}/{}", directory.name, String::from_utf8_lossy(name));
            for name in directory.names.keys() {
                if !seen.contains_key(name) {
                    return Err(format!("`{}` is lost", show(name)));
                }
            }
            for (name, &(fileid, handle)) in seen {
                let Some(id) = directory.names.get(name) else {
                    return Err(format!("`{}` must not be there", show(name)));
                };
                let Some(object) = self.objects.get_mut(id) else {
                    return Err(format!("`{}` has no object", show(name)));
                };
                if *object.fileid.get_or_insert(fileid) != fileid {
                    return Err(format!("`{}` is another file", show(name)));
                }
                if let Some(handle) = handle
                    && *object.handle.get_or_insert(handle) != handle
                {
                    return Err(format!("`{}` has another handle than before", show(name)));
                }
            }
        }
        Ok(())
    }
}

/// Data durable on being answered, and data that is not, in turn.
pub const STABILITIES: [Stability; 3] = [
    Stability::Unstable,
    Stability::DataSync,
    Stability::FileSync,
];

#[cfg(test)]
mod tests;
