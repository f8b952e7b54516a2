//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).

use millrace_store::{CookieVerifier, DirectoryEntry, DirectoryOutcome, Store};
use millrace_wire::nfs3::{
    DirectoryWriter, Failure, FileAttributes, FileHandle, Name, NamePlus, PostAttributes,
    ReaddirArguments, ReaddirplusArguments, Status,
};
use millrace_wire::xdr::{Encode, Encoder, Result as XdrResult};

use super::context::{Context, Object, bare};
use super::convert;
use crate::call::Reply;
use crate::store_times::StoreClass;

/// Preferred size of a listing, for FSINFO.
pub(super) const LISTING_PREFERRED: u32 = 64 << 10;

/// Most bytes of a listing: it fits with its headers into a buffer of the middle class. A listing
/// may always be shorter than requested.
const LISTING_MAX: u32 = (64 << 10) - 2048;

/// The RPC reply header and the status in front of a listing.
const AROUND_LISTING: usize = 24 + 4;

/// The parameters of a listing.
struct Listing {
    cookie: u64,
    verifier: CookieVerifier,
    dircount: u32,
    maxcount: u32,
    plus: bool,
}

/// How a listing ended.
pub(super) type Listed = Result<usize, Failure<PostAttributes>>;

/// Encodes successful results behind `header` and returns the length of the message; a failure is
/// for the caller to encode.
pub(super) async fn readdir<S: Store>(
    context: &Context<'_, S>,
    arguments: &ReaddirArguments,
    header: &impl Encode,
    reply: &mut Reply,
) -> Listed {
    let directory = context.subject().map_err(bare)?;
    let listing = Listing {
        cookie: arguments.cookie,
        verifier: CookieVerifier(arguments.verifier),
        dircount: u32::MAX,
        maxcount: arguments.count,
        plus: false,
    };
    list(directory, &listing, header, reply).await
}

/// As [`readdir`].
pub(super) async fn readdirplus<S: Store>(
    context: &Context<'_, S>,
    arguments: &ReaddirplusArguments,
    header: &impl Encode,
    reply: &mut Reply,
) -> Listed {
    let directory = context.subject().map_err(bare)?;
    let listing = Listing {
        cookie: arguments.cookie,
        verifier: CookieVerifier(arguments.verifier),
        dircount: arguments.dircount,
        maxcount: arguments.maxcount,
        plus: true,
    };
    list(directory, &listing, header, reply).await
}

async fn list<S: Store>(
    directory: &Object<'_, S>,
    listing: &Listing,
    header: &impl Encode,
    reply: &mut Reply,
) -> Listed {
    let maxcount = listing.maxcount.min(LISTING_MAX);
    reply.reserve(maxcount as usize + AROUND_LISTING).await;
    // The store returns the directory's attributes at the end of the listing, but they are encoded
    // at its beginning: their space is reserved, and filled in afterwards.
    let too_small = |_| Status::TooSmall;
    let written = async {
        let mut out = Encoder::new(reply.room());
        header.encode(&mut out).map_err(too_small)?;
        let start = out.position();
        let mut writer = DirectoryWriter::readdirplus(
            &mut out,
            listing.dircount,
            maxcount,
            Some(placeholder()),
            [0; 8],
        )
        .map_err(too_small)?;
        let mut full = false;
        let mut sink = |entry: DirectoryEntry<'_>| {
            full = full || !push(&mut writer, directory, listing.plus, &entry);
            !full
        };
        let outcome = directory
            .store(StoreClass::Metadata)
            .read_directory(
                &directory.caller,
                directory.handle,
                listing.cookie,
                listing.verifier,
                listing.plus,
                &mut sink,
            )
            .await
            .map_err(|error| directory.status(error))?;
        if full && writer.count() == 0 {
            return Err(Status::TooSmall);
        }
        writer.finish(outcome.end && !full).map_err(too_small)?;
        Ok((start, out.position(), outcome))
    }
    .await;
    match written {
        Ok((start, length, outcome)) => {
            let front = fill_in(&mut reply.room()[start..length], directory, &outcome);
            front
                .map(|()| length)
                .map_err(|_| bare(Status::ServerFault))
        }
        Err(status) => Err(Failure {
            status,
            detail: directory.post().await,
        }),
    }
}

fn push<S: Store>(
    writer: &mut DirectoryWriter<'_, '_>,
    directory: &Object<'_, S>,
    plus: bool,
    entry: &DirectoryEntry<'_>,
) -> bool {
    let (fileid, name, cookie) = (entry.inode, entry.name, entry.cookie);
    if plus {
        let attributes = entry
            .attributes
            .map(|attributes| directory.attributes(&attributes));
        let handle: Option<FileHandle> = entry.handle.map(|handle| directory.seal(handle));
        writer.push(&NamePlus {
            fileid,
            name,
            cookie,
            attributes,
            handle,
        })
    } else {
        writer.push(&Name {
            fileid,
            name,
            cookie,
        })
    }
}

/// Writes the outcome into the space that was reserved for it.
fn fill_in<S: Store>(
    results: &mut [u8],
    directory: &Object<'_, S>,
    outcome: &DirectoryOutcome,
) -> XdrResult<()> {
    let mut front = Encoder::new(results);
    Status::Ok.encode(&mut front)?;
    Some(directory.attributes(&outcome.attributes)).encode(&mut front)?;
    outcome.verifier.0.encode(&mut front)
}

/// Attributes of the right length.
fn placeholder() -> FileAttributes {
    let time = millrace_store::Time::default();
    let attributes = millrace_store::Attributes {
        kind: millrace_store::Kind::Directory,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        inode: 0,
        file_system: 0,
        accessed: time,
        modified: time,
        changed: time,
        change: 0,
    };
    convert::attributes(&attributes, 0)
}
