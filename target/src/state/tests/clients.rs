//! Client records (RFC 8881 section 18.35.4).

use super::*;

/// EXCHANGE_ID by another principal.
fn exchange_as_other(bed: &mut TestBed, verifier: u8) -> Result<ExchangeOutcome, StateError> {
    bed.exchange_by(b"a", verifier, &caller(b"uid 2000"), false)
}

fn update(
    bed: &mut TestBed,
    verifier: u8,
    principal: &[u8],
) -> Result<ExchangeOutcome, StateError> {
    bed.exchange_by(b"a", verifier, &caller(principal), true)
}

#[test]
fn v4_sess_01_a_new_owner_gets_an_unconfirmed_client_id() {
    let mut bed = TestBed::new();
    let one = bed.exchange(b"a", 1).unwrap();
    assert_eq!((one.confirmed, one.sequence_id), (false, 1));
    let other = bed.exchange(b"b", 1).unwrap();
    assert_ne!(one.client_id, other.client_id);
}

#[test]
fn v4_sess_02_a_repeated_exchange_returns_the_confirmed_record() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    for _ in 0..2 {
        let again = bed.exchange(b"a", 1).unwrap();
        assert_eq!(again.client_id, client.id);
        assert!(again.confirmed);
        assert_eq!(again.sequence_id, 2, "of the next CREATE_SESSION");
    }
    assert!(bed.find(client.session.id()).is_ok());
}

#[test]
fn v4_sess_03_another_principal_meets_a_client_with_state() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    assert_eq!(exchange_as_other(&mut bed, 1), Err(StateError::ClidInuse));
    assert_eq!(exchange_as_other(&mut bed, 2), Err(StateError::ClidInuse));
    assert!(bed.io(&client, file(1), open, IoKind::Read).is_ok());
    assert!(bed.exchange(b"a", 1).unwrap().confirmed, "nothing changed");
}

#[test]
fn v4_sess_03_another_principal_replaces_a_client_without_state() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let other = exchange_as_other(&mut bed, 1).unwrap();
    assert!(!other.confirmed && other.client_id != client.id);
    let found = bed.find(client.session.id());
    assert_eq!(found.err(), Some(StateError::BadSession));
    assert_eq!(bed.create(client.id, 2), Err(StateError::StaleClientid));
}

#[test]
fn v4_sess_03_another_principal_replaces_a_client_whose_lease_ran_out() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(1));
    bed.pass(LEASE);
    assert_eq!(exchange_as_other(&mut bed, 1), Err(StateError::ClidInuse));
    bed.pass(Duration::from_nanos(1));
    assert!(exchange_as_other(&mut bed, 1).is_ok());
    assert_eq!(bed.home.client_count(), 1);
}

#[test]
fn v4_sess_04_an_unconfirmed_record_is_replaced_whoever_asks() {
    let mut bed = TestBed::new();
    let mut seen = vec![bed.exchange(b"a", 1).unwrap().client_id];
    seen.push(bed.exchange(b"a", 1).unwrap().client_id);
    seen.push(bed.exchange(b"a", 2).unwrap().client_id);
    seen.push(exchange_as_other(&mut bed, 2).unwrap().client_id);
    let last = seen.pop().unwrap();
    for old in seen {
        assert_ne!(old, last);
        assert_eq!(bed.create(old, 1), Err(StateError::StaleClientid));
    }
    assert_eq!(bed.home.client_count(), 1);
}

#[test]
fn v4_sess_05_a_new_verifier_keeps_the_old_until_confirmed() {
    let mut bed = TestBed::new();
    let old = bed.client(b"a");
    let open = bed.open_both(&old, b"o", file(1));
    let new = bed.exchange(b"a", 2).unwrap();
    assert!(!new.confirmed && new.client_id != old.id);
    assert!(bed.find(old.session.id()).is_ok());
    assert!(bed.io(&old, file(1), open, IoKind::Write).is_ok());
    let again = bed.exchange(b"a", 1).unwrap();
    assert_eq!((again.client_id, again.confirmed), (old.id, true));

    let grant = bed.create(new.client_id, new.sequence_id).unwrap();
    assert!(bed.find(grant.session).is_ok());
    let found = bed.find(old.session.id());
    assert_eq!(found.err(), Some(StateError::BadSession));
    let fingerprint = RequestFingerprint::default();
    let begun = old.session.begin(0, 1, fingerprint);
    assert_eq!(begun.err(), Some(StateError::BadSession), "still in hand");
    assert_eq!(bed.create(old.id, 2), Err(StateError::StaleClientid));
    assert_eq!(bed.home.client_count(), 1);
    let other = bed.client(b"b");
    let all = ShareMode::BOTH;
    assert!(bed.open(&other, b"o", file(1), all, all).is_ok());
}

#[test]
fn v4_sess_06_a_further_exchange_replaces_only_the_unconfirmed_record() {
    let mut bed = TestBed::new();
    let old = bed.confirmed(b"a");
    let second = bed.exchange(b"a", 2).unwrap();
    let third = bed.exchange(b"a", 3).unwrap();
    assert_eq!(
        bed.create(second.client_id, second.sequence_id),
        Err(StateError::StaleClientid)
    );
    assert!(bed.find(old.session.id()).is_ok());
    assert!(bed.create(third.client_id, third.sequence_id).is_ok());
    assert!(bed.find(old.session.id()).is_err());
}

#[test]
fn v4_sess_07_an_update_of_a_confirmed_record_is_allowed() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let updated = update(&mut bed, 1, PRINCIPAL).unwrap();
    assert_eq!((updated.client_id, updated.confirmed), (client.id, true));
}

