//! Names: finding, making, linking, removing and listing them.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arrayvec::ArrayVec;

use arc_swap::ArcSwapOption;

use super::access_lists;
use super::attributes::{AttributeCell, SET_GROUP, Stored};
use super::cost;
use super::directory::{COOKIE_PARENT, COOKIE_SELF, Directory};
use super::inode::{Body, DirectoryBody, File, Inode, InodeHandle};
use super::permission::{EXECUTE, Judged, READ, WRITE, require, require_removal};
use super::set::{apply, authorize};
use super::symlink::LinkText;
use super::tree::Tree;
use super::{LINKS_MAX, NAME_MAX, SYMLINK_MAX};
use crate::{
    Attributes, Caller, CookieVerifier, CreateHow, DirectoryEntry, DirectoryOutcome, Handle, Kind,
    Linked, Modified, Result, SetAttributes, SpecialKind, StoreError, Time,
};

/// The reported size of a directory with so many entries. Entries are on the heap, and clients only
/// check whether the size is zero or has changed.
pub(super) fn directory_size(entries: usize) -> u64 {
    (entries as u64 + 2) * 32
}

/// [`StoreError`] unless a name can stand in a directory.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        Err(StoreError::NameTooLong)
    } else if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        Err(StoreError::Invalid)
    } else {
        Ok(())
    }
}

pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// What an operation in a directory did to it.
struct Effect<T> {
    value: T,
    /// Whether names came or went.
    changed: bool,
    /// Subdirectories gained or lost.
    links: i32,
}

impl<T> Effect<T> {
    fn none(value: T) -> Self {
        Self {
            value,
            changed: false,
            links: 0,
        }
    }

    fn names(value: T, links: i32) -> Self {
        Self {
            value,
            changed: true,
            links,
        }
    }
}

