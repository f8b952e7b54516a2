//! Data in and out, in awkward sizes and pieces.

use anyhow::{Context as _, Result, ensure};
use millrace_mempool::Slice;
use millrace_wire::nfs3::{FileHandle, Stability, Status};
use millrace_wire::private_data::PrivateData;

use super::context::{Context, expect};
use super::{Case, Outcome};
use crate::load::Pattern;
use crate::requester::session::CopyOptions;
use crate::requester::{Session, Settings};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes around words, inline limits, pages and the largest transfer.
const SIZES: [usize; 21] = [
    0,
    1,
    2,
    3,
    4,
    5,
    1023,
    1024,
    1025,
    3900,
    4000,
    4095,
    4096,
    4097,
    8191,
    64 * KIB - 1,
    64 * KIB,
    64 * KIB + 1,
    MIB - 1,
    MIB,
    MIB + 1,
];

/// A way to travel, as a change to the settings.
type Way = (&'static str, fn(&mut Settings));

const WAYS: [Way; 6] = [
    ("inline where it fits", |_| {}),
    ("always in chunks", |settings| settings.chunk_above = 0),
    ("without private data", |settings| {
        settings.private_data = None;
    }),
    ("with room for the pad", |settings| {
        settings.chunk_above = 0;
        settings.room_for_pad = true;
    }),
    ("calls at position zero", |settings| {
        settings.long_calls = true;
    }),
    ("no remote invalidation", |settings| {
        settings.private_data = Some(PrivateData {
            remote_invalidation: false,
            send_size: 4096,
            receive_size: 4096,
        });
    }),
];

pub(super) fn cases(list: &mut Vec<Case>) {
    for (way, change) in WAYS {
        list.push(Case::new(
            format!("sizes 0 to 1 MiB + 1, {way}"),
            move |context| sizes(context, change),
        ));
    }
    list.push(Case::new("WRITE from 1 to 16 odd segments", odd_writes));
    list.push(Case::new("READ into 1 to 16 odd segments", odd_reads));
    list.push(Case::new(
        "READ into 300 pieces merged into fewer segments",
        many_pieces,
    ));
    list.push(Case::new(
        "READ at, across and behind the end of the file",
        ends,
    ));
    list.push(Case::new("10 MiB by many calls in flight", large));
    list.push(Case::new("unused write chunk of a failed READ", stale));
}

/// Writes and reads back in the largest calls that the server takes, and compares.
fn sizes(context: &mut Context, change: fn(&mut Settings)) -> Result<Outcome> {
    let mut session = context.session_with(change)?;
    for (number, &size) in SIZES.iter().enumerate() {
        let pattern = Pattern::new(number as u64);
        let (name, file) = context.file()?;
        write_all(context, &mut session, file, pattern, size)
            .and_then(|()| read_all(context, &mut session, file, pattern, size))
            .with_context(|| format!("{size} bytes"))?;
        context.remove(&name)?;
    }
    session.close();
    Ok(Outcome::Pass)
}

fn write_all(
    context: &Context,
    session: &mut Session,
    file: FileHandle,
    pattern: Pattern,
    size: usize,
) -> Result<()> {
    let mut at = 0;
    loop {
        let length = (size - at).min(context.transfer.write_max);
        let data = [context.memory(pattern, at as u64, length)?];
        let done = session.write(file, at as u64, &data, Stability::FileSync)?;
        ensure!(
            done.count as usize == length && done.committed == Stability::FileSync,
            "a short or unstable WRITE: {done:?}"
        );
        at += length;
        if at == size {
            return Ok(());
        }
    }
}

fn read_all(
    context: &Context,
    session: &mut Session,
    file: FileHandle,
    pattern: Pattern,
    size: usize,
) -> Result<()> {
    let mut at = 0;
    while at < size {
        let length = (size - at).min(context.transfer.read_max);
        let room = [context.blank(length)?];
        let done = session.read(file, at as u64, &room)?;
        ensure!(
            done.count as usize == length,
            "a short READ of {} bytes",
            done.count
        );
        expect(pattern, at as u64, &room[0])?;
        at += length;
        ensure!(done.eof == (at == size), "end of file told wrongly at {at}");
    }
    let attributes = session.getattr(file)?;
    ensure!(
        attributes.size == size as u64,
        "the size is {}",
        attributes.size
    );
    Ok(())
}

/// Cuts memory into `count` pieces, most of odd length.
fn odd_pieces(memory: &Slice, count: usize) -> Vec<Slice> {
    let mut pieces = Vec::new();
    let mut at = 0;
    for number in 0..count {
        let left = memory.len() - at;
        let length = if number + 1 == count {
            left
        } else {
            (left / (count - number)) | 1
        };
        pieces.push(memory.slice(at..at + length));
        at += length;
    }
    pieces
}

const ODD: usize = 70_001;

fn odd_writes(context: &mut Context) -> Result<Outcome> {
    let pattern = Pattern::new(100);
    for count in 1..=16 {
        let (name, file) = context.file()?;
        let memory = context.memory(pattern, 0, ODD)?;
        let pieces = odd_pieces(&memory, count);
        let done = context
            .session
            .write(file, 0, &pieces, Stability::FileSync)?;
        ensure!(done.count as usize == ODD, "a short WRITE");
        let room = [context.blank(ODD)?];
        context.session.read(file, 0, &room)?;
        expect(pattern, 0, &room[0]).with_context(|| format!("{count} segments"))?;
        context.remove(&name)?;
    }
    Ok(Outcome::Pass)
}

fn odd_reads(context: &mut Context) -> Result<Outcome> {
    let pattern = Pattern::new(101);
    let (name, file) = context.file()?;
    let memory = [context.memory(pattern, 0, ODD)?];
    context
        .session
        .write(file, 0, &memory, Stability::FileSync)?;
    for count in 1..=16 {
        let room = context.blank(ODD)?;
        let pieces = odd_pieces(&room, count);
        let done = context.session.read(file, 0, &pieces)?;
        ensure!(done.count as usize == ODD, "a short READ");
        expect(pattern, 0, &room).with_context(|| format!("{count} segments"))?;
    }
    context.remove(&name)?;
    Ok(Outcome::Pass)
}

fn many_pieces(context: &mut Context) -> Result<Outcome> {
    let pattern = Pattern::new(102);
    let (name, file) = context.file()?;
    let memory = context.memory(pattern, 0, ODD)?;
    let pieces = odd_pieces(&memory, 300);
    context
        .session
        .write(file, 0, &pieces, Stability::FileSync)?;
    let room = context.blank(ODD)?;
    context.session.read(file, 0, &odd_pieces(&room, 300))?;
    expect(pattern, 0, &room)?;
    context.remove(&name)?;
    Ok(Outcome::Pass)
}

fn ends(context: &mut Context) -> Result<Outcome> {
    let pattern = Pattern::new(103);
    let (name, file) = context.file()?;
    let memory = [context.memory(pattern, 0, 10_001)?];
    context
        .session
        .write(file, 0, &memory, Stability::FileSync)?;
    for (offset, asked, count) in [
        (0, 10_001, 10_001),
        (0, 65_536, 10_001),
        (10_000, 65_536, 1),
        (10_001, 65_536, 0),
        (1 << 40, 65_536, 0),
        (10_001, 100, 0),
    ] {
        let room = context.blank(asked)?;
        let done = context
            .session
            .read(file, offset, std::slice::from_ref(&room))?;
        ensure!(
            done.count == count && done.eof,
            "{asked} bytes at {offset}: {done:?}"
        );
        expect(pattern, offset, &room.slice(0..count as usize))?;
    }
    context.remove(&name)?;
    Ok(Outcome::Pass)
}

fn large(context: &mut Context) -> Result<Outcome> {
    let (name, file) = context.file()?;
    let mut bytes = vec![0; 10 * MIB + 1];
    Pattern::new(104).fill(0, &mut bytes);
    let options = CopyOptions {
        block: Some(300_001),
        depth: 16,
    };
    let written = context
        .session
        .copy_in(file, &mut bytes.as_slice(), options)?;
    let mut back = Vec::new();
    let read = context.session.copy_out(file, &mut back, options)?;
    ensure!(written == read && back == bytes, "the data differs");
    context.remove(&name)?;
    Ok(Outcome::Pass)
}

fn stale(context: &mut Context) -> Result<Outcome> {
    let (name, file) = context.file()?;
    context.remove(&name)?;
    let room = [context.blank(64 * KIB)?];
    let Err(error) = context.session.read(file, 0, &room) else {
        return Ok(Outcome::Note("the file is still there".to_owned()));
    };
    match error.status() {
        Some(Status::Stale) => Ok(Outcome::Pass),
        Some(status) => Ok(Outcome::Note(status.name().to_owned())),
        None => Err(error.into()),
    }
}
