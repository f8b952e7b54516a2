//! A file system in this process, spoken over /dev/fuse: a folder of files in memory that fails or
//! stays silent when the test says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::Folder;

const ROOT: u64 = 1;
const HEADER: usize = 40;
const TRANSFER_MAX: usize = 1 << 20;

/// How the file system behaves; changed while it runs.
#[derive(Default)]
pub struct Behaviour {
    /// The next so many FSYNCs fail so.
    pub sync_error: Option<(u32, i32)>,
    /// Every WRITE fails so.
    pub write_error: Option<i32>,
    /// READ, WRITE and FSYNC are not answered.
    pub silent: bool,
    /// What was not answered.
    held: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    files: Mutex<BTreeMap<u64, (String, Vec<u8>)>>,
    syncs: AtomicU64,
    held: AtomicU64,
}

/// The mounted file system. Dropping it ends and unmounts it, whatever waits for it.
pub struct Fuse {
    pub mountpoint: PathBuf,
    shared: Arc<Shared>,
    device: Arc<File>,
    server: Option<JoinHandle<()>>,
    _folder: Folder,
}

impl Fuse {
    /// With these files, each empty. None, recorded as skipped, where the system has no FUSE or
    /// does not let this process mount.
    pub fn mount(names: &[&str]) -> Option<Self> {
        let folder = Folder::new(&std::env::temp_dir(), "fuse");
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = match device {
            Ok(device) => Arc::new(device),
            Err(error) => {
                millrace_testing::skip!("/dev/fuse: {error}");
                return None;
            }
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        if let Err(error) = mount("millrace-test", &folder.0, "fuse", flags, &*options) {
            millrace_testing::skip!("mounting FUSE: {error}");
            return None;
        }
        let shared = Arc::new(Shared::default());
        for (number, name) in (ROOT + 1..).zip(names) {
            let file = ((*name).to_owned(), Vec::new());
            shared.files.lock().unwrap().insert(number, file);
        }
        let server = {
            let (shared, device) = (Arc::clone(&shared), Arc::clone(&device));
            std::thread::spawn(move || serve(&shared, &device))
        };
        Some(Self {
            mountpoint: folder.0.clone(),
            shared,
            device,
            server: Some(server),
            _folder: folder,
        })
    }

    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Changes how it behaves. Once it is not silent any more, it answers what it held back.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        let mut behaviour = self.shared.behaviour.lock().unwrap();
        change(&mut behaviour);
        let held = match behaviour.silent {
            true => Vec::new(),
            false => std::mem::take(&mut behaviour.held),
        };
        drop(behaviour);
        for request in held {
            answer(&self.shared, &self.device, &request);
        }
    }

    /// Answers the first of what it holds back, if there is something.
    pub fn answer_one(&self) -> bool {
        let mut behaviour = self.shared.behaviour.lock().unwrap();
        if behaviour.held.is_empty() {
            return false;
        }
        let request = behaviour.held.remove(0);
        drop(behaviour);
        answer(&self.shared, &self.device, &request);
        true
    }

    /// FSYNCs that it was asked for.
    pub fn syncs(&self) -> u64 {
        self.shared.syncs.load(SeqCst)
    }

    /// Requests that it holds back or held back.
    pub fn held(&self) -> u64 {
        self.shared.held.load(SeqCst)
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let files = self.shared.files.lock().unwrap();
        let file = files.values().find(|file| file.0 == name);
        file.expect("one of its files").1.clone()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.behave(|behaviour| behaviour.silent = false);
        // With the last file closed, the device tells the server that it is over.
        let _ = unmount(&self.mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            if std::thread::panicking() {
                return;
            }
            server.join().unwrap();
        }
    }
}

fn serve(shared: &Shared, mut device: &File) {
    let mut buffer = vec![0; TRANSFER_MAX + (64 << 10)];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            // Interrupted before it was taken.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // Unmounted.
            Err(_) => return,
        };
        let request = &buffer[..length];
        let mut behaviour = shared.behaviour.lock().unwrap();
        if behaviour.silent && matches!(number(request, 4), READ | WRITE | FSYNC) {
            behaviour.held.push(request.to_vec());
            shared.held.fetch_add(1, SeqCst);
            continue;
        }
        drop(behaviour);
        answer(shared, device, request);
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Large writes, and handles that outlive the kernel's caches.
const BIG_WRITES: u32 = 1 << 5;
const EXPORT_SUPPORT: u32 = 1 << 4;
const ASYNC_DIRECT: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn answer(shared: &Shared, mut device: &File, request: &[u8]) {
    let (opcode, unique, node) = (number(request, 4), long(request, 8), long(request, 16));
    let body = &request[HEADER..];
    let outcome = match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return,
        INIT => Ok(init(body)),
        LOOKUP => lookup(shared, node, body),
        GETATTR => attributes(shared, node).map(timed),
        SETATTR => set_attributes(shared, node, body),
        OPEN | OPENDIR => Ok(vec![0; 16]),
        READ => read(shared, node, body),
        WRITE => write(shared, node, body),
        STATFS => Ok(statistics()),
        FSYNC => sync(shared),
        RELEASE | RELEASEDIR | FSYNCDIR => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    };
    let (error, body) = match outcome {
        Ok(body) => (0, body),
        Err(error) => (-error, Vec::new()),
    };
    let mut reply = Vec::with_capacity(16 + body.len());
    reply.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
    reply.extend(error.to_ne_bytes());
    reply.extend(unique.to_ne_bytes());
    reply.extend(body);
    // Fails for those who do not wait any more.
    let _ = device.write(&reply);
}