impl Tree {
    pub fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        let inode = self.table.get(directory)?;
        let names = read(inode.directory()?);
        names.check()?;
        require(caller, inode.judged(&inode.attributes.load()), EXECUTE)?;
        check_name(name)?;
        let found = match name {
            b"." => inode.handle,
            b".." => inode.ancestry()?.parent(),
            name => names.find(name).ok_or(StoreError::NotFound)?,
        };
        let object = self.table.get(found)?;
        Ok((found.into(), object.show(&object.attributes.load())))
    }

    pub fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<(Handle, Attributes)> {
        self.in_directory(directory, |inode, names| {
            let parent = inode.attributes.load();
            require(caller, inode.judged(&parent), EXECUTE)?;
            if let Some(existing) = find_for_create(names, name)? {
                let object = self.table.get(existing)?;
                self.open_existing(caller, &object, how)?;
                return Ok(Effect::none((
                    existing.into(),
                    object.show(&object.attributes.load()),
                )));
            }
            let (set, verifier) = match how {
                CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (*set, None),
                // No access for other users until the client sets the attributes.
                CreateHow::Exclusive(verifier, set) => (
                    SetAttributes {
                        mode: Some(set.mode.unwrap_or(0o600)),
                        ..*set
                    },
                    Some(*verifier),
                ),
            };
            let body = Body::File(File {
                verifier,
                ..Default::default()
            });
            self.make(caller, inode, names, name, body, &set)
        })
    }

    /// The part of a create that finds its name taken.
    fn open_existing(&self, caller: &Caller, object: &Inode, how: &CreateHow) -> Result<()> {
        let Body::File(file) = &object.body else {
            return Err(StoreError::Exists);
        };
        match how {
            CreateHow::Unchecked(SetAttributes { size: None, .. }) => Ok(()),
            CreateHow::Unchecked(SetAttributes { size, .. }) => {
                let set = SetAttributes {
                    size: *size,
                    ..Default::default()
                };
                self.set_inode(caller, object, &set, None).1
            }
            CreateHow::Exclusive(verifier, _) if file.verifier == Some(*verifier) => Ok(()),
            CreateHow::Guarded(_) | CreateHow::Exclusive(..) => Err(StoreError::Exists),
        }
    }

    pub fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        let body = Body::Directory(Box::new(DirectoryBody::new(directory.into())));
        let _ancestry = self.ancestry.read().unwrap_or_else(PoisonError::into_inner);
        self.make_in(caller, directory, name, body, set)
    }

    pub fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        let made = match text {
            [] => Err(StoreError::Invalid),
            text if text.len() > SYMLINK_MAX => Err(StoreError::NameTooLong),
            text => LinkText::new(&self.space, text),
        };
        match made {
            Err(error) => Modified {
                consistency: self.unchanged(directory),
                result: Err(error),
            },
            Ok(text) => self.make_in(caller, directory, name, Body::Symlink(text), set),
        }
    }

    pub fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        // A device node is a door to the client's devices; only its administrator may make one.
        if matches!(kind, SpecialKind::Block(..) | SpecialKind::Character(..)) && caller.uid != 0 {
            let consistency = self.unchanged(directory);
            return Modified {
                consistency,
                result: Err(StoreError::NotOwner),
            };
        }
        self.make_in(caller, directory, name, Body::Special(kind), set)
    }

    fn make_in(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        body: Body,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        // Only files have a size to set.
        let set = SetAttributes { size: None, ..*set };
        self.in_directory(directory, |inode, names| {
            let parent = inode.attributes.load();
            require(caller, inode.judged(&parent), EXECUTE)?;
            match find_for_create(names, name)? {
                Some(_) => Err(StoreError::Exists),
                None => self.make(caller, inode, names, name, body, &set),
            }
        })
    }

    /// Makes an object under a name that is free.
    fn make(
        &self,
        caller: &Caller,
        directory: &Inode,
        names: &mut Directory,
        name: &[u8],
        body: Body,
        set: &SetAttributes,
    ) -> Result<Effect<(Handle, Attributes)>> {
        let parent = directory.attributes.load();
        require(caller, directory.judged(&parent), WRITE | EXECUTE)?;
        let (kind, mode, links, size) = match &body {
            Body::File(_) => (Kind::File, 0o644, 1, 0),
            Body::Directory(_) => (Kind::Directory, 0o755, 2, directory_size(0)),
            Body::Symlink(text) => (Kind::Symlink, 0o777, 1, text.len() as u64),
            Body::Special(kind) => (Kind::Special(*kind), 0o644, 1, 0),
        };
        let inherits = parent.mode & SET_GROUP != 0;
        let now = Time::now();
        let mut stored = Stored {
            mode,
            links,
            holds: 0,
            uid: caller.uid,
            gid: if inherits { parent.gid } else { caller.gid },
            size,
            used: 0,
            accessed: now,
            modified: now,
            changed: now,
            revision: 0,
        };
        authorize(caller, Judged::new(&stored), kind, set)?;
        apply(caller, &mut stored, kind, set, now);
        if inherits && kind == Kind::Directory {
            stored.mode |= SET_GROUP;
        }

        if kind == Kind::Directory {
            self.check_place(directory.handle, None)?;
        }
        let lists = access_lists::inherited(directory, kind, &mut stored, &self.space)?;
        self.charge(cost::of_object(&body) + cost::of_name(name))?;
        let handle = InodeHandle {
            inode: self.table.take_number(),
            generation: self.next_generation(),
        };
        let attributes = AttributeCell::new(&stored);
        let inode = Inode {
            handle,
            attributes,
            xattrs: Mutex::default(),
            lists: ArcSwapOption::new(lists),
            body,
        };
        let shown = inode.show(&stored);
        self.table.insert(Arc::new(inode));
        names.insert(name, handle);
        if kind == Kind::Directory {
            self.note_height(directory.handle, 0);
        }
        let links = i32::from(kind == Kind::Directory);
        Ok(Effect::names((handle.into(), shown), links))
    }

    /// Counts one more object or name, which takes so many bytes.
    fn charge(&self, bytes: u64) -> Result<()> {
        self.table.charge()?;
        self.space
            .charge_heap(bytes)
            .inspect_err(|_| self.table.discharge())
    }

    pub fn remove(&self, caller: &Caller, directory: Handle, name: &[u8]) -> Modified<()> {
        self.in_directory(directory, |inode, names| {
            check_name(name)?;
            if is_dots(name) {
                return Err(StoreError::IsDirectory);
            }
            let object = self.find_for_removal(caller, inode, names, name)?;
            if object.kind() == Kind::Directory {
                return Err(StoreError::IsDirectory);
            }
            names.remove(name);
            self.drop_name(&object);
            self.space.discharge_heap(cost::of_name(name));
            Ok(Effect::names((), 0))
        })
    }

    pub fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let inode = match self.table.get(directory) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let result = self.remove_directory_in(caller, &inode, name);
        Modified {
            consistency: match &result {
                Ok(consistency) => *consistency,
                Err(StoreError::Stale) => crate::Consistency::default(),
                Err(_) => inode.unchanged(),
            },
            result: result.map(|_| ()),
        }
    }

    fn remove_directory_in(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        name: &[u8],
    ) -> Result<crate::Consistency> {
        let names = inode.directory()?;
        loop {
            let child = self.subdirectory(&read(names), name);
            let directories = [Some(inode), child.as_ref(), None];
            let mut locked = LockedDirectories::new(directories)?;
            let parent = locked.get(inode.handle);
            parent.check()?;
            check_name(name)?;
            match name {
                b"." => return Err(StoreError::Invalid),
                b".." => return Err(StoreError::Exists),
                _ => {}
            }
            let object = self.find_for_removal(caller, inode, parent, name)?;
            object.directory()?;
            if child
                .as_ref()
                .is_none_or(|child| child.handle != object.handle)
            {
                continue; // Others were faster.
            }
            let removed = locked.get(object.handle);
            if !removed.is_empty() {
                return Err(StoreError::NotEmpty);
            }
            removed.removed = true;
            let parent = locked.get(inode.handle);
            parent.remove(name);
            self.drop_directory(&object);
            self.space.discharge_heap(cost::of_name(name));
            return Ok(note_names(inode, parent, -1));
        }
    }

    /// The directory that a name currently refers to, if it is one.
    pub fn subdirectory(&self, names: &Directory, name: &[u8]) -> Option<Arc<Inode>> {
        let object = self.table.get(names.find(name)?).ok()?;
        object.directory().is_ok().then_some(object)
    }

    pub fn link(&self, caller: &Caller, object: Handle, directory: Handle, name: &[u8]) -> Linked {
        let inode = match self.table.get(object) {
            Ok(inode) => inode,
            Err(error) => {
                let directory = self.unchanged(directory);
                return Linked {
                    object: None,
                    directory,
                    result: Err(error),
                };
            }
        };
        let modified = self.in_directory(directory, |parent, names| {
            if inode.kind() == Kind::Directory {
                return Err(StoreError::Invalid);
            }
            let stored = parent.attributes.load();
            let judged = parent.judged(&stored);
            require(caller, judged, EXECUTE)?;
            if find_for_create(names, name)?.is_some() {
                return Err(StoreError::Exists);
            }
            require(caller, judged, WRITE | EXECUTE)?;
            self.charge(cost::of_name(name))?;
            let linked = inode.attributes.update(|stored| {
                match stored.links {
                    0 => return Err(StoreError::Stale),
                    LINKS_MAX.. => return Err(StoreError::TooManyLinks),
                    _ => stored.links += 1,
                }
                stored.touch_changed();
                Ok(())
            });
            match linked {
                Ok(()) => names.insert(name, inode.handle),
                Err(_) => {
                    self.table.discharge();
                    self.space.discharge_heap(cost::of_name(name));
                }
            }
            linked.map(|()| Effect::names((), 0))
        });
        let object = inode
            .attributes
            .live()
            .ok()
            .map(|stored| inode.show(&stored));
        Linked {
            object,
            directory: modified.consistency,
            result: modified.result,
        }
    }

    pub fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        let inode = self.table.get(directory)?;
        let names = read(inode.directory()?);
        names.check()?;
        let stored = inode.attributes.load();
        require(caller, inode.judged(&stored), READ)?;
        // Cookies are this process's own: after a restart the root's would mean something else.
        let own = CookieVerifier(self.verifier.0);
        if cookie != 0 && verifier != own {
            return Err(StoreError::BadCookie);
        }
        let describe = |handle| {
            let object = attributes.then(|| self.table.get(handle).ok()).flatten();
            object.map(|object| object.show(&object.attributes.load()))
        };
        let dots: [(u64, &[u8], InodeHandle); 2] = [
            (COOKIE_SELF, b".", inode.handle),
            (COOKIE_PARENT, b"..", inode.ancestry()?.parent()),
        ];
        let entries = dots
            .into_iter()
            .filter(|(number, ..)| *number > cookie)
            .chain(
                names
                    .after(cookie)
                    .map(|entry| (entry.cookie, &*entry.name, entry.handle)),
            );
        let mut end = true;
        for (cookie, name, handle) in entries {
            if !sink(DirectoryEntry {
                cookie,
                name,
                inode: handle.inode,
                handle: Some(handle.into()),
                attributes: describe(handle),
            }) {
                end = false;
                break;
            }
        }
        inode.note_access(&stored);
        Ok(DirectoryOutcome {
            verifier: own,
            end,
            attributes: inode.show(&stored),
        })
    }

    /// Runs an operation under the lock of a directory and brings its attributes up to date.
    fn in_directory<T>(
        &self,
        directory: Handle,
        operation: impl FnOnce(&Inode, &mut Directory) -> Result<Effect<T>>,
    ) -> Modified<T> {
        let inode = match self.table.get(directory) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let Ok(names) = inode.directory() else {
            let consistency = inode.unchanged();
            return Modified {
                consistency,
                result: Err(StoreError::NotDirectory),
            };
        };
        let mut names = write(names);
        if let Err(error) = names.check() {
            return Modified::failed(error);
        }
        match operation(&inode, &mut names) {
            Ok(Effect {
                value,
                changed: true,
                links,
            }) => {
                let consistency = note_names(&inode, &names, links);
                Modified {
                    consistency,
                    result: Ok(value),
                }
            }
            Ok(Effect { value, .. }) => Modified {
                consistency: inode.unchanged(),
                result: Ok(value),
            },
            Err(error) => Modified {
                consistency: inode.unchanged(),
                result: Err(error),
            },
        }
    }

    fn find_for_removal(
        &self,
        caller: &Caller,
        parent: &Inode,
        names: &Directory,
        name: &[u8],
    ) -> Result<Arc<Inode>> {
        let stored = parent.attributes.load();
        require(caller, parent.judged(&stored), EXECUTE)?;
        let object = self
            .table
            .get(names.find(name).ok_or(StoreError::NotFound)?)?;
        require_removal(caller, parent.judged(&stored), &object.attributes.load())?;
        Ok(object)
    }

    /// Removes a name of an object that is not a directory, and the object with its last name. The
    /// caller accounts for the name itself.
    pub fn drop_name(&self, inode: &Inode) {
        let stored = inode.attributes.update(|stored| {
            stored.links -= 1;
            stored.touch_changed();
            *stored
        });
        if stored.is_gone() {
            self.end(inode);
        } else if stored.links > 0 {
            self.table.discharge();
        }
    }

    /// Forgets an object without names and holds.
    pub fn end(&self, inode: &Inode) {
        self.table.remove(inode);
        self.space.discharge_heap(cost::of_object(&inode.body));
    }

    /// Ends a directory that has been marked as removed.
    pub fn drop_directory(&self, inode: &Inode) {
        inode.attributes.update(|stored| stored.links = 0);
        self.end(inode);
    }
}

