//! A peer below the provider: MPA frames and FPDUs over a TCP socket.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::fpdu::{self, Arrived};
use super::message::{parse, plain, results};
use super::probe::Probe;
use super::verdict::{Done, Stop, fail, fail_by, word};

/// Flags of MPA frames (RFC 5044 section 7.1.1, RFC 6581 section 6).
pub(crate) mod flag {
    pub const CRC: u8 = 0x40;
    pub const REJECT: u8 = 0x20;
    pub const ENHANCED: u8 = 0x10;
}

/// Flags of connection data (RFC 6581 section 9).
pub(crate) mod model {
    /// The peer-to-peer model.
    pub const A: u32 = 1 << 31;
    /// Ready-to-receive by Send.
    pub const B: u32 = 1 << 30;
    /// Ready-to-receive by Write.
    pub const C: u32 = 1 << 15;
    /// Ready-to-receive by Read.
    pub const D: u32 = 1 << 14;
    pub const KINDS: u32 = B | C | D;
}

/// Four bytes of connection data.
pub(crate) fn data(flags: u32, ird: u32, ord: u32) -> [u8; 4] {
    (flags | ird << 16 | ord).to_be_bytes()
}

/// A request frame of any kind.
pub(crate) fn request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private.len()).unwrap_or(u16::MAX);
    let mut bytes = b"MPA ID Req Frame".to_vec();
    bytes.extend_from_slice(&[flags, revision]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(private);
    bytes
}

/// An enhanced request of revision 2.
pub(crate) fn enhanced(data: [u8; 4]) -> Vec<u8> {
    request(flag::ENHANCED, 2, &data)
}

/// A reply frame, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct ReplyFrame {
    pub bytes: Vec<u8>,
    pub flags: u8,
    pub revision: u8,
    pub private: Vec<u8>,
}

impl ReplyFrame {
    /// The connection data, which an enhanced reply has.
    pub fn data(&self) -> Result<u32, Stop> {
        if self.flags & flag::ENHANCED == 0 {
            return Err(fail_by("an enhanced reply expected, not", &self.bytes));
        }
        word(&self.private, 0).ok_or_else(|| fail_by("no connection data in", &self.bytes))
    }

    /// Inbound and outbound read depth.
    pub fn depths(&self) -> Result<(u32, u32), Stop> {
        let data = self.data()?;
        Ok((data >> 16 & 0x3fff, data & 0x3fff))
    }

    pub fn is_rejected(&self) -> bool {
        self.flags & flag::REJECT != 0
    }
}

/// The result of a read.
enum Got {
    Bytes,
    End,
    Nothing,
}

/// One TCP connection.
pub(crate) struct Stream {
    socket: TcpStream,
    bytes: Vec<u8>,
    timeout: Duration,
    settle: Duration,
    sends: u32,
    /// Whether CRCs are in use.
    crc: bool,
}

impl Drop for Stream {
    /// Waits before closing. Linux's knfsd on siw accepts no further connection if one is closed as
    /// soon as it is established. The cases test the messages of servers, not their races.
    fn drop(&mut self) {
        self.settle();
    }
}

impl Stream {
    pub fn connect(probe: &Probe) -> Result<Self, Stop> {
        let options = probe.options;
        let socket = TcpStream::connect_timeout(&probe.place.rdma, options.timeout)
            .and_then(|socket| socket.set_nodelay(true).map(|()| socket))
            .map_err(|error| fail(format!("TCP: {error}")))?;
        Ok(Self {
            socket,
            bytes: Vec::new(),
            timeout: options.timeout,
            settle: options.settle,
            sends: 0,
            crc: false,
        })
    }

    /// Sends bytes. A peer that is gone shows when it is read from.
    pub fn write(&mut self, bytes: &[u8]) {
        // Only the next message or action of the server matters.
        let _ = self.socket.write_all(bytes);
    }

