//! Requests as they come over a socket.

use std::io::Read;

/// The next request: its head, and as much of a body as the head says.
pub fn request(stream: &mut impl Read) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    text.extend_from_slice(&body);
    String::from_utf8(text).unwrap()
}
