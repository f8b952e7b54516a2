//! NFS over TCP with many calls in flight, which can be sent again on a new connection.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};
use millrace_wire::nfs3::{self, Procedure};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth, RecordMark};
use millrace_wire::xdr::{Encode, Encoder};

use crate::requester::Identity;

/// Room for headers and handles beside the data.
const HEADERS: usize = 2048;

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection, and the calls that are not answered yet. Calls are known by their XIDs.
pub struct Tcp {
    address: SocketAddr,
    identity: Identity,
    stream: Option<TcpStream>,
    calls: BTreeMap<u32, Vec<u8>>,
    unsent: Vec<u8>,
    received: Vec<u8>,
    next: u32,
}

impl Tcp {
    /// Connects. XIDs begin with `first`.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn connect(address: SocketAddr, identity: Identity, first: u32) -> Result<Self> {
        let mut tcp = Self {
            address,
            identity,
            stream: None,
            calls: BTreeMap::new(),
            unsent: Vec::new(),
            received: Vec::new(),
            next: first,
        };
        tcp.reconnect()?;
        Ok(tcp)
    }

    /// Connects anew, and sends the calls again that have no answer.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn reconnect(&mut self) -> Result<()> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        self.stream = Some(stream);
        self.received.clear();
        self.unsent = self.calls.values().flatten().copied().collect();
        Ok(())
    }

    /// Whether the connection is established.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.stream.is_some()
    }

    /// Sends a call, of which `data` bytes are data; its XID.
    ///
    /// # Errors
    /// If it does not encode.
    pub fn submit<A: Encode>(
        &mut self,
        procedure: Procedure,
        arguments: &A,
        data: usize,
    ) -> Result<u32> {
        self.next = self.next.wrapping_add(1);
        let header = CallHeader {
            xid: self.next,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: procedure as u32,
            credential: Credential::Other(self.identity.auth()),
            verifier: OpaqueAuth::NONE,
        };
        let mut message = vec![0; 4 + HEADERS + data];
        let mut out = Encoder::new(&mut message[4..]);
        header.encode(&mut out)?;
        arguments.encode(&mut out)?;
        let length = out.position();
        let Some(mark) = RecordMark::whole(length) else {
            bail!("the call is too long");
        };
        message[..4].copy_from_slice(&mark.to_bytes());
        message.truncate(4 + length);
        self.unsent.extend(&message);
        self.calls.insert(self.next, message);
        Ok(self.next)
    }

    /// Forgets the calls without an answer.
    pub fn forget(&mut self) {
        self.calls.clear();
    }

    /// Sends and receives what can be; gives the replies, and how much was done.
    pub fn turn(&mut self, replies: &mut Vec<(u32, Vec<u8>)>) -> usize {
        let Some(stream) = &mut self.stream else {
            return 0;
        };
        let mut work = 0;
        let mut up = true;
        while !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    work += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    // What has arrived before is still to be read.
                    self.unsent.clear();
                    break;
                }
            }
        }
        let mut part = [0; 65_536];
        loop {
            match stream.read(&mut part) {
                Ok(0) => up = false,
                Ok(count) => {
                    self.received.extend(&part[..count]);
                    work += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => up = false,
            }
            break;
        }
        while let Some(reply) = self.take_record() {
            let xid = reply.get(..4).and_then(|bytes| bytes.try_into().ok());
            let xid = xid.map_or(0, u32::from_be_bytes);
            if self.calls.remove(&xid).is_some() {
                replies.push((xid, reply));
            }
        }
        if !up {
            self.stream = None;
        }
        work
    }

    /// The next complete reply in the received data.
    fn take_record(&mut self) -> Option<Vec<u8>> {
        let mut record = Vec::new();
        let mut at = 0;
        loop {
            let mark = self.received.get(at..at + 4)?;
            let mark = RecordMark::from_bytes(mark.try_into().ok()?);
            at += 4;
            record.extend(self.received.get(at..at + mark.length as usize)?);
            at += mark.length as usize;
            if mark.last {
                self.received.drain(..at);
                return Some(record);
            }
        }
    }
}
