//! Any messages to the whole responder: transport header of either version, chunks over memory that
//! is there or is not, RPC, NFS over a memory store. It answers, or drops, or ends that one
//! connection, and keeps nothing. Each input meets a responder that exposes nothing, which also
//! calls the client and has those calls answered as the input says; and one in classic mode, whose
//! replies are fetched, acknowledged or left alone as the input says.

#![no_main]

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millrace::rdma::Ccp;
use millrace::rpc::reverse::ReverseCall;
use millrace_wire::ccp;
use millrace_wire::nfs3::FileHandle;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Body, Header, Rules, Segment, Version};
use support::fetch::done;
use support::message::{PROGRAM, rpc, word};
use support::raw::{Memory, Options, Stated};
use support::served::Nfs;

#[path = "../../../target/tests/support/mod.rs"]
#[allow(unused_imports)]
mod support;

/// Inputs after which everything begins anew, as the in-memory network keeps a little of each
/// provider that it ever had.
const LIFETIME: usize = 10_000;

/// Bytes of memory that can be read, and that can be written.
const MEMORY: usize = 8192;

/// Bytes that a call of the responder's own has for its arguments.
const ARGUMENTS: usize = 40;

type Callback = Pin<Box<dyn Future<Output = ()>>>;
/// More than half of the window in which RDMA_DONE is awaited.
const WHILE: Duration = Duration::from_secs(6);

struct Target {
    nfs: Nfs,
    file: FileHandle,
    /// Its replies may have read chunks; else it calls the client.
    classic: bool,
    in_use: u64,
    inputs: usize,
}

thread_local! {
    static TARGETS: RefCell<[Option<Target>; 2]> = const { RefCell::new([None, None]) };
}

fuzz_target!(|input: &[u8]| {
    TARGETS.with_borrow_mut(|targets| {
        let options = [Options::default(), Options::classic()];
        for (target, options) in targets.iter_mut().zip(options) {
            if target
                .as_ref()
                .is_none_or(|target| target.inputs == LIFETIME)
            {
                *target = Some(Target::new(options));
            }
            if let Some(target) = target {
                target.run(input);
            }
        }
    });
});

impl Target {
    fn new(mut options: Options) -> Self {
        // Whoever calls may set limits, so that any bytes can.
        options.settings = options.settings.configuring(Ccp {
            program: ccp::PROGRAM,
            anonymous: true,
        });
        let classic = options.exposures > 0;
        let mut nfs = Nfs::with(options);
        let file = nfs.file(b"file", &[5; 5000]);
        nfs.link(b"link", &[6; 100]);
        let in_use = nfs.world.in_use();
        Self {
            nfs,
            file,
            classic,
            in_use,
            inputs: 0,
        }
    }

    /// The input is a list of messages: a byte of choices, two of length, and the message.
    fn run(&mut self, mut input: &[u8]) {
        self.inputs += 1;
        let (stated, mut sent) = (Stated::default(), 0);
        let mut callbacks: Vec<Callback> = Vec::new();
        let client = self.nfs.world.connect_with(Stated {
            inline: [None, Some(1024), Some(4096), Some(65_536)][input.len() % 4],
            invalidation: input.len().is_multiple_of(3),
            receives: 16,
            ..stated
        });
        let content: Vec<u8> = input.iter().copied().cycle().take(MEMORY).collect();
        let source = self.nfs.world.source(client, &content);
        let sink = self.nfs.world.sink(client, MEMORY);
        while let [choices, high, low, rest @ ..] = input {
            let length = usize::from(u16::from_be_bytes([*high, *low])) % 4096;
            let (message, later) = rest.split_at(length.min(rest.len()));
            input = later;
            let mut message = message.to_vec();
            if choices & 1 != 0 {
                self.name_file(&mut message, *choices);
            }
            if choices & 2 != 0 {
                point(&mut message, &source, &sink);
            }
            if !self.classic && choices & 32 != 0 {
                nominate(&mut message, &sink);
            }
            if !self.classic && choices & 64 != 0 {
                callbacks.extend(self.call_back());
            }
            if !self.classic && choices & 128 != 0 {
                self.answer(client, &mut message);
            }
            message.truncate(4096);
            self.nfs.world.post(client, &message);
            sent += 1;
            poll(&mut callbacks);
            if choices & 4 != 0 {
                self.nfs.world.settle();
            } else if choices & 8 != 0 {
                self.nfs.world.turn();
            }
            if self.classic {
                sent += self.follow(client, *choices);
            }
        }
        self.nfs.world.settle();
        poll(&mut callbacks);
        self.nfs.world.settle();
        let received = &self.nfs.world.clients[client].received;
        let calls =
            |message: &&Vec<u8>| Header::parse(message, &Rules::default()).is_ok_and(is_call);
        let called = received.iter().filter(calls).count();
        assert!(received.len() - called <= sent);
        self.nfs.world.abort(client);
        self.nfs.world.settle();
        // The connection is gone, so all calls by it are over.
        poll(&mut callbacks);
        assert!(callbacks.is_empty(), "a call waits for nobody");
        self.nfs.world.clients.truncate(1);
        self.nfs.world.trace();
        assert!(self.nfs.world.is_open(0), "another connection suffered");
        assert_eq!(self.nfs.world.calls(), 0);
        assert_eq!(self.nfs.world.shared.completions.pending(), 0);
        assert_eq!(self.nfs.world.in_use(), self.in_use, "buffers are left");
        let exposed = self.nfs.world.shared.exposed.budget().now();
        assert_eq!(exposed, (0, 0, 0), "memory is exposed to nobody");
    }

