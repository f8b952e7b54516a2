//! Whole files, with many calls in flight.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Instant;

use millrace_mempool::{Class, Slice};
use millrace_wire::nfs3::{
    FileHandle, Procedure, ReadArguments, Stability, WeakCacheData, WriteArguments, WriteOk,
    WriteVerifier,
};
use millrace_wire::xdr::Bulk;

use super::procedures::{ReadDone, take_plain, take_read};
use super::{Error, Session};
use crate::requester::call::{Call, CallError, Completion, SubmitError};

/// How files are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Most bytes of one call, at most 1 MiB; by default what the server prefers. The server's
    /// largest READ and WRITE are kept to in any case.
    pub block: Option<usize>,
    /// Calls in flight.
    pub depth: usize,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            block: None,
            depth: 16,
        }
    }
}

/// A block underway.
struct Block {
    token: u64,
    offset: u64,
    memory: Slice,
    /// Bytes that belong into the block, and how many of them are done.
    length: usize,
    done: usize,
    /// Not in a call now.
    idle: bool,
}

impl Block {
    fn is_done(&self) -> bool {
        self.done == self.length
    }

    fn rest(&self) -> Slice {
        self.memory.slice(self.done..self.length)
    }
}

impl Session {
    /// Writes all that `source` gives to a file, from its first byte on, and commits it. Returns
    /// the number of bytes.
    ///
    /// # Errors
    /// As [`Error`] tells; also if the server lost data meanwhile, as its verifier shows.
    pub fn copy_in(
        &mut self,
        file: FileHandle,
        source: &mut dyn Read,
        options: CopyOptions,
    ) -> Result<u64, Error> {
        let transfer = self.transfer(file)?;
        let most = options.block.unwrap_or(transfer.write_preferred);
        let most = most.min(transfer.write_max);
        let mut blocks: VecDeque<Block> = VecDeque::new();
        let mut verifier: Option<WriteVerifier> = None;
        let (mut offset, mut end) = (0, false);
        let mut finished: Vec<(u64, Result<WriteOk, Error>)> = Vec::new();
        loop {
            while !end && blocks.len() < options.depth.max(1) {
                let Some((memory, length)) = self.fill(source, most)? else {
                    break;
                };
                if length == 0 {
                    end = true;
                    break;
                }
                blocks.push_back(self.block(offset, memory, length));
                offset += length as u64;
            }
            if blocks.is_empty() {
                break;
            }
            for block in blocks.iter_mut().filter(|block| block.idle) {
                let rest = [block.rest()];
                let count = rest[0].len() as u32;
                let arguments = WriteArguments {
                    file,
                    offset: block.offset + block.done as u64,
                    count,
                    stable: Stability::Unstable,
                    data: Bulk::apart(count),
                };
                let call = Call::nfs3(block.token, Procedure::Write, arguments, 0);
                block.idle = !self.try_submit(&call.with_data(&rest))?;
            }
            self.check_alive()?;
            self.turn(&mut |completion: Completion<'_>| {
                let result = completion.result.map_err(Error::from).and_then(|reply| {
                    take_plain::<WriteOk, WeakCacheData>(Procedure::Write, &reply)
                });
                finished.push((completion.token, result));
            });
            for (token, result) in finished.drain(..) {
                let Some(block) = blocks.iter_mut().find(|block| block.token == token) else {
                    continue;
                };
                let written = result?;
                let count = written.count as usize;
                if count == 0 || count > block.length - block.done {
                    return Err(Error::Protocol {
                        procedure: Procedure::Write,
                        what: "a count that cannot be",
                    });
                }
                same_verifier(&mut verifier, written.verifier, Procedure::Write)?;
                block.done += count;
                block.idle = true;
            }
            blocks.retain(|block| !block.is_done());
        }
        let committed = self.commit(file, 0, 0)?;
        same_verifier(&mut verifier, committed.verifier, Procedure::Commit)?;
        Ok(offset)
    }

    /// Reads a file from its first byte to its end into `target`. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`Error`] tells.
    pub fn copy_out(
        &mut self,
        file: FileHandle,
        target: &mut dyn Write,
        options: CopyOptions,
    ) -> Result<u64, Error> {
        let transfer = self.transfer(file)?;
        let most = options.block.unwrap_or(transfer.read_preferred);
        let most = most.min(transfer.read_max);
        let size = self.getattr(file)?.size;
        let mut blocks: VecDeque<Block> = VecDeque::new();
        let (mut asked, mut written) = (0_u64, 0_u64);
        let mut finished: Vec<(u64, Result<ReadDone, Error>)> = Vec::new();
        while written < size {
            while asked < size && blocks.len() < options.depth.max(1) {
                let left = usize::try_from(size - asked).unwrap_or(usize::MAX);
                let length = left.min(most);
                let Some(memory) = self.try_memory(length)? else {
                    break;
                };
                blocks.push_back(self.block(asked, memory, length));
                asked += length as u64;
            }
            for block in blocks
                .iter_mut()
                .filter(|block| block.idle && !block.is_done())
            {
                let rest = [block.rest()];
                let arguments = ReadArguments {
                    file,
                    offset: block.offset + block.done as u64,
                    count: rest[0].len() as u32,
                };
                let call = Call::nfs3(block.token, Procedure::Read, arguments, 0);
                block.idle = !self.try_submit(&call.with_sinks(&[&rest]))?;
            }
            self.check_alive()?;
            self.turn(&mut |completion: Completion<'_>| {
                let block = blocks.iter().find(|block| block.token == completion.token);
                if let Some(block) = block {
                    let result = completion.result.map_err(Error::from);
                    let result = result.and_then(|reply| take_read(&reply, &[block.rest()]));
                    finished.push((completion.token, result));
                }
            });
            for (token, result) in finished.drain(..) {
                let Some(block) = blocks.iter_mut().find(|block| block.token == token) else {
                    continue;
                };
                let read = result?;
                if read.count == 0 {
                    return Err(Error::Protocol {
                        procedure: Procedure::Read,
                        what: "the file became shorter",
                    });
                }
                block.done += read.count as usize;
                block.idle = true;
            }
            while blocks.front().is_some_and(Block::is_done) {
                let Some(block) = blocks.pop_front() else {
                    break;
                };
                let length = block.length;
                let Ok(buffer) = block.memory.try_into_buffer() else {
                    return Err(CallError::BadReply.into());
                };
                target.write_all(&buffer[..length])?;
                written += length as u64;
            }
        }
        Ok(written)
    }

    fn block(&mut self, offset: u64, memory: Slice, length: usize) -> Block {
        self.tokens += 1;
        Block {
            token: self.tokens,
            offset,
            memory,
            length,
            done: 0,
            idle: true,
        }
    }

    /// Memory for a block, or `None` if calls that will end hold all of it.
    fn try_memory(&self, length: usize) -> Result<Option<Slice>, Error> {
        let class = Class::for_size(length).ok_or(Error::Memory)?;
        match self.pool.try_acquire(class) {
            Some(buffer) => Ok(Some(buffer.into_slice(0..length))),
            None if self.connection.pending() > 0 => Ok(None),
            None => Err(Error::Memory),
        }
    }

    /// A block's worth of the source; no bytes at its end.
    fn fill(&self, source: &mut dyn Read, block: usize) -> Result<Option<(Slice, usize)>, Error> {
        let class = Class::for_size(block).ok_or(Error::Memory)?;
        let Some(mut buffer) = self.pool.try_acquire(class) else {
            return if self.connection.pending() > 0 {
                Ok(None)
            } else {
                Err(Error::Memory)
            };
        };
        let mut length = 0;
        while length < block {
            match source.read(&mut buffer[length..block])? {
                0 => break,
                count => length += count,
            }
        }
        Ok(Some((buffer.into_slice(0..length), length)))
    }

    /// Whether the connection took the call; shortages pass.
    fn try_submit<A: millrace_wire::xdr::Encode>(
        &mut self,
        call: &Call<'_, A>,
    ) -> Result<bool, Error> {
        match self.connection.submit(call, Instant::now()) {
            Ok(_) => Ok(true),
            Err(SubmitError::Full | SubmitError::NoMemory) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Unstable data was lost if the verifier changed (RFC 1813 section 3.3.7).
fn same_verifier(
    known: &mut Option<WriteVerifier>,
    verifier: WriteVerifier,
    procedure: Procedure,
) -> Result<(), Error> {
    if *known.get_or_insert(verifier) == verifier {
        Ok(())
    } else {
        Err(Error::Protocol {
            procedure,
            what: "the server lost unstable data",
        })
    }
}
