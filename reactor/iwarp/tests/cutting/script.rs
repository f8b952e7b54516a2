//! What a peer sends.

use millrace_iwarp::{
    Crc32c, Model, Opcode, ReadRequest, Segment, Tagged, UNTAGGED_BYTES, Untagged, pad_bytes,
};

/// One message of the peer's.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Send(usize),
    /// Length, and where it is cut into segments.
    LongSend(usize, usize),
    /// Offset and length under the writable key.
    Write(usize, usize),
    /// A part of the answer to one of the open Reads: which, offset, length, whether it ends.
    Response(u32, usize, usize, bool),
    /// Offset and length under the readable key.
    ReadOf(u32, u32),
    /// A message that invalidates the writable key.
    Invalidate,
    /// A reserved opcode.
    Reserved,
    /// A length below that of the headers.
    Short(u8),
    /// A Terminate message.
    Terminate(u8),
}

/// Sink keys of the two open Reads.
pub const SINK: u32 = 0x5_0000;

struct Script {
    bytes: Vec<u8>,
    crc: bool,
    send: u32,
    read: u32,
}

impl Script {
    fn fpdu(&mut self, ulpdu: &[u8]) {
        let start = self.bytes.len();
        let length = u16::try_from(ulpdu.len()).unwrap();
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(ulpdu);
        let end = self.bytes.len() + pad_bytes(ulpdu.len());
        self.bytes.resize(end, 0);
        let crc = if self.crc {
            Crc32c::of(&self.bytes[start..])
        } else {
            [0; 4]
        };
        self.bytes.extend_from_slice(&crc);
    }

    fn segment(&mut self, last: bool, opcode: Opcode, model: Model, payload: &[u8]) {
        let segment = Segment {
            last,
            opcode,
            model,
        };
        let mut ulpdu = vec![0; UNTAGGED_BYTES];
        let length = segment.encode(&mut ulpdu);
        ulpdu.truncate(length);
        ulpdu.extend_from_slice(payload);
        self.fpdu(&ulpdu);
    }

    fn send(&mut self, opcode: Opcode, invalidate: u32, length: usize, cut: usize) {
        let payload = pattern(length, self.send as usize);
        let mut offset = 0;
        for part in payload.chunks(cut) {
            let untagged = Untagged {
                invalidate,
                queue: 0,
                sequence: self.send,
                offset,
            };
            offset += u32::try_from(part.len()).unwrap();
            let last = offset as usize == length;
            self.segment(last, opcode, Model::Untagged(untagged), part);
        }
        self.send += 1;
    }

    fn step(&mut self, step: Step, [writable, readable]: [u32; 2]) {
        match step {
            Step::Send(0) => {
                let untagged = self.untagged(0, self.send);
                self.send += 1;
                self.segment(true, Opcode::Send, untagged, &[]);
            }
            Step::Send(length) => self.send(Opcode::Send, 0, length, length),
            Step::LongSend(length, cut) => self.send(Opcode::Send, 0, length, cut),
            Step::Invalidate => self.send(Opcode::SendInvalidate, writable, 3, 3),
            Step::Write(offset, length) => {
                let model = tagged(writable, offset);
                self.segment(true, Opcode::Write, model, &pattern(length, offset));
            }
            Step::Response(number, offset, length, last) => {
                let model = tagged(SINK + number, offset);
                let payload = pattern(length, offset);
                self.segment(last, Opcode::ReadResponse, model, &payload);
            }
            Step::ReadOf(offset, length) => {
                let request = ReadRequest {
                    sink_key: 7,
                    sink_offset: 70,
                    length,
                    source_key: readable,
                    source_offset: offset.into(),
                };
                let untagged = self.untagged(1, self.read);
                self.read += 1;
                self.segment(true, Opcode::ReadRequest, untagged, &request.encode());
            }
            Step::Reserved => {
                let mut ulpdu = [0; UNTAGGED_BYTES];
                ulpdu[..2].copy_from_slice(&[0x41, 0x4f]);
                self.fpdu(&ulpdu);
            }
            Step::Short(length) => self.fpdu(&vec![0x41; usize::from(length % 14)]),
            Step::Terminate(code) => {
                let untagged = self.untagged(2, 1);
                self.segment(true, Opcode::Terminate, untagged, &[0x20, code, 0, 0]);
            }
        }
    }

    fn untagged(&self, queue: u32, sequence: u32) -> Model {
        Model::Untagged(Untagged {
            invalidate: 0,
            queue,
            sequence,
            offset: 0,
        })
    }
}

fn tagged(key: u32, offset: usize) -> Model {
    Model::Tagged(Tagged {
        key,
        offset: offset as u64,
    })
}

pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 13 + i / 256 + seed) as u8)
        .collect()
}

/// The stream of these steps, with the keys that may be written and read.
pub fn bytes(steps: &[Step], keys: [u32; 2], crc: bool) -> Vec<u8> {
    let mut script = Script {
        bytes: Vec::new(),
        crc,
        send: 1,
        read: 1,
    };
    for step in steps {
        script.step(*step, keys);
    }
    script.bytes
}
