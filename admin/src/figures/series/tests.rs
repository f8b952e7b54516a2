use std::time::{Instant, SystemTime};

use millrace_primitives::Histogram;

use super::super::{FigureHistory, ItemSamples, ServiceTotals};
use super::*;
use crate::status::FiguresPoint;

fn totals(requests: u64) -> CallTotals {
    CallTotals {
        requests,
        errors: requests / 10,
        bytes_read: requests * 100,
        bytes_written: requests * 7,
    }
}

/// Items by number, with the calls that they have made.
fn samples(items: &[(u8, u64)]) -> Vec<ItemSample<u8>> {
    let sample = |&(key, requests): &(u8, u64)| ItemSample {
        key,
        totals: totals(requests),
        latencies: None,
    };
    items.iter().map(sample).collect()
}

/// The calls of each interval of an item, by the interval's number.
fn calls(table: &SeriesTable<u8>, key: u8) -> Vec<(u32, u32)> {
    let points = table.of(&key, 0).into_iter();
    points.map(|point| (point.tick, point.requests)).collect()
}

#[test]
fn intervals_have_differences_and_those_without_calls_take_no_place() {
    let mut table = SeriesTable::new(4, false);
    table.begin(samples(&[(1, 1000)]));
    table.note(0, samples(&[(1, 1030)]));
    table.note(1, samples(&[(1, 1030)]));
    table.note(2, samples(&[(1, 1050), (2, 500)]));
    table.note(3, samples(&[(1, 1050), (2, 504)]));
    assert_eq!(calls(&table, 1), [(0, 30), (1, 0), (2, 20), (3, 0)]);
    assert_eq!(table.series[&1].points.len(), 2);
    // What it did before it was seen is not of its first interval.
    assert_eq!(calls(&table, 2), [(2, 0), (3, 4)]);
    let [_, second] = table.of(&2, 0)[..] else {
        panic!("two intervals");
    };
    assert_eq!((second.errors, second.bytes_read), (0, 400));
    assert_eq!(table.of(&1, 2).len(), 2);
    assert_eq!(table.of(&3, 0), []);
}

#[test]
fn an_item_that_counts_from_zero_is_known_from_its_first_call_on() {
    let mut table = SeriesTable::new(4, true);
    table.begin(samples(&[(1, 1000)]));
    table.note(0, samples(&[(1, 1000), (2, 50)]));
    // It left, and came back with new counts.
    table.note(1, samples(&[(2, 20)]));
    table.note(2, samples(&[(1, 5), (2, 20)]));
    assert_eq!(calls(&table, 1), [(0, 0), (1, 0), (2, 5)]);
    assert_eq!(calls(&table, 2), [(0, 50), (1, 20), (2, 0)]);
}

#[test]
fn the_busiest_have_a_history_and_one_that_left_keeps_it_until_its_place_is_needed() {
    let mut table = SeriesTable::new(2, true);
    table.begin(Vec::new());
    let kept = ticks(KEPT_FOR);
    let has = |table: &SeriesTable<u8>| [1, 2, 3].map(|key| table.series.contains_key(&key));
    let mut done = [0, 0, 0];
    let mut step = |table: &mut SeriesTable<u8>, tick: u32, calls: [u64; 3], there: [bool; 3]| {
        let mut items = Vec::new();
        for (at, calls) in calls.into_iter().enumerate() {
            done[at] += calls;
            if there[at] {
                items.push((at as u8 + 1, done[at]));
            }
        }
        table.note(tick, samples(&items));
    };
    let all = [true; 3];
    step(&mut table, 0, [100, 90, 80], all);
    assert_eq!(has(&table), [true, true, false]);
    // A new one that is slightly busier waits, as does a far busier one for the shortest time.
    for tick in 1..kept {
        step(&mut table, tick, [100, 90, 110], all);
    }
    step(&mut table, kept, [100, 90, 110], all);
    assert_eq!(has(&table), [true, true, false]);
    for tick in kept + 1..kept + 8 {
        step(&mut table, tick, [100, 10, 300], all);
    }
    assert_eq!(has(&table), [true, false, true]);
    let left = kept + 24;
    for tick in kept + 8..left {
        step(&mut table, tick, [100, 0, 300], all);
    }
    // The first one leaves. An idle one does not need its place.
    for tick in left..left + 16 {
        step(&mut table, tick, [0, 0, 300], [false, true, true]);
    }
    assert_eq!(has(&table), [true, false, true]);
    assert_eq!(calls(&table, 1).last(), Some(&(left - 1, 100)));
    step(&mut table, left + 16, [0, 1, 300], [false, true, true]);
    step(&mut table, left + 17, [0, 1, 300], [false, true, true]);
    step(&mut table, left + 18, [0, 1, 300], [false, true, true]);
    assert_eq!(has(&table), [false, true, true]);
}

