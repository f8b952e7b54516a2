//! Callbacks that cannot be sent now.

use super::lasting_delegations::make_callable;
use super::*;

/// A client that can be called and has a callback waiting.
fn called(bed: &mut TestBed) -> TestClient {
    let client = bed.client(b"client");
    make_callable(bed, &client);
    call(bed, &client, b"first");
    client
}

fn call(bed: &mut TestBed, client: &TestClient, owner: &[u8]) {
    let now = bed.now;
    bed.home.notify_lock(client.id, file(1), owner.into(), now);
}

fn owner(order: &CallbackOrder) -> &[u8] {
    match &order.subject {
        CallbackSubject::LockAvailable { owner, .. } => owner,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_callback_without_a_credential_leaves_its_slot_to_others_and_is_given_up() {
    let mut bed = TestBed::new();
    let client = called(&mut bed);
    let order = bed.home.take_callback(bed.now).unwrap();
    bed.home
        .callback_ended(order.ticket, CallbackOutcome::NoCredential, bed.now);
    call(&mut bed, &client, b"second");
    let second = bed.home.take_callback(bed.now).unwrap();
    assert_eq!(owner(&second), b"second");
    assert_eq!(
        (second.slot, second.sequence),
        (order.slot, order.sequence),
        "the first one was not sent"
    );
    let taken = CallbackOutcome::Taken {
        answer: CallbackAnswer::Done,
        target_slot: 15,
    };
    bed.home.callback_ended(second.ticket, taken, bed.now);
    let end = bed.now + CALLBACK_TIME;
    let mut tries = 0;
    while let Some(next) = bed.home.next_callback() {
        bed.now = bed.now.max(next);
        let Some(order) = bed.home.take_callback(bed.now) else {
            continue;
        };
        assert!(bed.now <= end);
        assert_eq!(owner(&order), b"first");
        tries += 1;
        bed.home
            .callback_ended(order.ticket, CallbackOutcome::NoCredential, bed.now);
    }
    assert!(tries > 3, "it is tried until then");
}

#[test]
fn a_callback_that_may_have_arrived_keeps_its_slot_without_a_credential() {
    let mut bed = TestBed::new();
    let client = called(&mut bed);
    let first = bed.home.take_callback(bed.now).unwrap();
    let lost = CallbackOutcome::Lost { xid: Some(5) };
    bed.home.callback_ended(first.ticket, lost, bed.now);
    make_callable(&mut bed, &client);
    let again = bed.home.take_callback(bed.now).unwrap();
    assert_eq!((again.slot, again.repeats), (first.slot, Some(5)));
    bed.home
        .callback_ended(again.ticket, CallbackOutcome::NoCredential, bed.now);
    call(&mut bed, &client, b"second");
    let second = bed.home.take_callback(bed.now).unwrap();
    assert_ne!(second.slot, first.slot);
    bed.now += CALLBACK_TIME + CALLBACK_TIME;
    let again = bed.home.take_callback(bed.now).unwrap();
    assert_eq!((again.slot, again.repeats), (first.slot, Some(5)));
    assert_eq!(owner(&again), b"first");
}
