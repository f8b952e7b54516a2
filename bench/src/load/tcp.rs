//! NFS version 3 over TCP, as fast as the server answers, from one thread.
//!
//! Calls are copies of one template, in which XID and offset are replaced. Replies are checked by
//! their length and their status words; their data is received and not looked at.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use millrace_wire::nfs3::{
    self, FileHandle, NameInDirectory, Procedure, ReadArguments, WriteArguments,
};
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth, RecordMark};
use millrace_wire::xdr::{Bulk, Encode, Encoder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::calls::{create_arguments, place_digits};
use super::cpu::{ServerCpu, Stopwatch};
use super::report::{BusySeconds, Measurement};
use super::workload::{IdlePolicy, Operation, Until, Workload};
use crate::interrupt;
use crate::requester::Identity;

/// Bytes of a record mark.
const MARK: usize = 4;
/// From the XID on: message type, reply status, verifier's flavor and length, accept status, and
/// the procedure's status. All are zero but the XID and the type.
const STATUS_WORDS: usize = 28;
/// Most bytes of a call without its data.
const CALL_MAX: usize = 1024;
/// Bytes read at a time.
const RECEIVE: usize = 256 << 10;
/// Idle turns before the processor is offered to others.
const IDLE_TURNS: u32 = 64;
/// Time without any reply after which a load fails.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection that makes one load after the other.
pub struct TcpLoad {
    stream: TcpStream,
    identity: Identity,
    file: FileHandle,
    file_size: usize,
    inward: Vec<u8>,
    filled: usize,
    outward: Vec<u8>,
    sent: usize,
    /// Bytes of the current reply that have not arrived, behind its first words.
    rest: usize,
    sequence: u32,
    idle_policy: IdlePolicy,
    /// The file's directory and name, for loads that use them.
    entry: Option<(FileHandle, String)>,
}

/// A call with XID zero and offset zero.
struct Template {
    bytes: Vec<u8>,
    /// Where the offset is, or the digits that end a name.
    varies: Option<usize>,
}

/// One call in flight.
#[derive(Clone, Copy)]
struct InFlight {
    xid: u32,
    begun: Instant,
    /// The number of its template.
    template: usize,
}

impl TcpLoad {
    /// Connects. The file has so many bytes.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn connect(
        address: SocketAddr,
        identity: Identity,
        file: FileHandle,
        file_size: usize,
    ) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            identity,
            file,
            file_size,
            inward: vec![0; RECEIVE],
            filled: 0,
            outward: Vec::new(),
            sent: 0,
            rest: 0,
            sequence: 0,
            idle_policy: IdlePolicy::default(),
            entry: None,
        })
    }

    /// What loads do from now on while nothing arrives.
    pub const fn set_idle_policy(&mut self, policy: IdlePolicy) {
        self.idle_policy = policy;
    }

    /// The file's directory and name, which loads of names need.
    pub(super) fn set_entry(&mut self, directory: FileHandle, name: &str) {
        self.entry = Some((directory, name.to_owned()));
    }

    /// The calls of a load, which are repeated in turns.
    fn templates(&self, workload: &Workload) -> Result<Vec<Template>> {
        let procedures: &[Procedure] = match workload.operation {
            Operation::Read => &[Procedure::Read],
            Operation::Write => &[Procedure::Write],
            Operation::Getattr => &[Procedure::Getattr],
            Operation::Lookup => &[Procedure::Lookup],
            Operation::Create => &[Procedure::Create, Procedure::Remove],
            _ => bail!("loads of OPEN and mixed loads are made over RDMA only"),
        };
        let templates = procedures.iter();
        templates.map(|one| self.template(workload, *one)).collect()
    }

    fn template(&self, workload: &Workload, procedure: Procedure) -> Result<Template> {
        let count = workload.size as u32;
        let (root, name) = match &self.entry {
            Some((root, name)) => (*root, name.as_str()),
            None => (self.file, ""),
        };
        let found = NameInDirectory {
            directory: root,
            name: name.as_bytes(),
        };
        let made = [found.name, b".", &place_digits(0)].concat();
        let made = NameInDirectory {
            name: &made,
            ..found
        };
        let header = CallHeader {
            xid: 0,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: procedure as u32,
            credential: Credential::Other(self.identity.auth()),
            verifier: OpaqueAuth::NONE,
        };
        let mut bytes = vec![0; MARK + CALL_MAX];
        let mut out = Encoder::new(&mut bytes[MARK..]);
        header.encode(&mut out)?;
        let before = out.position();
        self.file.encode(&mut out)?;
        let mut varies = Some(MARK + out.position());
        out = Encoder::new(&mut bytes[MARK + before..]);
        match procedure {
            Procedure::Read => ReadArguments {
                file: self.file,
                offset: 0,
                count,
            }
            .encode(&mut out)?,
            Procedure::Write => WriteArguments {
                file: self.file,
                offset: 0,
                count,
                stable: workload.stability(),
                data: Bulk::apart(count),
            }
            .encode(&mut out)?,
            Procedure::Lookup => {
                found.encode(&mut out)?;
                varies = None;
            }
            Procedure::Create | Procedure::Remove => {
                made.encode(&mut out)?;
                let end = MARK + before + 4 + root.as_bytes().len().next_multiple_of(4) + 4;
                varies = Some(end + made.name.len() - 8);
                if procedure == Procedure::Create {
                    out = Encoder::new(&mut bytes[MARK + before..]);
                    create_arguments(made).encode(&mut out)?;
                }
            }
            _ => {
                self.file.encode(&mut out)?;
                varies = None;
            }
        }
        let payload = match procedure {
            Procedure::Write => workload.size,
            _ => 0,
        };
        let length = before + out.position();
        bytes.truncate(MARK + length);
        bytes.resize(MARK + length + payload.next_multiple_of(4), 0x5a);
        let Some(mark) = RecordMark::whole(bytes.len() - MARK) else {
            bail!("a call is too long for a record");
        };
        bytes[..MARK].copy_from_slice(&mark.to_bytes());
        Ok(Template { bytes, varies })
    }

    /// Queues the next call of a slot.
    fn begin(&mut self, template: &Template, slot: usize, depth: usize, offset: u64) -> u32 {
        // The slot is found again by the XID.
        let depth = depth as u32;
        self.sequence = (self.sequence + 1) % (u32::MAX / depth);
        let xid = self.sequence * depth + slot as u32;
        let start = self.outward.len();
        self.outward.extend_from_slice(&template.bytes);
        let call = &mut self.outward[start..];
        call[MARK..MARK + 4].copy_from_slice(&xid.to_be_bytes());
        if let Some(at) = template.varies {
            call[at..at + 8].copy_from_slice(&offset.to_be_bytes());
        }
        xid
    }

    /// Sends queued data; returns the number of bytes sent.
    fn send(&mut self) -> Result<usize> {
        if self.outward.is_empty() {
            return Ok(0);
        }
        let count = match self.stream.write(&self.outward[self.sent..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            result => result?,
        };
        self.sent += count;
        if self.sent == self.outward.len() {
            self.outward.clear();
            self.sent = 0;
        }
        Ok(count)
    }

    /// Sleeps until there is something to read, or room for what is to be sent.
    fn sleep(&self) -> Result<()> {
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, !self.outward.is_empty());
        let most = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what has arrived, and tells the XID of each reply that ended; returns the bytes.
    fn receive(&mut self, least: usize, done: &mut impl FnMut(u32) -> Result<()>) -> Result<usize> {
        let count = match self.stream.read(&mut self.inward[self.filled..]) {
            Ok(0) => bail!("the server has closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            result => result?,
        };
        self.filled += count;
        let mut at = 0;
        while at < self.filled {
            if self.rest > 0 {
                let part = self.rest.min(self.filled - at);
                self.rest -= part;
                at += part;
                continue;
            }
            let Some(head) = self.inward[at..self.filled].first_chunk::<{ MARK + STATUS_WORDS }>()
            else {
                break;
            };
            let (xid, length) = head_of(head, least)?;
            at += head.len();
            self.rest = length - STATUS_WORDS;
            done(xid)?;
        }
        self.inward.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(count)
    }

    /// Makes one load and measures it.
    ///
    /// # Errors
    /// If a call fails, the connection ends, or the load is made over RDMA only.
    pub fn run(&mut self, workload: &Workload, server: &ServerCpu) -> Result<Measurement> {
        workload.check(self.file_size)?;
        let templates = self.templates(workload)?;
        let least = STATUS_WORDS
            + match workload.operation {
                Operation::Read => workload.size,
                _ => 0,
            };
        let (time, most) = match workload.until {
            Until::Time(time) => (time, u64::MAX),
            Until::Count(count) => (Duration::MAX, count),
        };
        let depth = workload.depth.max(1);
        let blocks = (self.file_size / workload.size.max(1)).max(1) as u64;
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let before = (server.seconds(), server.busy_seconds());
        let watch = Stopwatch::start();
        let start = Instant::now();
        let (mut begun, mut operations) = (0_u64, 0_u64);
        let mut calls = Vec::with_capacity(depth);
        while calls.len() < depth && begun < most {
            let varying = varying(workload, begun % blocks, calls.len());
            let xid = self.begin(&templates[0], calls.len(), depth, varying);
            calls.push(InFlight {
                xid,
                begun: start,
                template: 0,
            });
            begun += 1;
        }
        let mut ended = Vec::with_capacity(depth);
        let (mut now, mut work, mut idle, mut busy) = (start, 0, 0_u32, Duration::ZERO);
        let mut heard = start;
        while operations < begun {
            let turned = Instant::now();
            if work > 0 {
                busy += turned - now;
                heard = turned;
            } else if turned - heard > SILENCE {
                bail!("no reply in time");
            }
            now = turned;
            work = self.receive(least, &mut |xid| {
                ended.push(xid);
                Ok(())
            })?;
            let stopping = now - start >= time || interrupt::is_asked_to_end();
            for xid in ended.drain(..) {
                let slot = xid as usize % depth;
                let Some(call) = calls.get_mut(slot).filter(|call| call.xid == xid) else {
                    bail!("a reply to no call");
                };
                latencies.saturating_record((now - call.begun).as_nanos() as u64);
                operations += 1;
                call.xid = !xid;
                let template = (call.template + 1) % templates.len();
                // What was made is removed.
                if template > 0 || !stopping && begun < most {
                    let varying = varying(workload, begun % blocks, slot);
                    let xid = self.begin(&templates[template], slot, depth, varying);
                    calls[slot] = InFlight {
                        xid,
                        begun: now,
                        template,
                    };
                    begun += 1;
                }
            }
            work += self.send()?;
            idle = if work == 0 { idle.saturating_add(1) } else { 0 };
            if idle > IDLE_TURNS {
                idle = 0;
                match self.idle_policy {
                    IdlePolicy::Yield => std::thread::yield_now(),
                    IdlePolicy::Spin => {}
                    IdlePolicy::Sleep => self.sleep()?,
                }
            }
        }
        let elapsed = now - start;
        // Data of the last reply belongs to this load.
        while self.rest > 0 || self.filled > 0 {
            self.receive(least, &mut |_| bail!("a reply to no call"))?;
        }
        let since = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
        let bytes = operations * workload.size as u64;
        Ok(Measurement::new(
            format!("{} over TCP", workload.name()),
            (operations, bytes, 0),
            elapsed,
            &latencies,
            (watch.seconds(), since(before.0, server.seconds())),
            BusySeconds {
                client: busy.as_secs_f64(),
                server: since(before.1, server.busy_seconds()),
            },
        ))
    }
}

/// What differs in a call: its offset, or the digits of a name.
fn varying(workload: &Workload, block: u64, slot: usize) -> u64 {
    match workload.operation {
        Operation::Create => u64::from_be_bytes(place_digits(slot)),
        _ => block * workload.size as u64,
    }
}

/// XID and length of a reply that succeeded and has at least so many bytes.
fn head_of(head: &[u8; MARK + STATUS_WORDS], least: usize) -> Result<(u32, usize)> {
    let word = |index: usize| {
        let bytes = head[index * 4..].first_chunk().copied();
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let mark = RecordMark::from_bytes(word(0).to_be_bytes());
    let length = mark.length as usize;
    let statuses = [2, 3, 4, 5, 6, 7].map(word);
    if !mark.last || length < least || statuses != [1, 0, 0, 0, 0, 0] {
        bail!("a call failed, or its reply has another form: {statuses:?} in {length} bytes");
    }
    Ok((word(1), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_replies_that_succeeded_count() {
        let mut head = [0; MARK + STATUS_WORDS];
        head[..4].copy_from_slice(&(0x8000_0000_u32 | 128).to_be_bytes());
        head[4..8].copy_from_slice(&77_u32.to_be_bytes());
        head[11] = 1;
        assert_eq!(head_of(&head, 100).expect("success"), (77, 128));
        assert!(head_of(&head, 129).is_err(), "it is too short");
        for word in 2..8 {
            let mut failed = head;
            failed[word * 4 + 3] ^= 2;
            assert!(head_of(&failed, 100).is_err(), "word {word}");
        }
        head[0] = 0;
        assert!(head_of(&head, 100).is_err(), "it is a fragment");
    }
}
