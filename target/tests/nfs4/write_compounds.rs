//! COMPOUNDs that write are executed at once if their data is at hand and no limit is set. The engine
//! answers them alike.

use std::time::Instant;

use millrace::call::BulkArgument;
use millrace::exports::{ExportId, Rules};
use millrace::flow::rate::Rates;
use millrace::nfs4::SessionBounds;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Bitmap, Operation, OperationResults,
    OperationStatus as Status, StateId,
};
use millrace_wire::xdr::Bulk;

use crate::data::{bytes, write_at};
use crate::support::nfs4::{Bench4, Results4, put};
use crate::support::{Chunks, rules};

const GETATTR: Operation<'static> = Operation::Getattr(Bitmap::of(&[Number::Size, Number::Type]));

/// Exports of which the second may not be written to, with a limit on none of them, or without one.
fn bench(has_limits: bool) -> Bench4 {
    let read_only = Rules {
        read_only: true,
        ..rules("/reading")
    };
    let bench = Bench4::with([rules("/export"), read_only]);
    let _ = bench.programs.clone().with_flow(&bench.flow);
    if has_limits {
        let rates = Rates {
            iops: Some(1),
            bandwidth: None,
        };
        let limits = [(ExportId::of("/elsewhere"), rates)];
        bench.flow.clients().set_limits(&[], limits, Instant::now());
    }
    assert_eq!(bench.flow.has_limits(), has_limits);
    bench
}

/// A COMPOUND that writes, of which the data is in a chunk or inline.
struct Write {
    handle: Vec<u8>,
    state: StateId,
    offset: u64,
    data: Vec<u8>,
    is_inline: bool,
    looks: bool,
}

impl Write {
    /// Executes it, and the same request once more. Returns the answers.
    fn send(&self, bench: &Bench4, is_broken: bool) -> [Results4; 2] {
        let length = self.data.len() as u32;
        let data = match self.is_inline {
            true => Bulk::inline(&self.data),
            false => Bulk::apart(length),
        };
        let mut operations = vec![
            bench.next_sequence(),
            put(&self.handle),
            write_at(self.state, self.offset, data),
        ];
        operations.extend(self.looks.then_some(GETATTR));
        let message = bench.compound_message(&operations);
        let attributes = if self.looks { 4 + 4 + 4 } else { 0 };
        let position = message.len() as u32 - attributes;
        let argument = BulkArgument { position, length };
        let bulk = &[argument][..usize::from(!self.is_inline)];
        let mut chunks = Chunks {
            chunks: vec![&self.data],
            broken: is_broken,
            comes_first: !is_broken,
            ..Chunks::default()
        };
        [(); 2].map(|()| {
            if is_broken && chunks.pulls == 0 {
                bench.send(&message, bulk, &mut chunks);
            }
            bench.results_with(&message, bulk, &mut chunks)
        })
    }
}

/// The writes that both ways have to answer.
fn writes(bench: &Bench4) -> Vec<Write> {
    let file = bench.try_walk("/export/file");
    let file = file.unwrap_or_else(|_| bench.file(b"file", 0o644));
    let (root, top) = (bench.walk("/export"), bench.walk("/"));
    let others = [root, top, bench.walk("/reading"), b"no handle".to_vec()];
    let unknown = StateId {
        sequence: 1,
        other: [9; 12],
    };
    let write = |handle: &[u8], state, offset, length| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(is_inline, looks)| {
            let (handle, data) = (handle.to_vec(), bytes(length));
            Write {
                handle,
                state,
                offset,
                data,
                is_inline,
                looks,
            }
        })
    };
    let on_file = [
        (0, 4096),
        (5000, 700),
        (9, 0),
        (u64::MAX, 4),
        (i64::MAX as u64, 4),
    ];
    let on_file = on_file.map(|(offset, length)| write(&file, StateId::ANONYMOUS, offset, length));
    let on_others = others.map(|other| write(&other, StateId::ANONYMOUS, 0, 8));
    let all = on_file.into_iter().chain(on_others);
    all.chain([write(&file, unknown, 0, 8)]).flatten().collect()
}

/// What there is to see of a bench.
fn seen(bench: &Bench4) -> impl PartialEq + std::fmt::Debug {
    let state = &bench.state;
    let operations: Vec<_> = bench.counters.operations.operations().collect();
    let failures: Vec<_> = bench.counters.operations.statuses().collect();
    let requests = (state.finished.get(), state.changed.get());
    // What is left to the engine is checked once more.
    let mut checks = state.checks.borrow().clone();
    checks.dedup();
    (operations, failures, requests, checks)
}

