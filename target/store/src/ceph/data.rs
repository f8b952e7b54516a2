//! READ, WRITE and COMMIT: one copy between memory of the pool and the library's, made by a helper.

use std::sync::atomic::Ordering::SeqCst;

use millrace_mempool::{Class, Slice};

use super::call::{CallContext, FoundObject};
use super::sys::{LentMemory, Loan, OpenMode};
use super::view::{ClientView, SERVER};
use crate::{
    Attributes, Caller, Consistency, Handle, Modified, ReadOutcome, Result, Stability, StagedWrite,
    StoreError, WriteVerifier, Written,
};

/// The most bytes of one transfer: one buffer. Longer reads are short, and so are longer writes.
const TRANSFER_MAX: u32 = Class::Large.size() as u32;

/// How often a read without bytes below the end of the file is retried: files grow.
const TRIES: usize = 3;

/// The memory of a staged write, and its writer.
#[derive(Debug)]
pub struct Reservation {
    /// `None` for a write without bytes.
    slice: Option<Slice>,
    caller: Caller,
}

/// What a write came to, and the attributes after it.
struct WriteOutcome {
    written: Result<Written>,
    after: Option<Attributes>,
}

impl ClientView<'_> {
    pub(super) async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        let left = (i64::MAX as u64).saturating_sub(offset);
        let length = u64::from(length.min(TRANSFER_MAX)).min(left) as usize;
        let (loan, memory) = if length == 0 {
            (None, None)
        } else {
            let slice = self.memory(length).await?.into_slice(0..length);
            let (loan, memory) = Loan::new(slice, &self.loans);
            (Some(loan), Some(memory))
        };
        let job = move |context: &CallContext| read(context, file, offset, memory);
        let (found, attributes) = self.transfer(caller, job).await?;
        if found > 0 {
            let slice = loan.and_then(Loan::end).ok_or(StoreError::Io)?;
            slices.push(slice.slice(0..found));
        }
        Ok(ReadOutcome {
            length: u32::try_from(found).unwrap_or(u32::MAX),
            end_of_file: offset.saturating_add(found as u64) >= attributes.size,
            attributes,
        })
    }

    pub(super) async fn stage_write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Reservation>> {
        let length = length.min(TRANSFER_MAX);
        let end = offset.checked_add(u64::from(length));
        let fits = end.is_some_and(|end| end <= i64::MAX as u64);
        // The write checks all again. While a user writes a file, another job before each write would
        // take as long as the write. With names: jobs for data always reach the cluster, so that they
        // tell when it is stuck.
        if length == 0 || !fits || !self.volume.is_written(&file, caller.uid) {
            let checked = self.ask(caller, move |context| {
                context.require_writable()?;
                let found = context.file(file)?;
                context.require_write(&found)?;
                fits.then_some(()).ok_or(StoreError::TooLarge)
            });
            checked.await?;
        }
        let slice = match length as usize {
            0 => None,
            bytes => Some(self.memory(bytes).await?.into_slice(0..bytes)),
        };
        slices.extend(slice.clone());
        Ok(StagedWrite {
            file,
            offset,
            length,
            reservation: Reservation {
                slice,
                caller: caller.clone(),
            },
        })
    }

    pub(super) async fn commit_write(
        &self,
        staged: StagedWrite<Reservation>,
        stability: Stability,
    ) -> Modified<Written> {
        let Reservation { slice, caller } = staged.reservation;
        let (file, offset) = (staged.file, staged.offset);
        let lent = slice.map(|slice| Loan::new(slice, &self.loans));
        let (_loan, memory) = lent.unzip();
        let done = self.transfer(&caller, move |context| {
            let found = context.file(file)?;
            let written = write(context, &found, offset, memory.as_ref(), stability);
            drop(memory);
            Ok(WriteOutcome {
                written,
                after: context.attributes(&found).ok(),
            })
        });
        match done.await {
            Ok(WriteOutcome { written, after }) => {
                self.volume.count_delay(&written);
                Modified {
                    consistency: Consistency {
                        before: None,
                        after,
                    },
                    result: written,
                }
            }
            Err(error) => Modified::failed(error),
        }
    }

    pub(super) async fn commit(
        &self,
        file: Handle,
        _offset: u64,
        _length: u32,
    ) -> Modified<WriteVerifier> {
        let done = self.transfer(&SERVER, move |context| {
            let found = context.file(file)?;
            let verifier = context.volume.verifier();
            let synced = context.sync(&found, false).map(|()| verifier);
            if synced.is_ok() {
                let counters = context.volume.counters();
                counters.commits.fetch_add(1, SeqCst);
            }
            Ok(Modified {
                consistency: context.after(&found),
                result: synced,
            })
        });
        done.await.unwrap_or_else(Modified::failed)
    }
}

/// Reads into lent memory. Returns the number of bytes and the attributes after that.
fn read(
    context: &CallContext,
    file: Handle,
    offset: u64,
    memory: Option<LentMemory>,
) -> Result<(usize, Attributes)> {
    let found = context.file(file)?;
    context.require_read(&found)?;
    let Some(memory) = memory else {
        return Ok((0, found.attributes));
    };
    let opened = context.opened(&found, OpenMode::Read)?;
    for _ in 0..TRIES {
        let read = opened.read(offset, &memory);
        let read = read.map_err(|error| context.error(error))?;
        let attributes = context.attributes(&found)?;
        if read > 0 || offset >= attributes.size {
            let counters = context.volume.counters();
            counters.reads.fetch_add(1, SeqCst);
            counters.read_bytes.fetch_add(read as u64, SeqCst);
            return Ok((read, attributes));
        }
    }
    // The file is longer than the bytes found.
    Err(StoreError::Io)
}

/// Writes lent memory.
fn write(
    context: &CallContext,
    file: &FoundObject,
    offset: u64,
    memory: Option<&LentMemory>,
    stability: Stability,
) -> Result<Written> {
    // After the session, and before anything is written, so that a later loss changes it.
    let verifier = context.volume.verifier();
    let mut length = 0;
    if let Some(memory) = memory {
        context.require_writable()?;
        context.require_write(file)?;
        context.clear_set_id(file)?;
        let opened = context.opened(file, OpenMode::Write)?;
        let written = opened.write(offset, memory);
        let written = written.map_err(|error| context.error(error))?;
        let counters = context.volume.counters();
        counters.writes.fetch_add(1, SeqCst);
        counters.written_bytes.fetch_add(written as u64, SeqCst);
        if written == 0 {
            // The client would repeat it for ever.
            return Err(StoreError::Io);
        }
        length = u32::try_from(written).unwrap_or(u32::MAX);
        match stability {
            Stability::Unstable => {}
            Stability::DataSync => context.sync(file, true)?,
            Stability::FileSync => context.sync(file, false)?,
        }
    }
    Ok(Written {
        length,
        stability,
        verifier,
    })
}

impl CallContext {
    /// Waits until the data of a file is durable, with all attributes unless `data_only`.
    ///
    /// # Errors
    /// Errors of the cluster. Data may then be lost, so the verifier changes.
    pub fn sync(&self, file: &FoundObject, data_only: bool) -> Result<()> {
        let counters = self.volume.counters();
        counters.syncs.fetch_add(1, SeqCst);
        let synced = match self.session.written_file(file.attributes.inode) {
            // Errors of earlier writes are reported to the open file.
            Some(opened) => opened.sync(data_only),
            None => file.inode.sync(),
        };
        synced.map_err(|error| {
            let meaning = self.error(error);
            counters.sync_errors.fetch_add(1, SeqCst);
            self.volume.change_verifier();
            meaning
        })
    }
}
