//! A scripted peer over plain TCP, in the test's own thread: it sends exactly the bytes that the
//! test gives and keeps every byte that arrives.

#![allow(
    dead_code,
    reason = "each file of tests uses its own part of the script language"
)]

pub mod fpdu;
pub mod frames;
pub mod markers;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use fpdu::Segment;
use frames::Frame;

/// One TCP connection of the scripted peer.
pub struct Peer {
    stream: TcpStream,
    inbox: Vec<u8>,
    closed: bool,
    /// Whether FPDUs carry CRCs, both ways.
    pub crc: bool,
}

impl Peer {
    /// Connects to a listener under test.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("a listener"))
    }

    /// Takes the connection that a connector under test has begun.
    pub fn accept(listener: &TcpListener) -> Self {
        Self::try_accept(listener).expect("a connection")
    }

    /// The same, if there is one.
    pub fn try_accept(listener: &TcpListener) -> Option<Self> {
        listener.set_nonblocking(true).expect("a socket option");
        let (stream, _) = listener.accept().ok()?;
        Some(Self::over(stream))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP option");
        stream.set_nonblocking(true).expect("a socket option");
        Self {
            stream,
            inbox: Vec::new(),
            closed: false,
            crc: false,
        }
    }

    /// Sends bytes. Scripts are short: they fit in the socket's buffer.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("room in the socket");
    }

    /// Sends one FPDU.
    pub fn send_segment(&mut self, segment: &Segment) {
        self.send(&segment.fpdu(self.crc));
    }

    /// Takes in what has arrived, without waiting.
    pub fn pump(&mut self) {
        let mut part = [0; 4096];
        while !self.closed {
            match self.stream.read(&mut part) {
                Ok(0) => self.closed = true,
                Ok(count) => self.inbox.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Whether the other side has closed and every byte of it is in the inbox.
    pub fn is_closed(&mut self) -> bool {
        self.pump();
        self.closed
    }

    /// What has arrived and was not taken.
    pub fn inbox(&mut self) -> &[u8] {
        self.pump();
        &self.inbox
    }

    /// Takes the first bytes of the inbox, if so many are there.
    pub fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        self.pump();
        (self.inbox.len() >= count).then(|| self.inbox.drain(..count).collect())
    }

    /// Takes a whole connection setup frame of the inbox.
    pub fn take_frame(&mut self) -> Option<Frame> {
        self.pump();
        let length = Frame::length(&self.inbox)?;
        self.take(length).map(|bytes| Frame::parse(&bytes))
    }

    /// Takes the first FPDU of the inbox, if it is there whole.
    pub fn take_segment(&mut self) -> Option<Segment> {
        self.pump();
        let (length, segment) = Segment::parse(&self.inbox, self.crc)?;
        self.inbox.drain(..length);
        Some(segment)
    }
}
