//! Files that are held while clients have them open, also without a name: the cluster keeps a file
//! that a session has open, whoever removes it.

use std::sync::{Arc, Weak};

use super::call::CallContext;
use super::session::Session;
use super::view::{ClientView, SERVER};
use super::volume;
use crate::{FileHold, Handle, Result};

impl ClientView<'_> {
    pub(super) async fn hold(&self, file: Handle) -> Result<FileHold> {
        let hold = self.ask(&SERVER, move |context| HeldFile::of(context, file));
        Ok(FileHold::new(hold.await?))
    }
}

/// One hold of a file.
struct HeldFile {
    /// A hold ends with the session, and so does a file without a name.
    session: Weak<Session>,
    number: u64,
}

impl HeldFile {
    fn of(context: &CallContext, file: Handle) -> Result<Self> {
        let found = context.file(file)?;
        let number = found.attributes.inode;
        let held = context.session.hold(number, &found.inode);
        held.map_err(|error| context.error(error))?;
        let held = Self {
            session: Arc::downgrade(&context.session),
            number,
        };
        // The name may have been removed before it was held.
        context.object(file)?;
        Ok(held)
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let session = self.session.upgrade();
        if let Some(session) = &session {
            session.release(self.number);
        }
        volume::end(session);
    }
}
