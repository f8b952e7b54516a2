//! Space, holes and copies of ranges, by helpers: rings cannot do most of this.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::io_mode_lock::{IoModeLock, Way};
use super::route::OFFSET_MAX;
use crate::posix::errors::store_error;
use crate::posix::namespace::{Changed, JobContext, OpenObject};
use crate::posix::objects::{Object, SharedFile, Use};
use crate::posix::open_files::attributes_of;
use crate::posix::sys::calls;
use crate::posix::view::ClientView;
use crate::posix::volume::Volume;
use crate::{
    Caller, ClientKey, Consistency, CopiedRange, FoundRange, Handle, Modified, RangeContent,
    Result, Stability, StoreError, UsageAdvice,
};

/// Most bytes that one operation copies, and for how long: a client goes on with the rest.
const COPY_MAX: u64 = 64 << 20;
const COPY_TIME: Duration = Duration::from_millis(100);
/// Bytes that are copied by one call of the kernel.
const PIECE: u64 = 4 << 20;

/// A file whose data a job changes with the caller's rights.
struct RangeTarget {
    context: JobContext,
    place: OpenObject,
    file: Arc<OwnedFd>,
}

impl ClientView<'_> {
    pub(in crate::posix) async fn allocate(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u64,
    ) -> Modified<()> {
        self.change_range(caller, file, move |target| {
            let most = target.context.volume.properties().size_max;
            let end = offset.checked_add(length).filter(|end| *end <= most);
            end.ok_or(StoreError::TooLarge)?;
            let allocate = |flags| calls::fallocate(&target.file, flags, offset, length);
            // The size changes only when there is space for all.
            let act = || {
                allocate(FallocateFlags::KEEP_SIZE)?;
                allocate(FallocateFlags::empty())
            };
            target.context.act(act).map_err(store_error)
        })
        .await
    }

    pub(in crate::posix) async fn deallocate(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u64,
    ) -> Modified<()> {
        let most = self.volume.properties().size_max;
        let length = length.min(most.saturating_sub(offset));
        self.change_range(caller, file, move |target| {
            if length == 0 {
                return Ok(());
            }
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let act = || calls::fallocate(&target.file, flags, offset, length);
            target.context.act(act).map_err(store_error)
        })
        .await
    }

    pub(in crate::posix) async fn clone_range(
        &self,
        caller: &Caller,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u64,
    ) -> Modified<()> {
        let source = match self.open_range(caller, from.0, Use::Read).await {
            Ok((_, source)) => source,
            Err(error) => return Modified::failed(error),
        };
        self.change_range(caller, to.0, move |target| {
            let act = || calls::clone_range((&source.file, from.1), (&target.file, to.1), length);
            target.context.act(act).map_err(|error| match error {
                // Of two kinds of file, or a file that is swapped to.
                Errno::TXTBSY => StoreError::NotSupported,
                error => store_error(error),
            })
        })
        .await
    }

    pub(in crate::posix) async fn copy_range(
        &self,
        caller: &Caller,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u64,
    ) -> Modified<CopiedRange> {
        // Read before anything is written, so that a later error changes it.
        let verifier = self.volume.verifier();
        let begin = async {
            let (_, source) = self.open_range(caller, from.0, Use::Read).await?;
            let (object, target) = self.open_range(caller, to.0, Use::Write).await?;
            let writer = HelperWriter::enter(&self.volume, &object).await;
            let client = self.client;
            let job = move || {
                let places = [(&*source.file, from.1), (&*target.file, to.1)];
                let copied = copy(&target.context, client, places, length);
                writer.wrote(*copied.as_ref().unwrap_or(&0), &target.file);
                let found = attributes_of(target.context.volume.folder(), target.file.as_fd());
                (copied, found)
            };
            self.volume.helpers().run(self.client, job).await
        };
        match begin.await {
            Ok((copied, found)) => Modified {
                consistency: Consistency {
                    before: None,
                    after: found.ok(),
                },
                result: copied.map(|length| CopiedRange {
                    length,
                    stability: Stability::Unstable,
                    verifier,
                }),
            },
            Err(error) => Modified::failed(error),
        }
    }

    pub(in crate::posix) async fn seek(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        content: RangeContent,
    ) -> Result<FoundRange> {
        let (_, target) = self.open_range(caller, file, Use::Read).await?;
        let job = move || {
            let size = target.context.live(&target.place)?.size;
            if offset >= size {
                return Err(StoreError::NoDevice);
            }
            let wanted = match content {
                RangeContent::Data => SeekFrom::Data(offset),
                RangeContent::Hole => SeekFrom::Hole(offset),
            };
            // The position of the descriptor means nothing: transfers have their own.
            let found = match rustix::fs::seek(&target.file, wanted) {
                Ok(found) => found.min(size),
                Err(Errno::NXIO) => size,
                Err(error) => return Err(store_error(error)),
            };
            Ok(FoundRange {
                offset: found,
                end_of_file: found == size,
            })
        };
        self.volume.helpers().run(self.client, job).await?
    }

    pub(in crate::posix) async fn advise(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u64,
        advice: UsageAdvice,
    ) -> Result<bool> {
        let (_, target) = self.open_range(caller, file, Use::Read).await?;
        let advice = match advice {
            UsageAdvice::Normal => Advice::Normal,
            UsageAdvice::Sequential => Advice::Sequential,
            UsageAdvice::Random => Advice::Random,
            UsageAdvice::WillNeed => Advice::WillNeed,
            UsageAdvice::DontNeed => Advice::DontNeed,
        };
        let length = length.min(OFFSET_MAX.saturating_sub(offset));
        let job = move || {
            let length = std::num::NonZeroU64::new(length);
            offset <= OFFSET_MAX
                && rustix::fs::fadvise(&target.file, offset, length, advice).is_ok()
        };
        self.volume.helpers().run(self.client, job).await
    }

    /// Opens a file's data for a job, with the rights that reading or writing needs.
    async fn open_range(
        &self,
        caller: &Caller,
        file: Handle,
        wanted: Use,
    ) -> Result<(std::rc::Rc<Object>, RangeTarget)> {
        let identity = self.identity(caller).await?;
        let object = self.objects.get(self.client, file).await?;
        object.require_regular()?;
        object.permit(self.client, &identity, wanted).await?;
        let data = object.data(self.client, wanted, false).await?;
        let target = RangeTarget {
            context: JobContext {
                volume: self.volume.clone(),
                identity,
            },
            place: OpenObject::of(&object),
            file: data.file,
        };
        Ok((object, target))
    }

    /// Changes a file's data on a helper, and syncs that if the volume is strict.
    async fn change_range(
        &self,
        caller: &Caller,
        file: Handle,
        work: impl FnOnce(&RangeTarget) -> Result<()> + Send + 'static,
    ) -> Modified<()> {
        let begin = async {
            let (_, target) = self.open_range(caller, file, Use::Write).await?;
            let job = move || {
                let change = |_: &_| work(&target).map(Changed::place);
                target.context.change(&target.place, change)
            };
            self.volume.helpers().run(self.client, job).await
        };
        begin.await.unwrap_or_else(Modified::failed)
    }
}

