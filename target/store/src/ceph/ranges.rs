//! Space, holes and copies of ranges, as far as the library knows them: it does not reserve space,
//! tells no holes, and shares no storage between files.

use std::time::{Duration, Instant};

use super::call::{CallContext, FoundObject};
use super::sys::{File, OpenMode};
use super::view::ClientView;
use crate::{
    Caller, Consistency, CopiedRange, FoundRange, Handle, Modified, RangeContent, Result,
    Stability, StoreError, UsageAdvice,
};

/// Most bytes that one operation copies, and for how long: a client goes on with the rest.
const COPY_MAX: u64 = 64 << 20;
const COPY_TIME: Duration = Duration::from_millis(100);
/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

impl ClientView<'_> {
    /// The library would let the file grow without taking space.
    pub(super) async fn allocate(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u64,
    ) -> Modified<()> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn deallocate(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u64,
    ) -> Modified<()> {
        let done = self.transfer(caller, move |context| {
            let found = context.file(file)?;
            let result = punch(context, &found, offset, length);
            Ok(Modified {
                consistency: context.after(&found),
                result,
            })
        });
        done.await.unwrap_or_else(Modified::failed)
    }

    pub(super) async fn seek(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        content: RangeContent,
    ) -> Result<FoundRange> {
        let found = self.ask(caller, move |context| {
            let found = context.file(file)?;
            context.require_read(&found)?;
            let size = found.attributes.size;
            match content {
                _ if offset >= size => Err(StoreError::NoDevice),
                // Everything may have been written.
                RangeContent::Data => Ok(FoundRange {
                    offset,
                    end_of_file: false,
                }),
                RangeContent::Hole => Ok(FoundRange {
                    offset: size,
                    end_of_file: true,
                }),
            }
        });
        found.await
    }

    pub(super) async fn clone_range(
        &self,
        _caller: &Caller,
        _from: (Handle, u64),
        _to: (Handle, u64),
        _length: u64,
    ) -> Modified<()> {
        Modified::failed(StoreError::NotSupported)
    }

    pub(super) async fn copy_range(
        &self,
        caller: &Caller,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u64,
    ) -> Modified<CopiedRange> {
        let done = self.transfer(caller, move |context| {
            let source = context.file(from.0)?;
            let target = context.file(to.0)?;
            let verifier = context.volume.verifier();
            let result = copy(context, (&source, from.1), (&target, to.1), length);
            Ok(Modified {
                consistency: Consistency {
                    before: None,
                    after: context.attributes(&target).ok(),
                },
                result: result.map(|length| CopiedRange {
                    length,
                    stability: Stability::Unstable,
                    verifier,
                }),
            })
        });
        done.await.unwrap_or_else(Modified::failed)
    }

    pub(super) async fn advise(
        &self,
        _caller: &Caller,
        _file: Handle,
        _offset: u64,
        _length: u64,
        _advice: UsageAdvice,
    ) -> Result<bool> {
        Ok(false)
    }
}

fn punch(context: &CallContext, file: &FoundObject, offset: u64, length: u64) -> Result<()> {
    context.require_writable()?;
    context.require_write(file)?;
    // Behind the end there is nothing to release.
    let length = length.min(file.attributes.size.saturating_sub(offset));
    if length == 0 {
        return Ok(());
    }
    context.clear_set_id(file)?;
    let opened = context.opened(file, OpenMode::Write)?;
    let punched = opened.punch(offset, length);
    punched.map_err(|error| context.error(error))
}

/// Copies until it has taken long. Returns the number of bytes.
fn copy(
    context: &CallContext,
    from: (&FoundObject, u64),
    to: (&FoundObject, u64),
    length: u64,
) -> Result<u64> {
    context.require_writable()?;
    context.require_read(from.0)?;
    context.require_write(to.0)?;
    context.clear_set_id(to.0)?;
    let source = context.opened(from.0, OpenMode::Read)?;
    let target = context.opened(to.0, OpenMode::Write)?;
    let deadline = Instant::now() + COPY_TIME;
    let length = length.min(COPY_MAX);
    let mut piece = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
    let mut done = 0;
    while done < length {
        match copy_piece(
            (&source, from.1 + done),
            (&target, to.1 + done),
            length - done,
            &mut piece,
        ) {
            Ok(0) => break,
            Ok(copied) => done += copied,
            Err(_) if done > 0 => break,
            Err(error) => return Err(context.error(error)),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(done)
}

fn copy_piece(
    from: (&File, u64),
    to: (&File, u64),
    length: u64,
    piece: &mut [u8],
) -> std::result::Result<u64, rustix::io::Errno> {
    let most = piece
        .len()
        .min(usize::try_from(length).unwrap_or(usize::MAX));
    let read = from.0.read_bytes(from.1, &mut piece[..most])?;
    let written = to.0.write_bytes(to.1, &piece[..read])?;
    Ok(written as u64)
}