/// An answer, without the verifier of its store.
fn told(answer: &Results4) -> String {
    let (header, mut all) = answer.read();
    for one in &mut all {
        if let OperationResults::Write(Ok(reply)) = one {
            reply.verifier = [0; 8];
        }
    }
    format!("{header:?} {all:?}")
}

/// Has both benches execute a write of each, and compares their answers. Returns the status.
fn compare(benches: [&Bench4; 2], writes: &[Write; 2], is_broken: bool) -> Status {
    let [own, engine] = [0, 1].map(|index| writes[index].send(benches[index], is_broken));
    assert_eq!(own.each_ref().map(told), engine.each_ref().map(told));
    assert_eq!(seen(benches[0]), seen(benches[1]));
    own[0].status()
}

/// The same for all writes.
fn compare_all(benches: [&Bench4; 2], is_broken: bool) -> Vec<Status> {
    let both = writes(benches[0]).into_iter().zip(writes(benches[1]));
    both.map(|(own, engine)| compare(benches, &[own, engine], is_broken))
        .collect()
}

#[test]
fn writes_are_answered_as_by_the_engine() {
    let statuses = compare_all([&bench(false), &bench(true)], false);
    for status in [
        Status::Ok,
        Status::IsDirectory,
        Status::ReadOnly,
        Status::BadHandle,
        Status::BadStateId,
        Status::Invalid,
        Status::FileTooBig,
    ] {
        assert!(statuses.contains(&status), "{status:?} of {statuses:?}");
    }
}

#[test]
fn replies_without_room_are_refused_as_by_the_engine() {
    let (own, engine) = (bench(false), bench(true));
    let mut statuses = Vec::new();
    // Without attributes, and with them.
    let kinds = [(0, false), (0, true), (1, false), (1, true)];
    for room in (0..400).step_by(4) {
        for (index, is_cached) in kinds {
            let both = [&own, &engine].map(|bench| {
                bench.cache_this.set(false);
                bench.state.bounds.set(Bench4::BOUNDS);
                let write = writes(bench).swap_remove(index);
                bench.cache_this.set(is_cached);
                bench.state.bounds.set(SessionBounds {
                    reply: room + if is_cached { 64 } else { 0 },
                    cached: is_cached.then_some(room),
                    ..Bench4::BOUNDS
                });
                write
            });
            statuses.push(compare([&own, &engine], &both, false));
        }
    }
    for status in [Status::Ok, Status::ReplyTooBig, Status::ReplyTooBigToCache] {
        assert!(statuses.contains(&status), "{status:?} of {statuses:?}");
    }
}

#[test]
fn a_write_whose_data_does_not_come_is_not_executed_again() {
    let benches = [bench(false), bench(true)];
    let [own, engine] = benches.each_ref();
    for bench in [own, engine] {
        bench.cache_this.set(true);
    }
    let statuses = compare_all([own, engine], true);
    assert!(statuses.contains(&Status::Delay), "{statuses:?}");
}

#[test]
fn attributes_after_a_write_are_those_that_the_file_has_then() {
    let bench = bench(false);
    let file = bench.file(b"file", 0o640);
    let supported = bench.getattr(&file, Bitmap::of(&[Number::SupportedAttributes]));
    let supported = match supported.attributes().get(Number::SupportedAttributes) {
        Ok(Some(Attribute::SupportedAttributes(supported))) => supported,
        other => panic!("{other:?}"),
    };
    // Those together that clients ask for, and each that can be read, alone.
    let together = [Number::Change, Number::Size, Number::TimeModify];
    let alone = (0..96).filter_map(Number::from_number);
    let alone = alone.map(|number| Bitmap::of(&[number]));
    let alone = alone.filter(|one| supported.intersection(one) == *one);
    let mut asked = 0;
    for (index, wanted) in [Bitmap::of(&together)].into_iter().chain(alone).enumerate() {
        let data = bytes(100 + index);
        let write = write_at(StateId::ANONYMOUS, 7 * index as u64, Bulk::inline(&data));
        let operations = [
            bench.next_sequence(),
            put(&file),
            write,
            Operation::Getattr(wanted),
        ];
        let after = bench.compound(&operations);
        if after.status() == Status::Invalid {
            // It can be set only.
            continue;
        }
        let now = bench.getattr(&file, wanted);
        assert_eq!(after.attributes(), now.attributes(), "{wanted:?}");
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
}
