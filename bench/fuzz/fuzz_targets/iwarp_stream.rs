//! One end of an RDMAP stream with posted receives, exposures and open Reads, fed with any bytes
//! or with FPDUs whose lengths and check values fit.
//!
//! First byte: bit 0 check values, 1 markers towards the peer, 2 role, 3 any bytes, 4 peer to
//! peer, 5 payloads straight into memory.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::memory::{Range, Vectors, put};
use millrace_iwarp::mpa::{Negotiated, Role, RtrKind, RtrKinds, StartGate};
use millrace_iwarp::{
    Access, Chunk, Crc32c, Endpoint, Limits, Operation, Parameters, Request, Staging, pad_bytes,
};

const GUARD: u8 = 0xa5;
/// Exposures are this part of guarded memory.
const BEGIN: usize = 32;
const LENGTH: usize = 128;
const RECEIVE: usize = 256;

struct Stream {
    endpoint: Endpoint<Vectors>,
    check: bool,
    direct: bool,
    keys: Vec<u32>,
    /// May be written, may be read, was revoked; then the sink of the Reads.
    memory: Vec<Range>,
    tokens: u64,
    ended: u64,
}

impl Stream {
    fn new(mode: u8) -> Self {
        let set = |bit: u8| mode & 1 << bit != 0;
        let role = if set(2) {
            Role::Initiator
        } else {
            Role::Responder
        };
        let negotiated = Negotiated {
            role,
            revision: 2,
            enhanced: true,
            crc: set(0),
            send_markers: set(1),
            ird: 4,
            ord: 2,
            peer: None,
            peer_to_peer: set(4),
            rtr_to_send: (set(4) && set(2)).then_some(RtrKind::Read),
            rtr_expected: if set(4) {
                RtrKinds::ALL
            } else {
                RtrKinds::NONE
            },
            private_data: Vec::new(),
        };
        let limits = Limits {
            send_depth: 8,
            receive_depth: 4,
            receive_size: RECEIVE,
            exposures: 4,
        };
        let mut endpoint = Endpoint::new(limits, 0);
        endpoint.start(Parameters {
            gate: StartGate::new(&negotiated),
            ..Parameters::new(&negotiated)
        });
        let memory: Vec<Range> = (0..4)
            .map(|_| Range::new(vec![GUARD; BEGIN + LENGTH + BEGIN]))
            .collect();
        let accesses = [Access::RemoteWrite, Access::RemoteRead, Access::RemoteWrite];
        let keys = accesses.iter().zip(&memory).map(|(access, range)| {
            let exposed = endpoint.expose(range.part(BEGIN, LENGTH), *access, 0x100);
            exposed.expect("an exposure is free").key
        });
        let keys: Vec<u32> = keys.collect();
        endpoint.revoke(keys[2]);
        let mut stream = Self {
            endpoint,
            check: set(0),
            direct: set(5),
            keys,
            memory,
            tokens: 0,
            ended: 0,
        };
        for _ in 0..3 {
            stream.read();
            stream.receive();
        }
        stream
    }

    fn receive(&mut self) {
        // No room is as good an answer as any.
        let _ = self.endpoint.post_receive(vec![GUARD; RECEIVE]);
    }

