//! Operations on an open object: its attributes, permission to use its data, and the data itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::identity::Identity;
use super::objects::Object;
use super::open_files::attributes_of;
use super::shared_file::SharedFile;
use super::sys::handles;
use super::sys::identity::assume;
use super::volume::Volume;
use crate::{Attributes, ClientKey, Kind, Result, StoreError};

/// How long a permission verdict is cached.
const KEEP: Duration = Duration::from_secs(1);

/// The most verdicts of an object.
const VERDICTS: usize = 8;

/// The page size of the page cache: direct and buffered transfers at the same time must not share a
/// page.
const PAGE: u32 = 4096;

/// The purpose of opening the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

/// An open file for data.
#[derive(Clone)]
pub(super) struct DataFile {
    pub file: Arc<OwnedFd>,
    /// Whether it is open for direct I/O, and then the alignment of offsets, lengths and memory.
    pub direct: Option<u32>,
}

/// The open files of an object's data.
#[derive(Default)]
pub(super) struct Files {
    buffered: Option<OpenFile>,
    direct: Option<OpenFile>,
    /// Replaced files. Closed with the object, as closing a file may block.
    retired: Vec<DataFile>,
    /// The file system refused direct I/O, for reads and for writes.
    refused: [bool; 2],
}

#[derive(Clone)]
struct OpenFile {
    data: DataFile,
    writable: bool,
}

/// Permission verdicts, the latest last.
#[derive(Default)]
pub(super) struct Verdicts(ArrayVec<Verdict, VERDICTS>);

struct Verdict {
    identity: Identity,
    wanted: Use,
    /// Mode, owner and group when it was made.
    by: (u32, u32, u32),
    until: Instant,
    allowed: Result<()>,
}

impl Object {
    /// Its attributes. On the reactor itself if the file system never blocks on this.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if its last name is removed and it is not held; errors of the kernel.
    pub async fn attributes(&self, client: ClientKey) -> Result<Attributes> {
        let attributes = if self.file_system.slow {
            let (volume, path) = (self.volume.clone(), Arc::clone(&self.path));
            let job = move || attributes_of(volume.folder(), path.as_fd());
            self.volume.helpers().run(client, job).await?
        } else {
            return self.attributes_at_once();
        };
        self.existing(attributes)
    }

    /// The same on this thread, where that never blocks.
    ///
    /// # Errors
    /// As [`Object::attributes`].
    pub fn attributes_at_once(&self) -> Result<Attributes> {
        self.existing(attributes_of(self.volume.folder(), self.fd()))
    }

    /// [`StoreError::Stale`] in place of the attributes of an object that has ended.
    ///
    /// # Errors
    /// As [`Object::attributes`].
    pub fn existing(&self, attributes: Result<Attributes>) -> Result<Attributes> {
        match attributes {
            Ok(found) if found.links > 0 || self.shared.removed().is_some() => Ok(found),
            Ok(_) | Err(StoreError::Stale) => {
                self.gone.set(true);
                Err(StoreError::Stale)
            }
            Err(error) => Err(error),
        }
    }

    /// Only regular files have data (RFC 1813 section 3.3.6).
    ///
    /// # Errors
    /// [`StoreError::IsDirectory`] and [`StoreError::Invalid`] for objects without data.
    pub fn require_regular(&self) -> Result<()> {
        match self.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(StoreError::IsDirectory),
            Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
        }
    }

    /// Checks that the caller may use its data: as judged by the kernel, except that the owner
    /// always may, and users with execute permission may read (RFC 1813 section 4.4). A verdict is
    /// cached for a second while owner and mode do not change.
    ///
    /// # Errors
    /// [`StoreError::Denied`], [`StoreError::ReadOnly`], or an error of querying its attributes.
    pub async fn permit(&self, client: ClientKey, identity: &Identity, wanted: Use) -> Result<()> {
        // Restrictions that apply to the superuser are reported by the kernel when the data is
        // opened.
        if identity.is_superuser() {
            return Ok(());
        }
        // If attributes need a helper, so does the verdict; the attributes seen last are used.
        let now = Instant::now();
        let by = if self.file_system.slow {
            None
        } else {
            let attributes = self.attributes(client).await?;
            Some((attributes.mode, attributes.uid, attributes.gid))
        };
        if let Some(allowed) = self.verdicts.borrow().find(identity, wanted, by, now) {
            return allowed;
        }
        let (volume, path) = (self.volume.clone(), Arc::clone(&self.path));
        let caller = identity.clone();
        let job = move || judge(&volume, path.as_fd(), &caller, wanted);
        let (by, allowed) = self.volume.helpers().run(client, job).await??;
        self.verdicts.borrow_mut().put(Verdict {
            identity: identity.clone(),
            wanted,
            by,
            until: now + KEEP,
            allowed,
        });
        allowed
    }

    /// Whether it is known that the caller may use its data. Not where querying attributes may
    /// block.
    pub fn is_known_permitted(&self, identity: &Identity, wanted: Use) -> bool {
        if identity.is_superuser() {
            return true;
        }
        let Ok(now) = self.attributes_at_once() else {
            return false;
        };
        let by = Some((now.mode, now.uid, now.gid));
        let verdicts = self.verdicts.borrow();
        let known = verdicts.find(identity, wanted, by, Instant::now());
        known.is_some_and(|allowed| allowed.is_ok())
    }

    /// Its data, if that is open already, not for direct I/O.
    pub fn open_data(&self, wanted: Use) -> Option<DataFile> {
        self.files.borrow().find(wanted, false)
    }

    /// Its data, opened with the rights of the superuser and kept open with the object. `direct` is
    /// a request that not every file system grants.
    ///
    /// # Errors
    /// [`StoreError::IsDirectory`] and [`StoreError::Invalid`] for objects without data,
    /// [`StoreError::ReadOnly`], and errors of the kernel.
    pub async fn data(&self, client: ClientKey, wanted: Use, direct: bool) -> Result<DataFile> {
        self.require_regular()?;
        let direct = direct && !self.files.borrow().refused[wanted as usize];
        if let Some(data) = self.files.borrow().find(wanted, direct) {
            return Ok(data);
        }
        let path = Arc::clone(&self.path);
        let job = move || open_data(path.as_fd(), wanted, direct);
        let data = self.volume.helpers().run(client, job).await??;
        let mut files = self.files.borrow_mut();
        if direct && data.direct.is_none() {
            files.refused[wanted as usize] = true;
        }
        // Another task may have opened it in the meantime. A file open for writing replaces one for
        // reading, and then serves both.
        if let Some(there) = files.find(wanted, data.direct.is_some()) {
            files.retired.push(data);
            return Ok(there);
        }
        let place = match data.direct {
            Some(_) => &mut files.direct,
            None => &mut files.buffered,
        };
        let replaced = place.replace(OpenFile {
            data: data.clone(),
            writable: wanted == Use::Write,
        });
        files.retired.extend(replaced.map(|file| file.data));
        Ok(data)
    }
}

