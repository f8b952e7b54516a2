//! Exposures: the peer's access, and its begin and end.

use std::collections::HashSet;
use std::time::Instant;

use millrace_mempool::{Class, Slice};

use super::super::devices::Devices;
use super::super::reaper::{Notice, Reaper};
use super::super::report::Transport;
use super::super::sys::{CompletionKind, SendKind, Status};
use super::{Pair, RECEIVE, RESOLVE_TIMEOUT, WAYS, has_device, memory};
use crate::fabric::{Access, ExposeError, Exposure};

fn bytes(slice: &Slice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len()];
    slice.copy_to(0, &mut bytes);
    bytes
}

/// Waits until a slice contains only this byte. A Write over iWARP completes when the local TCP has
/// its data, which may be before the peer has placed it (RFC 5040 section 5.5).
fn until_filled(slice: &Slice, byte: u8) {
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    while bytes(slice) != vec![byte; slice.len()] {
        assert!(Instant::now() < deadline, "not all bytes are {byte:#x}");
        std::thread::yield_now();
    }
}

fn write(exposure: &Exposure, offset: u64) -> SendKind<'static> {
    SendKind::Write {
        key: exposure.key.0,
        address: exposure.offset + offset,
    }
}

fn read(exposure: &Exposure) -> SendKind<'static> {
    SendKind::Read {
        key: exposure.key.0,
        address: exposure.offset,
    }
}

#[test]
fn the_peer_reads_and_writes_what_it_was_given_until_that_is_revoked() {
    if !has_device() {
        return;
    }
    for open in WAYS {
        read_and_write(Pair::new(open));
    }
}

fn read_and_write(mut pair: Pair) {
    let mut last = None;
    let mut seen = HashSet::new();
    const ROUNDS: u8 = 200;
    for round in 0..ROUNDS {
        let ours = memory(&pair.pool, round);
        let theirs = memory(&pair.pool, 0xee);
        let access = if round % 2 == 0 {
            Access::RemoteRead
        } else {
            Access::RemoteWrite
        };
        let exposure = pair.asks.expose(&ours, access);
        assert_eq!(exposure.length as usize, ours.len());
        assert_ne!(Some(exposure.key), last, "a key is not used twice in a row");
        let request = match access {
            Access::RemoteRead => read(&exposure),
            Access::RemoteWrite => write(&exposure, 0),
        };
        assert_eq!(
            pair.serves.carry_out(request, Some(&theirs)),
            Status::Success
        );
        let expected = if access == Access::RemoteRead {
            round
        } else {
            0xee
        };
        until_filled(&ours, expected);
        assert!(bytes(&theirs) == vec![expected; theirs.len()]);
        let revoked = pair.asks.revoke(exposure.key);
        assert_eq!(revoked[0].as_ptr(), ours.as_ptr());
        assert_eq!(pair.asks.exposures.len(), 0);
        last = Some(exposure.key);
        seen.insert(exposure.key);
    }
    let counters = &pair.asks.counters;
    let made = counters.windows_bound.get() + counters.registrations.get();
    assert_eq!(made, u64::from(ROUNDS));
    println!(
        "{}: {} keys of {ROUNDS}, {} windows",
        pair.asks.device.name(),
        seen.len(),
        counters.windows_bound.get()
    );
}

#[test]
fn a_revoked_key_is_dead() {
    if !has_device() {
        return;
    }
    for open in WAYS {
        use_a_dead_key(Pair::new(open));
    }
}

fn use_a_dead_key(mut pair: Pair) {
    let ours = memory(&pair.pool, 1);
    let exposure = pair.asks.expose(&ours, Access::RemoteWrite);
    pair.asks.revoke(exposure.key);
    misuse(pair, &ours, write(&exposure, 0));
}

/// The peer makes a forbidden request: its connection ends, and no byte is moved.
fn misuse(mut pair: Pair, ours: &Slice, request: SendKind<'static>) {
    let good = memory(&pair.pool, 3);
    let allowed = pair.asks.expose(&good, Access::RemoteRead);
    let [theirs, sink] = [2, 4].map(|byte| memory(&pair.pool, byte));
    // If Writes have no answer, as with iWARP, it may succeed on that side.
    let status = pair.serves.carry_out(request, Some(&theirs));
    println!("{}: {status:?}", pair.serves.device.name());
    assert!(pair.serves.is_cut_off(read(&allowed), &sink));
    assert!(bytes(ours) == vec![1; ours.len()], "untouched");
    assert!(bytes(&theirs) == vec![2; theirs.len()], "untouched");
}

#[test]
fn bounds_and_rights_hold() {
    if !has_device() {
        return;
    }
    for (access, is_read, offset) in [
        (Access::RemoteWrite, true, 0),
        (Access::RemoteRead, false, 0),
        (Access::RemoteWrite, false, 1),
    ] {
        println!("{access:?}, read {is_read}, offset {offset}");
        let mut pair = Pair::new(Devices::open);
        if is_read && pair.asks.device.transport() == Transport::Iwarp {
            // siw answers Reads of memory registered for writing only.
            continue;
        }
        let ours = memory(&pair.pool, 1);
        let exposure = pair.asks.expose(&ours, access);
        let request = if is_read {
            read(&exposure)
        } else {
            write(&exposure, offset)
        };
        misuse(pair, &ours, request);
    }
}

