//! Names, links and directories.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use millrace_wire::nfs3::{CreateHow, FileType, Node, SetAttributes, Stability, Status};
use millrace_wire::rpc::Accepted;

use super::context::Context;
use super::{Case, Outcome};
use crate::load::Pattern;
use crate::requester::session::Error;
use crate::requester::{RpcError, Session, Settings};

/// Entries of the large directory.
const ENTRIES: usize = 2000;

pub(super) fn cases(list: &mut Vec<Case>) {
    list.push(Case::new(
        "READDIRPLUS and READDIR of 2,000 entries by reply chunk",
        |context| directory(context, |_| {}),
    ));
    list.push(Case::new(
        "the same, reply chunk in 5 segments, without private data",
        |context| {
            directory(context, |settings| {
                settings.reply_segments = 5;
                settings.private_data = None;
            })
        },
    ));
    list.push(Case::new(
        "SYMLINK and READLINK of 1 to 1,000 bytes",
        |context| links(context, |_| {}),
    ));
    list.push(Case::new("the same by read and write chunks", |context| {
        links(context, |settings| settings.chunk_above = 0)
    }));
    list.push(Case::new(
        "the same at position zero, without private data",
        |context| {
            links(context, |settings| {
                settings.private_data = None;
                settings.long_calls = true;
            })
        },
    ));
    list.push(Case::new("RENAME, LINK, REMOVE", renames));
    list.push(Case::new(
        "CREATE guarded and exclusive, MKDIR, RMDIR, MKNOD",
        creations,
    ));
    list.push(Case::new("names of 255 bytes", long_names));
}

/// The error must be this status; other statuses are told.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, expected: Status) -> Result<Outcome> {
    match result {
        Ok(value) => anyhow::bail!("not refused: {value:?}"),
        Err(error) => match error.status() {
            Some(status) if status == expected => Ok(Outcome::Pass),
            Some(status) => Ok(Outcome::Note(format!(
                "{} instead of {}",
                status.name(),
                expected.name()
            ))),
            None => Err(error.into()),
        },
    }
}

fn directory(context: &mut Context, change: fn(&mut Settings)) -> Result<Outcome> {
    let mut session = context.session_with(change)?;
    session.mkdir(context.directory, b"large", mode(0o755))?;
    let large = session.lookup(context.directory, b"large")?.object;
    let names: BTreeSet<Vec<u8>> = (0..ENTRIES)
        .map(|number| format!("entry {number:05} {}", "x".repeat(number % 40)).into_bytes())
        .collect();
    for name in &names {
        session.create(large, name, CreateHow::Unchecked(mode(0o644)))?;
    }
    for (plus, count) in [(true, 65_536), (true, 8192), (false, 32_768), (false, 1000)] {
        let seen = list(&mut session, large, plus, count)
            .with_context(|| format!("in parts of {count} bytes"))?;
        ensure!(seen == names, "{} of {ENTRIES} entries", seen.len());
    }
    for name in &names {
        session.remove(large, name)?;
    }
    session.rmdir(context.directory, b"large")?;
    session.close();
    Ok(Outcome::Pass)
}

