//! Many files for LOOKUPs, in one directory or spread over several.

use anyhow::{Context, Result, bail};
use millrace_wire::nfs3::{FileHandle, NameInDirectory, Procedure, SetAttributes};

use super::calls::{LoadCall, create_arguments, place_digits};
use super::lane::FileCount;
use crate::requester::{Call, CallTemplate, Connection, Session};

/// What names of files begin with. Their numbers follow.
const NAME: &[u8] = b"file.";

/// Directories of a load, and the number of the files that are in them.
pub(super) struct FileTree {
    /// The name of each directory, without its number.
    name: String,
    directories: Vec<FileHandle>,
    /// Files to make, and those that there are.
    pub wanted: u64,
    pub files: u64,
}

impl FileTree {
    /// Makes the directories, whose names begin with `name`. The files are those of a load.
    pub fn make(
        session: &mut Session,
        root: FileHandle,
        name: String,
        count: FileCount,
    ) -> Result<Self> {
        // A load that fails halfway leaves files behind.
        let (free, wanted) = (session.fsstat(root)?.free_files, count.all());
        if free < wanted {
            bail!("--files: the export has room for {free} files and directories, not {wanted}");
        }
        let mut tree = Self {
            name,
            directories: Vec::with_capacity(count.directories),
            wanted: count.files,
            files: 0,
        };
        if let Err(error) = tree.make_directories(session, root, count.directories) {
            // The failure is what there is to tell.
            let _ = tree.remove(session, root);
            return Err(error);
        }
        Ok(tree)
    }

    fn make_directories(
        &mut self,
        session: &mut Session,
        root: FileHandle,
        directories: usize,
    ) -> Result<()> {
        let attributes = SetAttributes {
            mode: Some(0o700),
            ..SetAttributes::default()
        };
        for number in 0..directories {
            let name = self.directory(number);
            session.mkdir(root, name.as_bytes(), attributes)?;
            let found = session.lookup(root, name.as_bytes());
            let found = found.context("a directory that was made is not found")?;
            self.directories.push(found.object);
        }
        Ok(())
    }

    fn directory(&self, number: usize) -> String {
        format!("{}.{number}", self.name)
    }

    /// Removes the directories, which are empty.
    pub fn remove(&self, session: &mut Session, root: FileHandle) -> Result<()> {
        for number in 0..self.directories.len() {
            session.rmdir(root, self.directory(number).as_bytes())?;
        }
        Ok(())
    }

    /// CREATE, LOOKUP or REMOVE, one for each directory: the file's number is their argument.
    pub fn templates(&self, connection: &Connection, call: LoadCall) -> Result<Vec<CallTemplate>> {
        let name = [NAME, &place_digits(0)].concat();
        let template = |directory: &FileHandle| {
            let entry = NameInDirectory {
                directory: *directory,
                name: &name,
            };
            // Behind the directory's handle and the length of the name.
            let handle = 4 + directory.as_bytes().len().next_multiple_of(4);
            let digits = [handle + 4 + NAME.len()];
            let template = match call {
                LoadCall::Create => {
                    let create = Call::nfs3(0, Procedure::Create, create_arguments(entry), 0);
                    connection.template(&create, &digits)
                }
                LoadCall::Remove => {
                    connection.template(&Call::nfs3(0, Procedure::Remove, entry, 0), &digits)
                }
                _ => connection.template(&Call::nfs3(0, Procedure::Lookup, entry, 0), &digits),
            };
            Ok(template?)
        };
        self.directories.iter().map(template).collect()
    }

    /// The directory of a file, and the argument of calls for it.
    pub fn place(&self, number: u64) -> (usize, u64) {
        let directory = number % self.directories.len().max(1) as u64;
        let digits = place_digits(number as usize);
        (directory as usize, u64::from_be_bytes(digits))
    }
}