#[test]
fn the_peer_ends_an_exposure_with_its_message() {
    if !has_device() {
        return;
    }
    let mut pair = Pair::new(Devices::open_trusting_windows);
    let invalidation = pair.asks.device.invalidation();
    if !(invalidation.sends && invalidation.receives) {
        millrace_testing::skip!("{}: no invalidation", pair.asks.device.name());
        return;
    }
    let ours = memory(&pair.pool, 1);
    let message = memory(&pair.pool, 2);
    let exposure = pair.asks.expose(&ours, Access::RemoteRead);
    let send = SendKind::SendInvalidate(exposure.key.0);
    assert_eq!(pair.serves.carry_out(send, Some(&message)), Status::Success);
    let received = pair.asks.completed(RECEIVE);
    assert_eq!(received.kind, CompletionKind::Receive);
    assert_eq!(received.bytes as usize, message.len());
    assert_eq!(received.invalidated, Some(exposure.key.0));
    assert!(pair.asks.exposures.invalidated_by_peer(exposure.key));
    // No request is needed any more, and the window may be bound again.
    let posted = pair.asks.revoke(exposure.key);
    assert_eq!(posted[0].as_ptr(), ours.as_ptr());
    let again = pair.asks.expose(&ours, Access::RemoteRead);
    assert_ne!(again.key, exposure.key);
    let theirs = memory(&pair.pool, 3);
    let status = pair.serves.carry_out(read(&again), Some(&theirs));
    assert_eq!(status, Status::Success);
    assert!(bytes(&theirs) == bytes(&ours));
}

fn destroyed(reaper: &Reaper) -> u64 {
    let mut scratch = Vec::new();
    loop {
        crate::sleep::until_readable(&[reaper.descriptor()], &mut scratch, None);
        reaper.clear();
        if let Some(Notice::Destroyed(token)) = reaper.notice() {
            return token;
        }
    }
}

#[test]
fn what_is_exposed_at_the_end_goes_before_the_queue_pair() {
    if !has_device() {
        return;
    }
    for open in WAYS {
        end_with_exposures(Pair::new(open));
    }
}

fn end_with_exposures(pair: Pair) {
    let Pair {
        mut asks,
        serves,
        devices,
        pool,
    } = pair;
    let ours: Vec<Slice> = (0..8).map(|byte| memory(&pool, byte)).collect();
    for slice in &ours {
        asks.expose(slice, Access::RemoteWrite);
    }
    let (exposures, windows, keys) = (&mut asks.exposures, &mut asks.windows, &mut asks.keys);
    let local = std::iter::once(ours[0].clone()).collect();
    let refused = exposures.expose(local, Access::RemoteRead, windows, keys);
    assert_eq!(refused.map_err(|(error, _)| error), Err(ExposeError::Full));

    asks.queue_pair.fail().expect("the error state");
    let left = asks.exposures.end();
    assert_eq!(left.memory.len(), ours.len());
    let reaper = devices.reaper(4).expect("a door");
    let remains = (left.handles, asks.queue_pair, asks.id);
    reaper.destroy(Box::new(remains), 7);
    assert_eq!(destroyed(&reaper), 7);
    drop(left.memory);
    let remains = (serves.queue_pair, serves.id);
    reaper.destroy(Box::new(remains), 8);
    assert_eq!(destroyed(&reaper), 8);
}

#[test]
fn reads_of_any_length_bring_what_is_there() {
    if !has_device() {
        return;
    }
    const LENGTH: usize = 200_000;
    let mut pair = Pair::new(Devices::open);
    let whole = pair.pool.try_acquire(Class::Large).expect("memory");
    let ours = whole.into_slice(0..LENGTH);
    let content: Vec<u8> = (0..LENGTH).map(|at| (at * 31 + (at >> 8)) as u8).collect();
    ours.copy_from(0, &content);
    let exposure = pair.asks.expose(&ours, Access::RemoteRead);
    let sinks: Vec<Slice> = (0..3)
        .map(|_| pair.pool.try_acquire(Class::Large).expect("memory"))
        .map(|buffer| buffer.into_slice(0..LENGTH))
        .collect();
    let mut random = 7_u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..300 {
        // One after another, and several at once.
        let reads: Vec<_> = sinks[..1 + round % sinks.len()]
            .iter()
            .map(|sink| {
                // siw answers Reads of up to 32 bytes that cross pages wrongly.
                let most = [0, 200, 5_000, 90_000][below(4)];
                let length = if most == 0 { 1 } else { 33 + below(most) };
                let (from, to) = (below(LENGTH - length), below(LENGTH - length));
                sink.fill_zero(0..LENGTH);
                (length, from, sink.slice(to..to + length))
            })
            .collect();
        for (_, from, part) in &reads {
            let request = SendKind::Read {
                key: exposure.key.0,
                address: exposure.offset + *from as u64,
            };
            pair.serves.begin(request, part);
        }
        pair.serves.finish(reads.len());
        for (length, from, part) in reads {
            let (found, expected) = (bytes(&part), &content[from..from + length]);
            let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "round {round}: {length} bytes from {from}");
        }
    }
}