/// All names but the two dots; none may come twice.
fn list(
    session: &mut Session,
    directory: millrace_wire::nfs3::FileHandle,
    plus: bool,
    count: u32,
) -> Result<BTreeSet<Vec<u8>>> {
    let mut seen = BTreeSet::new();
    let (mut cookie, mut verifier) = (0, [0; 8]);
    loop {
        let part = if plus {
            session.readdirplus(directory, cookie, verifier, count, count)?
        } else {
            session.readdir(directory, cookie, verifier, count)?
        };
        verifier = part.verifier;
        let last = part.entries.last().map(|entry| entry.cookie);
        for entry in part.entries {
            if entry.name != b"." && entry.name != b".." {
                ensure!(seen.insert(entry.name), "an entry came twice");
            }
        }
        match last {
            _ if part.eof => return Ok(seen),
            Some(last) => cookie = last,
            None => anyhow::bail!("neither entries nor the end"),
        }
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn links(context: &mut Context, change: fn(&mut Settings)) -> Result<Outcome> {
    let mut session = context.session_with(change)?;
    for length in [1, 2, 3, 4, 5, 100, 999, 1000] {
        let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
        session.symlink(context.directory, b"link", mode(0o777), &text)?;
        let found = session.lookup(context.directory, b"link")?;
        let kind = session.getattr(found.object)?.kind;
        ensure!(kind == FileType::Symlink, "it is a {}", kind.text());
        let back = session.readlink(found.object)?;
        ensure!(back == text, "{length} bytes: another text came back");
        session.remove(context.directory, b"link")?;
    }
    session.close();
    Ok(Outcome::Pass)
}

fn renames(context: &mut Context) -> Result<Outcome> {
    let (name, file) = context.file()?;
    let directory = context.directory;
    let session = &mut context.session;
    session.link(file, directory, b"second")?;
    ensure!(session.getattr(file)?.links == 2, "not two links");
    session.rename((directory, &name), (directory, b"first"))?;
    refused(session.lookup(directory, &name), Status::NoEntry)?;
    ensure!(
        session.lookup(directory, b"first")?.object == file,
        "another file"
    );
    // Two names of one file: nothing changes (RFC 1813 section 3.3.14).
    session.rename((directory, b"first"), (directory, b"second"))?;
    session.remove(directory, b"second")?;
    match session.remove(directory, b"first") {
        Ok(_) => {}
        Err(error) if error.status() == Some(Status::NoEntry) => {
            return Ok(Outcome::Note(
                "RENAME over a link to itself removed one name".to_owned(),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    refused(session.remove(directory, b"first"), Status::NoEntry)?;
    refused(session.getattr(file), Status::Stale)
}

fn creations(context: &mut Context) -> Result<Outcome> {
    let directory = context.directory;
    let session = &mut context.session;
    let guarded = CreateHow::Guarded(mode(0o600));
    session.create(directory, b"new", guarded)?;
    refused(session.create(directory, b"new", guarded), Status::Exists)?;
    session.remove(directory, b"new")?;
    let exclusive = CreateHow::Exclusive(*b"verifier");
    session.create(directory, b"new", exclusive)?;
    session
        .create(directory, b"new", exclusive)
        .context("the same verifier again")?;
    let other = CreateHow::Exclusive(*b"another!");
    refused(session.create(directory, b"new", other), Status::Exists)?;
    session.remove(directory, b"new")?;
    session.mkdir(directory, b"below", mode(0o700))?;
    let below = session.lookup(directory, b"below")?.object;
    session.create(below, b"file", guarded)?;
    refused(session.rmdir(directory, b"below"), Status::NotEmpty)?;
    session.remove(below, b"file")?;
    session.rmdir(directory, b"below")?;
    match session.mknod(directory, b"pipe", Node::Fifo(mode(0o600))) {
        Ok(_) => {
            session.remove(directory, b"pipe")?;
            Ok(Outcome::Pass)
        }
        Err(error) => match error.status() {
            Some(status) => Ok(Outcome::Note(format!("MKNOD: {}", status.name()))),
            None => Err(error.into()),
        },
    }
}

fn long_names(context: &mut Context) -> Result<Outcome> {
    let directory = context.directory;
    let data = [context.memory(Pattern::new(1), 0, 100)?];
    let mut session = context.session_with(|settings| settings.private_data = None)?;
    let (name, other) = ([b'n'; 255], [b'o'; 255]);
    session.create(directory, &name, CreateHow::Guarded(mode(0o600)))?;
    let file = session.lookup(directory, &name)?.object;
    session.write(file, 0, &data, Stability::FileSync)?;
    session.rename((directory, &name), (directory, &other))?;
    session.remove(directory, &other)?;
    let outcome = match session.lookup(directory, &[b'n'; 256]) {
        // Linux takes no such name for a name at all.
        Err(Error::Rpc(RpcError::Failed(Accepted::GarbageArguments))) => Outcome::Note(
            "a name of 256 bytes: GARBAGE_ARGS instead of NFS3ERR_NAMETOOLONG".to_owned(),
        ),
        result => refused(result, Status::NameTooLong)?,
    };
    session.close();
    Ok(outcome)
}
