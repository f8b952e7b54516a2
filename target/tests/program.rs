//! A program that registers itself in the table: served over both transports, with items in chunks,
//! and repeated without a second execution. Nothing outside of this file knows it.

mod support;

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Instant;

use millrace::call::{Bulk, Reply};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::rpc::CallSubject;
use millrace::rpc::dispatch::Dispatcher;
use millrace::rpc::program::{
    EligibleArguments, ProcedureInfo, Program, ProgramAnswer, ProgramCall, ProgramInfo, Unserved,
};
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::{self, Data, Decode, Decoder, Encode, Encoder};
use support::message::{accepted, encoded, inline, lengths, parse, plain, reads, rpc, word, words};
use support::raw::{Options, World, gather};
use support::results;

const NUMBER: u32 = 0x2000_0042;
const SHELVE: u32 = 1;
const LIST: u32 = 2;

static INFO: ProgramInfo = ProgramInfo {
    number: NUMBER,
    name: "shelf",
    versions: 1..=1,
    procedures: &[
        ProcedureInfo::plain("null").free(),
        ProcedureInfo {
            arguments: Some(EligibleArguments {
                most: 2,
                to_last: None,
            }),
            ..ProcedureInfo::plain("shelve").once()
        },
        ProcedureInfo::plain("list").with_results(2),
    ],
    counted: true,
};

/// Keeps two items. SHELVE puts them there and tells how often it was executed, LIST returns them.
#[derive(Clone, Default)]
struct Shelf {
    items: Rc<RefCell<[Vec<u8>; 2]>>,
    executed: Rc<Cell<u32>>,
}

impl Program for Shelf {
    const INFO: &'static ProgramInfo = &INFO;

    async fn serve<B: Bulk>(
        &self,
        call: &mut ProgramCall<'_, B>,
        reply: &mut Reply,
    ) -> Result<ProgramAnswer, Unserved> {
        match call.number {
            SHELVE => {
                let items: Items<'_> = call.arguments()?;
                call.admit(CallSubject::default()).await?;
                for (at, item) in items.0.into_iter().enumerate() {
                    let bytes = match item.data {
                        Data::Inline(bytes) => bytes.to_vec(),
                        Data::Apart(position) => {
                            let buffer = reply.pool().acquire(Class::Medium).await;
                            let sinks = [buffer.into_slice(0..item.length as usize)];
                            call.pull(position, &sinks).await?;
                            gather(&sinks)
                        }
                    };
                    self.items.borrow_mut()[at] = bytes;
                }
                self.executed.set(self.executed.get() + 1);
                Ok(call.answer(reply, &self.executed.get(), true))
            }
            LIST => {
                call.admit(CallSubject::default()).await?;
                let items = self.items.borrow().clone();
                let items = items.map(|item| {
                    let mut buffer = reply.pool().try_acquire(Class::Medium).unwrap();
                    buffer[..item.len()].copy_from_slice(&item);
                    reply.add_slice(buffer.into_slice(0..item.len()));
                    xdr::Bulk::apart(item.len() as u32)
                });
                Ok(call.answer(reply, &Items(items), true))
            }
            _ => Ok(call.answer(reply, &(), true)),
        }
    }
}

/// Two items, each of which may travel in a chunk.
struct Items<'a>([xdr::Bulk<'a>; 2]);

impl<'a> Decode<'a> for Items<'a> {
    fn decode(input: &mut Decoder<'a>) -> xdr::Result<Self> {
        Ok(Self([input.bulk(4096)?, input.bulk(4096)?]))
    }
}

impl Encode for Items<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> xdr::Result<()> {
        self.0.iter().try_for_each(|item| out.bulk(item))
    }
}

fn items(texts: [&[u8]; 2]) -> Vec<u8> {
    encoded(&Items(texts.map(xdr::Bulk::inline)))
}

fn programs(shelf: &Shelf) -> Dispatcher<(Shelf, ())> {
    let replay = ReplayCache::new(ReplayLimits::default());
    Dispatcher::over((shelf.clone(), ()), replay)
}

const FIRST: &[u8] = b"the first of two";
const SECOND: &[u8] = b"second";

/// SHELVE with both items in read chunks, which lie in `source` one behind the other.
fn shelve(xid: u32, source: &support::raw::Memory) -> Vec<u8> {
    let lengths = [FIRST, SECOND].map(|item| item.len() as u32);
    let rpc = rpc(xid, (NUMBER, 1, SHELVE), &words(&lengths));
    let first = rpc.len() - 4;
    let second = first + FIRST.len() + 4;
    let mut entries = reads(first, &[source.segment(0, lengths[0])]);
    entries.extend(reads(
        second,
        &[source.segment(u64::from(lengths[0]), lengths[1])],
    ));
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    inline(&chunks, &rpc)
}