/// Up to three directories, locked in the order of their numbers, so that no two calls deadlock.
pub(super) struct LockedDirectories<'a> {
    guards: ArrayVec<(InodeHandle, RwLockWriteGuard<'a, Directory>), 3>,
}

impl<'a> LockedDirectories<'a> {
    /// # Errors
    /// [`StoreError::NotDirectory`] if one is none.
    pub fn new(directories: [Option<&'a Arc<Inode>>; 3]) -> Result<Self> {
        let mut sorted: ArrayVec<_, 3> = directories.into_iter().flatten().collect();
        sorted.sort_unstable_by_key(|inode| inode.handle.inode);
        let mut guards = ArrayVec::<(InodeHandle, _), 3>::new();
        for inode in sorted {
            if guards.last().is_none_or(|(last, _)| *last != inode.handle) {
                guards.push((inode.handle, write(inode.directory()?)));
            }
        }
        Ok(Self { guards })
    }

    /// One of them.
    pub fn get(&mut self, directory: InodeHandle) -> &mut Directory {
        let mut guards = self.guards.iter_mut();
        let found = guards.find(|(handle, _)| *handle == directory);
        &mut found.expect("one of those that were locked").1
    }
}

/// Brings the attributes of a directory up to date after names came or went.
pub(super) fn note_names(inode: &Inode, names: &Directory, links: i32) -> crate::Consistency {
    let consistency = inode.attributes.update(|stored| {
        let before = *stored;
        stored.links = stored.links.saturating_add_signed(links);
        stored.size = directory_size(names.len());
        stored.touch_modified();
        inode.changed(&before, stored)
    });
    let flat = consistency.after.is_some_and(|after| after.links == 2);
    if let (true, Ok(ancestry)) = (flat, inode.ancestry()) {
        ancestry.flatten();
    }
    consistency
}

fn find_for_create(names: &Directory, name: &[u8]) -> Result<Option<InodeHandle>> {
    check_name(name)?;
    if is_dots(name) {
        Err(StoreError::Exists)
    } else {
        Ok(names.find(name))
    }
}

pub(super) fn read(names: &RwLock<Directory>) -> RwLockReadGuard<'_, Directory> {
    names.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write(names: &RwLock<Directory>) -> RwLockWriteGuard<'_, Directory> {
    names.write().unwrap_or_else(PoisonError::into_inner)
}
