//! Damage to the server's stored data while it is down, to test that the checks detect it.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::tree::{Object, Tree};

/// The damage between the server's end and its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// One bit of a durable byte.
    FlipBit,
    /// The end of a file is cut off, at a durable byte.
    Truncate,
    /// A file grows.
    Grow,
    /// A name is removed.
    RemoveName,
    /// A name is renamed.
    RenameName,
    /// A name is added.
    AddName,
    /// A file is replaced by a copy of itself.
    Replace,
    /// A mode is changed.
    ChangeMode,
    /// The key of file handles is lost.
    ForgetKey,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::FlipBit,
        Self::Truncate,
        Self::Grow,
        Self::RemoveName,
        Self::RenameName,
        Self::AddName,
        Self::Replace,
        Self::ChangeMode,
        Self::ForgetKey,
    ];

    /// Breaks it, in the run's own folder `base`, if there is something to break.
    ///
    /// # Errors
    /// The system's.
    pub fn strike(self, tree: &Tree, base: &Path, folder: &Path) -> Result<bool> {
        match self {
            Self::AddName => {
                fs::write(base.join(&tree.directories[0].name).join("foreign"), "")?;
                return Ok(true);
            }
            Self::ForgetKey => {
                fs::remove_dir_all(folder.join("state"))?;
                fs::create_dir(folder.join("state"))?;
                return Ok(true);
            }
            _ => {}
        }
        let Some((path, object)) = victim(tree, base) else {
            return Ok(false);
        };
        let at = object.content.durable().unwrap_or_default();
        match self {
            Self::FlipBit => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at)?;
                file.write_all_at(&[byte[0] ^ 4], at)?;
            }
            Self::Truncate => OpenOptions::new().write(true).open(path)?.set_len(at)?,
            Self::Grow => OpenOptions::new()
                .write(true)
                .open(path)?
                .set_len(1 << 30)?,
            Self::RemoveName => fs::remove_file(path)?,
            Self::RenameName => fs::rename(&path, path.with_extension("moved"))?,
            Self::Replace => {
                let copy = path.with_extension("copy");
                fs::copy(&path, &copy)?;
                fs::rename(copy, path)?;
            }
            Self::ChangeMode => fs::set_permissions(path, Permissions::from_mode(0o1))?,
            Self::AddName | Self::ForgetKey => {}
        }
        Ok(true)
    }
}

/// A file with a durable byte and no call underway, and a name of it that none is underway for.
fn victim<'a>(tree: &'a Tree, base: &Path) -> Option<(PathBuf, &'a Object)> {
    for directory in &tree.directories {
        for (name, id) in &directory.names {
            let object = tree.objects.get(id)?;
            let idle = object.data_calls == 0 && !object.closed && !object.names_busy;
            if !object.directory && idle && object.content.durable().is_some() {
                let name = String::from_utf8_lossy(name);
                return Some((base.join(&directory.name).join(name.as_ref()), object));
            }
        }
    }
    None
}
