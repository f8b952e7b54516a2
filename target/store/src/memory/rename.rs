//! Renaming (RFC 1813 section 3.3.14).
//!
//! Locks are taken from the root downwards: of two directories the one that holds the other comes
//! first, else the one with the lower number, then the directory that is replaced. Renames between
//! directories exclude each other, so that what holds what does not change meanwhile.

use std::sync::{Arc, RwLockWriteGuard};

use super::attributes::Stored;
use super::directory::Directory;
use super::inode::{Handle, Inode};
use super::lock;
use super::namespace::{check_name, is_dots, note_names, read, write};
use super::permission::{EXECUTE, WRITE, require, require_removal};
use super::tree::Tree;
use crate::{Caller, Consistency, Kind, Renamed, Result, StoreError};

/// The two directories of a rename, locked.
struct Parents<'a> {
    from: RwLockWriteGuard<'a, Directory>,
    /// Absent where both are the same.
    to: Option<RwLockWriteGuard<'a, Directory>>,
}

impl Parents<'_> {
    fn to(&mut self) -> &mut Directory {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

/// A directory and all that hold it, from itself up to the root. Empty for renames within one
/// directory, which cannot form a loop.
type Lineage = Vec<Handle>;

/// What is renamed, and what that replaces.
struct Plan {
    source: Arc<Inode>,
    replaced: Option<Arc<Inode>>,
}

impl Tree {
    pub fn rename(&self, caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Renamed {
        let outcome = self.with_parents(from.0, to.0, |inodes, parents, lineages| {
            let plan = self.plan_rename(caller, inodes, parents, lineages, from.1, to.1)?;
            Ok(plan.map(|plan| self.apply_rename(inodes, parents, &plan, from.1, to.1)))
        });
        match outcome {
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

    /// Locks both directories and runs an operation on them.
    fn with_parents<T>(
        &self,
        from: Handle,
        to: Handle,
        operation: impl FnOnce([&Inode; 2], &mut Parents<'_>, [&Lineage; 2]) -> Result<T>,
    ) -> Result<T> {
        let from = self.table.get(from)?;
        let to = self.table.get(to)?;
        let (from_names, to_names) = (from.directory()?, to.directory()?);
        if Arc::ptr_eq(&from, &to) {
            let mut parents = Parents {
                from: write(from_names),
                to: None,
            };
            return operation([&from, &to], &mut parents, [&Vec::new(), &Vec::new()]);
        }
        let _ancestry = lock(&self.ancestry);
        let from_lineage = self.lineage(&from)?;
        let to_lineage = self.lineage(&to)?;
        let from_first = to_lineage.contains(&from.handle)
            || (!from_lineage.contains(&to.handle) && from.handle.inode < to.handle.inode);
        let mut parents = if from_first {
            let from = write(from_names);
            Parents {
                from,
                to: Some(write(to_names)),
            }
        } else {
            let to = Some(write(to_names));
            Parents {
                from: write(from_names),
                to,
            }
        };
        operation([&from, &to], &mut parents, [&from_lineage, &to_lineage])
    }

    fn lineage(&self, directory: &Inode) -> Result<Lineage> {
        let mut lineage = vec![directory.handle];
        let mut parent = read(directory.directory()?).parent;
        while lineage.last() != Some(&parent) {
            lineage.push(parent);
            parent = read(self.table.get(parent)?.directory()?).parent;
        }
        Ok(lineage)
    }

    /// Checks everything; nothing to do if both names are of the same object.
    fn plan_rename(
        &self,
        caller: &Caller,
        [from, to]: [&Inode; 2],
        parents: &mut Parents<'_>,
        [from_lineage, to_lineage]: [&Lineage; 2],
        from_name: &[u8],
        to_name: &[u8],
    ) -> Result<Option<Plan>> {
        parents.from.check()?;
        parents.to().check()?;
        let (from_stored, to_stored) = (from.attributes.load(), to.attributes.load());
        require(caller, &from_stored, EXECUTE)?;
        require(caller, &to_stored, EXECUTE)?;
        check_name(from_name)?;
        check_name(to_name)?;
        if is_dots(from_name) || is_dots(to_name) {
            return Err(StoreError::Invalid);
        }
        let source = parents.from.find(from_name).ok_or(StoreError::NotFound)?;
        let target = parents.to().find(to_name);
        if target == Some(source) {
            return Ok(None);
        }
        if to_lineage.contains(&source) {
            return Err(StoreError::Invalid);
        }
        let source = self.table.get(source)?;
        let source_stored = source.attributes.load();
        require_removal(caller, &from_stored, &source_stored)?;
        require(caller, &to_stored, WRITE | EXECUTE)?;
        let moves_directory = source.kind() == Kind::Directory;
        if moves_directory && parents.to.is_some() {
            // Its entry `..` changes.
            require(caller, &source_stored, WRITE)?;
        }
        let Some(target) = target else {
            return Ok(Some(Plan {
                source,
                replaced: None,
            }));
        };
        let replaced = self.table.get(target)?;
        require_removal(caller, &to_stored, &replaced.attributes.load())?;
        match (moves_directory, replaced.directory()) {
            (false, Err(_)) => {}
            (true, Err(_)) => return Err(StoreError::NotDirectory),
            (false, Ok(_)) => return Err(StoreError::IsDirectory),
            (true, Ok(_)) if from_lineage.contains(&target) => return Err(StoreError::NotEmpty),
            (true, Ok(names)) => {
                let mut names = write(names);
                if !names.is_empty() {
                    return Err(StoreError::NotEmpty);
                }
                names.removed = true;
            }
        }
        Ok(Some(Plan {
            source,
            replaced: Some(replaced),
        }))
    }

    fn apply_rename(
        &self,
        [from, to]: [&Inode; 2],
        parents: &mut Parents<'_>,
        plan: &Plan,
        from_name: &[u8],
        to_name: &[u8],
    ) -> (Consistency, Consistency) {
        let mut lost = 0;
        if let Some(replaced) = &plan.replaced {
            parents.to().remove(to_name);
            if replaced.kind() == Kind::Directory {
                self.drop_directory(replaced);
                lost = 1;
            } else {
                self.drop_name(replaced);
            }
        }
        let source = &plan.source;
        parents.from.remove(from_name);
        parents.to().insert(to_name, source.handle);
        source.attributes.update(Stored::touch_changed);
        let Some(to_names) = &parents.to else {
            let consistency = note_names(from, &parents.from, -lost);
            return (consistency, consistency);
        };
        let moved = match source.directory() {
            Ok(names) => {
                write(names).parent = to.handle;
                1
            }
            Err(_) => 0,
        };
        (
            note_names(from, &parents.from, -moved),
            note_names(to, to_names, moved - lost),
        )
    }
}
