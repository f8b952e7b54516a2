//! Takes markers out of a stream, and is strict about them: RFC 5044 section 4.3.

use super::fpdu::{Segment, crc32c};

/// A marker stands at every multiple of this, counted from the first FPDU's first octet.
const INTERVAL: usize = 512;

/// Reads with markers skipped.
struct Cursor<'a> {
    stream: &'a [u8],
    position: usize,
    /// Where the ULPDU length field of the current FPDU stands.
    start: usize,
    markers: usize,
}

impl Cursor<'_> {
    fn marker(&mut self, pointer: usize) -> Option<()> {
        if self.position.is_multiple_of(INTERVAL) {
            let marker = self.stream.get(self.position..self.position + 4)?;
            assert_eq!(marker[..2], [0, 0], "reserved octets of a marker");
            let found = u16::from_be_bytes([marker[2], marker[3]]);
            assert_eq!(usize::from(found), pointer, "at {}", self.position);
            self.position += 4;
            self.markers += 1;
        }
        Some(())
    }

    fn octet(&mut self) -> Option<u8> {
        if self.position > self.start {
            self.marker(self.position - self.start)?;
        }
        let octet = *self.stream.get(self.position)?;
        self.position += 1;
        Some(octet)
    }
}

/// Takes a stream that holds whole FPDUs apart: what they say, and how many markers there were.
/// `None` while the last one is cut off.
///
/// Panics on anything that a correct sender does not send.
pub fn segments(stream: &[u8], crc: bool) -> Option<(Vec<Segment>, usize)> {
    let mut cursor = Cursor {
        stream,
        position: 0,
        start: 0,
        markers: 0,
    };
    let mut found = Vec::new();
    while cursor.position < stream.len() {
        let begin = cursor.position;
        cursor.marker(0)?;
        cursor.start = cursor.position;
        let mut plain = vec![cursor.octet()?, cursor.octet()?];
        let length = usize::from(u16::from_be_bytes([plain[0], plain[1]]));
        let covered = (length + 2).next_multiple_of(4);
        while plain.len() < covered {
            plain.push(cursor.octet()?);
        }
        cursor.marker(cursor.position - cursor.start)?;
        let value = stream.get(cursor.position..cursor.position + 4)?;
        if crc {
            let expected = crc32c(&stream[begin..cursor.position]).to_le_bytes();
            assert_eq!(value, expected, "CRC over markers too");
        }
        cursor.position += 4;
        plain.extend_from_slice(&[0; 4]);
        let (taken, segment) = Segment::parse(&plain, false)?;
        assert_eq!(taken, plain.len());
        found.push(segment);
    }
    Some((found, cursor.markers))
}
