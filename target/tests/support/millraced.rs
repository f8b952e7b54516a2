//! A running `millraced` whose log the test reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A server; it is killed when the value is dropped.
pub struct Server {
    pub process: Child,
    pub log: BufReader<ChildStderr>,
    /// What was read of the log.
    pub read: String,
    /// Its management plane, once it serves.
    pub admin: Option<SocketAddr>,
}

impl Server {
    /// Starts it.
    pub fn spawn(mut command: Command) -> Self {
        command.env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        Self {
            process,
            log,
            read: String::new(),
            admin: None,
        }
    }

    /// Starts it and waits until it serves.
    #[allow(dead_code)] // Not by every program of tests.
    pub fn serving(command: Command) -> Self {
        let mut server = Self::spawn(command);
        server.await_service();
        server
    }

    /// Waits until it serves.
    pub fn await_service(&mut self) {
        let line = self.until("admin plane at http://");
        let (_, rest) = line.split_once("http://").unwrap();
        self.admin = rest.split_once('/').unwrap().0.parse().ok();
        // The answer comes after everything that the start does.
        assert_eq!(self.get("/readyz").0, 200);
    }

    /// Reads the log up to a line with these words.
    pub fn until(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.log.read_line(&mut line).unwrap();
            assert!(length > 0, "the server ended: {}", self.read);
            self.read += &line;
            if line.contains(words) {
                return line;
            }
        }
    }

    #[allow(dead_code)] // Not by every program of tests.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The status and body of an answer of its management plane.
    pub fn get(&self, path: &str) -> (u16, String) {
        let admin = self.admin.expect("it serves");
        ask(admin, "GET", path, "", "").expect("it listens")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The status and body of an answer; `None` while nothing listens. `headers` are whole lines.
pub fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Option<(u16, String)> {
    let mut socket = TcpStream::connect(address).ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    Some((status, body.to_owned()))
}
