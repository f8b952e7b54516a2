//! Random operations on a store and on a model of plain maps come to the same.

pub mod actions;

use std::collections::{BTreeMap, BTreeSet};

use actions::Action;
use millrace_mempool::Slice;
use millrace_store::memory::{DIRECTORY_BYTES, NAME_BYTES, OBJECT_BYTES};
use millrace_store::{
    CreateHow, FileData, Handle, Kind, Namespace, Result, SetAttributes, Stability, StagedWrite,
    Store, StoreError,
};

use crate::common::*;

pub const PAGE: u64 = 4096;
const BLOCK: u64 = 64 * 1024;
const LINK_TEXT: &[u8] = b"to";
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

enum Body {
    File {
        bytes: Vec<u8>,
        extents: BTreeSet<u64>,
    },
    Directory {
        entries: BTreeMap<Vec<u8>, usize>,
        parent: usize,
    },
    Symlink,
}

struct Object {
    handle: Handle,
    body: Body,
    links: u32,
}

struct Pending<S: Store> {
    staged: StagedWrite<S::Reservation>,
    slices: Vec<Slice>,
    object: usize,
    bytes: Vec<u8>,
}

/// A READ on its way to a client, and the bytes that it began with.
struct LentRead {
    slices: Vec<Slice>,
    bytes: Vec<u8>,
}

/// Which store the model is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// The memory store, with so many bytes: the model foretells when they run out, and what the
    /// store counts.
    Memory { limit: u64 },
    /// The kernel, which has more space than the test needs.
    Kernel,
}

struct Model<S: Store> {
    store: S,
    rules: Rules,
    objects: Vec<Object>,
    pending: Vec<Pending<S>>,
    lent: Vec<LentRead>,
}

/// Where each extent begins that a range touches.
fn touched(offset: u64, length: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut next = offset;
    while next < offset + length {
        let size = extent_size(next);
        let base = next / size * size;
        found.push(base);
        next = base + size;
    }
    found
}

/// What an object counts, without data and names.
fn cost(body: &Body) -> u64 {
    match body {
        Body::File { .. } => OBJECT_BYTES,
        Body::Directory { .. } => DIRECTORY_BYTES,
        Body::Symlink => OBJECT_BYTES + LINK_TEXT.len() as u64,
    }
}

fn name_cost(name: &[u8]) -> u64 {
    NAME_BYTES + name.len() as u64
}

fn extent_size(base: u64) -> u64 {
    if base < BLOCK { PAGE } else { BLOCK }
}

fn sum(extents: &BTreeSet<u64>) -> u64 {
    extents.iter().map(|base| extent_size(*base)).sum()
}

impl<S: Store> Model<S> {
    fn new(store: S, rules: Rules) -> Self {
        let body = Body::Directory {
            entries: BTreeMap::new(),
            parent: 0,
        };
        let root = Object {
            handle: store.root(),
            body,
            links: 2,
        };
        Self {
            store,
            rules,
            objects: vec![root],
            pending: Vec::new(),
            lent: Vec::new(),
        }
    }

    fn handle(&self, object: usize) -> Handle {
        self.objects[object].handle
    }

    fn entries(&mut self, directory: usize) -> Result<&mut BTreeMap<Vec<u8>, usize>> {
        let object = &mut self.objects[directory];
        match &mut object.body {
            _ if object.links == 0 => Err(StoreError::Stale),
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(StoreError::NotDirectory),
        }
    }

    fn find(&mut self, directory: usize, name: &[u8]) -> Result<usize> {
        self.entries(directory)?
            .get(name)
            .copied()
            .ok_or(StoreError::NotFound)
    }

    fn is_directory(&self, object: usize) -> bool {
        matches!(self.objects[object].body, Body::Directory { .. })
    }

    fn file(&mut self, object: usize) -> Result<(&mut Vec<u8>, &mut BTreeSet<u64>)> {
        let object = &mut self.objects[object];
        match &mut object.body {
            _ if object.links == 0 => Err(StoreError::Stale),
            Body::File { bytes, extents } => Ok((bytes, extents)),
            Body::Directory { .. } => Err(StoreError::IsDirectory),
            Body::Symlink => Err(StoreError::Invalid),
        }
    }