/// Copies from one file to another, as many bytes as it can in a short time. What the files can
/// share takes no time.
fn copy(
    context: &JobContext,
    client: ClientKey,
    [from, to]: [(&OwnedFd, u64); 2],
    length: u64,
) -> Result<u64> {
    if context.volume.properties().clone_block.is_some()
        && context.act(|| calls::clone_range(from, to, length)).is_ok()
    {
        return Ok(length);
    }
    let helpers = context.volume.helpers();
    let (began, most) = (Instant::now(), length.min(COPY_MAX));
    let mut done = 0;
    while done < most {
        let waits = began.elapsed() > COPY_TIME || helpers.is_wanted_by_others(client);
        if done > 0 && waits {
            break;
        }
        let piece = PIECE.min(most - done);
        let (source, sink) = ((from.0, from.1 + done), (to.0, to.1 + done));
        match context.act(|| calls::copy_range(source, sink, piece)) {
            // The source has become shorter.
            Ok(0) => break,
            Ok(copied) => done += copied,
            Err(_) if done > 0 => break,
            Err(error) => return Err(store_error(error)),
        }
    }
    Ok(done)
}

/// A helper that writes into the page cache of a file.
struct HelperWriter {
    volume: Volume,
    handle: Handle,
    shared: Option<Arc<SharedFile>>,
}

impl HelperWriter {
    /// Keeps direct writes out, in turn.
    async fn enter(volume: &Volume, object: &Object) -> Self {
        let lock: &IoModeLock = &object.shared.data.io_mode;
        IoModeLock::enter(lock, Way::Buffered).await;
        Self {
            volume: volume.clone(),
            handle: object.handle,
            shared: Some(Arc::clone(&object.shared)),
        }
    }

    /// Bytes are written that are not durable.
    fn wrote(&self, bytes: u64, file: &OwnedFd) {
        let Some(shared) = self.shared.as_ref().filter(|_| bytes > 0) else {
            return;
        };
        shared.data.dirty.fetch_add(bytes, SeqCst);
        self.volume.data().dirty.fetch_add(bytes, SeqCst);
        // Where the object was closed meanwhile, nobody else makes them durable.
        if Arc::strong_count(shared) == 1 {
            shared.data.settle(self.volume.data(), file);
        }
    }
}

impl Drop for HelperWriter {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.data.io_mode.leave();
            self.volume.files().release(self.handle, shared);
        }
    }
}
