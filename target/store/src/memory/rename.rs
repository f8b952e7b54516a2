//! Renaming (RFC 1813 section 3.3.14).
//!
//! Names and rights are checked before anything that takes long or locks others out. Only moving a
//! directory to another directory checks the ancestry. Such renames exclude each other, and the
//! walk up the tree is bounded by its depth.

use std::sync::{Arc, PoisonError};

use super::attributes::Stored;
use super::cost;
use super::inode::{Inode, InodeHandle};
use super::namespace::{LockedDirectories, check_name, is_dots, note_names, read};
use super::permission::{EXECUTE, WRITE, require, require_removal};
use super::tree::Tree;
use crate::{Caller, Consistency, Handle, Kind, Renamed, Result, StoreError};

/// A name in a directory.
#[derive(Clone, Copy)]
struct NamePlace<'a> {
    directory: &'a Arc<Inode>,
    name: &'a [u8],
}

/// The next step of a rename, determined with the directories locked.
enum RenameStep {
    /// Both names are of the same object.
    Nothing,
    /// Everything is checked.
    Apply(RenamePlan),
    /// It moves a directory to another one, and the ancestries are not locked yet.
    LockAncestry,
    /// The new name refers to another object by now.
    Again,
}

/// The object to rename, and the one that it replaces.
struct RenamePlan {
    source: Arc<Inode>,
    replaced: Option<Arc<Inode>>,
}

