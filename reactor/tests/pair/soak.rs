//! Two providers and random work: every byte arrives, every request is accounted for, and all
//! memory comes home.

use std::collections::{BTreeMap, VecDeque};

use millrace_mempool::Slice;
use millrace_reactor::fabric::{
    Access, Ended, Event, Exposure, Key, Operation, Provider, QueuePairId, QueuePairLimits,
    RemoteAddress, Revoked, WorkRequest,
};

use super::{LIMITS, Pair, SEND, Side, TURNS, local, pattern, read};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

const MEMORY: usize = 200_000;
const RECEIVES: usize = 24;
/// Requests that each end posts at least.
const LEAST: u64 = 300;

/// What one end knows of its own memory and of what it has posted.
struct End {
    here: QueuePairId,
    source: Slice,
    sink: Slice,
    exposures: [Exposure; 2],
    /// What the sink holds once the peer's Writes have come.
    expected: Vec<u8>,
    /// Messages on their way to this end.
    coming: VecDeque<Vec<u8>>,
    /// Posted and not completed; a Read with what it has to bring.
    open: BTreeMap<u64, Option<Vec<u8>>>,
    token: u64,
    receives: usize,
}

impl End {
    fn new<P: Provider>(side: &mut Side<P>, here: QueuePairId, seed: usize) -> Self {
        let source = side.pattern(MEMORY, seed);
        let sink = side.pattern(MEMORY, seed + 50);
        let exposures =
            [(&source, Access::RemoteRead), (&sink, Access::RemoteWrite)].map(|(slice, access)| {
                let memory = if side.provider.exposure_slices() > 1 {
                    local([slice.slice(0..MEMORY / 3), slice.slice(MEMORY / 3..MEMORY)])
                } else {
                    local([slice.clone()])
                };
                side.provider.expose(here, memory, access).expect("room")
            });
        Self {
            here,
            expected: read(&sink),
            source,
            sink,
            exposures,
            coming: VecDeque::new(),
            open: BTreeMap::new(),
            token: 0,
            receives: 32,
        }
    }

    fn length(random: &mut Random) -> usize {
        let most = [1, 200, 5_000, 90_000][random.below(4)];
        1 + random.below(most)
    }

    /// Posts one random request towards `peer`, if there is room everywhere.
    fn act<P: Provider>(&mut self, side: &mut Side<P>, peer: &mut Self, random: &mut Random) {
        if side.provider.send_room(self.here) == 0 || self.open.len() >= 20 {
            return;
        }
        self.token += 1;
        let seed = random.below(1 << 20);
        let (operation, slices, brings) = match random.below(4) {
            0 | 1 if peer.coming.len() + 8 < RECEIVES => {
                let message = pattern(random.below(4097), seed);
                let slices = if message.is_empty() {
                    local([])
                } else {
                    local([side.pattern(message.len(), seed)])
                };
                peer.coming.push_back(message);
                (SEND, slices, None)
            }
            2 => {
                let length = Self::length(random);
                let at = random.below(MEMORY - length);
                let bytes = pattern(length, seed);
                peer.expected[at..at + length].copy_from_slice(&bytes);
                let remote = at_exposure(&peer.exposures[1], at);
                (
                    Operation::Write(remote),
                    local([side.pattern(length, seed)]),
                    None,
                )
            }
            _ => {
                let length = Self::length(random);
                let mut at = random.below(MEMORY - length);
                let mut cut = random.below(length);
                if side.provider.name() == "verbs" {
                    (at, cut) = without_small_parts(at, cut, length);
                }
                let remote = at_exposure(&peer.exposures[0], at);
                let sink = side.pattern(length, seed);
                let slices = local([sink.slice(0..cut), sink.slice(cut..length)]);
                let brings = read(&peer.source.slice(at..at + length));
                (Operation::Read(remote), slices, Some(brings))
            }
        };
        self.open.insert(self.token, brings);
        let request = WorkRequest {
            token: self.token,
            operation,
            local: slices,
            signalled: true,
        };
        side.post(self.here, vec![request]);
    }

