//! A client of the run: its connection, and its calls underway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use millrace_mempool::{Class, Pool, Slice};
use millrace_wire::nfs3::{FileHandle, Procedure, ReadArguments, Stability, WriteArguments};
use millrace_wire::xdr::{Bulk, Encode};

use super::content::{self, Stamp};
use super::operation::{CrashAnswer, CrashOperation, Handles, Sender, answer};
use super::tcp::Tcp;
use crate::client::Client;
use crate::requester::{Call, Completion, Reply, RequesterState, Session};

/// A call underway.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The requested operation.
    pub operation: CrashOperation,
    /// It was sent again after the server died, and whether it was seen to be done already.
    pub again: Option<bool>,
    memory: Option<Slice>,
}

/// How calls travel.
enum Carrier {
    Rdma(Box<Session>),
    Tcp(Tcp),
}

/// One client.
pub struct Lane {
    client: Client,
    pool: Pool,
    carrier: Carrier,
    /// Calls in flight at most.
    pub depth: usize,
    /// Whether calls without an answer are sent again when the server is back.
    pub resends: bool,
    flights: BTreeMap<u64, Flight>,
    tokens: u64,
}

impl Lane {
    /// A client over RDMA.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn rdma(client: &Client, pool: &Pool, depth: usize, resends: bool) -> Result<Self> {
        Ok(Self {
            carrier: Carrier::Rdma(session(client, pool, depth, resends)?),
            client: client.clone(),
            pool: pool.clone(),
            depth,
            resends,
            flights: BTreeMap::new(),
            tokens: 0,
        })
    }

    /// A client over TCP.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn tcp(
        client: &Client,
        nfs: SocketAddr,
        pool: &Pool,
        depth: usize,
        first: u32,
    ) -> Result<Self> {
        Ok(Self {
            carrier: Carrier::Tcp(Tcp::connect(nfs, client.identity(), first)?),
            client: client.clone(),
            pool: pool.clone(),
            depth,
            resends: false,
            flights: BTreeMap::new(),
            tokens: 0,
        })
    }

    /// How it speaks.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.carrier {
            Carrier::Rdma(_) => "RDMA",
            Carrier::Tcp(_) => "TCP",
        }
    }

    /// Calls underway.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Calls underway.
    pub fn flights(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights.values_mut()
    }

    /// Whether it has a connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        match &self.carrier {
            Carrier::Rdma(session) => session.connection().state() == &RequesterState::Ready,
            Carrier::Tcp(tcp) => tcp.is_up(),
        }
    }

    /// Sends a call.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn submit(&mut self, operation: CrashOperation, at: &impl Handles) -> Result<()> {
        self.tokens += 1;
        let mut posting = Posting {
            carrier: &mut self.carrier,
            pool: &self.pool,
            token: self.tokens,
            memory: None,
        };
        operation.send(at, &mut posting)?;
        let (token, memory) = (posting.token, posting.memory);
        let flight = Flight {
            operation,
            again: None,
            memory,
        };
        self.flights.insert(token, flight);
        Ok(())
    }

    /// Sends and receives what can be; gives the calls that have ended.
    pub fn turn(&mut self, ended: &mut Vec<(Flight, CrashAnswer)>) {
        let flights = &mut self.flights;
        let mut end = |token: u64, reply: Option<&Reply<'_>>, why: &str| {
            let Some(flight) = flights.remove(&token) else {
                return;
            };
            let procedure = flight.operation.procedure();
            let answer = match reply {
                Some(reply) => answer(procedure, reply, flight.memory.as_ref()),
                None if why.is_empty() => CrashAnswer::Lost,
                None => CrashAnswer::Bad(why.to_owned()),
            };
            ended.push((flight, answer));
        };
        match &mut self.carrier {
            Carrier::Rdma(session) => {
                session.turn(&mut |completion: Completion<'_>| match &completion.result {
                    Ok(reply) => end(completion.token, Some(reply), ""),
                    Err(crate::requester::CallError::Disconnected) => {
                        end(completion.token, None, "");
                    }
                    Err(error) => end(completion.token, None, &error.to_string()),
                });
            }
            Carrier::Tcp(tcp) => {
                let mut replies = Vec::new();
                tcp.turn(&mut replies);
                for (xid, message) in replies {
                    let reply = Reply {
                        message: &message,
                        written: &[],
                    };
                    end(u64::from(xid), Some(&reply), "");
                }
            }
        }
    }

    /// Gives up all calls.
    pub fn abandon(&mut self) -> Vec<Flight> {
        if let Carrier::Tcp(tcp) = &mut self.carrier {
            tcp.forget();
        }
        std::mem::take(&mut self.flights).into_values().collect()
    }

    /// Connects again when the server is back. Calls that are sent again travel with the next
    /// turns.
    ///
    /// # Errors
    /// If there is no connection.
    pub fn reconnect(&mut self) -> Result<()> {
        match &mut self.carrier {
            Carrier::Tcp(tcp) => tcp.reconnect().context("NFS over TCP"),
            // It comes back by itself for calls that it keeps.
            Carrier::Rdma(_) if self.resends && !self.flights.is_empty() => Ok(()),
            Carrier::Rdma(kept) => {
                **kept = *session(&self.client, &self.pool, self.depth, self.resends)?;
                Ok(())
            }
        }
    }
}