#[test]
fn items_travel_in_chunks_and_calls_are_repeated_from_the_cache_over_rdma() {
    let shelf = Shelf::default();
    let mut world = World::new(programs(&shelf), Options::default());
    world.connect();
    let source = world.source(0, &[FIRST, SECOND].concat());
    for _ in 0..2 {
        let reply = parse(&world.exchange(0, &shelve(1, &source)));
        assert_eq!(results(&reply.message), words(&[1]));
    }
    assert_eq!(shelf.executed.get(), 1, "the second was a repetition");
    assert_eq!(*shelf.items.borrow(), [FIRST, SECOND]);

    // A chunk for each result, for none, and for the second only.
    let list = rpc(2, (NUMBER, 1, LIST), &[]);
    for chunks in [[true, true], [false, false], [false, true], [true, false]] {
        let sinks = [world.sink(0, 64), world.sink(0, 64)];
        let of = |at: usize| {
            if chunks[at] {
                vec![sinks[at].whole()]
            } else {
                vec![]
            }
        };
        let writes = [of(0), of(1)];
        let writes = [&writes[0][..], &writes[1][..]];
        let offered = CallChunks {
            writes: &writes,
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &inline(&offered, &list)));
        let mut message = Vec::new();
        for (at, item) in [FIRST, SECOND].into_iter().enumerate() {
            if chunks[at] {
                message.extend(words(&[item.len() as u32]));
                assert_eq!(lengths(&reply.writes[at]), [item.len() as u32]);
                assert_eq!(sinks[at].bytes()[..item.len()], *item);
            } else {
                message.extend(encoded(&item));
                assert!(reply.writes[at].is_empty());
                assert_eq!(sinks[at].bytes(), [0xee; 64]);
            }
        }
        assert_eq!(results(&reply.message), message, "{chunks:?}");
    }
    // More chunks than the table allows are put back into the message.
    let text = items([b"abcd", b"efgh"]);
    let head = rpc(3, (NUMBER, 1, SHELVE), &[]);
    let source = world.source(0, &text);
    let at = head.len();
    let entries: Vec<_> = (0..4)
        .flat_map(|word| reads(at + 4 * word, &[source.segment(4 * word as u64, 4)]))
        .collect();
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    let reply = parse(&world.exchange(0, &inline(&chunks, &head)));
    assert_eq!(results(&reply.message), words(&[2]));
    assert_eq!(*shelf.items.borrow(), [b"abcd", b"efgh"]);
    world.check_clean();
}

#[test]
fn versions_and_procedures_outside_of_the_table_are_refused() {
    let mut world = World::new(programs(&Shelf::default()), Options::default());
    world.connect();
    for (called, status) in [
        ((NUMBER, 1, 0), 0),
        ((NUMBER + 1, 1, 0), 1),
        ((NUMBER, 2, 0), 2),
        ((NUMBER, 1, 3), 3),
        ((NUMBER, 1, SHELVE), 4),
    ] {
        let reply = parse(&world.exchange(0, &plain(&rpc(1, called, &[]))));
        assert_eq!(accepted(&reply.message), status, "{called:?}");
    }
}

#[test]
fn items_stand_in_the_record_and_calls_are_repeated_from_the_cache_over_tcp() {
    let shelf = Shelf::default();
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
    let service = programs(&shelf);
    let flow = support::flow(&pool);
    let mut server = TcpServer::new(TcpConfig::default(), &pool, service, &flow, None).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut exchange = |message: &[u8]| {
        let mark = 0x8000_0000 | message.len() as u32;
        stream
            .write_all(&[&mark.to_be_bytes(), message].concat())
            .unwrap();
        let mut received = Vec::new();
        let mut part = [0; 4096];
        loop {
            server.poll(Instant::now());
            if let Ok(length) = stream.read(&mut part) {
                assert_ne!(length, 0, "the connection ended");
                received.extend(&part[..length]);
            }
            if received.len() > 4 && received.len() == 4 + (word(&received, 0) as usize & 0xffff) {
                return received.split_off(4);
            }
            std::thread::yield_now();
        }
    };
    let shelve = rpc(1, (NUMBER, 1, SHELVE), &items([FIRST, SECOND]));
    for _ in 0..2 {
        assert_eq!(results(&exchange(&shelve)), words(&[1]));
    }
    assert_eq!(*shelf.items.borrow(), [FIRST, SECOND]);
    let list = exchange(&rpc(2, (NUMBER, 1, LIST), &[]));
    assert_eq!(results(&list), items([FIRST, SECOND]));
}