impl Tree {
    pub fn rename(&self, caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Renamed {
        match self.try_rename(caller, from, to) {
            Ok(Some((from, to))) => Renamed {
                from,
                to,
                result: Ok(()),
            },
            other => Renamed {
                from: self.unchanged(from.0),
                to: self.unchanged(to.0),
                result: other.map(|_| ()),
            },
        }
    }

    fn try_rename(
        &self,
        caller: &Caller,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
    ) -> Result<Option<(Consistency, Consistency)>> {
        let directories = [self.table.get(from.0)?, self.table.get(to.0)?];
        let [from, to] = [(&directories[0], from.1), (&directories[1], to.1)]
            .map(|(directory, name)| NamePlace { directory, name });
        from.directory.directory()?;
        let to_names = to.directory.directory()?;
        let mut ancestry = None;
        loop {
            let replaced = self.subdirectory(&read(to_names), to.name);
            let mut locked = LockedDirectories::new([
                Some(from.directory),
                Some(to.directory),
                replaced.as_ref(),
            ])?;
            let replaced = replaced.as_ref().map(|replaced| replaced.handle);
            let may_move = ancestry.is_some();
            match self.plan_rename(caller, &mut locked, from, to, replaced, may_move)? {
                RenameStep::Nothing => return Ok(None),
                RenameStep::Apply(plan) => {
                    return Ok(Some(self.apply_rename(&mut locked, from, to, &plan)));
                }
                // Before the directories, as everywhere.
                RenameStep::LockAncestry => {
                    drop(locked);
                    let guard = self.ancestry.write();
                    ancestry = Some(guard.unwrap_or_else(PoisonError::into_inner));
                }
                RenameStep::Again => {}
            }
        }
    }

    /// Checks everything. `replaced` is the subdirectory that was locked because the new name stood
    /// for it.
    fn plan_rename(
        &self,
        caller: &Caller,
        locked: &mut LockedDirectories<'_>,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        replaced: Option<InodeHandle>,
        may_move: bool,
    ) -> Result<RenameStep> {
        let (from_handle, to_handle) = (from.directory.handle, to.directory.handle);
        locked.get(from_handle).check()?;
        locked.get(to_handle).check()?;
        let from_stored = from.directory.attributes.load();
        let to_stored = to.directory.attributes.load();
        let from_judged = from.directory.judged(&from_stored);
        let to_judged = to.directory.judged(&to_stored);
        require(caller, from_judged, EXECUTE)?;
        require(caller, to_judged, EXECUTE)?;
        check_name(from.name)?;
        check_name(to.name)?;
        if is_dots(from.name) || is_dots(to.name) {
            return Err(StoreError::Invalid);
        }
        let source = locked.get(from_handle).find(from.name);
        let source = source.ok_or(StoreError::NotFound)?;
        let target = locked.get(to_handle).find(to.name);
        if target == Some(source) {
            return Ok(RenameStep::Nothing);
        }
        let source = self.table.get(source)?;
        let source_stored = source.attributes.load();
        require_removal(caller, from_judged, &source_stored)?;
        require(caller, to_judged, WRITE | EXECUTE)?;
        let target = target.map(|target| self.table.get(target)).transpose()?;
        if let Some(target) = &target {
            require_removal(caller, to_judged, &target.attributes.load())?;
        }

        let is_directory = source.kind() == Kind::Directory;
        if is_directory && from_handle != to_handle {
            // Its entry `..` changes.
            require(caller, source.judged(&source_stored), WRITE)?;
            if !may_move {
                return Ok(RenameStep::LockAncestry);
            }
            self.check_place(to_handle, Some(&source))?;
        }
        let Some(target) = target else {
            let (new, old) = (cost::of_name(to.name), cost::of_name(from.name));
            self.space.charge_heap(new.saturating_sub(old))?;
            return Ok(RenameStep::Apply(RenamePlan {
                source,
                replaced: None,
            }));
        };
        match (is_directory, target.kind() == Kind::Directory) {
            (false, false) => {}
            (true, false) => return Err(StoreError::NotDirectory),
            (false, true) => return Err(StoreError::IsDirectory),
            (true, true) if replaced != Some(target.handle) => return Ok(RenameStep::Again),
            (true, true) => {
                let names = locked.get(target.handle);
                if !names.is_empty() {
                    return Err(StoreError::NotEmpty);
                }
                names.removed = true;
            }
        }
        Ok(RenameStep::Apply(RenamePlan {
            source,
            replaced: Some(target),
        }))
    }

    fn apply_rename(
        &self,
        locked: &mut LockedDirectories<'_>,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        plan: &RenamePlan,
    ) -> (Consistency, Consistency) {
        let (from_handle, to_handle) = (from.directory.handle, to.directory.handle);
        let (new, old) = (cost::of_name(to.name), cost::of_name(from.name));
        let mut lost = 0;
        match &plan.replaced {
            Some(replaced) => {
                locked.get(to_handle).remove(to.name);
                if replaced.kind() == Kind::Directory {
                    self.drop_directory(replaced);
                    lost = 1;
                } else {
                    self.drop_name(replaced);
                }
                self.space.discharge_heap(old);
            }
            None => self.space.discharge_heap(old.saturating_sub(new)),
        }
        let source = &plan.source;
        locked.get(from_handle).remove(from.name);
        locked.get(to_handle).insert(to.name, source.handle);
        source.attributes.update(Stored::touch_changed);
        if from_handle == to_handle {
            let consistency = note_names(from.directory, locked.get(from_handle), -lost);
            return (consistency, consistency);
        }
        let mut moved = 0;
        if let Ok(ancestry) = source.ancestry() {
            moved = 1;
            ancestry.set_parent(to_handle);
            self.note_height(to_handle, ancestry.height());
        }
        (
            note_names(from.directory, locked.get(from_handle), -moved),
            note_names(to.directory, locked.get(to_handle), moved - lost),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use millrace_mempool::{HugepagePolicy, Registry};

    use super::super::MemoryConfig;
    use super::*;
    use crate::{CreateHow, SetAttributes};

    const ROOT: Caller = Caller::SUPERUSER;

    fn tree() -> Tree {
        let config = MemoryConfig {
            size_bytes: 1 << 20,
            inodes: None,
            file_system: 1,
            epoch: 1,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        };
        Tree::new(&Registry::new(HugepagePolicy::Off), &config).unwrap()
    }

    fn directory(tree: &Tree, parent: Handle, name: &[u8]) -> Handle {
        let made = tree.make_directory(&ROOT, parent, name, &SetAttributes::default());
        made.result.unwrap().0
    }

    #[test]
    fn only_a_permitted_move_of_a_directory_waits_for_others_of_its_kind() {
        let tree = tree();
        let root = crate::memory::tree::ROOT.into();
        let (here, there) = (
            directory(&tree, root, b"here"),
            directory(&tree, root, b"there"),
        );
        directory(&tree, here, b"directory");
        directory(&tree, there, b"taken");
        let how = CreateHow::Guarded(SetAttributes::default());
        tree.create(&ROOT, here, b"file", &how).result.unwrap();
        let user = Caller { uid: 7, ..ROOT };
        let rename = |caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])| {
            tree.rename(caller, from, to).result
        };
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let others = tree.ancestry.write().unwrap();
            scope.spawn(|| {
                let long = [b'n'; 256];
                for (caller, from, to, expected) in [
                    (
                        &user,
                        &b"directory"[..],
                        &b"new"[..],
                        Err(StoreError::Denied),
                    ),
                    (&ROOT, b"none", b"new", Err(StoreError::NotFound)),
                    (&ROOT, b"directory", &long, Err(StoreError::NameTooLong)),
                    (&ROOT, b"directory", b"..", Err(StoreError::Invalid)),
                    (&ROOT, b"file", b"taken", Err(StoreError::IsDirectory)),
                    (&ROOT, b"file", b"moved", Ok(())),
                ] {
                    assert_eq!(rename(caller, (here, from), (there, to)), expected);
                }
                let same = rename(&ROOT, (here, b"directory"), (here, b"renamed"));
                assert_eq!(same, Ok(()));
                sender.send(()).unwrap();
            });
            let finished = receiver.recv_timeout(Duration::from_secs(60));
            drop(others);
            assert!(finished.is_ok(), "a rename waits for nothing");
        });
        assert_eq!(rename(&ROOT, (here, b"renamed"), (there, b"taken")), Ok(()));
        assert_eq!(
            rename(&ROOT, (root, b"there"), (there, b"taken")),
            Err(StoreError::Invalid)
        );
    }
}