type Answer = Result<Vec<u8>, i32>;

fn init(body: &[u8]) -> Vec<u8> {
    let flags = number(body, 12) & (BIG_WRITES | EXPORT_SUPPORT | ASYNC_DIRECT | MAX_PAGES);
    let mut reply = Vec::new();
    for field in [7, 31, 1 << 20, flags] {
        reply.extend(u32::to_ne_bytes(field));
    }
    // Requests in the background, and when there are many.
    reply.extend(64_u16.to_ne_bytes());
    reply.extend(48_u16.to_ne_bytes());
    reply.extend(u32::try_from(TRANSFER_MAX).unwrap().to_ne_bytes());
    reply.extend(1_u32.to_ne_bytes());
    reply.extend(256_u16.to_ne_bytes());
    reply.resize(64, 0);
    reply
}

fn attributes(shared: &Shared, node: u64) -> Answer {
    let files = shared.files.lock().unwrap();
    let (mode, size) = match files.get(&node) {
        Some((_, data)) => (libc::S_IFREG | 0o666, data.len() as u64),
        None if node == ROOT => (libc::S_IFDIR | 0o777, 0),
        None => return Err(libc::ENOENT),
    };
    let mut reply = Vec::new();
    for field in [node, size, size.div_ceil(512), 1, 1, 1] {
        reply.extend(field.to_ne_bytes());
    }
    for field in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        reply.extend(u32::to_ne_bytes(field));
    }
    Ok(reply)
}

/// Attributes that the kernel does not keep.
fn timed(attributes: Vec<u8>) -> Vec<u8> {
    let mut reply = vec![0; 16];
    reply.extend(attributes);
    reply
}

fn lookup(shared: &Shared, node: u64, name: &[u8]) -> Answer {
    let name = &name[..name.len() - 1];
    let found = match name {
        b"." => node,
        b".." => ROOT,
        _ => {
            let files = shared.files.lock().unwrap();
            let found = files.iter().find(|(_, file)| file.0.as_bytes() == name);
            *found.ok_or(libc::ENOENT)?.0
        }
    };
    let mut reply = Vec::new();
    reply.extend(found.to_ne_bytes());
    reply.resize(40, 0);
    reply.extend(attributes(shared, found)?);
    Ok(reply)
}

fn set_attributes(shared: &Shared, node: u64, body: &[u8]) -> Answer {
    const SIZE: u32 = 1 << 3;
    if number(body, 0) & SIZE != 0 {
        let size = usize::try_from(long(body, 16)).unwrap();
        let mut files = shared.files.lock().unwrap();
        files.get_mut(&node).ok_or(libc::ENOENT)?.1.resize(size, 0);
    }
    attributes(shared, node).map(timed)
}

fn read(shared: &Shared, node: u64, body: &[u8]) -> Answer {
    let files = shared.files.lock().unwrap();
    let data = &files.get(&node).ok_or(libc::ENOENT)?.1;
    let start = usize::try_from(long(body, 8)).unwrap().min(data.len());
    let end = (start + number(body, 16) as usize).min(data.len());
    Ok(data[start..end].to_vec())
}

fn write(shared: &Shared, node: u64, body: &[u8]) -> Answer {
    if let Some(error) = shared.behaviour.lock().unwrap().write_error {
        return Err(error);
    }
    let (offset, size) = (long(body, 8), number(body, 16));
    let bytes = &body[40..40 + size as usize];
    let mut files = shared.files.lock().unwrap();
    let data = &mut files.get_mut(&node).ok_or(libc::ENOENT)?.1;
    let start = usize::try_from(offset).unwrap();
    if data.len() < start + bytes.len() {
        data.resize(start + bytes.len(), 0);
    }
    data[start..start + bytes.len()].copy_from_slice(bytes);
    let mut reply = size.to_ne_bytes().to_vec();
    reply.resize(8, 0);
    Ok(reply)
}

fn sync(shared: &Shared) -> Answer {
    shared.syncs.fetch_add(1, SeqCst);
    let mut behaviour = shared.behaviour.lock().unwrap();
    match &mut behaviour.sync_error {
        Some((times, error)) if *times > 0 => {
            *times -= 1;
            Err(*error)
        }
        _ => Ok(Vec::new()),
    }
}

fn statistics() -> Vec<u8> {
    let mut reply = Vec::new();
    for field in [1 << 20, 1 << 19, 1 << 19, 1 << 10, 1 << 9] {
        reply.extend(u64::to_ne_bytes(field));
    }
    for field in [4096, 255, 4096, 0] {
        reply.extend(u32::to_ne_bytes(field));
    }
    reply.resize(80, 0);
    reply
}
