//! The procedures of NFS version 3: decode, serve, encode.

use millrace_store::Store;
use millrace_wire::nfs3::{Failure, Procedure, SymlinkArguments, WriteArguments};
use millrace_wire::rpc::{Accepted, ReplyHeader, answer_to};
use millrace_wire::xdr::{Data as Place, Decoder, Encode};

use super::{Done, Refused, Service, arguments, encode};
use crate::call::{Answer, Bulk, Call, Reply};
use crate::nfs3::{self, Context, Data};

/// Longest text of a symbolic link that is fetched from a chunk.
const LINK_TEXT_MAX: usize = 4096;

impl<S: Store> Service<S> {
    #[allow(clippy::too_many_arguments)] // The parts of one call, each borrowed on its own.
    pub(super) async fn procedure<B: Bulk>(
        &self,
        context: &Context<'_, S>,
        call: &Call<'_>,
        xid: u32,
        input: &mut Decoder<'_>,
        text: &[u8],
        bulk: &mut B,
        reply: &mut Reply,
    ) -> Result<Done, Refused> {
        let header = &answer_to(xid, Accepted::Success);
        macro_rules! plain {
            ($procedure:ident) => {{
                let results = nfs3::$procedure(context, &arguments(input)?).await;
                Ok(done(reply, header, &results))
            }};
        }
        match context.procedure {
            Procedure::Null => Ok(Done::plain(encode(reply, header, &()), true)),
            Procedure::Getattr => plain!(getattr),
            Procedure::Setattr => plain!(setattr),
            Procedure::Lookup => plain!(lookup),
            Procedure::Access => plain!(access),
            Procedure::Create => plain!(create),
            Procedure::Mkdir => plain!(mkdir),
            Procedure::Mknod => plain!(mknod),
            Procedure::Remove => plain!(remove),
            Procedure::Rmdir => plain!(rmdir),
            Procedure::Rename => plain!(rename),
            Procedure::Link => plain!(link),
            Procedure::Fsstat => plain!(fsstat),
            Procedure::Fsinfo => plain!(fsinfo),
            Procedure::Pathconf => plain!(pathconf),
            Procedure::Commit => plain!(commit),
            Procedure::Readlink => {
                let results = nfs3::readlink(context, &arguments(input)?, reply).await;
                Ok(done(reply, header, &results))
            }
            Procedure::Read => match nfs3::read(context, &arguments(input)?, reply).await {
                Ok(results) => Ok(done(reply, header, &results)),
                Err(shortage) => Ok(Done::plain(Answer::TooLarge(shortage), false)),
            },
            Procedure::Write => self.write(context, call, header, input, bulk, reply).await,
            Procedure::Symlink => {
                let symlink: SymlinkArguments<'_> = arguments(input)?;
                let text = match symlink.text.data {
                    Place::Inline(text) => text,
                    Place::Apart(_) => text,
                };
                let results = nfs3::symlink(context, &symlink, text).await;
                Ok(done(reply, header, &results))
            }
            Procedure::Readdir => {
                let arguments = arguments(input)?;
                let listed = nfs3::readdir(context, &arguments, header, reply).await;
                Ok(listing(reply, header, listed))
            }
            Procedure::Readdirplus => {
                let arguments = arguments(input)?;
                let listed = nfs3::readdirplus(context, &arguments, header, reply).await;
                Ok(listing(reply, header, listed))
            }
        }
    }

    async fn write<B: Bulk>(
        &self,
        context: &Context<'_, S>,
        call: &Call<'_>,
        header: &ReplyHeader<'_>,
        input: &mut Decoder<'_>,
        bulk: &mut B,
        reply: &mut Reply,
    ) -> Result<Done, Refused> {
        let write: WriteArguments<'_> = arguments(input)?;
        let data = match write.data.data {
            Place::Inline(bytes) => Data::Inline(bytes),
            Place::Apart(position) => Data::Chunk(chunk(call, position)?, bulk),
        };
        let results = nfs3::write(context, &write, data, reply).await;
        let results = results.map_err(|_| Refused::Broken)?;
        Ok(done(reply, header, &results))
    }

    /// The text of a symbolic link that comes in a chunk: it tells calls apart as the rest of the
    /// arguments does, so it is fetched before the call is looked up among those executed.
    pub(super) async fn link_text<B: Bulk>(
        &self,
        call: &Call<'_>,
        mut input: Decoder<'_>,
        bulk: &mut B,
        reply: &Reply,
    ) -> Result<Vec<u8>, Refused> {
        let symlink: SymlinkArguments<'_> = arguments(&mut input)?;
        let Place::Apart(position) = symlink.text.data else {
            return Ok(Vec::new());
        };
        let index = chunk(call, position)?;
        let length = symlink.text.length as usize;
        if length > LINK_TEXT_MAX {
            return Err(Refused::Garbage);
        }
        let obtained = reply.pool().obtain_another(length).await;
        let buffer = obtained.map_err(|_| Refused::Broken)?;
        let sink = buffer.into_slice(0..length);
        if length > 0 {
            let pulled = bulk.pull(index, std::slice::from_ref(&sink)).await;
            pulled.map_err(|_| Refused::Broken)?;
        }
        let mut text = vec![0; length];
        sink.copy_to(0, &mut text);
        Ok(text)
    }
}

/// The chunk whose data belongs at a position.
fn chunk(call: &Call<'_>, position: u32) -> Result<usize, Refused> {
    call.bulk
        .iter()
        .position(|taken| taken.position == position)
        .ok_or(Refused::Garbage)
}

fn done<T, F>(reply: &mut Reply, header: &impl Encode, results: &Result<T, Failure<F>>) -> Done
where
    Result<T, Failure<F>>: Encode,
{
    Done {
        answer: encode(reply, header, results),
        success: results.is_ok(),
        status: results.as_ref().err().map(|failure| failure.status),
    }
}

fn listing(reply: &mut Reply, header: &impl Encode, listed: nfs3::Listed) -> Done {
    match listed {
        Ok(length) => {
            reply.set_length(length);
            Done::plain(Answer::Send, true)
        }
        Err(failure) => {
            let results: Result<(), _> = Err(failure);
            done(reply, header, &results)
        }
    }
}