    /// Fetches what the latest answer exposes, sends RDMA_DONE for it, lets time pass. Returns how
    /// many messages were sent.
    fn follow(&mut self, client: usize, choices: u8) -> usize {
        let world = &mut self.nfs.world;
        let latest = world.clients[client].received.last().cloned();
        let header = latest
            .as_ref()
            .map(|message| Header::parse(message, &Rules::default()));
        let mut sent = 0;
        if let Some(Ok(header)) = header {
            if choices & 32 != 0 {
                let reads = header.lists().reads;
                // What fails ends that connection: it was revoked, or the window has passed.
                let _ = world.fetch(client, reads.iter().map(|entry| entry.segment));
            }
            if choices & 64 != 0 {
                world.post(client, &done(header.words.xid));
                sent = 1;
            }
        }
        if choices & 128 != 0 {
            world.pass(WHILE);
        }
        sent
    }

    /// Has the responder call the client, if that is still there.
    fn call_back(&self) -> Option<Callback> {
        let connection = self.nfs.world.connections().into_iter().nth(1)?;
        let connection = connection.identity().clone();
        let deadline = self.nfs.world.now + Duration::from_secs(1);
        connection.allow_reverse();
        Some(Box::pin(async move {
            let call = ReverseCall {
                message: &rpc(0, PROGRAM, &[7; ARGUMENTS]),
                protection: None,
                repeats: None,
                deadline,
            };
            // Whatever comes of it, it ends.
            let _ = connection.call_client(call).await;
        }))
    }

    /// Gives a message the XID of what the client received last.
    fn answer(&self, client: usize, message: &mut [u8]) {
        let Some(last) = self.nfs.world.clients[client].received.last() else {
            return;
        };
        let xid = last[..4].to_vec();
        let at = match Header::parse(message, &Rules::default()).map(|header| header.body) {
            Ok(Body::Message { message: body, .. }) => message.len() - body.len(),
            _ => 0,
        };
        for at in [0, at] {
            if let Some(place) = message.get_mut(at..at + 4) {
                place.copy_from_slice(&xid);
            }
        }
    }

    /// Makes what follows a header a call of NFS whose first argument is a handle that is known.
    fn name_file(&self, message: &mut Vec<u8>, choices: u8) {
        let Ok(header) = Header::parse(message, &Rules::default()) else {
            return;
        };
        let Body::Message { message: body, .. } = header.body else {
            return;
        };
        let at = message.len() - body.len();
        let (procedure, arguments) = match body {
            [procedure, arguments @ ..] => (u32::from(*procedure % 22), arguments),
            [] => return,
        };
        let handle = if choices & 16 == 0 {
            self.file
        } else {
            self.nfs.root
        };
        let handle = handle.as_bytes();
        let length = (handle.len() as u32).to_be_bytes();
        let arguments = [&length[..], handle, arguments].concat();
        let call = rpc(word(message, 0), (100_003, 3, procedure), &arguments);
        message.truncate(at);
        message.extend(call);
    }
}

/// Goes on with calls of the responder's own as far as they get.
fn poll(callbacks: &mut Vec<Callback>) {
    let mut context = Context::from_waker(Waker::noop());
    callbacks.retain_mut(|callback| callback.as_mut().poll(&mut context).is_pending());
}

/// Whether a message is a call.
fn is_call(header: Header<'_>) -> bool {
    header.direction() == Some(MessageType::Call)
}

/// Makes the key that a call of version two nominates one that is there.
fn nominate(message: &mut [u8], memory: &Memory) {
    let header = Header::parse(message, &Rules::default());
    if !header.is_ok_and(|header| header.version == Version::Two) {
        return;
    }
    // Only messages with calls or replies nominate a key; others may end before it.
    if let Some(key) = message.get_mut(20..24) {
        key.copy_from_slice(&memory.exposure.key.0.to_be_bytes());
    }
}

/// Makes the segments of a sound header ones of memory that is there: read chunks of the source,
/// the others of the sink.
fn point(message: &mut [u8], source: &Memory, sink: &Memory) {
    let Ok(header) = Header::parse(message, &Rules::default()) else {
        return;
    };
    let lists = header.lists();
    let reads: Vec<Segment> = lists.reads.iter().map(|entry| entry.segment).collect();
    let writes = lists.writes.iter().flat_map(|chunk| chunk.iter());
    let reply = lists.reply.into_iter().flat_map(|chunk| chunk.iter());
    let writes: Vec<Segment> = writes.chain(reply).collect();
    for (segments, memory) in [(reads, source), (writes, sink)] {
        for segment in segments {
            let old = bytes(&segment);
            let offset = segment.offset % MEMORY as u64;
            let length = segment.length % (MEMORY as u64 - offset + 1) as u32;
            let new = bytes(&memory.segment(offset, length));
            if let Some(at) = message.windows(16).position(|window| window == old) {
                message[at..at + 16].copy_from_slice(&new);
            }
        }
    }
}

fn bytes(segment: &Segment) -> Vec<u8> {
    support::message::encoded(segment)
}