    fn read(&mut self) {
        // One Read fills two pieces.
        let read = Operation::Read {
            key: 1,
            offset: 2,
            sink: 0x77,
        };
        let first = LENGTH / 3;
        for (operation, begin, length) in [
            (read, BEGIN, first),
            (Operation::ReadMore, BEGIN + first, LENGTH - first),
        ] {
            let request = Request {
                token: self.tokens,
                operation,
                local: self.memory[3].part(begin, length),
                signalled: true,
            };
            if self.endpoint.post(request).is_ok() {
                self.tokens += 1;
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        if self.direct
            && let Some(direct) = self.endpoint.direct()
        {
            let count = direct.length.min(bytes.len());
            put(direct, &bytes[..count]);
            self.endpoint.placed(count);
            bytes = &bytes[count..];
        }
        let result = self.endpoint.receive(bytes);
        assert_eq!(result.err(), self.endpoint.stop());
    }

    fn fpdu(&mut self, ulpdu: &[u8], cut: usize) {
        let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(ulpdu);
        bytes.resize(bytes.len() + pad_bytes(ulpdu.len()), 0);
        let crc = if self.check {
            Crc32c::of(&bytes)
        } else {
            [0; 4]
        };
        bytes.extend_from_slice(&crc);
        let (now, later) = bytes.split_at(cut.min(bytes.len()));
        self.take(now);
        self.take(later);
    }

    /// Sends and collects everything.
    fn turn(&mut self) {
        if self.endpoint.wants_staging() {
            self.endpoint.lend(Staging::new());
        }
        loop {
            self.endpoint.stage();
            let mut count = 0;
            self.endpoint.gather(|chunk| {
                count += match chunk {
                    Chunk::Bytes(bytes) => bytes.len(),
                    Chunk::Memory {
                        local,
                        offset,
                        length,
                    } => local.part(offset, length).bytes().len(),
                };
                ControlFlow::Continue(())
            });
            if count == 0 {
                break;
            }
            self.endpoint.accepted(count);
        }
        self.endpoint.reclaim();
        self.collect();
    }

    fn collect(&mut self) {
        while self.endpoint.take_completion().is_some() {
            self.ended += 1;
        }
        while let Some(delivery) = self.endpoint.take_delivery() {
            let length = delivery.length as usize;
            assert!(length <= delivery.receive.len());
        }
        while self.endpoint.take_revoked().is_some() {}
    }

    fn finish(mut self) {
        self.turn();
        self.endpoint.flush();
        self.collect();
        assert_eq!(self.ended, self.tokens, "every request ends once");
        for (index, range) in self.memory.iter().enumerate() {
            let bytes = range.bytes();
            let guarded = |bytes: &[u8]| bytes.iter().all(|byte| *byte == GUARD);
            assert!(guarded(&bytes[..BEGIN]) && guarded(&bytes[BEGIN + LENGTH..]));
            if index == 1 || index == 2 {
                assert!(guarded(&bytes), "nobody may write here");
            }
        }
    }

    /// One step of a script; the rest of it.
    fn step<'a>(&mut self, script: &'a [u8]) -> Option<&'a [u8]> {
        let (&[kind, choice, length, cut], rest) = script.split_first_chunk()?;
        let key = self.keys[usize::from(choice) % self.keys.len()];
        let (body, rest) = rest.split_at(rest.len().min(length.into()));
        let cut = usize::from(cut);
        let control = 0x41 & !(choice & 0x40);
        match kind % 8 {
            // A tagged segment under one of the keys, a Write or an answer.
            0 | 1 => {
                let opcode = 0x40 | (kind % 2 * 2);
                let key = if kind % 2 == 1 { 0x77 } else { key };
                let mut ulpdu = vec![0x80 | control, opcode];
                ulpdu.extend_from_slice(&key.to_be_bytes());
                ulpdu.extend_from_slice(&u64::from(choice >> 2).to_be_bytes());
                ulpdu.extend_from_slice(body);
                self.fpdu(&ulpdu, cut);
            }
            // An untagged one with headers of the script's own making.
            2 => {
                let mut ulpdu = vec![control, 0x40 | choice & 0x0f];
                ulpdu.extend_from_slice(body);
                self.fpdu(&ulpdu, cut);
            }
            // A Send that may invalidate.
            3 => {
                let opcode = [3, 4, 5, 6][usize::from(choice >> 2 & 3)];
                let mut ulpdu = vec![control, 0x40 | opcode];
                ulpdu.extend_from_slice(&key.to_be_bytes());
                ulpdu.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, choice >> 4, 0, 0, 0, 0]);
                ulpdu.extend_from_slice(body);
                self.fpdu(&ulpdu, cut);
            }
            4 => self.fpdu(body, cut),
            5 => self.take(body),
            6 => {
                self.endpoint.revoke(key);
            }
            _ => {
                self.receive();
                self.read();
                self.turn();
            }
        }
        Some(rest)
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&mode, mut rest)) = input.split_first() else {
        return;
    };
    let mut stream = Stream::new(mode);
    stream.turn();
    if mode & 8 != 0 {
        for piece in rest.chunks(1 + usize::from(mode >> 6) * 17) {
            stream.take(piece);
        }
        rest = &[];
    }
    while let Some(next) = stream.step(rest) {
        rest = next;
    }
    stream.finish();
});
