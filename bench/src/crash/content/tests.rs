//! Bytes that may be found, and bytes that may not.

use super::*;

const ONE: WriteVerifier = [1; 8];
const TWO: WriteVerifier = [2; 8];

/// A file of 100 bytes, durably of write 1, then 20..40 unstably of write 2, and 30..50 in
/// flight of write 3.
fn file() -> Content {
    let mut content = Content::default();
    content.begin(0, 100, 1);
    content.end((0, 100), 1, Stability::FileSync, ONE, 1);
    content.begin(20, 20, 2);
    content.end((20, 20), 2, Stability::Unstable, ONE, 2);
    content.begin(30, 20, 3);
    content
}

fn held(parts: &[(u64, u64, Stamp)]) -> Vec<u8> {
    let mut held = Vec::new();
    for &(start, end, stamp) in parts {
        let mut part = vec![0; (end - start) as usize];
        bytes(stamp, start, &mut part);
        held.extend(part);
    }
    held
}

#[test]
fn any_mix_of_what_may_be_there_passes() {
    let content = file();
    for parts in [
        &[(0, 100, 1)][..],
        &[(0, 20, 1), (20, 40, 2), (40, 100, 1)],
        &[(0, 20, 1), (20, 30, 2), (30, 50, 3), (50, 100, 1)],
        &[
            (0, 25, 1),
            (25, 30, 2),
            (30, 35, 3),
            (35, 38, 2),
            (38, 45, 1),
            (45, 50, 3),
            (50, 100, 1),
        ],
    ] {
        let held = held(parts);
        content
            .check(Kept::Verifier(TWO), 0, &held, 3)
            .expect("legal");
    }
}

#[test]
fn durable_bytes_must_be_there() {
    let content = file();
    let wrong = content
        .check(
            Kept::Verifier(TWO),
            0,
            &held(&[(0, 60, 1), (60, 100, 0)]),
            3,
        )
        .expect_err("zeros");
    assert_eq!((wrong.offset, wrong.found), (60, Some(0)));
    let wrong = content
        .check(
            Kept::Verifier(TWO),
            0,
            &held(&[(0, 50, 1), (50, 70, 3), (70, 100, 1)]),
            3,
        )
        .expect_err("beyond write 3");
    assert!(wrong.offset < 52, "{wrong}");
    assert_eq!(wrong.found, Some(3));
}

#[test]
fn unstable_bytes_must_be_there_while_the_verifier_stays() {
    let content = file();
    let old = held(&[(0, 100, 1)]);
    for kept in [Kept::All, Kept::Verifier(ONE)] {
        let wrong = content
            .check(kept, 0, &old, 3)
            .expect_err("write 2 is lost");
        assert!((20..23).contains(&wrong.offset), "{wrong}");
    }
    content
        .check(Kept::Verifier(TWO), 0, &old, 3)
        .expect("may be lost");
}

#[test]
fn a_commit_covers_what_was_answered_before_it() {
    let mut content = file();
    content.commit(0, u64::MAX, ONE, 1);
    content
        .check(Kept::Verifier(TWO), 0, &held(&[(0, 100, 1)]), 3)
        .expect("sent too early");
    content.commit(0, u64::MAX, TWO, 2);
    content
        .check(Kept::Verifier(TWO), 0, &held(&[(0, 100, 1)]), 3)
        .expect("another verifier");
    content.commit(0, u64::MAX, ONE, 2);
    content
        .check(Kept::Verifier(TWO), 0, &held(&[(0, 100, 1)]), 3)
        .expect_err("it is durable now");
    let late = held(&[(0, 20, 1), (20, 40, 2), (40, 45, 3), (45, 100, 1)]);
    content
        .check(Kept::Verifier(TWO), 0, &late, 3)
        .expect("write 3 is in flight");
}

#[test]
fn sizes_follow_writes_and_truncation() {
    let mut content = file();
    assert_eq!(content.sizes(Kept::Verifier(TWO)), 100..=100);
    content.begin(200, 50, 4);
    assert_eq!(content.sizes(Kept::All), 100..=250);
    content.end((200, 50), 4, Stability::Unstable, ONE, 9);
    assert_eq!(content.sizes(Kept::All), 250..=250);
    assert_eq!(content.sizes(Kept::Verifier(TWO)), 100..=250);
    content.commit(0, u64::MAX, ONE, 9);
    assert_eq!(content.sizes(Kept::Verifier(TWO)), 250..=250);
    content.resize(10);
    assert_eq!(content.sizes(Kept::Verifier(TWO)), 10..=10);
    content
        .check(Kept::All, 10, &[0; 300], 4)
        .expect("zeros behind the end");
}

#[test]
fn what_is_not_settled_is_told() {
    let mut content = file();
    assert_eq!(content.unsettled(ONE), [(30, 50)]);
    assert_eq!(content.unsettled(TWO), [(20, 50)]);
    assert!(content.is_busy(45, 10) && !content.is_busy(50, 10) && !content.is_busy(0, 30));
    content.begin(20, 30, 5);
    content.end((20, 30), 5, Stability::FileSync, TWO, 3);
    assert!(content.unsettled(TWO).is_empty());
    content
        .check(Kept::Verifier(TWO), 20, &held(&[(20, 50, 5)]), 5)
        .expect("written again");
}