    fn read(&mut self, wait: Duration) -> Got {
        let mut buffer = [0; 8192];
        // A timeout of nothing is no timeout.
        let wait = wait.max(Duration::from_millis(1));
        if self.socket.set_read_timeout(Some(wait)).is_err() {
            return Got::End;
        }
        match self.socket.read(&mut buffer) {
            Ok(0) => Got::End,
            Ok(count) => {
                self.bytes.extend_from_slice(&buffer[..count]);
                Got::Bytes
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    Got::Nothing
                }
                _ => Got::End,
            },
        }
    }

    /// Reads until `take` finds what it wants.
    fn until<T>(
        &mut self,
        what: &str,
        take: impl Fn(&[u8]) -> Option<(usize, T)>,
    ) -> Result<T, Stop> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some((taken, found)) = take(&self.bytes) {
                self.bytes.drain(..taken);
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(fail(format!(
                    "{what} did not come within {:?}",
                    self.timeout
                )));
            }
            if let Got::End = self.read(left) {
                return Err(fail(format!("the server closed instead of sending {what}")));
            }
        }
    }

    /// The server's reply frame.
    pub fn reply(&mut self) -> Result<ReplyFrame, Stop> {
        self.until("a reply frame", |bytes| {
            let length = u16::from_be_bytes(*bytes.get(18..20)?.first_chunk()?);
            let whole = bytes.get(..20 + usize::from(length))?;
            let reply = ReplyFrame {
                bytes: whole.to_vec(),
                flags: whole[16],
                revision: whole[17],
                private: whole[20..].to_vec(),
            };
            Some((whole.len(), reply))
        })
    }

    /// Sends a request and takes its reply.
    pub fn ask(&mut self, request: &[u8]) -> Result<ReplyFrame, Stop> {
        self.write(request);
        let reply = self.reply()?;
        let asked = request.get(16).copied().unwrap_or(0);
        self.crc = (asked | reply.flags) & flag::CRC != 0;
        Ok(reply)
    }

    /// The next segment of the server.
    pub fn segment(&mut self) -> Result<Arrived, Stop> {
        self.until("an FPDU", fpdu::parse)
    }

    /// Waits as servers may need it before the first FPDU.
    pub fn settle(&mut self) {
        std::thread::sleep(self.settle);
    }

    /// Sends a ULPDU.
    pub fn send(&mut self, ulpdu: &[u8]) {
        let bytes = fpdu::frame(ulpdu, self.crc);
        self.write(&bytes);
    }

    /// Sends a message of no bytes, which needs no receive.
    pub fn send_empty(&mut self) {
        self.sends += 1;
        let ulpdu = fpdu::send(self.sends, &[]);
        self.send(&ulpdu);
    }

    /// Passes if the server closes within this time. What it says before does not matter.
    pub fn closes_within(&mut self, time: Duration) -> Done {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(fail(format!("the server did not close within {time:?}")));
            }
            if let Got::End = self.read(left) {
                return Ok(());
            }
        }
    }

    /// Passes if the server closes without a reply.
    pub fn refuses(&mut self) -> Done {
        self.closes_within(self.timeout)?;
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(fail_by(
            "closing expected, but this came before",
            &self.bytes,
        ))
    }

    /// Passes if nothing comes for a while.
    pub fn stays_silent(&mut self, time: Duration) -> Done {
        match self.read(time) {
            Got::Nothing => Ok(()),
            Got::End => Err(fail("the server closed")),
            Got::Bytes => Err(fail_by("silence expected, not", &self.bytes)),
        }
    }

    /// Passes if a NULL call is served: the stream is intact.
    pub fn serves(&mut self, probe: &mut Probe) -> Done {
        let call = probe.null();
        self.sends += 1;
        let ulpdu = fpdu::send(self.sends, &plain(&call));
        self.send(&ulpdu);
        let arrived = self.segment()?;
        if arrived.opcode != fpdu::opcode::SEND || !arrived.last {
            return Err(fail_by(
                format!("a Send expected, not opcode {}", arrived.opcode),
                &arrived.payload,
            ));
        }
        if self.crc && !arrived.sound {
            return Err(fail("the FPDU has a wrong CRC"));
        }
        let parsed = parse(&arrived.payload)?;
        if Some(parsed.xid) != word(&call, 0) {
            return Err(fail_by("the reply to NULL expected, not", &arrived.payload));
        }
        results(&parsed.message).map(|_| ())
    }
}