/// A connection for so many calls.
fn session(client: &Client, pool: &Pool, depth: usize, keep_calls: bool) -> Result<Box<Session>> {
    let mut settings = client.settings(depth);
    settings.keep_calls = keep_calls;
    Ok(Box::new(client.session(pool, settings)?))
}

/// Sends one call.
struct Posting<'a> {
    carrier: &'a mut Carrier,
    pool: &'a Pool,
    token: u64,
    memory: Option<Slice>,
}

impl Posting<'_> {
    fn memory(&self, length: u32) -> Result<Slice> {
        let length = length as usize;
        let class = Class::for_size(length).context("the transfer is too long")?;
        let buffer = self.pool.try_acquire(class).context("no memory")?;
        Ok(buffer.into_slice(0..length))
    }
}

impl Sender for Posting<'_> {
    fn call<A: Encode>(&mut self, procedure: Procedure, arguments: A) -> Result<()> {
        match self.carrier {
            Carrier::Rdma(session) => {
                let call = Call::nfs3(self.token, procedure, arguments, 0);
                session.parts().0.submit(&call, Instant::now())?;
            }
            Carrier::Tcp(tcp) => {
                self.token = u64::from(tcp.submit(procedure, &arguments, 0)?);
            }
        }
        Ok(())
    }

    fn read(&mut self, arguments: ReadArguments) -> Result<()> {
        if let Carrier::Tcp(_) = self.carrier {
            return self.call(Procedure::Read, arguments);
        }
        let room = self.memory(arguments.count)?;
        self.memory = Some(room.clone());
        if let Carrier::Rdma(session) = self.carrier {
            let sink = std::slice::from_ref(&room);
            let sinks = [sink];
            let call = Call::nfs3(self.token, Procedure::Read, arguments, 0).with_sinks(&sinks);
            session.parts().0.submit(&call, Instant::now())?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        file: FileHandle,
        start: u64,
        length: u32,
        stamp: Stamp,
        stable: Stability,
    ) -> Result<()> {
        let mut data = vec![0; length as usize];
        content::bytes(stamp, start, &mut data);
        let arguments = |data| WriteArguments {
            file,
            offset: start,
            count: length,
            stable,
            data,
        };
        if let Carrier::Tcp(tcp) = self.carrier {
            let arguments = arguments(Bulk::inline(&data));
            self.token = u64::from(tcp.submit(Procedure::Write, &arguments, data.len())?);
            return Ok(());
        }
        let memory = self.memory(length)?;
        memory.copy_from(0, &data);
        self.memory = Some(memory.clone());
        if let Carrier::Rdma(session) = self.carrier {
            let data = [memory];
            let call = Call::nfs3(
                self.token,
                Procedure::Write,
                arguments(Bulk::apart(length)),
                0,
            );
            session
                .parts()
                .0
                .submit(&call.with_data(&data), Instant::now())?;
        }
        Ok(())
    }
}
