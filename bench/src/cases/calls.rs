//! Calls as such: programs, credits, connections.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use millrace_wire::nfs3::{GetattrResults, Procedure, SetAttributes, Stability, access};
use millrace_wire::rpc::Accepted;

use super::context::{Context, expect};
use super::{Case, Outcome};
use crate::load::Pattern;
use crate::requester::session::Error;
use crate::requester::{Call, Completion, Data, RequesterState, RpcError};

pub(super) fn cases(list: &mut Vec<Case>) {
    list.push(Case::new(
        "NULL, ACCESS, FSSTAT, FSINFO, PATHCONF, SETATTR, COMMIT",
        procedures,
    ));
    list.push(Case::new("a program that is not there", |context| {
        refused(context, 400_122, 1, |accepted| {
            matches!(accepted, Accepted::ProgramUnavailable)
        })
    }));
    list.push(Case::new("a version that is not there", |context| {
        refused(context, millrace_wire::nfs3::PROGRAM, 9, |accepted| {
            matches!(accepted, Accepted::ProgramMismatch { .. })
        })
    }));
    list.push(Case::new("64 calls in flight as credits allow", pipelining));
    list.push(Case::new(
        "a lost connection: calls underway are sent again",
        reconnect,
    ));
}

fn procedures(context: &mut Context) -> Result<Outcome> {
    let (name, file) = context.file()?;
    let data = [context.memory(Pattern::new(2), 0, 1000)?];
    let session = &mut context.session;
    session.null()?;
    let rights = session.access(file, access::ALL)?.access;
    ensure!(rights & access::READ != 0, "no right to read our own file");
    session.fsstat(file)?;
    let info = session.fsinfo(file)?;
    ensure!(info.read_max > 0 && info.write_max > 0, "no transfer size");
    session.pathconf(file)?;
    let unstable = session.write(file, 0, &data, Stability::Unstable)?;
    let committed = session.commit(file, 0, 0)?;
    ensure!(
        unstable.verifier == committed.verifier,
        "the verifier changed"
    );
    let attributes = SetAttributes {
        size: Some(500),
        mode: Some(0o640),
        ..SetAttributes::default()
    };
    session.setattr(file, attributes, None)?;
    let found = session.getattr(file)?;
    ensure!(
        found.size == 500 && found.mode & 0o777 == 0o640,
        "{found:?}"
    );
    context.remove(&name)?;
    Ok(Outcome::Pass)
}

fn refused(
    context: &mut Context,
    program: u32,
    version: u32,
    expected: fn(Accepted) -> bool,
) -> Result<Outcome> {
    let call = Call {
        token: 0,
        program,
        version,
        procedure: 0,
        arguments: (),
        data: Data::None,
        sinks: &[],
        largest_reply: crate::requester::binding::RPC_FAILURE,
    };
    match context
        .session
        .call(call, |reply| Ok(reply.results::<()>()?))
    {
        Err(Error::Rpc(RpcError::Failed(accepted))) if expected(accepted) => Ok(Outcome::Pass),
        Err(Error::Rpc(RpcError::Failed(accepted))) => Ok(Outcome::Note(format!("{accepted:?}"))),
        Ok(()) => Ok(Outcome::Note("it is there".to_owned())),
        Err(error) => Err(error.into()),
    }
}

fn pipelining(context: &mut Context) -> Result<Outcome> {
    let directory = context.directory;
    let session = &mut context.session;
    session.null()?;
    let (mut good, mut ended, mut most) = (0, 0, 0);
    for token in 0..64 {
        let call = Call::nfs3(1 << 40 | token, Procedure::Getattr, directory, 0);
        let (connection, _) = session.parts();
        connection.submit(&call, Instant::now())?;
    }
    let start = Instant::now();
    while ended < 64 && start.elapsed() < context.client.options.timeout {
        session.turn(&mut |completion: Completion<'_>| {
            ended += 1;
            if let Ok(reply) = completion.result {
                good += usize::from(matches!(reply.results::<GetattrResults>(), Ok(Ok(_))));
            }
        });
        most = most.max(session.connection().window().in_flight());
    }
    ensure!(good == 64, "{good} of 64 calls succeeded");
    if most < 2 {
        return Ok(Outcome::Note(
            "the server grants one credit only".to_owned(),
        ));
    }
    Ok(Outcome::Pass)
}

fn reconnect(context: &mut Context) -> Result<Outcome> {
    let pattern = Pattern::new(3);
    let (name, file) = context.file()?;
    let mut session = context.session_with(|settings| settings.keep_calls = true)?;
    session.null()?;
    let memory: Vec<_> = (0..8)
        .map(|at| context.memory(pattern, at * 65_536, 65_536))
        .collect::<Result<_>>()?;
    for (at, memory) in memory.iter().enumerate() {
        let arguments = millrace_wire::nfs3::WriteArguments {
            file,
            offset: at as u64 * 65_536,
            count: 65_536,
            stable: Stability::FileSync,
            data: millrace_wire::xdr::Bulk::apart(65_536),
        };
        let call = Call::nfs3(1 << 40 | at as u64, Procedure::Write, arguments, 0);
        let (connection, _) = session.parts();
        connection.submit(
            &call.with_data(std::slice::from_ref(memory)),
            Instant::now(),
        )?;
    }
    // Sent, and then the connection is gone.
    let (connection, provider) = session.parts();
    let mut early = 0;
    connection.pump(provider, &mut |_| early += 1);
    provider.flush(Instant::now());
    let queue_pair = connection.queue_pair();
    provider.abort(queue_pair);
    let (mut ended, mut failed) = (0, None);
    let start = Instant::now();
    while ended < 8 && start.elapsed() < context.client.options.timeout {
        session.turn(&mut |completion: Completion<'_>| {
            ended += 1;
            failed = failed.or(completion.result.err());
        });
    }
    if let Some(error) = failed {
        bail!("a call failed: {error}");
    }
    ensure!(ended == 8, "{ended} of 8 calls ended");
    ensure!(
        session.connection().state() == &RequesterState::Ready,
        "not connected again"
    );
    for at in (0..8).map(|at| at * 65_536) {
        let room = [context.blank(65_536)?];
        let done = session.read(file, at, &room)?;
        ensure!(done.count == 65_536, "a short READ of {} bytes", done.count);
        expect(pattern, at, &room[0]).context("after the new connection")?;
    }
    session.close();
    context.remove(&name)?;
    Ok(Outcome::Pass)
}
