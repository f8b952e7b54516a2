use std::collections::VecDeque;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use proptest::prelude::*;

use super::*;
use crate::fabric::{Key, RemoteAddress};

const MASK: u64 = (1 << 30) - 1;
const REMOTE: RemoteAddress = RemoteAddress {
    key: Key(7),
    offset: 1000,
};
const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};
const LIMITS: SendLimits = SendLimits {
    depth: 64,
    room: 16,
    ranges: 4,
    read_ranges: 1,
    signals_sends: false,
};

fn pool() -> Pool {
    let registry = Registry::new(HugepagePolicy::Off);
    Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).expect("ordinary pages")
}

fn local(pool: &Pool, lengths: &[usize]) -> Slices {
    let buffer = pool.try_acquire(Class::Control).expect("free");
    let whole = buffer.into_slice(0..4096);
    let slice = |&length: &usize| whole.slice(0..length);
    lengths.iter().map(slice).collect()
}

fn request(token: u64, operation: Operation, local: Slices, signalled: bool) -> WorkRequest {
    WorkRequest {
        token,
        operation,
        local,
        signalled,
    }
}

fn opened(limits: SendLimits) -> SendQueue {
    let mut queue = SendQueue::new(limits);
    queue.open(16);
    queue
}

/// A passed request: number, bytes before it, its lengths, and whether it is signalled.
type Seen = (u64, u64, Vec<usize>, bool);

fn hand_over(queue: &mut SendQueue) -> (Vec<Seen>, Hold) {
    let mut all = Vec::new();
    let (count, hold) = queue.hand_over(usize::MAX, |handed| {
        let lengths = handed.local.iter().map(Slice::len).collect();
        all.push((handed.number, handed.skipped, lengths, handed.signalled));
        true
    });
    assert_eq!(count, all.len());
    (all, hold)
}

fn popped(queue: &mut SendQueue) -> Vec<(u64, Result<(), WorkError>)> {
    std::iter::from_fn(|| queue.pop())
        .map(|done| match done.work {
            Work::Request { token, .. } => (token, done.result),
            Work::Bind(number) => (1000 + u64::from(number), done.result),
            Work::Invalidate(key) => (2000 + u64::from(key), done.result),
        })
        .collect()
}

#[test]
fn nothing_leaves_before_the_connection_stands() {
    let pool = pool();
    let mut queue = SendQueue::new(LIMITS);
    queue.post(request(1, SEND, local(&pool, &[5]), false));
    assert_eq!(hand_over(&mut queue), (vec![], Hold::Nothing));
    queue.open(1);
    assert_eq!(hand_over(&mut queue).0, [(0, 0, vec![5], true)]);
}

#[test]
fn a_read_into_many_ranges_becomes_several() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    let sinks = local(&pool, &[10, 0, 20, 30]);
    queue.post(request(1, Operation::Read(REMOTE), sinks, true));
    queue.post(request(
        2,
        Operation::Write(REMOTE),
        local(&pool, &[1, 2]),
        false,
    ));
    let (handed, _) = hand_over(&mut queue);
    assert_eq!(
        handed,
        [
            (0, 0, vec![10, 0], false),
            (1, 10, vec![20], false),
            (2, 30, vec![30], true),
            (3, 0, vec![1, 2], true),
        ]
    );
    // The Write is complete, the Read is not.
    assert!(queue.complete(3, MASK, Ok(())));
    assert!(popped(&mut queue).is_empty());
    assert!(queue.complete(2, MASK, Ok(())));
    assert_eq!(popped(&mut queue), [(1, Ok(())), (2, Ok(()))]);
    assert_eq!((queue.outstanding(), queue.room()), (0, 64));
}

#[test]
fn a_read_of_nothing_and_a_message_of_nothing_are_requests_too() {
    let mut queue = opened(LIMITS);
    queue.post(request(1, Operation::Read(REMOTE), Slices::new(), true));
    queue.post(request(2, SEND, Slices::new(), true));
    let (handed, _) = hand_over(&mut queue);
    assert_eq!(handed, [(0, 0, vec![], true), (1, 0, vec![], true)]);
}

#[test]
fn few_are_signalled_but_always_the_last_and_every_quarter_of_the_queue() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    for token in 0..7 {
        queue.post(request(token, SEND, local(&pool, &[1]), token == 1));
    }
    let (handed, _) = hand_over(&mut queue);
    let signalled: Vec<_> = handed.iter().filter(|h| h.3).map(|h| h.0).collect();
    assert_eq!(signalled, [1, 5, 6]);
}

