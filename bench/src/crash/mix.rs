//! The next call of a client.

use super::content::Kept;
use super::operation::{CrashOperation, Id, NamePlace};
use super::random::Random;
use super::tree::{Object, STABILITIES, Tree};

/// Largest file in bytes.
const FILE: u64 = 1 << 20;

/// Most files and most directories of a client.
const FILES: usize = 10;
const DIRECTORIES: usize = 4;

/// Names of a client in one directory.
const NAMES: u64 = 10;

/// Tries to find something that can be done now.
const TRIES: usize = 6;

/// Makes up calls of one client, on its own files and names only. No two calls that are underway
/// at the same time touch the same bytes or names, so that each has one outcome.
pub struct Mix {
    client: usize,
    random: Random,
}

impl Mix {
    /// The calls of a client.
    #[must_use]
    pub const fn new(client: usize, random: Random) -> Self {
        Self { client, random }
    }

    /// Directories of a client: the one that all share, and two of its own.
    fn directories(&self) -> [usize; 3] {
        [0, 1 + 2 * self.client, 2 + 2 * self.client]
    }

    fn place(&mut self) -> NamePlace {
        let directories = self.directories();
        let directory = directories[self.random.below(3) as usize];
        let number = self.random.below(NAMES);
        NamePlace {
            directory,
            name: format!("{}-{number}", self.client).into_bytes(),
        }
    }

