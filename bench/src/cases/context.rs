//! What cases work with.

use anyhow::{Context as _, Result, ensure};
use millrace_mempool::{Pool, Slice};
use millrace_wire::nfs3::{CreateHow, FileHandle, FileType, SetAttributes};

use crate::client::{Client, pool};
use crate::load::Pattern;
use crate::requester::session::Transfer;
use crate::requester::{RequesterState, Session, Settings};

/// A server, a directory of our own on it, and memory.
pub(crate) struct Context {
    pub client: Client,
    pub pool: Pool,
    /// A session with ordinary settings.
    pub session: Session,
    pub directory: FileHandle,
    /// The server's largest READ and WRITE.
    pub transfer: Transfer,
    root: FileHandle,
    name: String,
    files: u32,
}

impl Context {
    pub fn new(client: Client) -> Result<Self> {
        let root = client.root()?;
        let pool = pool(192 << 20)?;
        let mut session = client.session(&pool, client.settings(64))?;
        let name = format!("millrace-cases.{}", std::process::id());
        let attributes = SetAttributes {
            mode: Some(0o755),
            ..SetAttributes::default()
        };
        session
            .mkdir(root, name.as_bytes(), attributes)
            .context("cannot make a directory to work in")?;
        let directory = session.lookup(root, name.as_bytes())?.object;
        let transfer = session.transfer(root)?;
        Ok(Self {
            client,
            pool,
            session,
            directory,
            transfer,
            root,
            name,
            files: 0,
        })
    }

    /// Removes what a failed case left behind, over a new connection if the old one is gone.
    pub fn clear(&mut self) -> Result<()> {
        if self.session.connection().state() != &RequesterState::Ready {
            self.session = self.session_with(|_| {})?;
        }
        let directory = self.directory;
        self.empty(directory)
            .context("cannot remove what a failed case left behind")
    }

    /// Removes all that is in a directory of ours.
    fn empty(&mut self, directory: FileHandle) -> Result<()> {
        loop {
            // From the start each time, as removing may make cookies stale.
            let part = self.session.readdir(directory, 0, [0; 8], 8192)?;
            let mut found = false;
            for entry in part.entries {
                let name = entry.name.as_slice();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                found = true;
                let object = self.session.lookup(directory, name)?.object;
                if self.session.getattr(object)?.kind == FileType::Directory {
                    self.empty(object)?;
                    self.session.rmdir(directory, name)?;
                } else {
                    self.session.remove(directory, name)?;
                }
            }
            if part.eof && !found {
                return Ok(());
            }
            ensure!(found, "neither entries nor the end");
        }
    }

    pub fn finish(mut self) -> Result<()> {
        self.session
            .rmdir(self.root, self.name.as_bytes())
            .context("the directory is not empty at the end")?;
        self.session.close();
        Ok(())
    }

    /// One more session, with settings changed.
    pub fn session_with(&self, change: impl FnOnce(&mut Settings)) -> Result<Session> {
        let mut settings = self.client.settings(64);
        change(&mut settings);
        let mut session = self.client.session(&self.pool, settings)?;
        session.keep_to(self.transfer);
        Ok(session)
    }

    /// The path of the directory.
    pub fn path(&self) -> String {
        format!("{}/{}", self.client.place.export, self.name)
    }

    /// A new empty file.
    pub fn file(&mut self) -> Result<(Vec<u8>, FileHandle)> {
        self.files += 1;
        let name = format!("file.{}", self.files).into_bytes();
        let attributes = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let how = CreateHow::Guarded(attributes);
        self.session.create(self.directory, &name, how)?;
        let file = self.session.lookup(self.directory, &name)?.object;
        Ok((name, file))
    }

    pub fn remove(&mut self, name: &[u8]) -> Result<()> {
        self.session.remove(self.directory, name)?;
        Ok(())
    }

    /// Memory that holds a pattern from `offset` on, of at most 1 MiB.
    pub fn memory(&self, pattern: Pattern, offset: u64, length: usize) -> Result<Slice> {
        let mut buffer = self.session.buffer(length)?;
        pattern.fill(offset, &mut buffer[..length]);
        Ok(buffer.into_slice(0..length))
    }

    /// Memory without the pattern.
    pub fn blank(&self, length: usize) -> Result<Slice> {
        let mut buffer = self.session.buffer(length)?;
        buffer[..length].fill(0xcc);
        Ok(buffer.into_slice(0..length))
    }
}

/// Fails unless memory holds the pattern from `offset` on.
pub(crate) fn expect(pattern: Pattern, offset: u64, slice: &Slice) -> Result<()> {
    let mut scratch = vec![0; 2 * slice.len()];
    ensure!(
        pattern.holds(offset, slice, &mut scratch),
        "the data differs"
    );
    Ok(())
}
