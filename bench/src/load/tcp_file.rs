//! A file for loads over TCP, on any server of NFS version 3.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use millrace_wire::nfs3::{
    self, CommitArguments, CommitResults, CreateArguments, CreateHow, CreateResults, FileHandle,
    NameInDirectory, Procedure, RemoveResults, SetAttributes,
};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth};
use millrace_wire::xdr::{Decode, Encode};

use super::cpu::ServerCpu;
use super::tcp::TcpLoad;
use super::workload::{Operation, Until, Workload};
use crate::client::Client;
use crate::requester::Reply;
use crate::requester::session::call_over_tcp;

/// Bytes of the WRITEs that fill it, which every server takes.
const BLOCK: usize = 32 << 10;

/// WRITEs in flight.
const DEPTH: usize = 8;

/// A file that is full of bytes.
pub struct TcpFile<'a> {
    client: &'a Client,
    address: SocketAddr,
    root: FileHandle,
    name: String,
    handle: FileHandle,
    size: usize,
}

impl<'a> TcpFile<'a> {
    /// Makes and fills one of at least so many bytes. NFS over TCP is at this address, MOUNT at the
    /// client's.
    ///
    /// # Errors
    /// If the server cannot be reached or has no room.
    pub fn make(client: &'a Client, address: SocketAddr, size: usize) -> Result<Self> {
        let root = client.root()?;
        let name = format!(".millrace-bench-{}-tcp", std::process::id());
        let how = CreateHow::Unchecked(SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        });
        let entry = NameInDirectory {
            directory: root,
            name: name.as_bytes(),
        };
        let arguments = CreateArguments { entry, how };
        let created = call::<_, CreateResults>(client, address, Procedure::Create, &arguments)?
            .map_err(|failure| anyhow!("cannot make a file: CREATE: {}", failure.status))?;
        let handle = created.object.context("the server tells no handle")?;
        let size = size.next_multiple_of(BLOCK);
        let file = Self {
            client,
            address,
            root,
            name,
            handle,
            size,
        };
        let fill = Workload {
            until: Until::Count((size / BLOCK) as u64),
            ..Workload::new(Operation::Write, BLOCK, DEPTH, Duration::ZERO)
        };
        let filled = file.load()?.run(&fill, &ServerCpu::default());
        filled.context("cannot write the file to work on")?;
        // The server would write it back during the load otherwise.
        let all = CommitArguments {
            file: handle,
            offset: 0,
            count: 0,
        };
        call::<_, CommitResults>(client, address, Procedure::Commit, &all)?
            .map_err(|failure| anyhow!("cannot make a file: COMMIT: {}", failure.status))?;
        Ok(file)
    }

    /// A connection for loads on it.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn load(&self) -> Result<TcpLoad> {
        let load = TcpLoad::connect(self.address, self.client.identity(), self.handle, self.size);
        let mut load =
            load.with_context(|| format!("cannot connect to NFS over TCP at {}", self.address))?;
        load.set_entry(self.root, &self.name);
        Ok(load)
    }

    /// Removes it.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub fn remove(self) -> Result<()> {
        let entry = NameInDirectory {
            directory: self.root,
            name: self.name.as_bytes(),
        };
        call::<_, RemoveResults>(self.client, self.address, Procedure::Remove, &entry)?
            .map_err(|failure| anyhow!("cannot remove {}: {}", self.name, failure.status))?;
        Ok(())
    }
}

/// One call on a connection of its own.
fn call<A: Encode, R: for<'r> Decode<'r>>(
    client: &Client,
    address: SocketAddr,
    procedure: Procedure,
    arguments: &A,
) -> Result<R> {
    let identity = client.identity();
    let header = CallHeader {
        xid: 1,
        program: nfs3::PROGRAM,
        version: nfs3::VERSION,
        procedure: procedure as u32,
        credential: Credential::Other(identity.auth()),
        verifier: OpaqueAuth::NONE,
    };
    let message = call_over_tcp(address, &header, arguments, client.options.timeout)
        .with_context(|| format!("no answer from NFS over TCP at {address}"))?;
    let reply = Reply {
        message: &message,
        written: &[],
    };
    Ok(reply.results::<R>()?)
}
