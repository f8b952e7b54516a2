//! A disk in memory that injects failures and losses of power.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Disk;

/// The event at one of the changing operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It fails without an effect.
    Failure,
    /// A loss of power before it; all following ones fail, too.
    PowerCut,
}

/// A disk with one folder, `/f`.
pub struct Model {
    state: Mutex<ModelState>,
    /// At the operation with this number, from zero.
    event: Option<(usize, Event)>,
}

#[derive(Clone, Default)]
struct ModelState {
    /// The contents of files, and those after a loss of power.
    files: Vec<Content>,
    /// Names as the service sees them.
    names: BTreeMap<PathBuf, usize>,
    /// Names after a loss of power.
    durable: BTreeMap<PathBuf, usize>,
    /// Changes of names since the folder was made durable.
    pending: Vec<Naming>,
    operations: usize,
    is_off: bool,
}

#[derive(Clone)]
struct Content {
    now: Vec<u8>,
    durable: Option<Vec<u8>>,
}

#[derive(Clone)]
enum Naming {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

/// The files of a disk after a loss of power.
pub type Remains = BTreeMap<PathBuf, Vec<u8>>;

impl Model {
    /// A disk with these files, durable.
    pub fn new(files: &[(&str, &str)], event: Option<(usize, Event)>) -> Self {
        let mut state = ModelState::default();
        for (name, content) in files {
            let name = PathBuf::from(name);
            state.names.insert(name.clone(), state.files.len());
            state.durable.insert(name, state.files.len());
            state.files.push(Content {
                now: content.as_bytes().to_vec(),
                durable: Some(content.as_bytes().to_vec()),
            });
        }
        let state = Mutex::new(state);
        Self { state, event }
    }

    /// The number of changing operations.
    pub fn operations(&self) -> usize {
        self.state().operations
    }

    /// The files as seen by the service.
    pub fn now(&self) -> Remains {
        let state = self.state();
        let names = state.names.iter();
        names
            .map(|(name, &file)| (name.clone(), state.files[file].now.clone()))
            .collect()
    }

    /// All possible states after a loss of power: any of the pending name changes may be durable,
    /// and any part of contents that are not.
    pub fn after_power_cut(&self) -> Vec<Remains> {
        let state = self.state();
        let mut all = Vec::new();
        for chosen in 0_u32..1 << state.pending.len() {
            let mut names = state.durable.clone();
            for (number, naming) in state.pending.iter().enumerate() {
                if chosen & 1 << number != 0 {
                    naming.apply(&mut names);
                }
            }
            for part in 0..3 {
                let content = |file: usize| {
                    let Content { now, durable } = &state.files[file];
                    durable
                        .clone()
                        .unwrap_or_else(|| now[..now.len() * part / 2].to_vec())
                };
                all.push(
                    names
                        .iter()
                        .map(|(name, &file)| (name.clone(), content(file)))
                        .collect(),
                );
            }
        }
        all
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation and injects its event.
    fn operation(&self) -> io::Result<std::sync::MutexGuard<'_, ModelState>> {
        let mut state = self.state();
        let number = state.operations;
        state.operations += 1;
        match self.event {
            Some((at, Event::PowerCut)) if at <= number => {
                state.is_off = true;
            }
            Some((at, Event::Failure)) if at == number => {
                return Err(io::Error::other("the disk refuses"));
            }
            _ => {}
        }
        match state.is_off {
            true => Err(io::Error::other("there is no power")),
            false => Ok(state),
        }
    }
}

impl ModelState {
    fn find(&self, file: &Path) -> io::Result<usize> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        self.names.get(file).copied().ok_or_else(missing)
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.pending.push(naming);
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Disk for Model {
    fn resolve(&self, file: &Path) -> io::Result<PathBuf> {
        self.state().find(file).map(|_| file.to_owned())
    }

    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let found = state.find(file)?;
        Ok(state.files[found].now.clone())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        let inside = state
            .names
            .keys()
            .filter(|name| name.parent() == Some(folder));
        Ok(inside
            .filter_map(|name| Some(name.file_name()?.to_owned()))
            .collect())
    }

    fn create(&self, file: &Path, content: &[u8], like: &Path) -> io::Result<()> {
        let mut state = self.operation()?;
        state.find(like)?;
        if state.names.contains_key(file) {
            state.name(Naming::Remove(file.to_owned()));
        }
        let number = state.files.len();
        state.files.push(Content {
            now: content.to_vec(),
            durable: None,
        });
        state.name(Naming::Create(file.to_owned(), number));
        Ok(())
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        let mut state = self.operation()?;
        let found = state.find(file)?;
        state.files[found].durable = Some(state.files[found].now.clone());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operation()?;
        let found = state.find(from)?;
        state.name(Naming::Rename(from.to_owned(), to.to_owned(), found));
        Ok(())
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        let mut state = self.operation()?;
        state.find(file)?;
        state.name(Naming::Remove(file.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let mut state = self.operation()?;
        state.durable = state.names.clone();
        state.pending.clear();
        Ok(())
    }
}
