//! Memory, connections and raw segments for tests.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use millrace_iwarp::mpa::{Negotiated, Role, RtrKind, RtrKinds};
use millrace_iwarp::{
    Chunk, Completion, Direct, DirectTarget, Endpoint, Limits, Memory, Parameters, Staging,
};

/// Memory on the heap.
pub struct Heap;

pub type Shared = Rc<RefCell<Vec<u8>>>;
pub type End = Endpoint<Heap>;

impl Memory for Heap {
    type Local = Shared;
    type Receive = Vec<u8>;

    fn length(local: &Shared) -> usize {
        local.borrow().len()
    }

    fn place(local: &Shared, offset: usize, bytes: &[u8]) {
        local.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn fetch(local: &Shared, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&local.borrow()[offset..offset + bytes.len()]);
    }

    fn capacity(receive: &Vec<u8>) -> usize {
        receive.len()
    }

    fn fill(receive: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        receive[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

pub fn shared(bytes: Vec<u8>) -> Shared {
    Rc::new(RefCell::new(bytes))
}

pub fn pattern(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_mul(37) ^ (i >> 8) ^ seed.wrapping_mul(101)) as u8)
        .collect()
}

pub const LIMITS: Limits = Limits {
    send_depth: 128,
    receive_depth: 64,
    receive_size: 1 << 20,
    exposures: 64,
};

pub fn negotiated(role: Role) -> Negotiated {
    Negotiated {
        role,
        revision: 2,
        enhanced: true,
        crc: false,
        send_markers: false,
        ird: 4,
        ord: 4,
        peer: None,
        peer_to_peer: false,
        rtr_to_send: None,
        rtr_expected: RtrKinds::NONE,
        private_data: Vec::new(),
    }
}

pub fn peer_to_peer(role: Role, kind: RtrKind) -> Negotiated {
    Negotiated {
        peer_to_peer: true,
        rtr_to_send: (role == Role::Initiator).then_some(kind),
        rtr_expected: RtrKinds::only(kind),
        ..negotiated(role)
    }
}

/// An end that may send and receive.
pub fn end(negotiated: &Negotiated, ulpdu: usize) -> End {
    let mut end = End::new(LIMITS, 0x5eed_1234);
    end.start(Parameters {
        ulpdu,
        ..Parameters::new(negotiated)
    });
    end
}

/// Stages all there is, and takes at most `most` bytes of it.
pub fn send_some(end: &mut End, most: usize) -> Vec<u8> {
    if end.wants_staging() {
        end.lend(Staging::new());
    }
    end.stage();
    let mut bytes = Vec::new();
    end.gather(|chunk| {
        match chunk {
            Chunk::Bytes(part) => bytes.extend_from_slice(part),
            Chunk::Memory {
                local,
                offset,
                length,
            } => {
                bytes.extend_from_slice(&local.borrow()[offset..offset + length]);
            }
        }
        if bytes.len() < most {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    bytes.truncate(most);
    end.accepted(bytes.len());
    end.reclaim();
    bytes
}

/// All that an end has to send.
pub fn send_all(end: &mut End) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let some = send_some(end, usize::MAX);
        if some.is_empty() {
            return bytes;
        }
        bytes.extend(some);
    }
}

/// Receives the front of `bytes` straight into memory, where that is possible.
pub fn receive_straight(end: &mut End, bytes: &[u8]) -> usize {
    let Some(Direct {
        target,
        offset,
        length,
        ..
    }) = end.direct()
    else {
        return 0;
    };
    let count = length.min(bytes.len());
    match target {
        DirectTarget::Receive(receive) => {
            receive[offset..offset + count].copy_from_slice(&bytes[..count]);
        }
        DirectTarget::Local(local) => {
            local.borrow_mut()[offset..offset + count].copy_from_slice(&bytes[..count]);
        }
    }
    end.placed(count);
    count
}

pub fn completions(end: &mut End) -> Vec<Completion<Shared>> {
    std::iter::from_fn(|| end.take_completion()).collect()
}

/// Segments as a hostile peer makes them.
pub mod raw {
    pub const DDP: u8 = 1;
    pub const LAST: u8 = 0x40;
    pub const TAGGED: u8 = 0x80;

    pub fn tagged(control: u8, rdmap: u8, key: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut ulpdu = vec![control, rdmap];
        ulpdu.extend(key.to_be_bytes());
        ulpdu.extend(offset.to_be_bytes());
        ulpdu.extend(payload);
        ulpdu
    }

    pub fn untagged(
        control: u8,
        rdmap: u8,
        invalidate: u32,
        [queue, sequence, offset]: [u32; 3],
        payload: &[u8],
    ) -> Vec<u8> {
        let mut ulpdu = vec![control, rdmap];
        for word in [invalidate, queue, sequence, offset] {
            ulpdu.extend(word.to_be_bytes());
        }
        ulpdu.extend(payload);
        ulpdu
    }

    pub fn write(key: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        tagged(TAGGED | LAST | DDP, 0x40, key, offset, payload)
    }

    pub fn response(key: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        tagged(TAGGED | LAST | DDP, 0x42, key, offset, payload)
    }

    pub fn send(sequence: u32, payload: &[u8]) -> Vec<u8> {
        untagged(LAST | DDP, 0x43, 0, [0, sequence, 0], payload)
    }

    pub fn read(sequence: u32, sink: (u32, u64), length: u32, source: (u32, u64)) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(sink.0.to_be_bytes());
        header.extend(sink.1.to_be_bytes());
        header.extend(length.to_be_bytes());
        header.extend(source.0.to_be_bytes());
        header.extend(source.1.to_be_bytes());
        untagged(LAST | DDP, 0x41, 0, [1, sequence, 0], &header)
    }

    pub fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let check = if crc { crc32c::crc32c(&fpdu) } else { 0 };
        fpdu.extend(check.to_le_bytes());
        fpdu
    }

    /// Takes a stream without markers apart into ULPDUs.
    pub fn ulpdus(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut ulpdus = Vec::new();
        while !bytes.is_empty() {
            let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            ulpdus.push(bytes[2..2 + length].to_vec());
            bytes = &bytes[(2 + length).next_multiple_of(4) + 4..];
        }
        ulpdus
    }
}