#[test]
fn all_that_sends_is_signalled_where_the_device_asks_for_it() {
    let pool = pool();
    let mut queue = opened(SendLimits {
        signals_sends: true,
        ..LIMITS
    });
    for operation in [Operation::Write(REMOTE), SEND, Operation::Read(REMOTE)] {
        for token in 0..2 {
            let local = local(&pool, &[1]);
            queue.post(request(token, operation, local, false));
        }
    }
    let (handed, _) = hand_over(&mut queue);
    let signalled: Vec<_> = handed.iter().map(|h| h.3).collect();
    assert_eq!(signalled, [true, true, true, true, false, true]);
}

#[test]
fn a_full_device_holds_the_rest_until_it_has_room() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    for token in 0..20 {
        queue.post(request(token, SEND, local(&pool, &[1]), false));
    }
    let (handed, hold) = hand_over(&mut queue);
    assert_eq!((handed.len(), hold), (16, Hold::Room));
    queue.complete(3, MASK, Ok(()));
    let (handed, hold) = hand_over(&mut queue);
    assert_eq!((handed.len(), hold), (4, Hold::Nothing));
    assert_eq!(popped(&mut queue).len(), 4);
}

#[test]
fn rr1_ccp_08_reads_wait_for_the_number_the_peer_gave() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    queue.limit_reads(2);
    for token in 0..3 {
        let sink = local(&pool, &[1]);
        queue.post(request(token, Operation::Read(REMOTE), sink, false));
    }
    queue.post(request(3, SEND, local(&pool, &[1]), true));
    let (handed, hold) = hand_over(&mut queue);
    assert_eq!((handed.len(), hold), (2, Hold::Reads));
    assert!(handed.iter().all(|h| h.3), "each gives its place back");
    queue.complete(0, MASK, Ok(()));
    let (handed, hold) = hand_over(&mut queue);
    assert_eq!((handed.len(), hold), (2, Hold::Nothing));
    queue.complete(3, MASK, Ok(()));
    assert_eq!(popped(&mut queue), [(0, Ok(()))]);
    queue.complete(2, MASK, Ok(()));
    assert_eq!(popped(&mut queue), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
}

#[test]
fn mpa_ird_15_reads_fail_in_their_turn_where_none_are_allowed() {
    let pool = pool();
    let mut queue = SendQueue::new(LIMITS);
    queue.open(0);
    queue.post(request(1, SEND, local(&pool, &[1]), true));
    queue.post(request(
        2,
        Operation::Read(REMOTE),
        local(&pool, &[1]),
        false,
    ));
    queue.post(request(3, SEND, local(&pool, &[1]), false));
    let (handed, _) = hand_over(&mut queue);
    assert_eq!(handed.len(), 2);
    assert!(!queue.has_done());
    queue.complete(0, MASK, Ok(()));
    assert_eq!(
        popped(&mut queue),
        [(1, Ok(())), (2, Err(WorkError::NoReads))]
    );
    queue.complete(1, MASK, Ok(()));
    assert_eq!(popped(&mut queue), [(3, Ok(()))]);
}

#[test]
fn reads_that_wait_fail_when_none_are_allowed_any_more() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    queue.limit_reads(1);
    let sinks = local(&pool, &[1, 2]);
    queue.post(request(1, Operation::Read(REMOTE), sinks, true));
    assert_eq!(hand_over(&mut queue).1, Hold::Reads);
    queue.limit_reads(0);
    assert_eq!(hand_over(&mut queue).1, Hold::Nothing);
    assert!(!queue.has_done(), "the device writes its first part still");
    queue.complete(0, MASK, Ok(()));
    assert_eq!(popped(&mut queue), [(1, Err(WorkError::NoReads))]);
}

#[test]
fn the_first_failure_tells_why_and_the_rest_is_flushed() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    for token in 0..4 {
        queue.post(request(token, SEND, local(&pool, &[1]), false));
    }
    hand_over(&mut queue);
    queue.post(request(4, SEND, local(&pool, &[1]), false));
    queue.complete(1, MASK, Err(WorkError::RemoteAccess));
    assert_eq!(hand_over(&mut queue), (vec![], Hold::Nothing));
    assert_eq!(
        popped(&mut queue),
        [(0, Ok(())), (1, Err(WorkError::RemoteAccess))]
    );
    queue.complete(2, MASK, Err(WorkError::Flushed));
    assert_eq!(popped(&mut queue), [(2, Err(WorkError::Flushed))]);
    assert_eq!(queue.outstanding(), 1);
    queue.end();
    assert_eq!(
        popped(&mut queue),
        [(3, Err(WorkError::Flushed)), (4, Err(WorkError::Flushed))]
    );
    assert!(queue.is_empty());
}

