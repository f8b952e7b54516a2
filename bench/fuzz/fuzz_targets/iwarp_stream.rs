//! A stream of FPDUs: the first byte chooses the cutting, the rest is the stream.
//!
//! Keys come from constants, so that inputs can name memory that is exposed.

#![no_main]

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use millrace_iwarp::mpa::{Negotiated, Role, RtrKinds};
use millrace_iwarp::{
    Access, Chunk, Endpoint, Limits, Memory, Operation, Parameters, Request, Staging,
};

struct Heap;

type Shared = Rc<RefCell<Vec<u8>>>;

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

fn memory(length: usize) -> Shared {
    Rc::new(RefCell::new(vec![1; length]))
}

fn victim() -> Endpoint<Heap> {
    let limits = Limits {
        send_depth: 4,
        receive_depth: 4,
        receive_size: 128,
        exposures: 4,
    };
    let mut end = Endpoint::new(limits, 0);
    end.start(Parameters::new(&Negotiated {
        role: Role::Responder,
        revision: 2,
        enhanced: true,
        crc: false,
        send_markers: false,
        ird: 2,
        ord: 2,
        peer: None,
        peer_to_peer: false,
        rtr_to_send: None,
        rtr_expected: RtrKinds::NONE,
        private_data: Vec::new(),
    }));
    for _ in 0..3 {
        end.post_receive(vec![0; 128]).expect("room");
    }
    // Keys 0x100 and 0x201.
    end.expose(memory(256), Access::RemoteRead, 0x100)
        .expect("room");
    end.expose(memory(256), Access::RemoteWrite, 0x200)
        .expect("room");
    for token in 0..3 {
        let operation = Operation::Read {
            key: 1,
            offset: 0,
            sink: 7,
        };
        let local = memory(40);
        end.post(Request {
            token,
            operation,
            local,
            signalled: true,
        })
        .expect("room");
    }
    end
}

thread_local! {
    /// Storage is large, so that it is made once only.
    static SPARE: Cell<Option<Staging>> = const { Cell::new(None) };
}

fn send(end: &mut Endpoint<Heap>) {
    if end.wants_staging() {
        end.lend(SPARE.take().unwrap_or_default());
    }
    end.stage();
    let mut count = 0;
    end.gather(|chunk| {
        count += match chunk {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Memory {
                local,
                offset,
                length,
            } => {
                assert!(offset + length <= local.borrow().len());
                length
            }
        };
        ControlFlow::Continue(())
    });
    end.accepted(count);
    if let Some(staging) = end.reclaim() {
        SPARE.set(Some(staging));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, stream)) = bytes.split_first() else {
        return;
    };
    let mut end = victim();
    for piece in stream.chunks(usize::from(cut).max(1)) {
        let done = end.receive(piece);
        send(&mut end);
        while let Some(delivery) = end.take_delivery() {
            assert!(delivery.length as usize <= delivery.receive.len());
        }
        while end.take_completion().is_some() {}
        if done.is_err() {
            assert_eq!(end.receive(piece), done);
            break;
        }
    }
    send(&mut end);
    end.flush();
    while end.take_completion().is_some() {}
    assert_eq!(end.send_room(), 4);
});
