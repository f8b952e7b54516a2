//! HTTP/1.1 by hand, so that tests see what is on the wire.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A request, one per connection.
#[derive(Clone)]
pub struct Request {
    head: String,
    body: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"),
            body: String::new(),
        }
    }

    /// With another header `Host`.
    pub fn host(mut self, host: &str) -> Self {
        self.head = self
            .head
            .replacen("host: localhost", &format!("host: {host}"), 1);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    pub fn body(self, body: String) -> Self {
        Self { body, ..self }
    }

    /// Sends it and does not wait.
    pub fn begin(&self, address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = self.body.len();
        let text = format!("{}content-length: {length}\r\n\r\n{}", self.head, self.body);
        // The server may answer and close before all is written.
        let _ = stream.write_all(text.as_bytes());
        stream
    }

    /// Sends it over a Unix socket.
    pub fn send_to(&self, socket: &Path) -> Answer {
        let mut stream = UnixStream::connect(socket).unwrap();
        let length = self.body.len();
        let text = format!("{}content-length: {length}\r\n\r\n{}", self.head, self.body);
        stream.write_all(text.as_bytes()).unwrap();
        Answer::read(stream)
    }

    pub fn send(&self, address: SocketAddr) -> Answer {
        Answer::read(self.begin(address))
    }
}

impl Answer {
    pub fn read(mut stream: impl Read) -> Self {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        Self {
            status: status.parse().unwrap(),
            headers: lines.map(header).collect(),
            body: body.to_owned(),
        }
    }

    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers.iter();
        headers
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.clone())
    }
}