#[test]
fn v4_sess_08_an_update_needs_a_confirmed_record() {
    let mut bed = TestBed::new();
    assert_eq!(update(&mut bed, 1, PRINCIPAL), Err(StateError::NoEnt));
    let unconfirmed = bed.exchange(b"a", 1).unwrap();
    for (verifier, principal) in [(1, PRINCIPAL), (2, PRINCIPAL), (1, b"x"), (2, b"x")] {
        assert_eq!(
            update(&mut bed, verifier, principal),
            Err(StateError::NoEnt)
        );
    }
    assert!(bed.create(unconfirmed.client_id, 1).is_ok(), "untouched");
}

#[test]
fn v4_sess_09_an_update_with_another_verifier_is_not_the_same() {
    let mut bed = TestBed::new();
    bed.confirmed(b"a");
    for principal in [PRINCIPAL, b"x"] {
        assert_eq!(update(&mut bed, 2, principal), Err(StateError::NotSame));
    }
    assert!(bed.exchange(b"a", 1).unwrap().confirmed);
}

#[test]
fn v4_sess_10_an_update_by_another_principal_is_not_permitted() {
    let mut bed = TestBed::new();
    bed.confirmed(b"a");
    assert_eq!(update(&mut bed, 1, b"x"), Err(StateError::Perm));
    assert!(bed.exchange(b"a", 1).unwrap().confirmed);
}

#[test]
fn v4_sess_15_an_unconfirmed_record_dies_after_a_lease() {
    let mut bed = TestBed::new();
    let one = bed.exchange(b"a", 1).unwrap();
    let other = bed.exchange(b"b", 1).unwrap();
    bed.pass(LEASE);
    assert!(bed.create(one.client_id, 1).is_ok());
    bed.pass(Duration::from_nanos(1));
    assert_eq!(
        bed.create(other.client_id, 1),
        Err(StateError::StaleClientid)
    );
    bed.exchange(b"c", 1).unwrap();
    assert_eq!(bed.home.client_count(), 2);
    bed.pass(LEASE + Duration::from_nanos(1));
    let now = bed.now;
    bed.home.expire_clients(now);
    assert_eq!(bed.home.client_count(), 1, "the confirmed one");
}

#[test]
fn v4_sess_16_owners_are_compared_byte_for_byte() {
    let mut bed = TestBed::new();
    let owners: [&[u8]; 4] = [b"", b"\0", b"a", b"a\0"];
    let ids = owners.map(|owner| bed.confirmed(owner).id);
    for (owner, id) in owners.iter().zip(ids) {
        assert_eq!(bed.exchange(owner, 1).unwrap().client_id, id);
    }
    let long = [7; 1024];
    let mut bed = TestBed::new();
    let id = bed.confirmed(&long).id;
    assert_eq!(bed.exchange(&long, 1).unwrap().client_id, id);
    assert_ne!(bed.exchange(&long[1..], 1).unwrap().client_id, id);
}

#[test]
fn v4_sess_19_client_ids_begin_with_a_random_value_of_the_start() {
    let id = |start| {
        let mut bed = TestBed::with(StateConfig {
            start,
            ..small_config()
        });
        bed.exchange(b"a", 1).unwrap().client_id
    };
    let starts = (0..1000_u32).map(|start| {
        let mut bytes = [0; 16];
        bytes[12..].copy_from_slice(&start.wrapping_mul(2_654_435_761).to_be_bytes());
        bytes
    });
    let ids: std::collections::HashSet<ClientId> = starts.map(id).collect();
    assert_eq!(ids.len(), 1000);
}

#[test]
fn v4_sess_66_a_client_with_sessions_or_state_is_busy() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let now = bed.now;
    let busy = Err(StateError::ClientidBusy);
    assert_eq!(bed.home.destroy_client(client.id, now), busy);
    let open = bed.open_both(&client, b"o", file(1));
    let session = client.session.id();
    bed.home.destroy_session(session, None, now).unwrap();
    assert_eq!(bed.home.destroy_client(client.id, now), busy);
    bed.home.close(client.id, &file(1), &open, now).unwrap();
    assert_eq!(bed.home.destroy_client(client.id, now), Ok(()));
    let stale = Err(StateError::StaleClientid);
    assert_eq!(bed.home.destroy_client(client.id, now), stale);
    let unconfirmed = bed.exchange(b"b", 1).unwrap().client_id;
    assert_eq!(bed.home.destroy_client(unconfirmed, now), Ok(()));
}

#[test]
fn v4_sess_67_a_destroyed_client_begins_anew() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let now = bed.now;
    let session = client.session.id();
    bed.home.destroy_session(session, None, now).unwrap();
    bed.home.destroy_client(client.id, now).unwrap();
    let again = bed.exchange(b"a", 1).unwrap();
    assert!(!again.confirmed && again.client_id != client.id);
}

#[test]
fn v4_lease_17_opens_and_locks_wait_for_the_clients_reclaim_complete() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let (read, none) = (ShareMode::READ, ShareMode::NONE);
    let refused = bed.open(&client, b"o", file(1), read, none);
    assert_eq!(refused, Err(StateError::Grace));
    bed.home.reclaim_complete(client.id, bed.now).unwrap();
    assert!(bed.open(&client, b"o", file(1), read, none).is_ok());
}

#[test]
fn v4_lease_19_reclaims_are_completed_once() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    assert_eq!(
        bed.home.reclaim_complete(client.id, bed.now),
        Err(StateError::CompleteAlready)
    );
}