#[test]
fn what_the_device_refuses_is_flushed_when_it_gives_up() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    for token in 0..3 {
        queue.post(request(token, SEND, local(&pool, &[1]), true));
    }
    queue.hand_over(usize::MAX, |handed| handed.number < 1);
    assert_eq!(queue.outstanding(), 1);
    queue.complete(0, MASK, Ok(()));
    assert_eq!(popped(&mut queue), [(0, Ok(()))]);
    assert_eq!(queue.outstanding(), 0);
    queue.end();
    let flushed = Err(WorkError::Flushed);
    assert_eq!(popped(&mut queue), [(1, flushed), (2, flushed)]);
}

#[test]
fn a_send_in_more_pieces_than_the_device_takes_fails_alone() {
    let pool = pool();
    let mut queue = opened(SendLimits {
        ranges: 2,
        ..LIMITS
    });
    queue.post(request(1, SEND, local(&pool, &[1, 1, 1]), true));
    queue.post(request(2, SEND, local(&pool, &[1, 0, 1]), true));
    assert_eq!(hand_over(&mut queue).0.len(), 1);
    queue.complete(0, MASK, Ok(()));
    assert_eq!(
        popped(&mut queue),
        [(1, Err(WorkError::LocalLength)), (2, Ok(()))]
    );
}

#[test]
fn keys_are_bound_and_ended_in_the_order_of_the_queue() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    queue.post_own(Work::Bind(3));
    queue.post(request(1, SEND, local(&pool, &[1]), false));
    queue.post_own(Work::Invalidate(9));
    assert_eq!(queue.room(), 63);
    assert_eq!(hand_over(&mut queue).0.len(), 3);
    queue.complete(2, MASK, Ok(()));
    assert_eq!(
        popped(&mut queue),
        [(1003, Ok(())), (1, Ok(())), (2009, Ok(()))]
    );
}

#[test]
fn stale_completions_are_ignored() {
    let pool = pool();
    let mut queue = opened(LIMITS);
    assert!(!queue.complete(0, MASK, Ok(())));
    queue.post(request(1, SEND, local(&pool, &[1]), true));
    hand_over(&mut queue);
    assert!(!queue.complete(1, MASK, Ok(())));
    assert!(!queue.complete(MASK, MASK, Err(WorkError::Flushed)));
    assert!(queue.complete(0, MASK, Ok(())));
    assert!(!queue.complete(0, MASK, Ok(())));
}

/// One device request held by the simulated device.
#[derive(Debug)]
struct DeviceRequest {
    number: u64,
    token: u64,
    is_read: bool,
    signalled: bool,
}

/// A device that executes requests in order, but may complete Reads late, and reports in order of
/// completion.
#[derive(Default)]
struct Device {
    held: VecDeque<DeviceRequest>,
    /// Tokens of work in progress.
    at_work: Vec<u64>,
}

impl Device {
    /// Completes one request; returns the completion, if there is one.
    fn finish(&mut self, late: bool) -> Option<u64> {
        // A late Read is overtaken by requests other than Reads.
        let position = if late {
            self.held.iter().position(|held| !held.is_read)?
        } else {
            0
        };
        let held = self.held.remove(position)?;
        let at = self.at_work.iter().position(|&token| token == held.token);
        self.at_work.swap_remove(at.expect("it was at work"));
        held.signalled.then_some(held.number)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Post {
        kind: u8,
        pieces: usize,
        signalled: bool,
    },
    HandOver(usize),
    Finish {
        late: bool,
    },
    Limit(u16),
    Fail,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u8..3, 0_usize..5, any::<bool>())
            .prop_map(|(kind, pieces, signalled)| Act::Post { kind, pieces, signalled }),
        4 => (1_usize..20).prop_map(Act::HandOver),
        8 => any::<bool>().prop_map(|late| Act::Finish { late }),
        1 => (1_u16..20).prop_map(Act::Limit),
        1 => Just(Act::Fail),
    ]
}

fn token_of(handed: &Handed<'_>) -> u64 {
    match handed.work {
        Work::Request { token, .. } => *token,
        other => panic!("{other:?} was never posted"),
    }
}

fn is_read(work: &Work) -> bool {
    matches!(
        work,
        Work::Request {
            operation: Operation::Read(_),
            ..
        }
    )
}