impl Files {
    fn find(&self, wanted: Use, direct: bool) -> Option<DataFile> {
        let file = if direct { &self.direct } else { &self.buffered };
        let file = file.as_ref()?;
        (file.writable || wanted == Use::Read).then(|| file.data.clone())
    }

    /// Makes written bytes durable before the file is closed. May block.
    pub fn settle(&self, volume: &Volume, shared: &SharedFile) {
        if !shared.data.is_dirty() {
            return;
        }
        let mut files = [&self.buffered, &self.direct].into_iter().flatten();
        if let Some(file) = files.find(|file| file.writable) {
            shared.data.settle(volume.data(), &file.data.file);
        }
    }
}

impl Verdicts {
    fn find(
        &self,
        identity: &Identity,
        wanted: Use,
        by: Option<(u32, u32, u32)>,
        now: Instant,
    ) -> Option<Result<()>> {
        let found = self.0.iter().find(|verdict| {
            verdict.wanted == wanted
                && verdict.until > now
                && by.is_none_or(|by| by == verdict.by)
                && verdict.identity == *identity
        });
        found.map(|verdict| verdict.allowed)
    }

    fn put(&mut self, verdict: Verdict) {
        self.0
            .retain(|old| old.wanted != verdict.wanted || old.identity != verdict.identity);
        if self.0.is_full() {
            self.0.remove(0);
        }
        self.0.push(verdict);
    }
}

/// Mode, owner and group of an object, and whether an identity may use its data in this way.
fn judge(
    volume: &Volume,
    object: BorrowedFd<'_>,
    identity: &Identity,
    wanted: Use,
) -> Result<((u32, u32, u32), Result<()>)> {
    let attributes = attributes_of(volume.folder(), object)?;
    let access = match wanted {
        Use::Read => Access::READ_OK,
        Use::Write => Access::WRITE_OK,
    };
    let verdict = assume(identity, || match handles::may(object, access) {
        Err(Errno::ACCESS) if wanted == Use::Read => handles::may(object, Access::EXEC_OK),
        verdict => verdict,
    });
    let allowed = match verdict {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Errno::ACCESS)) if attributes.uid == identity.uid() => Ok(()),
        // An immutable file, which has a different error for changes of attributes.
        Ok(Err(Errno::PERM)) | Err(_) => Err(StoreError::Denied),
        Ok(Err(error)) => Err(store_error(error)),
    };
    Ok(((attributes.mode, attributes.uid, attributes.gid), allowed))
}

/// Opens the data of a regular file.
fn open_data(path: BorrowedFd<'_>, wanted: Use, direct: bool) -> Result<DataFile> {
    let mut flags = OFlags::CLOEXEC
        | match wanted {
            Use::Read => OFlags::RDONLY,
            Use::Write => OFlags::RDWR,
        };
    let alignment = if direct { alignment_of(path) } else { None };
    if alignment.is_some() {
        flags |= OFlags::DIRECT;
    }
    let link = proc_path(path);
    let open = |flags| rustix::fs::openat(CWD, link.as_str(), flags, Mode::empty());
    match open(flags) {
        Ok(file) => Ok(DataFile {
            file: Arc::new(file),
            direct: alignment,
        }),
        Err(Errno::INVAL | Errno::OPNOTSUPP) if alignment.is_some() => {
            let file = open(flags - OFlags::DIRECT).map_err(store_error)?;
            Ok(DataFile {
                file: Arc::new(file),
                direct: None,
            })
        }
        // An immutable or append-only file.
        Err(Errno::PERM) => Err(StoreError::Denied),
        Err(error) => Err(store_error(error)),
    }
}

/// The required alignment of offsets, lengths and memory for direct I/O; `None` if the file system
/// does not support it.
fn alignment_of(path: BorrowedFd<'_>) -> Option<u32> {
    let stat = rustix::fs::statx(path, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match stat {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            let needed = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align);
            (needed > 0).then_some(needed.max(PAGE))
        }
        // Kernels before 6.1 and file systems that do not report it: opening shows it.
        _ => Some(PAGE),
    }
}