    /// Checks what was reported.
    fn collect<P: Provider>(&mut self, side: &mut Side<P>) -> usize {
        let events = std::mem::take(&mut side.events);
        let count = events.len();
        for event in events {
            match event {
                Event::Received { buffer, length, .. } => {
                    let expected = self.coming.pop_front().expect("a message was sent");
                    assert_eq!(buffer[..length as usize].len(), expected.len());
                    let found = &buffer[..length as usize];
                    let differences = differences(found, &expected);
                    assert!(found == expected, "a message: {differences}");
                    self.receives -= 1;
                }
                Event::Completed {
                    token,
                    result,
                    local,
                    ..
                } => {
                    assert_eq!(result, Ok(()));
                    let (oldest, brings) = self.open.pop_first().expect("it was posted");
                    assert_eq!(oldest, token, "completions come in order");
                    if let Some(brings) = brings {
                        let found: Vec<u8> = local.iter().flat_map(read).collect();
                        let cuts: Vec<usize> = local.iter().map(Slice::len).collect();
                        assert!(
                            found == brings,
                            "a Read into {cuts:?} brings what is there: {}",
                            differences(&found, &brings)
                        );
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        while self.receives < RECEIVES {
            side.post_receives(self.here, 1);
            self.receives += 1;
        }
        count
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.coming.is_empty()
    }
}

/// Moves and cuts a Read so that no part of at most 32 bytes crosses from one page to the next:
/// siw, as far as Linux 6.12 at least, copies such parts wrong when it answers (`siw_try_1seg`).
fn without_small_parts(at: usize, cut: usize, length: usize) -> (usize, usize) {
    const PAGE: usize = 4096;
    const SMALL: usize = 32;
    let cut = if cut <= SMALL || length - cut <= SMALL {
        0
    } else {
        cut
    };
    if length <= SMALL {
        (at / PAGE * PAGE, cut)
    } else {
        (at, cut)
    }
}

fn at_exposure(exposure: &Exposure, at: usize) -> RemoteAddress {
    RemoteAddress {
        key: exposure.key,
        offset: exposure.offset + at as u64,
    }
}

/// Limits for [`random_work_arrives_and_is_accounted_for`].
pub const SOAK_LIMITS: QueuePairLimits = QueuePairLimits { ord: 3, ..LIMITS };

/// On a connection with [`SOAK_LIMITS`]. A provider whose receives are shared keeps them beyond it.
pub fn random_work_arrives_and_is_accounted_for<P: Provider>(
    seed: u64,
    mut pair: Pair<P>,
    keeps_receives: bool,
) {
    let mut random = Random(seed);
    let mut ends = [
        End::new(&mut pair.client, pair.here, 1),
        End::new(&mut pair.server, pair.there, 2),
    ];
    // The client speaks first. Behind a message the keys of its sender are good.
    for number in 0..2 {
        let here = ends[number].here;
        let opener = vec![super::request(0, SEND, local([]))];
        if number == 0 {
            pair.client.post(here, opener);
        } else {
            pair.server.post(here, opener);
        }
        for wanted in [is_received, is_completed] {
            pair.until(|pair| {
                let found = pair.client.take(wanted);
                found.or_else(|| pair.server.take(wanted))
            });
        }
        ends[1 - number].receives -= 1;
    }

    // What is posted in a number of rounds depends on how fast the provider is. A device that
    // software pretends on an emulated machine is slow, so there the requests are counted.
    let (enough, acting, rounds) = match pair.client.provider.name() {
        "verbs" => (LEAST + 20, TURNS, TURNS),
        _ => (u64::MAX, 2_000, 3_000),
    };
    for round in 0..rounds {
        let [client, server] = &mut ends;
        if client.token.min(server.token) >= enough {
            break;
        }
        if round < acting {
            for _ in 0..random.below(4) {
                client.act(&mut pair.client, server, &mut random);
                server.act(&mut pair.server, client, &mut random);
            }
        }
        if random.below(3) > 0 {
            pair.client.turn();
        }
        if random.below(3) > 0 {
            pair.server.turn();
        }
        let came = client.collect(&mut pair.client) + server.collect(&mut pair.server);
        if came == 0 && enough < u64::MAX {
            std::thread::yield_now();
        }
    }
    pair.until(|pair| {
        ends[0].collect(&mut pair.client);
        ends[1].collect(&mut pair.server);
        ends.iter().all(End::is_idle).then_some(())
    });
    assert!(
        ends.iter().all(|end| end.token > LEAST),
        "too little was done"
    );
    let [client, server] = &mut ends;
    last_words(&mut pair, client, server);
    let invalidation = pair.client.provider.remote_invalidation();
    if invalidation.sends && invalidation.receives {
        invalidate(&mut pair, client, server);
    }
    compare_writes(&mut pair, client, server);
    tear_down(pair, ends, random.below(2) == 0, keeps_receives);
}

/// A message each way: what was written before it is placed when it is there.
fn last_words<P: Provider>(pair: &mut Pair<P>, client: &mut End, server: &mut End) {
    for (side, end) in [(&mut pair.client, &*client), (&mut pair.server, &*server)] {
        let request = super::request(u64::MAX, SEND, local([]));
        side.post(end.here, vec![request]);
    }
    for _ in 0..2 {
        for wanted in [is_received, is_completed] {
            pair.until(|pair| {
                let found = pair.client.take(wanted);
                found.or_else(|| pair.server.take(wanted))
            });
        }
    }
}

/// Where what was found differs from what was expected.
fn differences(found: &[u8], expected: &[u8]) -> String {
    let pairs = found.iter().zip(expected).enumerate();
    let wrong: Vec<usize> = pairs
        .filter_map(|(at, (found, expected))| (found != expected).then_some(at))
        .collect();
    let (count, all) = (wrong.len(), expected.len());
    let ends = (wrong.first(), wrong.last());
    format!("{count} of {all} bytes differ, between {ends:?}")
}

fn is_received(event: &Event) -> Option<()> {
    matches!(event, Event::Received { .. }).then_some(())
}

fn is_completed(event: &Event) -> Option<()> {
    matches!(event, Event::Completed { .. }).then_some(())
}

/// Each side's exposure for Reads is invalidated by the other's message.
fn invalidate<P: Provider>(pair: &mut Pair<P>, client: &mut End, server: &mut End) {
    let ends = [
        (client.here, server.exposures[0].key),
        (server.here, client.exposures[0].key),
    ];
    for (number, (here, key)) in ends.into_iter().enumerate() {
        let operation = Operation::Send {
            invalidate: Some(key),
            solicited: true,
        };
        let request = super::request(u64::MAX, operation, local([]));
        let (from, to) = if number == 0 {
            (&mut pair.client, &server)
        } else {
            (&mut pair.server, &client)
        };
        from.post(here, vec![request]);
        let there = to.here;
        let invalidated = pair.until(|pair| {
            let side = if number == 0 {
                &mut pair.server
            } else {
                &mut pair.client
            };
            side.take(|event| match event {
                Event::Received {
                    length: 0,
                    invalidated,
                    ..
                } => *invalidated,
                _ => None,
            })
        });
        assert_eq!(invalidated, key);
        let side = if number == 0 {
            &mut pair.server
        } else {
            &mut pair.client
        };
        assert!(matches!(side.provider.revoke(there, key), Revoked::Now(_)));
        assert!(matches!(side.provider.revoke(there, key), Revoked::Unknown));
        pair.until(|pair| {
            let side = if number == 0 {
                &mut pair.client
            } else {
                &mut pair.server
            };
            side.take(|event| matches!(event, Event::Completed { .. }).then_some(()))
        });
    }
}

/// Messages came behind the Writes, so all of them are placed.
fn compare_writes<P: Provider>(pair: &mut Pair<P>, client: &mut End, server: &mut End) {
    for (side, end) in [(&mut pair.client, client), (&mut pair.server, server)] {
        let found = read(&end.sink);
        let differences = differences(&found, &end.expected);
        assert!(found == end.expected, "written memory: {differences}");
        let key: Key = end.exposures[1].key;
        let revoked = side.provider.revoke(end.here, key);
        assert!(!matches!(revoked, Revoked::Unknown));
    }
}

/// Ends with work under way: each request is reported once, and pools are empty after it.
fn tear_down<P: Provider>(mut pair: Pair<P>, ends: [End; 2], in_order: bool, keeps_receives: bool) {
    let (here, there) = (pair.here, pair.there);
    for token in 0..10 {
        let message = local([pair.client.pattern(3000, 1)]);
        let request = super::request(token, SEND, message);
        pair.client.post(here, vec![request]);
    }
    if in_order {
        pair.client.provider.close(here);
    } else {
        pair.client.provider.abort(here);
    }
    pair.until(|pair| {
        let over = |side: &Side<P>| {
            side.events
                .iter()
                .any(|event| matches!(event, Event::Disconnected { .. }))
        };
        (over(&pair.client) && over(&pair.server)).then_some(())
    });
    let completed: Vec<bool> = pair
        .client
        .events
        .iter()
        .filter_map(|event| super::completed(event).map(|(_, good)| good))
        .collect();
    assert_eq!(completed, vec![in_order; 10]);
    let reason = pair.client.events.iter().find_map(|event| match event {
        Event::Disconnected { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason, Some(Ended::Local));
    let arrived = |event: &&Event| matches!(event, Event::Received { .. });
    let messages = pair.server.events.iter().filter(arrived).count();
    assert_eq!(messages, if in_order { 10 } else { 0 });
    drop(ends);
    let Pair { client, server, .. } = pair;
    for side in [client, server] {
        assert_eq!(side.provider.send_room(here), 0);
        assert_eq!(side.provider.send_room(there), 0);
        let pool = side.into_pool(keeps_receives);
        assert_eq!(pool.gauges().in_use(), 0, "all memory came home");
    }
}