proptest! {
    /// For any posted work and order of completions: work is returned in order and once, not before
    /// the device has released its memory, and in the end all of it.
    #[test]
    fn work_is_given_back_in_order_and_never_early(
        acts in prop::collection::vec(act(), 1..200),
        room in 1_u32..12,
        ranges in 1_usize..4,
        fails in any::<bool>(),
        signals_sends in any::<bool>(),
    ) {
        let memory = pool();
        let slices = local(&memory, &[3, 5, 7, 9]);
        let mut queue = opened(SendLimits {
            depth: 24,
            room,
            ranges: 4,
            read_ranges: ranges,
            signals_sends,
        });
        let mut device = Device::default();
        let (mut posted, mut given_back) = (0, 0);
        let mut limit = u16::MAX;
        let mut broken = false;
        let finale = std::iter::repeat_n([Act::HandOver(99), Act::Finish { late: false }], 400);
        for act in acts.into_iter().chain(finale.flatten()) {
            match act {
                Act::Post { kind, pieces, signalled } if queue.room() > 0 => {
                    let operation = match kind {
                        0 => SEND,
                        1 => Operation::Write(REMOTE),
                        _ => Operation::Read(REMOTE),
                    };
                    let local = slices.iter().take(pieces).cloned().collect();
                    queue.post(request(posted, operation, local, signalled));
                    posted += 1;
                }
                Act::HandOver(most) => {
                    let (count, _) = queue.hand_over(most, |handed| {
                        let token = token_of(&handed);
                        device.at_work.push(token);
                        device.held.push_back(DeviceRequest {
                            number: handed.number,
                            token,
                            is_read: is_read(handed.work),
                            signalled: handed.signalled,
                        });
                        true
                    });
                    prop_assert!(count <= most);
                    let last = device.held.back();
                    prop_assert!(count == 0 || last.is_some_and(|held| held.signalled));
                    prop_assert!(device.held.len() <= room as usize);
                    let reads = device.held.iter().filter(|held| held.is_read).count();
                    prop_assert!(count == 0 || limit >= 16 || reads <= 16);
                }
                Act::Finish { late } => {
                    if let Some(number) = device.finish(late) {
                        let result = if broken { Err(WorkError::Flushed) } else { Ok(()) };
                        prop_assert!(queue.complete(number & MASK, MASK, result));
                    }
                }
                Act::Limit(reads) => {
                    limit = reads;
                    queue.limit_reads(reads);
                }
                Act::Fail if fails && !broken => {
                    // From here on all requests of the device fail and are reported.
                    broken = true;
                    device.held.iter_mut().for_each(|held| held.signalled = true);
                }
                Act::Post { .. } | Act::Fail => {}
            }
            while let Some(done) = queue.pop() {
                let Work::Request { token, .. } = done.work else {
                    panic!("{:?} was never posted", done.work);
                };
                prop_assert_eq!(token, given_back);
                given_back += 1;
                prop_assert!(!device.at_work.contains(&token), "the device has its memory");
                prop_assert!(broken || done.result == Ok(()));
            }
        }
        prop_assert!(device.held.is_empty());
        if !broken {
            prop_assert_eq!(given_back, posted);
        }
        queue.end();
        while queue.pop().is_some() {
            given_back += 1;
        }
        prop_assert_eq!(given_back, posted);
        prop_assert_eq!(queue.room(), 24);
    }

    /// The parts of a Read or Write cover its bytes once and in order.
    #[test]
    fn parts_cover_all_bytes(
        lengths in prop::collection::vec(0_usize..9, 0..5),
        ranges in 1_usize..4,
        reads in any::<bool>(),
    ) {
        let memory = pool();
        let mut queue = opened(SendLimits { depth: 1, ranges, read_ranges: ranges, ..LIMITS });
        let operation = if reads { Operation::Read(REMOTE) } else { Operation::Write(REMOTE) };
        queue.post(request(1, operation, local(&memory, &lengths), true));
        let (handed, _) = hand_over(&mut queue);
        let mut bytes = 0;
        let mut covered = Vec::new();
        for (_, skipped, pieces, _) in &handed {
            prop_assert_eq!(*skipped, bytes);
            prop_assert!(pieces.iter().filter(|&&length| length > 0).count() <= ranges);
            bytes += pieces.iter().map(|&length| length as u64).sum::<u64>();
            covered.extend(pieces.iter().copied());
        }
        prop_assert_eq!(covered, lengths);
        prop_assert!(!handed.is_empty());
    }
}