    fn used(&self) -> u64 {
        let live = self.objects.iter().filter(|object| object.links > 0);
        let taken = live.map(|object| match &object.body {
            Body::File { extents, .. } => sum(extents) + cost(&object.body),
            Body::Directory { entries, .. } => {
                let names = entries.keys().map(|name| name_cost(name));
                cost(&object.body) + names.sum::<u64>()
            }
            Body::Symlink => cost(&object.body),
        });
        // The root counts nothing.
        taken.sum::<u64>() - DIRECTORY_BYTES
    }

    /// Whether an object or a name that takes so much finds space.
    fn room(&self, bytes: u64) -> Result<()> {
        match self.rules {
            Rules::Memory { limit } if self.used() + bytes > limit => Err(StoreError::NoSpace),
            _ => Ok(()),
        }
    }

    fn add(&mut self, directory: usize, name: &[u8], body: Body, handle: Handle) {
        let number = self.objects.len();
        let links = if matches!(body, Body::Directory { .. }) {
            2
        } else {
            1
        };
        self.objects[directory].links += links - 1;
        self.objects.push(Object {
            handle,
            body,
            links,
        });
        self.entries(directory)
            .unwrap()
            .insert(name.to_vec(), number);
    }

    fn unlink(&mut self, directory: usize, name: &[u8]) {
        let object = self.entries(directory).unwrap().remove(name).unwrap();
        if self.is_directory(object) {
            self.objects[object].links = 0;
            self.objects[directory].links -= 1;
        } else {
            self.objects[object].links -= 1;
        }
    }

    fn resize(&mut self, object: usize, size: u64) -> Result<()> {
        let (bytes, extents) = self.file(object)?;
        bytes.resize(size as usize, 0);
        extents.retain(|base| *base < size);
        Ok(())
    }

    fn write(&mut self, object: usize, offset: u64, data: &[u8]) -> Result<()> {
        let (bytes, extents) = self.file(object)?;
        if !data.is_empty() {
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(data);
            extents.extend(touched(offset, data.len() as u64));
        }
        Ok(())
    }

    /// Whether a write finds space now: what has no extent yet makes the file grow.
    fn fits(&mut self, object: usize, offset: u64, length: u64) -> Result<()> {
        let used = self.used();
        let free = match self.rules {
            Rules::Memory { limit } => limit - used,
            Rules::Kernel => u64::MAX,
        };
        let (_, extents) = self.file(object)?;
        let wanted: u64 = touched(offset, length)
            .into_iter()
            .filter(|base| !extents.contains(base))
            .map(extent_size)
            .sum();
        if wanted > free {
            Err(StoreError::NoSpace)
        } else {
            Ok(())
        }
    }

    fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> Result<()> {
        // Both have to be there before one is looked at.
        for directory in [from.0, to.0] {
            if self.objects[directory].links == 0 {
                return Err(StoreError::Stale);
            }
        }
        self.entries(from.0)?;
        self.entries(to.0)?;
        let source = self.find(from.0, from.1)?;
        let target = self.find(to.0, to.1).ok();
        if target == Some(source) {
            return Ok(());
        }
        let from_lineage = self.lineage(from.0);
        if self.lineage(to.0).contains(&source) {
            return Err(StoreError::Invalid);
        }
        // The kernel sees that a directory would go before it sees what would come.
        if self.rules == Rules::Kernel && target.is_some_and(|it| from_lineage.contains(&it)) {
            return Err(StoreError::NotEmpty);
        }
        if let Some(target) = target {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(StoreError::NotDirectory),
                (false, true) => return Err(StoreError::IsDirectory),
                (true, true)
                    if from_lineage.contains(&target) || !self.entries(target)?.is_empty() =>
                {
                    return Err(StoreError::NotEmpty);
                }
                _ => {}
            }
            self.unlink(to.0, to.1);
        }
        self.entries(from.0)?.remove(from.1);
        self.entries(to.0)?.insert(to.1.to_vec(), source);
        if let Body::Directory { parent, .. } = &mut self.objects[source].body {
            *parent = to.0;
            self.objects[from.0].links -= 1;
            self.objects[to.0].links += 1;
        }
        Ok(())
    }

    fn lineage(&self, mut directory: usize) -> Vec<usize> {
        let mut lineage = vec![directory];
        while let Body::Directory { parent, .. } = &self.objects[directory].body
            && *parent != directory
        {
            directory = *parent;
            lineage.push(directory);
        }
        lineage
    }

    fn run(&mut self, action: &Action) {
        let store = self.store.clone();
        let count = self.objects.len();
        match *action {
            Action::Create {
                directory,
                name,
                way,
            } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let how = match way {
                    0 => CreateHow::Guarded(mode(0o600)),
                    1 => CreateHow::Exclusive([5; 8], SetAttributes::default()),
                    2 => CreateHow::Unchecked(mode(0o600)),
                    _ => CreateHow::Unchecked(SetAttributes {
                        size: Some(3),
                        ..mode(0o600)
                    }),
                };
                let made = now(store.create(&ROOT, self.handle(directory), name, &how)).result;
                let existing = self.find(directory, name);
                let made = made.map(|(handle, _)| handle);
                match existing {
                    Ok(object) => {
                        // An exclusive create may find what another one made.
                        let file = matches!(self.objects[object].body, Body::File { .. });
                        if file && way >= 2 || made == Ok(self.handle(object)) {
                            assert!(way > 0);
                            assert_eq!(made, Ok(self.handle(object)));
                        } else {
                            assert_eq!(made, Err(StoreError::Exists));
                        }
                        if file && way > 2 {
                            self.resize(object, 3).unwrap();
                        }
                    }
                    Err(StoreError::NotFound) => {
                        let bytes = if way > 2 { vec![0; 3] } else { Vec::new() };
                        let body = Body::File {
                            bytes,
                            extents: BTreeSet::new(),
                        };
                        self.added(directory, name, body, made);
                    }
                    Err(error) => assert_eq!(made, Err(error)),
                }
            }
            Action::MakeDirectory { directory, name } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let made = now(store.make_directory(
                    &ROOT,
                    self.handle(directory),
                    name,
                    &SetAttributes::default(),
                ));
                let body = Body::Directory {
                    entries: BTreeMap::new(),
                    parent: directory,
                };
                self.made(directory, name, body, made.result.map(|(handle, _)| handle));
            }
            Action::Symlink { directory, name } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let set = SetAttributes::default();
                let made = now(store.symlink(&ROOT, self.handle(directory), name, LINK_TEXT, &set));
                let made = made.result.map(|(handle, _)| handle);
                self.made(directory, name, Body::Symlink, made);
            }
            Action::Link {
                object,
                directory,
                name,
            } => {
                let (object, directory, name) = (object % count, directory % count, NAMES[name]);
                let (handle, place) = (self.handle(object), self.handle(directory));
                let linked = now(store.link(&ROOT, handle, place, name)).result;
                let expected = match self.find(directory, name) {
                    _ if self.objects[object].links == 0 => Err(StoreError::Stale),
                    Err(StoreError::Stale) => Err(StoreError::Stale),
                    Err(StoreError::NotDirectory) => Err(StoreError::NotDirectory),
                    _ if self.is_directory(object) => Err(StoreError::Invalid),
                    Ok(_) => Err(StoreError::Exists),
                    Err(_) if self.room(name_cost(name)).is_err() => Err(StoreError::NoSpace),
                    Err(_) => {
                        self.objects[object].links += 1;
                        self.entries(directory)
                            .unwrap()
                            .insert(name.to_vec(), object);
                        Ok(())
                    }
                };
                assert_eq!(linked, expected);
            }
            Action::Remove { directory, name } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let removed = now(store.remove(&ROOT, self.handle(directory), name)).result;
                let expected = match self.find(directory, name) {
                    Ok(object) if self.is_directory(object) => Err(StoreError::IsDirectory),
                    other => other.map(|_| self.unlink(directory, name)),
                };
                assert_eq!(removed, expected);
            }
            Action::RemoveDirectory { directory, name } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let handle = self.handle(directory);
                let removed = now(store.remove_directory(&ROOT, handle, name)).result;
                let expected = self.find(directory, name).and_then(|object| {
                    if !self.entries(object)?.is_empty() {
                        return Err(StoreError::NotEmpty);
                    }
                    self.unlink(directory, name);
                    Ok(())
                });
                assert_eq!(removed, expected);
            }
            Action::Rename {
                from,
                from_name,
                to,
                to_name,
            } => {
                let from = (from % count, NAMES[from_name]);
                let to = (to % count, NAMES[to_name]);
                let (source, target) = (self.handle(from.0), self.handle(to.0));
                let renamed = now(store.rename(&ROOT, (source, from.1), (target, to.1))).result;
                assert_eq!(renamed, self.rename(from, to));
            }
            Action::Lookup { directory, name } => {
                let (directory, name) = (directory % count, NAMES[name]);
                let found = now(store.lookup(&ROOT, self.handle(directory), name));
                let expected = self.find(directory, name).map(|object| self.handle(object));
                assert_eq!(found.map(|(handle, _)| handle), expected);
            }
            Action::Resize {
                object,
                size: bytes,
            } => {
                let object = object % count;
                let handle = self.handle(object);
                let set = now(store.set_attributes(&ROOT, handle, &size(bytes), None)).result;
                assert_eq!(set, self.resize(object, bytes));
            }
            Action::Write {
                object,
                offset,
                length,
                seed,
            } => {
                let object = object % count;
                let bytes = pattern(seed, length as usize);
                let file = self.handle(object);
                let immediate = store.immediate().filter(|_| seed.is_multiple_of(2));
                let at_once = immediate.and_then(|store| store.write(&ROOT, file, offset, &bytes));
                if at_once.is_some() {
                    // It may need no room, so that writes in flight do not hinder it.
                    assert_eq!(self.write(object, offset, &bytes), Ok(()));
                } else {
                    let written = write(&store, file, offset, &bytes).map(|_| ());
                    let expected = self
                        .fits(object, offset, length.into())
                        .and_then(|()| self.write(object, offset, &bytes));
                    assert_eq!(written, expected);
                }
            }
            Action::Read {
                object,
                offset,
                length,
            } => {
                let object = object % count;
                let found = read_as(&store, &ROOT, self.handle(object), offset, length);
                match (found, self.file(object)) {
                    (Ok((found, outcome)), Ok((bytes, _))) => {
                        let start = bytes.len().min(offset as usize);
                        let end = bytes.len().min(offset as usize + length as usize);
                        assert!(found == bytes[start..end], "content at {offset}");
                        let at_end = offset as usize + found.len() >= bytes.len();
                        assert_eq!(outcome.end_of_file, at_end);
                    }
                    (found, expected) => {
                        assert_eq!(found.map(|_| ()), expected.map(|_| ()));
                    }
                }
            }
            Action::Stage {
                object,
                offset,
                length,
                seed,
            } => {
                let object = object % count;
                let handle = self.handle(object);
                let mut slices = Vec::new();
                let staged = now(store.stage_write(&ROOT, handle, offset, length, &mut slices));
                match (staged, self.file(object)) {
                    (Ok(staged), Ok(_)) => {
                        let bytes = pattern(seed, length as usize);
                        // Part of the data arrives before anything else happens.
                        for slice in &slices[..slices.len() / 2] {
                            slice.copy_from(0, &vec![seed; slice.len()]);
                        }
                        self.pending.push(Pending {
                            staged,
                            slices,
                            object,
                            bytes,
                        });
                    }
                    (staged, expected) => {
                        assert_eq!(staged.map(|_| ()), expected.map(|_| ()));
                    }
                }
            }
            Action::Commit { staged } => {
                if let Some(pending) = self.take_pending(staged) {
                    fill(&pending.slices, &pending.bytes);
                    let offset = pending.staged.offset;
                    let committed = now(store.commit_write(pending.staged, Stability::Unstable));
                    let expected = self.write(pending.object, offset, &pending.bytes);
                    // A file that was open when its last name went takes the write.
                    if self.rules == Rules::Kernel && expected == Err(StoreError::Stale) {
                        return;
                    }
                    assert_eq!(committed.result.map(|_| ()), expected);
                }
            }
            Action::Abandon { staged } => {
                if let Some(pending) = self.take_pending(staged) {
                    let handle = self.handle(pending.object);
                    let before = now(store.attributes(handle));
                    fill(&pending.slices, &pending.bytes);
                    drop(pending);
                    assert_eq!(now(store.attributes(handle)), before);
                }
            }
            Action::Hold {
                object,
                offset,
                length,
            } => {
                let handle = self.handle(object % count);
                let mut slices = Vec::new();
                if now(store.read(&ROOT, handle, offset, length, &mut slices)).is_ok() {
                    let bytes = gather(&slices);
                    self.lent.push(LentRead { slices, bytes });
                }
            }
            Action::Return { lent } => {
                if !self.lent.is_empty() {
                    let lent = self.lent.swap_remove(lent % self.lent.len());
                    assert!(gather(&lent.slices) == lent.bytes, "lent bytes stay");
                }
            }
        }
    }

    fn made(&mut self, directory: usize, name: &[u8], body: Body, made: Result<Handle>) {
        match self.find(directory, name) {
            Ok(_) => assert_eq!(made, Err(StoreError::Exists)),
            Err(StoreError::NotFound) => self.added(directory, name, body, made),
            Err(error) => assert_eq!(made, Err(error)),
        }
    }

    fn added(&mut self, directory: usize, name: &[u8], body: Body, made: Result<Handle>) {
        match self.room(cost(&body) + name_cost(name)) {
            Ok(()) => self.add(directory, name, body, made.unwrap()),
            Err(error) => assert_eq!(made, Err(error)),
        }
    }

    fn take_pending(&mut self, staged: usize) -> Option<Pending<S>> {
        let count = self.pending.len();
        (count > 0).then(|| self.pending.swap_remove(staged % count))
    }

    /// Whether the model knows what the store counts.
    fn counts(&self) -> bool {
        self.rules != Rules::Kernel
    }

    /// Compares everything that the store shows with the model.
    fn compare(&mut self) {
        let mut charged = 0;
        for object in &self.objects {
            let found = now(self.store.attributes(object.handle));
            if object.links == 0 {
                assert_eq!(found, Err(StoreError::Stale));
                continue;
            }
            let found = found.unwrap();
            assert_eq!(found.links, object.links);
            match &object.body {
                Body::File { bytes, extents } => {
                    assert_eq!(found.kind, Kind::File);
                    assert_eq!(found.size, bytes.len() as u64);
                    if self.counts() {
                        assert_eq!(found.used, sum(extents));
                    }
                    charged += u64::from(found.links);
                    let content = content(&self.store, object.handle, bytes.len() as u64);
                    assert!(content == *bytes, "content of {}", found.inode);
                }
                Body::Directory { entries, parent } => {
                    assert_eq!(found.kind, Kind::Directory);
                    charged += 1;
                    let mut names = list(&self.store, object.handle);
                    names.sort();
                    assert_eq!(names.len(), entries.len() + 2);
                    names.retain(|name| !is_dots(name));
                    assert!(names.iter().eq(entries.keys()), "names of {}", found.inode);
                    let above = now(self.store.lookup(&ROOT, object.handle, b".."))
                        .unwrap()
                        .0;
                    assert_eq!(above, self.objects[*parent].handle);
                }
                Body::Symlink => {
                    assert_eq!((found.kind, found.size), (Kind::Symlink, 2));
                    charged += u64::from(found.links);
                }
            }
        }
        if self.counts() {
            assert_eq!(inodes(&self.store), charged);
            if self.pending.is_empty() && self.lent.is_empty() {
                assert_eq!(used(&self.store), self.used());
            }
        }
    }

    /// Takes everything away; nothing may stay behind.
    fn clear(&mut self) {
        self.pending.clear();
        for lent in self.lent.drain(..) {
            assert!(gather(&lent.slices) == lent.bytes, "lent bytes stay");
        }
        self.clear_directory(self.store.root());
        if self.counts() {
            assert_eq!(used(&self.store), 0);
            assert_eq!(inodes(&self.store), 1);
        }
        assert_eq!(attributes(&self.store, self.store.root()).links, 2);
    }

    fn clear_directory(&self, directory: Handle) {
        for name in list(&self.store, directory) {
            if is_dots(&name) {
                continue;
            }
            let (object, found) = now(self.store.lookup(&ROOT, directory, &name)).unwrap();
            if found.kind == Kind::Directory {
                self.clear_directory(object);
                now(self.store.remove_directory(&ROOT, directory, &name))
                    .result
                    .unwrap();
            } else {
                now(self.store.remove(&ROOT, directory, &name))
                    .result
                    .unwrap();
            }
        }
    }
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// All bytes of a file, by reads of a length that every store serves.
fn content(store: &impl Store, file: Handle, size: u64) -> Vec<u8> {
    let part = 1 << 16;
    let places = (0..=size / u64::from(part)).map(|number| number * u64::from(part));
    places
        .flat_map(|offset| read(store, file, offset, part))
        .collect()
}

/// Runs actions on an empty store and on the model, and compares what they come to.
pub fn run(store: impl Store, rules: Rules, actions: &[Action]) {
    let mut model = Model::new(store, rules);
    for action in actions {
        model.run(action);
    }
    model.compare();
    model.clear();
}