    /// The next call, if there is one that can be made now.
    pub fn next(&mut self, tree: &mut Tree) -> Option<CrashOperation> {
        for _ in 0..TRIES {
            let found = match self.random.below(100) {
                0..=44 => self.write(tree),
                45..=55 => self.read(tree),
                56..=65 => self.commit(tree),
                66..=72 => self.create(tree),
                73..=75 => self.make_directory(tree),
                76..=82 => self.rename(tree),
                83..=87 => self.remove(tree),
                88..=92 => self.link(tree),
                93..=95 => self.mode(tree),
                96..=97 => self.resize(tree),
                _ => self.remove_directory(tree),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn objects(&self, tree: &Tree, wanted: impl Fn(&Object) -> bool) -> Vec<Id> {
        let own = tree
            .objects
            .iter()
            .filter(|(_, object)| object.owner == self.client);
        own.filter(|(_, object)| wanted(object))
            .map(|(&id, _)| id)
            .collect()
    }

    /// A file that can be read and written.
    fn file(&mut self, tree: &Tree) -> Option<Id> {
        let open = |object: &Object| {
            !object.directory && object.links > 0 && object.handle.is_some() && !object.closed
        };
        let files = self.objects(tree, open);
        self.random.pick(&files)
    }

    /// Where a transfer goes: ragged or aligned, short or long, within `most`.
    fn range(&mut self, most: u64) -> (u64, u64) {
        let random = &mut self.random;
        let (unit, length) = match random.below(10) {
            0 | 1 => (1, random.between(1, 700)),
            2 | 3 => (1, random.between(1, 20_000)),
            4 => (1, random.between(1, 250_000)),
            5..=7 => (4096, random.between(1, 16) * 4096),
            8 => (4096, random.between(16, 64) * 4096),
            _ => (512, random.between(1, 40) * 512),
        };
        let length = length.min(most);
        let places = (most - length) / unit;
        (random.below(places + 1) * unit, length)
    }

    fn write(&mut self, tree: &mut Tree) -> Option<CrashOperation> {
        let file = self.file(tree)?;
        let object = tree.objects.get(&file)?;
        let (mut start, length) = self.range(FILE);
        if self.random.percent(20) {
            start = object.content.size().min(FILE - length);
        }
        let mut reads = object.reads.iter();
        let read = reads.any(|&(from, bytes)| from < start + length && start < from + bytes);
        if read || object.content.is_busy(start, length) {
            return None;
        }
        Some(CrashOperation::Write {
            file,
            start,
            length: length as u32,
            stamp: tree.new_stamp(),
            stable: self.random.pick(&STABILITIES)?,
        })
    }

    fn read(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let file = self.file(tree)?;
        let (start, length) = self.range(FILE);
        let content = &tree.objects.get(&file)?.content;
        (!content.is_busy(start, length)).then_some(CrashOperation::Read {
            file,
            start,
            length: length as u32,
            size: *content.sizes(Kept::All).start(),
        })
    }

    fn commit(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let file = self.file(tree)?;
        let (start, length) = if self.random.percent(60) {
            (0, 0)
        } else {
            self.range(FILE)
        };
        Some(CrashOperation::Commit {
            file,
            start,
            length: length as u32,
            after: tree.events,
        })
    }

    fn create(&mut self, tree: &mut Tree) -> Option<CrashOperation> {
        let place = self.free(tree)?;
        if self.objects(tree, |object| !object.directory).len() >= FILES {
            return None;
        }
        let how = if self.random.percent(40) {
            Err(self.random.next().to_be_bytes())
        } else {
            Ok(self.some_mode())
        };
        Some(CrashOperation::Create {
            object: tree.new_id(),
            place,
            how,
        })
    }

    fn make_directory(&mut self, tree: &mut Tree) -> Option<CrashOperation> {
        let place = self.free(tree)?;
        if self.objects(tree, |object| object.directory).len() >= DIRECTORIES {
            return None;
        }
        Some(CrashOperation::MakeDirectory {
            object: tree.new_id(),
            place,
            mode: self.some_mode(),
        })
    }

    fn some_mode(&mut self) -> u32 {
        0o600 | self.random.below(0o200) as u32
    }

    /// An unused name.
    fn free(&mut self, tree: &Tree) -> Option<NamePlace> {
        let place = self.place();
        (!tree.busy.contains(&place) && tree.at(&place).is_none()).then_some(place)
    }

    /// A name that something has, which no call about names is underway for.
    fn taken(&mut self, tree: &Tree) -> Option<(NamePlace, Id)> {
        let place = self.place();
        if tree.busy.contains(&place) {
            return None;
        }
        let id = tree.at(&place)?;
        let object = tree.objects.get(&id)?;
        (!object.names_busy && !object.closed).then_some((place, id))
    }

    /// Whether a name of it may be taken away now.
    fn may_go(object: &Object) -> bool {
        !object.closed && (object.links > 1 && !object.directory || object.data_calls == 0)
    }

    fn rename(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let (from, id) = self.taken(tree)?;
        let to = self.place();
        if to == from || tree.busy.contains(&to) {
            return None;
        }
        if let Some(target) = tree.at(&to) {
            let (object, other) = (tree.objects.get(&id)?, tree.objects.get(&target)?);
            let fits = target != id
                && !object.directory
                && !other.directory
                && !other.names_busy
                && Self::may_go(other);
            if !fits {
                return None;
            }
        }
        Some(CrashOperation::Rename { from, to })
    }

    fn remove(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let (place, id) = self.taken(tree)?;
        let object = tree.objects.get(&id)?;
        (!object.directory && Self::may_go(object)).then_some(CrashOperation::Remove { place })
    }

    fn remove_directory(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let (place, id) = self.taken(tree)?;
        let directory = tree.objects.get(&id)?.directory;
        directory.then_some(CrashOperation::RemoveDirectory { place })
    }

    fn link(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let (_, object) = self.taken(tree)?;
        let place = self.free(tree)?;
        let known = tree.objects.get(&object)?;
        let fits = !known.directory && known.handle.is_some();
        fits.then_some(CrashOperation::Link { object, place })
    }

    fn mode(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let (_, object) = self.taken(tree)?;
        tree.objects.get(&object)?.handle?;
        Some(CrashOperation::Mode {
            object,
            mode: self.some_mode(),
        })
    }

    fn resize(&mut self, tree: &Tree) -> Option<CrashOperation> {
        let file = self.file(tree)?;
        let object = tree.objects.get(&file)?;
        let size = self.random.below(FILE);
        (object.data_calls == 0 && !object.names_busy)
            .then_some(CrashOperation::Resize { file, size })
    }
}