#[test]
fn nothing_is_kept_for_longer_than_an_hour() {
    let mut table = SeriesTable::new(2, true);
    table.begin(Vec::new());
    let most = POINTS as u32;
    for tick in 0..most + 100 {
        let mut items = vec![(1, u64::from(tick) + 1)];
        if tick < 50 {
            items.push((2, 7));
        }
        table.note(tick, samples(&items));
        assert!(table.series[&1].points.capacity() <= POINTS);
        // It left in the interval 49.
        assert_eq!(table.series.contains_key(&2), tick < most + 49, "{tick}");
    }
    assert_eq!(calls(&table, 1).len(), POINTS);
    assert_eq!(calls(&table, 1)[0], (100, 1));
}

#[test]
fn latencies_are_kept_exactly() {
    let histogram = Histogram::default();
    let mut all = Vec::new();
    // Every bound of the histogram is a quantile of something.
    for bits in 3..36 {
        for part in 0..4_u64 {
            let single = Histogram::default();
            single.observe(((4 + part) << bits) >> 2);
            all.push(single.snapshot());
        }
    }
    histogram.observe(u64::MAX);
    all.push(histogram.snapshot());
    for read in all {
        let now = CallLatencies {
            read: read.clone(),
            ..CallLatencies::default()
        };
        let point = ItemPoint::new(0, &totals(1), now.since(None));
        assert_eq!(point.latencies(), [Latency::of(&read), None, None]);
        assert_eq!(now.since(Some(&now)), [[0.0; 4]; 3]);
    }
}

#[test]
fn figures_of_items_have_the_times_of_the_service() {
    let (history, start) = (FigureHistory::default(), Instant::now());
    let address = "192.0.2.1".parse().unwrap();
    let note = |number: u32| {
        let time = INTERVAL * number;
        let requests = u64::from(number) * 50;
        let samples = ItemSamples {
            exports: vec![ItemSample {
                key: "/scratch".to_owned(),
                totals: totals(requests),
                latencies: Some(Box::default()),
            }],
            clients: vec![ItemSample {
                key: address,
                totals: totals(requests / 5),
                latencies: None,
            }],
        };
        let time = (start + time, SystemTime::UNIX_EPOCH + time);
        history.note(time.0, time.1, ServiceTotals::default(), samples);
    };
    (0..=POINTS as u32 + 10).for_each(note);
    let points = history.of_export("/scratch", 0);
    let all = history.after(0);
    assert_eq!(points.len(), POINTS);
    for (of_item, of_all) in points.iter().zip(&all) {
        let expected = FiguresPoint {
            requests: 10.0,
            errors: 1.0,
            bytes_read: 1000.0,
            bytes_written: 70.0,
            ..of_all.clone()
        };
        assert_eq!(of_item, &expected);
    }
    let latest = all[POINTS - 1].unix_milliseconds;
    assert_eq!(
        history.of_export("/scratch", latest - 5000),
        points[POINTS - 1..]
    );
    assert_eq!(history.of_export("/scratch", latest), []);
    assert_eq!(history.of_client(address, 0)[0].requests, 2.0);
    assert_eq!(history.of_export("/other", 0), []);
}
